"""Whole rounds with results of the tester's own: what is accepted, what is refused, what is published, the end.

It takes part in the training, so it is for a coordinator that was started to be tested.
"""

from __future__ import annotations

import time

from mingora_coordinator.conformance import reads
from mingora_coordinator.conformance import session as waiting
from mingora_coordinator.conformance.client import Answer, printable
from mingora_coordinator.conformance.results import OTHERS, UNREADABLE, UNREADABLE_BY_THE_STRICT, Adapter, Make
from mingora_coordinator.conformance.rules import Checks, Level, Skipped, Violation, expect
from mingora_coordinator.conformance.session import NO_TENSORS, Published, Sent, Session, object_of
from mingora_coordinator.conformance.shapes import is_names
from mingora_coordinator.domain.header import Header, difference

check = Checks()
SONUC, GOREV, DURUM, GUIDE, ROUND = "POST /sonuc", "GET /gorev", "GET /durum", "Guide, step 4", "Life of a round"
MOST_RESULTS = 32  # that are sent to close a round
MOST_ROUNDS = 5  # that are played to the end


def _add(name: str, status: int, level: Level, what: str, make: Make) -> None:
    @check(name, level, GUIDE, f"{what[0].upper()}{what[1:]} is answered {status}")
    def refused(session: Session) -> None:
        answer, _ = session.submit(make(session.adapter), session.name("red"))
        expect(answer.status == status, str(status), answer.shown)


for _name, _what, _make in UNREADABLE:
    _add(f"sonuc.unreadable.{_name}", 400, Level.MANDATORY, _what, _make)
for _name, _what, _make in UNREADABLE_BY_THE_STRICT:
    _add(f"sonuc.unreadable.{_name}", 400, Level.RECOMMENDED, _what, _make)
for _name, _what, _make in OTHERS:
    _add(f"sonuc.mismatch.{_name}", 422, Level.MANDATORY, _what, _make)


@check("sonuc.future", Level.MANDATORY, GUIDE, "A valid result for the round after is answered 409")
def future(session: Session) -> None:
    name = session.name("red")
    answer = session.post(session.adapter.valid(1), isci=name, tur=session.task(name).round + 1)
    expect(answer.status == 409, "409", answer.shown)


@check("sonuc.tur-negative", Level.MANDATORY, GUIDE, "A valid result for round -1 is answered 400 or 409")
def tur_negative(session: Session) -> None:
    name = session.name("red")
    session.task(name)
    answer = session.post(session.adapter.valid(1), isci=name, tur=-1)
    expect(answer.status in (400, 409), "400 or 409", answer.shown)


@check("sonuc.refused-no-trace", Level.MANDATORY, GUIDE, "What was refused is no result of the round")
def no_trace(session: Session) -> None:
    own = session.names_of("red")
    pending = [name for name in _pending(session) if name.startswith(own)]
    expect(not pending, "no refused worker in bekleyen_sonuc", printable(repr(pending)))


@check("sonuc.accepted", Level.MANDATORY, SONUC, "A valid result is answered tamam: true, and its round")
def accepted(session: Session) -> None:
    name = session.name("ali")
    answer, task = session.submit(session.adapter.valid(1), name)
    _expect_accepted(answer, task.round)
    session.sent = Sent(name, task.round)


@check("gorev.bekle", Level.MANDATORY, GOREV, "A worker whose result the round has is told bekle: true, and the round")
def bekle(session: Session) -> None:
    sent = _waiting(session)
    told = session.told("/gorev", isci=sent.name)
    kept = told.get("bekle") is True and told.get("tur") == sent.round
    _expect_in_round(session, sent, kept, f'{{"bekle": true, "tur": {sent.round}}}', printable(repr(told)))


@check("durum.bekleyen", Level.MANDATORY, DURUM, "bekleyen_sonuc names the worker whose result the round has")
def bekleyen(session: Session) -> None:
    sent = _waiting(session)
    pending = _pending(session)
    _expect_in_round(session, sent, sent.name in pending, f"{sent.name} in bekleyen_sonuc", printable(repr(pending)))


@check("sonuc.repeated", Level.MANDATORY, GUIDE, "A second result of the same worker in the same round is answered 409")
def repeated(session: Session) -> None:
    sent = _sent(session)
    answer = session.post(session.adapter.valid(2), isci=sent.name, tur=sent.round)
    expect(answer.status == 409, "409", answer.shown)


@check("sonuc.order-409", Level.MANDATORY, GUIDE, "409 comes before 422: a second result that is another adapter")
def order_409(session: Session) -> None:
    sent = _waiting(session)
    answer = session.post(NO_TENSORS, isci=sent.name, tur=sent.round)
    expect(answer.status == 409, "409", answer.shown)


