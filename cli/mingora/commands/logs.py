"""logs, events: what a job wrote and what happened to it, once or as it comes."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from mingora.commands.context import Command, Context
from mingora.commands.jobs import job_argument
from mingora.i18n import _

if TYPE_CHECKING:
    from mingora.logs import LogChunk


def number(text: str) -> int:
    """A whole number of an argument that isn't negative."""
    value = int(text)
    if value < 0:
        raise ValueError
    return value


def _logs_arguments(parser: argparse.ArgumentParser) -> None:
    job_argument(parser)
    parser.add_argument("--follow", "-f", action="store_true", help=_("go on until the job is over"))
    parser.add_argument("--rank", type=number, default=0, metavar="N", help=_("which rank's log (default: 0)"))
    parser.add_argument("--attempt", type=number, metavar="N", help=_("which attempt's log (default: the latest)"))
    parser.add_argument("--tail", type=number, metavar=_("BYTES"), help=_("start so many bytes before the end"))


def _logs(args: argparse.Namespace, context: Context) -> int:
    out = context.out
    reader = context.client.log_reader(args.id, rank=args.rank, attempt=args.attempt, tail=args.tail)
    context.interrupted = _("Detached; {job} goes on.").format(job=args.id)
    truncated, attempt = False, 0
    for chunk in reader.follow() if args.follow else reader.chunks():
        if attempt and chunk.attempt != attempt:
            out.note(_("Attempt {number} begins.").format(number=chunk.attempt))
        attempt = chunk.attempt
        if out.as_json:
            out.emit({"log": _chunk(args.id, chunk)}, "")
        else:
            out.raw(chunk.data)
        truncated = chunk.truncated
    if truncated:
        out.note(_("The log reached its limit; what came after is not kept."))
    return 0


def _chunk(job_id: str, chunk: LogChunk) -> dict[str, Any]:
    """Bytes as text where they are UTF-8; `base64` has them exactly in any case."""
    import base64

    return {
        "jobId": job_id,
        "attempt": chunk.attempt,
        "rank": chunk.rank,
        "offset": chunk.offset,
        "text": chunk.data.decode("utf-8", "replace"),
        "base64": base64.b64encode(chunk.data).decode("ascii"),
        "truncated": chunk.truncated,
    }


def _events_arguments(parser: argparse.ArgumentParser) -> None:
    job_argument(parser)
    parser.add_argument("--follow", "-f", action="store_true", help=_("go on until the job is over"))
    parser.add_argument("--after", type=number, default=0, metavar="N", help=_("only events after number N"))


def _events(args: argparse.Namespace, context: Context) -> int:
    from mingora.event_texts import event_text

    context.interrupted = _("Detached; {job} goes on.").format(job=args.id)
    for event in context.client.event_stream(args.id, after=args.after, follow=args.follow):
        context.out.emit({"event": event}, event_text(event))
    return 0


COMMANDS = (
    Command("logs", lambda: _("print a job's log"), _logs, _logs_arguments),
    Command("events", lambda: _("print what happened to a job"), _events, _events_arguments),
)
