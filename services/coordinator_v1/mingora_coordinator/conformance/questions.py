"""The optional POST /soru. The limits are those of the reference coordinator, and nobody has to have them."""

from __future__ import annotations

import json

from mingora_coordinator.conformance.client import Answer
from mingora_coordinator.conformance.rules import Checks, Level, NotOffered, expect
from mingora_coordinator.conformance.session import Session, object_of
from mingora_coordinator.conformance.shapes import is_count

refused = Checks()
asked = Checks()
SORU = "POST /soru"
LONGEST = 2000  # characters
ALLOWED = 5  # questions of an address in 10 minutes


@refused("soru.empty", Level.OPTIONAL, SORU, "A question without text is refused")
def empty(session: Session) -> None:
    answer = _ask(session, "")
    expect(400 <= answer.status < 500, "4xx", answer.shown)


@refused("soru.too-long", Level.OPTIONAL, SORU, f"A question of more than {LONGEST} characters is refused")
def too_long(session: Session) -> None:
    answer = _ask(session, "ı" * (LONGEST + 1))
    expect(400 <= answer.status < 500, "4xx", answer.shown)


@asked("soru.answer", Level.OPTIONAL, SORU, "A question is taken and has a number")
def taken(session: Session) -> None:
    answer = _ask(session, "Uyum testi: bu soruyu yok sayın.")
    if answer.status == 429:
        raise NotOffered("this address has asked as much as it may")
    told = object_of(answer)
    kept = answer.status == 200 and told.get("tamam") is True and is_count(told.get("no"))
    expect(kept, '200 {"tamam": true, "no": a number}', answer.shown)


@asked("soru.rate", Level.OPTIONAL, SORU, f"More than {ALLOWED} questions in 10 minutes are answered 429")
def rate(session: Session) -> None:
    for _ in range(ALLOWED):
        answer = _ask(session, "Uyum testi: bu soruyu yok sayın.")
    expect(answer.status == 429, f"429 to question {ALLOWED + 1}", answer.shown)


def _ask(session: Session, text: str) -> Answer:
    body = {"soru": text, "isci": session.observer, "surum": "1", "baglam": ""}
    answer = session.client.post("/soru", {}, json.dumps(body).encode(), kind="application/json")
    if answer.status in (404, 405, 501):
        raise NotOffered(f"POST /soru: {answer.status}")
    return answer
