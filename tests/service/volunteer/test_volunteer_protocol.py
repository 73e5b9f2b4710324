"""The protocol's calls over real HTTP, against coordinators that are hostile, broken, or merely far away."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from service.volunteer.hostile import (
    Handler,
    HostileCoordinator,
    continue_for_ever,
    dribble,
    hang_up,
    refuse,
    say,
    send,
    without_end,
)

from mingora.errors import ApiError, LostAnswer, NotSent
from mingora_volunteer import deadline, exchange, protocol
from mingora_volunteer.address import parse_address
from mingora_volunteer.exchange import Exchanger
from mingora_volunteer.messages import BadAnswer, Done, Info, Task, Wait
from mingora_volunteer.protocol import Coordinator

BYTES = bytes(range(256)) * 4000
DIGEST = hashlib.sha256(BYTES).hexdigest()
TASK = {
    "tur": 3, "toplam_tur": 20, "parca": 1, "n_parca": 4, "ic_adim": 20, "bs": 4, "seq": 512, "lr": 0.0002, "tohum": 0,
    "agirlik_sha256": DIGEST,
}  # fmt: skip


def reach(
    server: HostileCoordinator, folder: Path, *, base: str = "", key: str | None = None, **more: Any
) -> Coordinator:
    return Coordinator(Exchanger(parse_address(server.url + base), key=key), "ali veli/ş", folder, **more)


@pytest.fixture
def coordinator(hostile: HostileCoordinator, tmp_path: Path) -> Coordinator:
    return reach(hostile, tmp_path)


def ignore(done: int, total: int) -> None:
    assert 0 < done <= total


@pytest.mark.req("VOL-1")
def test_tasks_are_asked_for_by_name(hostile: HostileCoordinator, coordinator: Coordinator) -> None:
    hostile.scripts["/gorev"] = [say(TASK), say({"bekle": True, "tur": 3}), say({"bitti": True})]
    assert coordinator.task() == Task(3, 20, 1, 4, 20, 4, 512, 0.0002, 0, DIGEST)
    assert [coordinator.task(), coordinator.task()] == [Wait(3), Done()]
    assert {each.query["isci"] for each in hostile.seen} == {"ali veli/ş"}
    assert "x-anahtar" not in hostile.seen[0].headers


@pytest.mark.req("VOL-1", "COORD-4")
def test_the_key_goes_with_every_request(hostile: HostileCoordinator, tmp_path: Path) -> None:
    hostile.scripts = {
        "/v1/bilgi": [say({"protokol": "1"})], "/v1/gorev": [say(TASK)], "/v1/agirlik": [send(BYTES)],
        "/v1/sonuc": [say({"tamam": True, "tur": 3})], "/v1/soru": [say({"tamam": True, "no": 7})],
    }  # fmt: skip
    coordinator = reach(hostile, tmp_path, base="/v1/", key="a-key")
    coordinator.info()
    coordinator.task()
    coordinator.send(3, coordinator.adapter(DIGEST, ignore), ignore)
    assert coordinator.ask("Ne zaman?") == 7
    assert len(hostile.seen) == 5 and {each.headers["x-anahtar"] for each in hostile.seen} == {"a-key"}


@pytest.mark.req("VOL-1")
@pytest.mark.parametrize("status", [400, 403, 404, 405, 409, 422, 501])
def test_a_coordinator_need_not_have_bilgi(hostile: HostileCoordinator, coordinator: Coordinator, status: int) -> None:
    hostile.scripts["/bilgi"] = [refuse(status)]
    assert coordinator.info() == Info()


@pytest.mark.req("VOL-1")
@pytest.mark.parametrize("status", [400, 401, 409, 422, 429, 500, 503])
def test_error_answers_have_the_coordinators_words(
    hostile: HostileCoordinator, coordinator: Coordinator, status: int
) -> None:
    calls = {"/gorev": coordinator.task, "/bilgi": coordinator.info}
    for path, call in list(calls.items())[: 2 if status in {401, 429, 500, 503} else 1]:
        hostile.scripts[path] = [refuse(status, "yetkisiz", Retry_After="7")]
        with pytest.raises(ApiError) as caught:
            call()
        assert (caught.value.status, caught.value.message) == (status, f"{status} yetkisiz")
        assert caught.value.retry_after == 7.0


@pytest.mark.req("VOL-1")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(
    hostile: HostileCoordinator, coordinator: Coordinator, status: int, tmp_path: Path
) -> None:
    with HostileCoordinator() as other:
        moved = send(b"", status, Location=f"{other.url}/gorev")
        hostile.scripts = {path: [moved] for path in ("/gorev", "/agirlik", "/sonuc", "/soru", "/bilgi")}
        (tmp_path / "result").write_bytes(b"x")
        for call in (
            coordinator.info, coordinator.task, lambda: coordinator.ask("?"),
            lambda: coordinator.adapter(DIGEST, ignore), lambda: coordinator.send(0, tmp_path / "result", ignore),
        ):  # fmt: skip
            with pytest.raises(ApiError) as caught:
                call()
            assert caught.value.status == status
        assert other.seen == []


@pytest.mark.req("VOL-1")
def test_answers_that_are_no_json_or_without_end_are_refused(
    hostile: HostileCoordinator, coordinator: Coordinator
) -> None:
    deep = b"[" * 100_000
    for answer in (without_end(), hang_up):
        hostile.scripts["/gorev"] = [answer]
        with pytest.raises(LostAnswer):
            coordinator.task()
    for answer in (
        send(b""),
        send(b"<html>"),
        send(b"\xff"),
        send(deep),
        say([]),
        say({}),
        say({"bekle": True}),
        say(TASK | {"ic_adim": 10**9}),
    ):
        hostile.scripts["/gorev"] = [answer]
        with pytest.raises(BadAnswer):
            coordinator.task()
    hostile.scripts["/gorev"] = [without_end(503)]
    with pytest.raises(ApiError) as caught:
        coordinator.task()
    assert caught.value.status == 503


@pytest.mark.req("VOL-1")
@pytest.mark.parametrize("status", [200, 503])
def test_answers_that_dribble_without_end_have_a_deadline(
    hostile: HostileCoordinator, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(exchange, "ANSWER_TIMEOUT", 0.5)
    for answer in (dribble(status), continue_for_ever):
        hostile.scripts = {"/gorev": [answer], "/agirlik": [answer]}
        with pytest.raises((ApiError, LostAnswer)):  # the status says enough, if it came in time
            coordinator.task()
    with pytest.raises(LostAnswer):  # the head of an adapter has one as well
        coordinator.adapter(DIGEST, ignore)


@pytest.mark.req("VOL-1")
def test_an_adapter_may_come_slowly(
    hostile: HostileCoordinator, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, has_head = 0.0, threading.Event()
    monkeypatch.setattr(deadline, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + late))
    lift = deadline.TimedResponse.lift_deadline

    def watched(response: deadline.TimedResponse, silence: float) -> None:
        lift(response, silence)
        has_head.set()

    monkeypatch.setattr(deadline.TimedResponse, "lift_deadline", watched)

    def slowly(handler: Handler) -> None:
        nonlocal late
        handler.reply(200, BYTES[:1000], Content_Length=str(len(BYTES)))
        assert has_head.wait(60)
        late = 10_000.0
        handler.wfile.write(BYTES[1000:])

    hostile.scripts["/agirlik"] = [slowly]
    assert coordinator.adapter(DIGEST, ignore).read_bytes() == BYTES


@pytest.mark.req("VOL-1")
def test_an_adapter_is_checked_against_the_task(hostile: HostileCoordinator, coordinator: Coordinator) -> None:
    hostile.scripts["/agirlik"] = [send(BYTES + b"x"), send(b""), send(BYTES)]
    for _attempt in range(2):
        with pytest.raises(BadAnswer):
            coordinator.adapter(DIGEST, ignore)
    assert coordinator.adapter(DIGEST, ignore).read_bytes() == BYTES
    assert coordinator.adapter(DIGEST, ignore).read_bytes() == BYTES
    assert len(hostile.seen) == 3  # what is here already isn't fetched again


@pytest.mark.req("VOL-1")
def test_an_adapter_without_end_is_cut_off(
    hostile: HostileCoordinator, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(protocol, "MAX_ADAPTER_BYTES", 1 << 20)
    for answer in (without_end(), send(b"x", Content_Length=str(1 << 50))):
        hostile.scripts["/agirlik"] = [answer]
        with pytest.raises(LostAnswer):
            coordinator.adapter(DIGEST, ignore)
        assert list(tmp_path.iterdir()) == []


def cut(at: int) -> Any:
    """The adapter, said to be whole, but cut."""
    return send(BYTES[:at], Content_Length=str(len(BYTES)), ETag='"one"')


def rest(start: int, **headers: str) -> Any:
    size = len(BYTES)
    return send(BYTES[start:], 206, Content_Range=f"bytes {start}-{size - 1}/{size}", ETag='"one"', **headers)


@pytest.mark.req("VOL-1")
def test_a_broken_download_is_resumed(hostile: HostileCoordinator, coordinator: Coordinator) -> None:
    hostile.scripts["/agirlik"] = [cut(300_000), rest(300_000)]
    with pytest.raises(LostAnswer):
        coordinator.adapter(DIGEST, ignore)
    assert coordinator.adapter(DIGEST, ignore).read_bytes() == BYTES
    assert "range" not in hostile.seen[0].headers
    assert (hostile.seen[1].headers["range"], hostile.seen[1].headers["if-range"]) == ("bytes=300000-", '"one"')


@pytest.mark.req("VOL-1")
def test_a_download_that_breaks_again_and_again_gets_on(hostile: HostileCoordinator, coordinator: Coordinator) -> None:
    size = len(BYTES)
    pieces = range(0, size, 200_000)
    hostile.scripts["/agirlik"] = [
        cut(200_000),
        *(
            send(BYTES[start : start + 200_000], 206, Content_Range=f"bytes {start}-{size - 1}/{size}",
                 Content_Length=str(size - start), ETag='"one"')
            for start in pieces[1:]
        ),
    ]  # fmt: skip
    for _piece in pieces[:-1]:
        with pytest.raises(LostAnswer):
            coordinator.adapter(DIGEST, ignore)
    assert coordinator.adapter(DIGEST, ignore).read_bytes() == BYTES
    assert sum(len(BYTES) - int(each.headers["range"][6:-1]) for each in hostile.seen[1:]) < len(BYTES) * len(pieces)


@pytest.mark.req("VOL-1")
def test_another_adapter_than_was_begun_is_taken_whole(hostile: HostileCoordinator, coordinator: Coordinator) -> None:
    other = BYTES[::-1]
    hostile.scripts["/agirlik"] = [cut(300_000), send(other, ETag='"two"')]
    with pytest.raises(LostAnswer):
        coordinator.adapter(DIGEST, ignore)
    with pytest.raises(BadAnswer):  # the round ended: the task has to be asked for again
        coordinator.adapter(DIGEST, ignore)
    digest = hashlib.sha256(other).hexdigest()
    assert coordinator.adapter(digest, ignore).read_bytes() == other
    assert "range" not in hostile.seen[-1].headers


@pytest.mark.req("VOL-1")
@pytest.mark.parametrize("etag", ["", 'W/"one"', "one", '"' + "x" * 300 + '"'])
def test_without_a_strong_etag_a_download_begins_anew(
    hostile: HostileCoordinator, coordinator: Coordinator, etag: str
) -> None:
    hostile.scripts["/agirlik"] = [send(BYTES[:9], Content_Length=str(len(BYTES)), ETag=etag), send(BYTES)]
    with pytest.raises(LostAnswer):
        coordinator.adapter(DIGEST, ignore)
    assert coordinator.adapter(DIGEST, ignore).read_bytes() == BYTES
    assert "range" not in hostile.seen[1].headers


@pytest.mark.req("VOL-1")
def test_a_wrong_range_and_416_begin_anew(hostile: HostileCoordinator, coordinator: Coordinator) -> None:
    hostile.scripts["/agirlik"] = [cut(9), rest(8), cut(9), refuse(416), send(BYTES)]
    for kind in (LostAnswer, LostAnswer, LostAnswer, ApiError):
        with pytest.raises(kind):
            coordinator.adapter(DIGEST, ignore)
    assert coordinator.adapter(DIGEST, ignore).read_bytes() == BYTES
    assert [each.headers.get("range") for each in hostile.seen] == [None, "bytes=9-", None, "bytes=9-", None]


@pytest.mark.req("VOL-1")
def test_a_result_is_sent_whole_and_no_faster_than_asked(hostile: HostileCoordinator, tmp_path: Path) -> None:
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    hostile.scripts["/sonuc"] = [say({"tamam": True, "tur": 3})]
    (tmp_path / "result").write_bytes(BYTES)
    steps: list[int] = []
    coordinator = reach(hostile, tmp_path, max_upload=64_000, clock=lambda: now, sleep=sleep)
    coordinator.send(3, tmp_path / "result", lambda done, _total: steps.append(done))
    assert now == pytest.approx(len(BYTES) / 64_000)
    assert steps[-1] == len(BYTES) and len(steps) > 100
    (seen,) = hostile.seen
    assert seen.body == BYTES and seen.query == {"isci": "ali veli/ş", "tur": "3"}
    assert seen.headers["content-type"] == "application/octet-stream"
    assert seen.headers["content-length"] == str(len(BYTES))


@pytest.mark.req("VOL-1")
def test_a_result_that_nobody_says_was_taken_is_unclear(
    hostile: HostileCoordinator, coordinator: Coordinator, tmp_path: Path
) -> None:
    (tmp_path / "result").write_bytes(b"x")
    for answer in (say({}), say({"tamam": False}), say([]), send(b""), hang_up):
        hostile.scripts["/sonuc"] = [answer]
        with pytest.raises((LostAnswer, BadAnswer)):
            coordinator.send(0, tmp_path / "result", ignore)


@pytest.mark.req("VOL-1")
def test_a_refusal_half_way_through_a_body_is_heard(tmp_path: Path) -> None:
    """A coordinator may answer on the headers and close: its 413 counts, not the broken pipe."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse_at_once() -> None:
            connection, _peer = listener.accept()
            with connection:
                connection.recv(1000)
                body = b'{"hata": "buyuk"}'
                connection.sendall(b"HTTP/1.1 413 No\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 16):  # the bounded drain of the issue
                    pass

        thread = threading.Thread(target=refuse_at_once)
        thread.start()
        (tmp_path / "result").write_bytes(BYTES)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        coordinator = Coordinator(Exchanger(parse_address(url)), "ali", tmp_path)
        with pytest.raises(ApiError) as caught:
            coordinator.send(0, tmp_path / "result", ignore)
        thread.join()
    assert caught.value.status == 413


@pytest.mark.req("VOL-1", "COORD-5")
def test_a_question_has_the_pages_fields(hostile: HostileCoordinator, coordinator: Coordinator) -> None:
    hostile.scripts["/soru"] = [say({"tamam": True, "no": 7}), say({"tamam": True}), refuse(429), say({"tamam": False})]
    assert coordinator.ask("Ne zaman yeni tur başlar?") == 7
    assert json.loads(hostile.seen[0].body) == {
        "soru": "Ne zaman yeni tur başlar?", "isci": "ali veli/ş", "surum": "0.1.0", "baglam": ""
    }  # fmt: skip
    assert hostile.seen[0].headers["content-type"] == "application/json"
    assert coordinator.ask("?") is None
    for kind in (ApiError, LostAnswer):
        with pytest.raises(kind):
            coordinator.ask("?")


@pytest.mark.req("VOL-1")
def test_a_coordinator_that_is_not_there(tmp_path: Path) -> None:
    with HostileCoordinator() as gone:
        url = gone.url
    with pytest.raises(NotSent):
        Coordinator(Exchanger(parse_address(url)), "ali", tmp_path).task()