@check("gorev.parca-kept", Level.MANDATORY, "Guide, step 2", "A worker keeps its parca when others come")
def parca_kept(session: Session) -> None:
    reads.keeps_task(session, session.name("parca"), session.name("baska"))


@check("gorev.long-name", Level.RECOMMENDED, "General rules", "A nickname of 60 characters is taken, also beyond ASCII")
def long_name(session: Session) -> None:
    name = (session.name("ağ") + "ı" * 60)[:60]
    answer = session.get("/gorev", isci=name)
    expect(answer.status == 200, f"200 to a nickname of {len(name)} characters", answer.shown)


@check("tur.closes", Level.MANDATORY, ROUND, f"A round closes; for this test with at most {MOST_RESULTS} results")
def closes(session: Session) -> None:
    _close(session, _sent(session).round)


@check("tur.published", Level.MANDATORY, "Guide, step 5", "The next round has new weights, whose SHA-256 /gorev names")
def published(session: Session) -> None:
    _closed(session)
    new = _latest(session).file
    expect(new != session.adapter.file, "other weights than in the round before", "the same bytes")
    session.agree(new)


@check("tur.layout", Level.MANDATORY, "Guide, step 5", "The new weights have the same tensors, shapes and dtypes")
def layout(session: Session) -> None:
    _closed(session)
    found = difference(Header(session.adapter.tensors, 0), Header(_latest(session).tensors, 0))
    expect(found is None, "the same tensors", "" if found is None else f"{found[0].value} of {printable(found[1])}")


@check("tur.pending", Level.MANDATORY, DURUM, "The results of the round before are no longer in bekleyen_sonuc")
def pending_emptied(session: Session) -> None:
    sent = _closed(session)
    pending = _pending(session)
    expect(sent.name not in pending, f"{sent.name} not in bekleyen_sonuc", printable(repr(pending)))


@check("tur.ozet", Level.RECOMMENDED, DURUM, "ozet is the beginning of the new weights' SHA-256")
def new_ozet(session: Session) -> None:
    _closed(session)
    reads.durum_ozet(session)


@check("tur.bilgi", Level.RECOMMENDED, "GET /bilgi", "Its round, digest and size are those of the new weights")
def new_information(session: Session) -> None:
    _closed(session)
    reads.describes(session, session.fetch())
    reads.same_as_task(session, "/bilgi", "tur", "toplam_tur")


@check("tur.stale", Level.MANDATORY, GUIDE, "A valid result for the round before is answered 409")
def stale(session: Session) -> None:
    sent = _closed(session)
    answer = session.post(session.adapter.valid(1), isci=session.name("gec"), tur=sent.round)
    expect(answer.status == 409, "409", answer.shown)


@check("tur.next-task", Level.MANDATORY, ROUND, "In the next round the worker gets a task again")
def next_task(session: Session) -> None:
    sent = _closed(session)
    task = session.task(sent.name)
    expect(task.round > sent.round, f"a round after {sent.round}", str(task.round))


@check("sonuc.refused-again", Level.MANDATORY, GUIDE, "A worker whose result was answered 422 may send a valid one")
def refused_again(session: Session) -> None:
    name = session.name("duzelten")
    answer, task = session.submit(session.adapter.without_matrix(), name)
    if answer.status != 422:
        raise Skipped("a result with a tensor missing wasn't answered 422")
    answer = session.post(session.adapter.valid(2), isci=name, tur=task.round)
    if answer.status == 409 and _round(session) != task.round:
        raise Skipped("the round closed meanwhile")
    expect(answer.status == 200, "200", answer.shown)
    session.accepted.append((answer, task.round))


@check("tur.end", Level.MANDATORY, GOREV, "After the last round every worker is told bitti: true")
def end(session: Session) -> None:
    sent = _closed(session)
    told = session.told("/durum")
    current, total = told.get("tur"), told.get("toplam_tur")
    if type(current) is not int or type(total) is not int or total - current > MOST_ROUNDS:
        raise Skipped(f"more than {MOST_ROUNDS} rounds are left")
    for number in range(current, total):
        _close(session, number)
    told = session.told("/gorev", isci=sent.name)
    expect(told.get("bitti") is True, '{"bitti": true}', printable(repr(told)))


@check("tur.x-tur", Level.MANDATORY, "GET /agirlik", "X-Tur is the round, in every round that was played")
def new_x_tur(session: Session) -> None:
    for published in _published(session):
        expect(published.x_tur == str(published.round), f"X-Tur: {published.round}", printable(published.x_tur))


