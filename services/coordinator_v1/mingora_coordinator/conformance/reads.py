"""The routes that are read: /bilgi, /durum, /gorev, /agirlik. Changes nothing but the list of workers seen."""

from __future__ import annotations

from mingora_coordinator.conformance.client import LARGEST_HEADER, Answer, printable
from mingora_coordinator.conformance.rules import Checks, Level, NotOffered, Skipped, expect
from mingora_coordinator.conformance.session import TRIES, Download, Session, object_of
from mingora_coordinator.conformance.shapes import INFORMATION, STATE, TASK, is_digest, wrong_fields
from mingora_coordinator.domain.header import NotSafetensors, parse

check = Checks()
GENERAL, BILGI, DURUM, GOREV, AGIRLIK = "General rules", "GET /bilgi", "GET /durum", "GET /gorev", "GET /agirlik"


@check("general.https", Level.MANDATORY, GENERAL, "HTTPS, but for 127.0.0.1")
def https(session: Session) -> None:
    expect(session.client.encrypted or session.client.local, "https://", "plain HTTP beyond 127.0.0.1")


@check("general.http-1.1", Level.RECOMMENDED, GENERAL, "Answers are HTTP/1.1")
def http_1_1(session: Session) -> None:
    version = session.get("/durum").version
    expect(version == 11, "HTTP/1.1", f"HTTP/{version // 10}.{version % 10}")


@check("general.content-type", Level.RECOMMENDED, GENERAL, "JSON answers say that they are JSON")
def content_type(session: Session) -> None:
    for answer in (session.get("/durum"), session.get("/gorev", isci=session.observer)):
        expect(_kind(answer) == "application/json", "Content-Type: application/json", answer.shown)


@check("key.required", Level.MANDATORY, GENERAL, "Where a key is set, a request without one is answered 401 yetkisiz")
def key_required(session: Session) -> None:
    _refuses_key(session, None)


@check("key.wrong", Level.MANDATORY, GENERAL, "Where a key is set, a request with another is answered 401 yetkisiz")
def key_wrong(session: Session) -> None:
    _refuses_key(session, "uyum-testi-wrong-key")


@check("key.bilgi-open", Level.MANDATORY, GENERAL, "/bilgi is answered without a key")
def key_bilgi(session: Session) -> None:
    _information(session)
    _needs_key(session)
    answer = session.client.bearing(None).get("/bilgi")
    expect(answer.status == 200, "200 without X-Anahtar", answer.shown)


@check("bilgi.offered", Level.RECOMMENDED, BILGI, "The coordinator describes itself")
def bilgi_offered(session: Session) -> None:
    object_of(_information(session))


@check("bilgi.protokol", Level.MANDATORY, BILGI, 'Where /bilgi is there, protokol is "1"')
def bilgi_protokol(session: Session) -> None:
    told = object_of(_information(session))
    expect(told.get("protokol") == "1", '"protokol": "1"', printable(repr(told.get("protokol"))))


@check("bilgi.fields", Level.RECOMMENDED, BILGI, "The other fields, where they are there, have their form")
def bilgi_fields(session: Session) -> None:
    told = object_of(_information(session))
    wrong = [name for name in wrong_fields(told, INFORMATION) if name in told]
    expect(not wrong, "the form of the protocol page", f"of another form: {', '.join(wrong)}")


@check("bilgi.agrees", Level.RECOMMENDED, BILGI, "Its round and key are those of the other routes")
def bilgi_agrees(session: Session) -> None:
    told = object_of(_information(session))
    key = told.get("anahtar_gerekli", session.key_required)
    expect(key is session.key_required, f"anahtar_gerekli: {session.key_required}", printable(repr(key)))
    same_as_task(session, "/bilgi", "tur", "toplam_tur")


@check("bilgi.weights", Level.RECOMMENDED, BILGI, "Its digest and size, where they are there, are the weights'")
def bilgi_weights(session: Session) -> None:
    describes(session, session.download)


@check("durum.answer", Level.MANDATORY, DURUM, "A JSON object")
def durum_answer(session: Session) -> None:
    session.told("/durum")


