"""What POST /sonuc refuses, asked with what can harm a live round least.

Every body is empty, unreadable, or a file without tensors; and every one that can be read is for a round that isn't, or
for none. A coordinator that accepts one nevertheless may have it in its round: the report says so, and the test stops.
"""

from __future__ import annotations

from mingora_coordinator.conformance.rules import Checks, Level, Skipped, expect
from mingora_coordinator.conformance.session import NO_TENSORS, Session

check = Checks()
SONUC, GUIDE = "POST /sonuc", "Guide, step 4"
UNREADABLE = b"this is no safetensors file"
# Unpickling it makes an empty dict: harmless where it is done, and never done by one who keeps to the rule.
PICKLE = b"\x80\x02}q\x00."
TOO_LARGE = 1 << 40  # bytes: no adapter's size


@check("sonuc.empty", Level.MANDATORY, GUIDE, "An empty body is answered 413")
def empty(session: Session) -> None:
    _refused(session, 413, b"", isci=session.observer, tur=session.stale)


@check(
    "sonuc.too-large", Level.MANDATORY, GUIDE, "A body that is too large is answered 413, and the worker gets to see it"
)
def too_large(session: Session) -> None:
    parameters = {"isci": session.observer, "tur": session.stale}
    # The coordinator can't wait for a terabyte: it decides on Content-Length, or hangs up.
    answer = session.client.post("/sonuc", parameters, bytes(1 << 16), length=TOO_LARGE)
    session.not_taken(answer, "413")
    expect(answer.status == 413, f"413 to Content-Length: {TOO_LARGE}", answer.shown)


@check("sonuc.unreadable", Level.MANDATORY, GUIDE, "A body that is no safetensors file is answered 400")
def unreadable(session: Session) -> None:
    _refused(session, 400, UNREADABLE, isci=session.observer, tur=session.stale)


@check("sonuc.pickle", Level.MANDATORY, GUIDE, "A pickle is answered 400")
def pickle(session: Session) -> None:
    _refused(session, 400, PICKLE, isci=session.observer, tur=session.stale)


@check("sonuc.isci-missing", Level.MANDATORY, SONUC, "A result without isci is answered 400")
def isci_missing(session: Session) -> None:
    _refused(session, 400, NO_TENSORS, tur=session.stale)


@check("sonuc.tur-missing", Level.RECOMMENDED, SONUC, "A result without tur is answered 400")
def tur_missing(session: Session) -> None:
    _refused(session, 400, NO_TENSORS, isci=session.observer)


@check("sonuc.tur-no-number", Level.RECOMMENDED, SONUC, "A result whose tur is no whole number is answered 400")
def tur_no_number(session: Session) -> None:
    _refused(session, 400, NO_TENSORS, isci=session.observer, tur="bir")


@check("sonuc.stale", Level.MANDATORY, GUIDE, "A result for another round is answered 409")
def stale(session: Session) -> None:
    """A file without tensors: a coordinator that looks at the content first answers 422, against the order."""
    _refused(session, 409, NO_TENSORS, isci=session.observer, tur=session.stale)


@check("sonuc.order-413", Level.MANDATORY, GUIDE, "413 comes before 400: an empty body without isci and tur")
def order_413(session: Session) -> None:
    _refused(session, 413, b"")


@check("sonuc.order-400", Level.MANDATORY, GUIDE, "400 comes before 409: an unreadable body for another round")
def order_400(session: Session) -> None:
    _refused(session, 400, UNREADABLE, isci=session.observer, tur=session.stale)


@check("sonuc.over", Level.MANDATORY, GUIDE, "A result after the end of the training is answered 409")
def over(session: Session) -> None:
    told = session.told("/gorev", isci=session.observer)
    if told.get("bitti") is not True:
        raise Skipped("the training isn't over")
    _refused(session, 409, NO_TENSORS, isci=session.observer, tur=session.told("/durum").get("tur"))


def _refused(session: Session, status: int, body: bytes, **parameters: object) -> None:
    answer = session.post(body, **parameters)
    session.not_taken(answer, str(status))
    expect(answer.status == status, str(status), answer.shown)
