"""The commands, a file a command or a small family. Each knows its arguments and what to run (CLI-2)."""

from mingora.commands import completion, doctor, jobs, logs, platform, project, results, session, tokens
from mingora.commands.context import Command

COMMANDS: tuple[Command, ...] = (
    *session.COMMANDS,
    *project.COMMANDS,
    *jobs.COMMANDS,
    *logs.COMMANDS,
    *results.COMMANDS,
    *platform.COMMANDS,
    *tokens.COMMANDS,
    *doctor.COMMANDS,
    *completion.COMMANDS,
)