@check("durum.fields", Level.MANDATORY, DURUM, "Every field is there, in its form")
def durum_fields(session: Session) -> None:
    wrong = wrong_fields(session.told("/durum"), STATE)
    expect(not wrong, "all fields", f"missing or of another form: {', '.join(wrong)}")


@check("durum.agrees", Level.MANDATORY, DURUM, "Its round and number of rounds are those of /gorev")
def durum_agrees(session: Session) -> None:
    same_as_task(session, "/durum", "tur", "toplam_tur")


@check("durum.ozet", Level.RECOMMENDED, DURUM, "ozet is the beginning of the weights' SHA-256")
def durum_ozet(session: Session) -> None:
    for _ in range(TRIES):
        task, told = session.task(session.observer), session.told("/durum")
        if told.get("tur") == task.round:
            ozet = told.get("ozet")
            kept = isinstance(ozet, str) and len(ozet) >= 8 and task.digest.startswith(ozet)
            expect(kept, f"the beginning of {task.digest}", printable(repr(ozet)))
            return
    raise Skipped("a round closed at each try")


@check("durum.isciler", Level.MANDATORY, DURUM, "isciler has the seconds since a worker was last heard of")
def durum_isciler(session: Session) -> None:
    name = session.observer
    for _ in range(TRIES):
        before = session.told("/durum").get("tur")
        session.told("/gorev", isci=name)
        told = session.told("/durum")
        workers = told.get("isciler")
        if isinstance(workers, dict) and name in workers:
            age = workers[name]
            expect(type(age) in (int, float) and 0 <= age < 600, "seconds since its /gorev", printable(repr(age)))
            return
        expect(told.get("tur") != before, f"{name} in isciler after its /gorev", "it isn't there")


@check("gorev.isci-missing", Level.MANDATORY, GOREV, "Without isci it is answered 400")
def isci_missing(session: Session) -> None:
    answer = session.get("/gorev")
    expect(answer.status == 400, "400", answer.shown)


@check("gorev.isci-empty", Level.RECOMMENDED, GOREV, "With an empty isci it is answered 400")
def isci_empty(session: Session) -> None:
    answer = session.get("/gorev", isci="")
    expect(answer.status == 400, "400", answer.shown)


@check("gorev.task", Level.MANDATORY, GOREV, "A worker without a result in this round gets a task, or bitti: true")
def gorev_task(session: Session) -> None:
    told = session.asked(session.observer)
    over = told.get("bitti") is True
    expect(over or "agirlik_sha256" in told, "a task, or bitti: true", printable(repr(told)))


@check("gorev.fields", Level.MANDATORY, GOREV, "A task has every field, in its form, and parca lies below n_parca")
def gorev_fields(session: Session) -> None:
    told = session.task(session.observer).answer
    expect(told["parca"] < told["n_parca"], "parca below n_parca", f"parca {told['parca']} of {told['n_parca']}")
    expect(told["tur"] < told["toplam_tur"], "tur below toplam_tur", f"tur {told['tur']} of {told['toplam_tur']}")


@check("gorev.parca-stable", Level.MANDATORY, "Guide, step 2", "A worker keeps its parca, and its task, for the round")
def parca_stable(session: Session) -> None:
    keeps_task(session, session.observer)


@check("agirlik.answer", Level.MANDATORY, AGIRLIK, "The weights, as application/octet-stream")
def agirlik_answer(session: Session) -> None:
    answer = session.download.weights
    expect(answer.status == 200, "200", answer.shown)
    expect(_kind(answer) == "application/octet-stream", "application/octet-stream", answer.shown)


@check("agirlik.safetensors", Level.MANDATORY, GENERAL, "The weights are a safetensors file")
def agirlik_safetensors(session: Session) -> None:
    body = session.download.weights.body
    try:
        found = parse(body, len(body), LARGEST_HEADER)
    except NotSafetensors as error:
        found, reason = None, str(error)
    expect(found is not None, "a well-formed safetensors file", reason if found is None else "")


@check("agirlik.finite", Level.MANDATORY, "What a coordinator has to do", "The weights have neither NaN nor Inf")
def agirlik_finite(session: Session) -> None:
    damaged = session.adapter.damaged()
    expect(damaged is None, "finite values", f"NaN or Inf in {printable(str(damaged))}")


