"""download: an ended job's results, verified (CLI-9)."""

from __future__ import annotations

import argparse
import os

from mingora.commands.context import Command, Context
from mingora.commands.jobs import job_argument
from mingora.i18n import _


def _arguments(parser: argparse.ArgumentParser) -> None:
    job_argument(parser)
    parser.add_argument("--output", required=True, metavar=_("DIR"), help=_("the folder to put the files in"))
    parser.add_argument("--force", action="store_true", help=_("overwrite files that differ"))


def _download(args: argparse.Namespace, context: Context) -> int:
    context.interrupted = _("Interrupted; the same command goes on where it was.")
    paths = context.client.results(args.id, args.output, overwrite=args.force, progress=context.out.progress)
    names = [os.fspath(path) for path in paths]
    context.out.emit({"jobId": args.id, "files": names}, "\n".join(names))
    text = _("Files: {count}, every SHA-256 verified.") if names else _("The job has no result files.")
    context.out.note(text.format(count=len(names)))
    return 0


COMMANDS = (Command("download", lambda: _("download a job's results and verify them"), _download, _arguments),)
