"""The `mingora` command: reads arguments, runs one command, ends with the exit codes of CLI-12.

0 ok, 1 error, 2 usage, 3 not logged in or not allowed, 4 not found, 5 key conflict, 6 quota or rate, 7 outcome
unknown, 100 job failed, 101 unfinished, 103 cancelled, 124 wait timed out, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn, TextIO

from mingora import __version__
from mingora.api_texts import login_hint, people_text
from mingora.commands import COMMANDS
from mingora.commands.context import Context
from mingora.errors import ApiError, MingoraError
from mingora.i18n import _, translate_argparse
from mingora.output import Output, harmless, size_text

INTERRUPTED = 130


def run() -> NoReturn:
    """The entry point: never returns."""
    translate_argparse()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_stdout()
        code = 1
    except KeyboardInterrupt:  # before or after a command ran
        code = INTERRUPTED
    sys.exit(code)


def main(argv: Sequence[str], *, stdout: TextIO | None = None, stderr: TextIO | None = None) -> int:
    """Runs one command and returns its exit code. Raises SystemExit for usage errors and `--help`."""
    args = parser().parse_args(argv)
    out = Output(as_json=args.json, stdout=stdout, stderr=stderr)
    context = Context(out)
    try:
        return int(args.run(args, context))
    except KeyboardInterrupt:
        out.note(context.interrupted or _("Interrupted."))
        return INTERRUPTED
    except BrokenPipeError:
        _drop_stdout()
        return 1
    except MingoraError as error:
        _report(error, out)
        return error.exit_code
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _report(MingoraError(f"{where}{error.strerror or error}"), out)
        return 1
    finally:
        context.close()


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help=_("print JSON objects for programs")
    )
    result = argparse.ArgumentParser(
        prog="mingora",
        description=_("Submit research jobs to your own machines and fetch verified results."),
        epilog=_("Start with: mingora login, mingora init DIR, mingora submit DIR --wait"),
    )
    version = f"mingora {__version__}"
    result.add_argument("--version", action="version", version=version, help=_("show the version and exit"))
    result.add_argument("--json", action="store_true", help=_("print JSON objects for programs"))
    commands = result.add_subparsers(title=_("commands"), metavar=_("COMMAND"), required=True)
    for command in COMMANDS:
        command.add_to(commands, shared)
    return result


def _report(error: MingoraError, out: Output) -> None:
    hint = error.hint or _api_hint(error)
    if out.as_json:
        code = error.code if isinstance(error, ApiError) else type(error).__name__
        fields = error.fields if isinstance(error, ApiError) else {}
        data = {"code": code, "message": error.message, "hint": hint, "exitCode": error.exit_code, "fields": fields}
        out.emit({"error": data}, "")
        return
    out.error(people_text(error), hint)
    if isinstance(error, ApiError):
        for problem in error.fields.get("problems", [])[:20]:
            out.note(f"  {problem.get('path')}: {problem.get('message')}")
        if error.status >= 500 and error.request_id:
            out.note(_("The request's number, for the operator: {id}").format(id=harmless(error.request_id)))


def _api_hint(error: MingoraError) -> str | None:
    """What a person can do about an error answer."""
    if not isinstance(error, ApiError):
        return None
    fields = error.fields
    if error.code == "quota_exceeded":
        text = _("The limit {limit} is {allowed}; {used} are used. Old jobs are deleted with: mingora rm ID")
        show = size_text if fields.get("limit") == "maxBytes" else str
        return text.format(limit=fields.get("limit"), allowed=show(fields["allowed"]), used=show(fields["used"]))
    if error.status in {429, 503} and error.retry_after:  # of the platform, or of a gateway in front of it
        return _("Try again in {seconds} s.").format(seconds=round(error.retry_after))
    hints = {
        "invalid_token": login_hint(),
        "key_conflict": _("Use a new key for other content; the key's job is {job}.").format(job=fields.get("jobId")),
        "insufficient_scope": _("The token lacks the right {scope}.").format(scope=fields.get("required")),
    }
    return hints.get(error.code)


def _drop_stdout() -> None:
    """Sends what is left in stdout's buffer nowhere: its reader has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