@check("agirlik.x-tur", Level.MANDATORY, AGIRLIK, "X-Tur is the round")
def x_tur(session: Session) -> None:
    download = session.download
    if download.round is None:
        raise Skipped("/durum doesn't say the round, or it closed at each try")
    seen = download.weights.headers.get("x-tur", "no X-Tur")
    expect(seen == str(download.round), printable(f"X-Tur: {download.round}"), printable(seen))


@check("agirlik.x-sha256", Level.MANDATORY, AGIRLIK, "X-Sha256 is the body's SHA-256")
def x_sha256(session: Session) -> None:
    seen, digest = session.download.weights.headers.get("x-sha256", "no X-Sha256"), session.download.digest
    expect(is_digest(seen) and seen == digest, f"X-Sha256: {digest}", printable(seen))


@check("agirlik.agrees", Level.MANDATORY, AGIRLIK, "/gorev names the SHA-256 of what /agirlik sends in the same round")
def agirlik_agrees(session: Session) -> None:
    session.agree(session.download.weights.body)


def keeps_task(session: Session, name: str, other: str | None = None) -> None:
    """A violation where the worker's task changes within a round, also when ``other`` gets one of its own meanwhile."""
    for _ in range(TRIES):
        first = session.task(name)
        if other is not None:
            session.get("/gorev", isci=other)
        again = [session.task(name) for _ in range(2)]
        if all(task.round == first.round for task in again):
            own, *seen = [{field: task.answer[field] for field in TASK} for task in (first, *again)]
            changed = [fields for fields in seen if fields != own]
            expect(not changed, printable(repr(own)), printable(repr(changed[:1])))
            return
    raise Skipped("a round closed at each try")


def describes(session: Session, download: Download) -> None:
    """A violation where /bilgi has another digest or size than what was downloaded in the same round."""
    told = object_of(_information(session))
    if download.round is None or told.get("tur", download.round) != download.round:
        raise Skipped("a round closed meanwhile")
    own = {"agirlik_sha256": download.digest, "agirlik_boyutu": len(download.weights.body)}
    expected = {field: value for field, value in own.items() if field in told}
    seen = {field: told[field] for field in expected}
    expect(seen == expected, repr(expected), printable(repr(seen)))


def _kind(answer: Answer) -> str:
    return answer.headers.get("content-type", "").split(";")[0].strip().lower()


def _information(session: Session) -> Answer:
    answer = session.client.get("/bilgi")
    if answer.status in (404, 405, 501):
        raise NotOffered(f"GET /bilgi: {answer.status}")
    expect(answer.status == 200, "200, or 404 where it isn't offered", answer.shown)
    return answer


def same_as_task(session: Session, path: str, *fields: str) -> None:
    """The fields of ``path`` are those of the task, unless a round closes at each try."""
    for _ in range(TRIES):
        before, told, after = session.task(session.observer), session.told(path), session.task(session.observer)
        if before.round == after.round:
            seen = {field: told.get(field) for field in fields}
            own = {field: after.answer[field] for field in fields}
            expect(seen == own, repr(own), printable(repr(seen)))
            return
    raise Skipped("a round closed at each try")


def _needs_key(session: Session) -> None:
    """Skips where no key is set, also where one was given for nothing."""
    if session.key_required:
        return
    if not session.client.has_key:
        raise Skipped("no key is set")
    answer = session.client.get("/bilgi")
    if answer.status == 200 and object_of(answer).get("anahtar_gerekli") is False:
        raise Skipped("no key is set: the one that was given isn't asked for")


def _refuses_key(session: Session, key: str | None) -> None:
    _needs_key(session)
    client = session.client.bearing(key)
    answers = [client.get(path, {"isci": session.observer}) for path in ("/durum", "/gorev", "/agirlik")]
    answers.append(client.post("/sonuc", {"isci": session.observer, "tur": session.stale}, b"\x80"))
    session.not_taken(answers[-1], "401")
    for answer in answers:
        kept = answer.status == 401 and object_of(answer).get("hata") == "yetkisiz"
        expect(kept, f'401 {{"hata": "yetkisiz"}} to {answer.path}', answer.shown)