@check(
    "tur.x-sha256", Level.MANDATORY, "GET /agirlik", "X-Sha256 is the body's SHA-256, in every round that was played"
)
def new_x_sha256(session: Session) -> None:
    for published in _published(session):
        seen = f"{printable(published.x_sha256)} in round {published.round}"
        expect(published.x_sha256 == published.digest, f"X-Sha256: {published.digest}", seen)


@check("tur.finite", Level.MANDATORY, "What a coordinator has to do", "No published weights have NaN or Inf")
def new_finite(session: Session) -> None:
    for published in _published(session):
        seen = f"NaN or Inf in {printable(str(published.damaged))} of round {published.round}"
        expect(published.damaged is None, "finite values", seen)


@check("sonuc.accepted-all", Level.MANDATORY, SONUC, "So is every valid result, also the one that closes a round")
def accepted_all(session: Session) -> None:
    if not session.accepted:
        raise Skipped("no more results were accepted")
    for answer, number in session.accepted:
        _expect_accepted(answer, number)


@check("tur.end-result", Level.MANDATORY, GUIDE, "A valid result after the end is answered 409")
def end_result(session: Session) -> None:
    name = session.name("son")
    if session.told("/gorev", isci=name).get("bitti") is not True:
        raise Skipped("the end wasn't reached")
    for number in (0, _round(session)):
        answer = session.post(session.adapter.valid(1), isci=name, tur=number)
        expect(answer.status == 409, "409", answer.shown)


def _sent(session: Session) -> Sent:
    if session.sent is None:
        raise Skipped("no result was accepted")
    return session.sent


def _waiting(session: Session) -> Sent:
    """The accepted result, while its round is open."""
    sent = _sent(session)
    if _round(session) != sent.round:
        raise Skipped("the round closed with that result")
    return sent


def _closed(session: Session) -> Sent:
    """The accepted result, once its round has closed."""
    sent = _sent(session)
    if _round(session) == sent.round:
        raise Skipped("the round didn't close")
    return sent


def _published(session: Session) -> list[Published]:
    if not session.published:
        raise Skipped("no round was closed")
    return [published for published in session.published if published.round is not None]


def _latest(session: Session) -> Adapter:
    answer = session.weights()
    expect(answer.status == 200, "200 to GET /agirlik", answer.shown)
    try:
        return Adapter(answer.body)
    except ValueError as error:
        raise Violation("a safetensors file of float32 tensors", printable(str(error))) from None


def _round(session: Session) -> object:
    return session.told("/durum").get("tur")


def _pending(session: Session) -> list[str]:
    pending = session.told("/durum").get("bekleyen_sonuc")
    expect(is_names(pending), "bekleyen_sonuc: a list of nicknames", printable(repr(pending)))
    return list(pending or [])


def _expect_accepted(answer: Answer, number: int) -> None:
    told = object_of(answer)
    kept = answer.status == 200 and told.get("tamam") is True and told.get("tur") == number
    expect(kept, f'200 {{"tamam": true, "tur": {number}}}', answer.shown)


def _expect_in_round(session: Session, sent: Sent, kept: bool, expected: str, seen: str) -> None:
    """As ``expect``, unless the round has closed meanwhile."""
    if not kept and _round(session) != sent.round:
        raise Skipped("the round closed meanwhile")
    expect(kept, expected, seen)


def _close(session: Session, number: int) -> None:
    """Send results of new workers until round ``number`` is over, and keep what is published then."""
    enough = False  # it takes no more for this round, which isn't published yet
    for step in range(1, MOST_RESULTS + 1):
        if enough or _round(session) != number:
            break
        answer = session.offer(session.adapter.valid(step), session.name("isci"), number)
        if answer is None:
            enough = True
        else:
            expect(answer.status == 200, "200 to a valid result", answer.shown)
            session.accepted.append((answer, number))
    deadline = time.monotonic() + waiting.PATIENCE
    while _round(session) == number:
        if time.monotonic() > deadline:
            if not enough:
                raise Skipped(f"needs more than {MOST_RESULTS} results")
            raise Violation(
                f"a round after {number}", f"still round {number}, {waiting.PATIENCE:.0f} s after it had enough"
            )
        time.sleep(waiting.PAUSE)
    session.published.append(_publication(session))


def _publication(session: Session) -> Published:
    """What /agirlik has now."""
    download = session.fetch()
    expect(download.weights.status == 200, "200 to GET /agirlik", download.weights.shown)
    try:
        damaged = Adapter(download.weights.body).damaged()
    except ValueError:
        damaged = None  # tur.layout says so
    headers = download.weights.headers
    x_tur, x_sha256 = headers.get("x-tur", "no X-Tur"), headers.get("x-sha256", "no X-Sha256")
    return Published(download.round, x_tur, x_sha256, download.digest, damaged)
