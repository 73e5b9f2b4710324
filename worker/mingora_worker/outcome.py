"""How an attempt ends, in the protocol's words."""

from __future__ import annotations

from dataclasses import dataclass

from mingora.errors import ApiError
from mingora_worker.api import Stop
from mingora_worker.runtimes.base import Exit
from mingora_worker.texts import _

STOP_GRACE_SECONDS = 10.0
NO_EXIT = Exit(None, None)


@dataclass
class Outcome:
    """The end of one attempt; `code` is one of the protocol's reasons, None for a success."""

    outcome: str
    code: str | None = None
    message: str = ""
    exit: Exit = NO_EXIT


class Ended(Exception):
    """The attempt is over before or while its process runs."""

    def __init__(self, outcome: Outcome, grace: float = STOP_GRACE_SECONDS) -> None:
        super().__init__(outcome.message)
        self.outcome = outcome
        self.grace = grace


def failed(code: str, message: str, grace: float = STOP_GRACE_SECONDS) -> Ended:
    return Ended(Outcome("failed", code, message), grace)


def by_exit(exit_: Exit) -> Outcome:
    """What the end of the first process means, when nothing else ended it."""
    if exit_.reason is not None:
        return Outcome("failed", exit_.reason.code, exit_.reason.message, exit_)
    if exit_.code == 0:
        return Outcome("succeeded", exit=exit_)
    if exit_.signal is not None:
        text = _("The command was ended by signal {number}.").format(number=exit_.signal)
        return Outcome("failed", "signal", text, exit_)
    text = _("The command ended with exit code {code}.").format(code=exit_.code)
    return Outcome("failed", "exit_code", text, exit_)


def stopped(stop: Stop) -> Ended:
    """What the platform's wish to stop means for the report."""
    if stop.reason == "cancelled":
        return Ended(Outcome("cancelled", "cancelled", _("The job was cancelled.")), stop.grace)
    return failed(stop.reason, _("The platform stopped this rank: {reason}").format(reason=stop.reason), stop.grace)


def refused_upload(error: ApiError) -> Outcome:
    if error.code in {"quota_exceeded", "file_too_large"}:
        advice = _("Remove old jobs (mingora rm), or ask the operator for a higher limit.")
        return Outcome("failed", "quota_exceeded", f"{error.message} {advice}")
    return Outcome("failed", "result_refused", error.message)
