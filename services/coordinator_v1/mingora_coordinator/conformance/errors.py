"""The form of errors, looked at last: every error answer that the other checks have seen."""

from __future__ import annotations

from mingora_coordinator.conformance.client import Answer, NotJson
from mingora_coordinator.conformance.rules import Checks, Level, Skipped, expect
from mingora_coordinator.conformance.session import Session

check = Checks()


@check("general.error-body", Level.MANDATORY, "General rules", 'The body of an error is {"hata": a text}')
def error_body(session: Session) -> None:
    if not session.errors:
        raise Skipped("no request was answered with an error")
    for answer in session.errors:
        expect(_has_form(answer), '{"hata": a text}', f"{answer.path}: {answer.shown}")


@check("general.no-5xx", Level.MANDATORY, "General rules", "No request is answered 5xx, but for 503 meanwhile")
def no_5xx(session: Session) -> None:
    for answer in session.errors:
        expect(
            answer.status < 500 or answer.status == 503, "a status below 500, or 503", f"{answer.path}: {answer.shown}"
        )


def _has_form(answer: Answer) -> bool:
    try:
        told = answer.json()
    except NotJson:
        return False
    return isinstance(told, dict) and isinstance(told.get("hata"), str)
