"""Small rules: what is tried again and when, digests, answers that are refused, signals, the console."""

from __future__ import annotations

import hashlib
import io
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from mingora.errors import ApiError, InsecureServer, LostAnswer, MingoraError, NotSent, OutcomeUnknown, RateLimited
from mingora_worker.api import BadAnswer, NodeApi, Stop, lease_gone, transient, wire_text
from mingora_worker.backoff import LONGEST_SECONDS, Backoff
from mingora_worker.caller import Caller
from mingora_worker.console import Console
from mingora_worker.disk import Disk, folder_bytes
from mingora_worker.interrupt import Interrupt
from mingora_worker.stage import inputs_digest


@pytest.mark.req("CLI-10")
@pytest.mark.parametrize(
    ("error", "again"),
    [
        (LostAnswer(""), True),
        (NotSent(""), True),
        (OutcomeUnknown("", LostAnswer("")), True),
        (ApiError("internal", 500, ""), True),
        (ApiError("unavailable", 503, ""), True),
        (RateLimited("rate_limited", 429, ""), True),
        (InsecureServer(""), False),
        (ApiError("invalid_request", 400, ""), False),
        (ApiError("lease_lost", 409, ""), False),
        (BadAnswer(""), False),
    ],
)
def test_what_is_tried_again(error: MingoraError, again: bool) -> None:
    assert transient(error) is again


@pytest.mark.req("JOB-4")
def test_which_refusals_end_a_lease() -> None:
    assert lease_gone(ApiError("lease_lost", 409, ""))
    assert lease_gone(ApiError("invalid_token", 401, ""))
    assert not lease_gone(ApiError("log_gap", 409, ""))
    assert not lease_gone(LostAnswer(""))


@pytest.mark.req("CLI-10")
def test_waits_grow_to_half_a_minute_and_begin_anew() -> None:
    backoff = Backoff(lambda _low, high: high)
    waits = [backoff.failed(LostAnswer("")) for _n in range(50)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (1.0, LONGEST_SECONDS)
    backoff.succeeded()
    assert backoff.failed(LostAnswer("")) == waits[0]


@pytest.mark.req("CLI-10")
def test_a_stated_time_is_the_least() -> None:
    assert Backoff().failed(RateLimited("rate_limited", 429, "", retry_after=40)) >= 40


@pytest.mark.parametrize("asked", [86_400.0, 1e300])
def test_no_stated_time_stops_a_worker_for_longer_than_about_an_hour(asked: float) -> None:
    assert 3600 <= Backoff().failed(RateLimited("rate_limited", 429, "", retry_after=asked)) <= 4000


@pytest.mark.req("WORK-3")
def test_the_digest_of_inputs_is_over_the_sorted_list() -> None:
    first = {"path": "ä", "size": 1, "sha256": "a" * 64, "executable": True, "objectId": "obj_1"}
    second = {"path": "b", "size": 0, "sha256": "b" * 64, "executable": False, "objectId": "obj_2"}
    text = f'[["b",0,"{"b" * 64}",false],["ä",1,"{"a" * 64}",true]]'
    assert inputs_digest([first, second]) == hashlib.sha256(text.encode()).hexdigest()
    assert inputs_digest([first, second]) == inputs_digest([second, first])


class Answering:
    """In place of a transport: gives one answer."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def request_json(self, *_args: Any, **_options: Any) -> Answering:
        return self


GRANT = {
    "leaseId": "lease_1", "attempt": 1, "attemptId": "att_1", "jobId": "job_1", "rank": 0, "ranks": 1, "token": "t",
    "ttlSeconds": 60, "readyWithinSeconds": 600, "logCapBytes": 1, "spec": {}, "inputs": [], "inputsDigest": "",
}  # fmt: skip


@pytest.mark.parametrize("change", [{"leaseId": "../../etc"}, {"leaseId": ""}, {"jobId": None}, {"attempt": "x"}])
def test_a_lease_with_a_crooked_id_is_refused(change: dict[str, Any]) -> None:
    assert NodeApi(Answering(GRANT), "node_1").claim("c" * 16, 0) is not None  # type: ignore[arg-type]
    with pytest.raises(BadAnswer):
        NodeApi(Answering({**GRANT, **change}), "node_1").claim("c" * 16, 0)  # type: ignore[arg-type]


def test_a_grace_has_bounds() -> None:
    data = {"ttlSeconds": 60, "start": True, "stop": {"reason": "cancelled", "graceSeconds": 1e9}}
    beat = NodeApi(Answering(data), "node_1").ready("lease_1", 1, "d")  # type: ignore[arg-type]
    assert beat.stop == Stop("cancelled", 300.0)


def test_a_call_brings_its_result_its_error_or_is_abandoned() -> None:
    caller = Caller()
    assert caller.call(lambda: 7, lambda: None) == 7
    with pytest.raises(LostAnswer):
        caller.call(lambda: fail(LostAnswer("")), lambda: None)
    with pytest.raises(ZeroDivisionError):
        caller.call(lambda: 1 // 0, lambda: None)
    never = threading.Event()
    with pytest.raises(KeyboardInterrupt):
        caller.call(never.wait, lambda: fail(KeyboardInterrupt()))
    never.set()


def fail(error: BaseException) -> None:
    raise error


def test_signals_with_a_job() -> None:
    interrupt = Interrupt()
    with interrupt.job():
        interrupt.ask()
        assert (interrupt.requested, interrupt.urgent) == (True, False)
        interrupt.ask()
        assert interrupt.urgent
        with pytest.raises(SystemExit):
            interrupt.ask()


def test_two_signals_without_a_job_end_the_program() -> None:
    interrupt = Interrupt()
    interrupt.ask()
    with pytest.raises(SystemExit):
        interrupt.ask()


def test_messages_are_fit_for_the_wire() -> None:
    text = wire_text("bad\udcff name\x1b[0m\n" + "x" * 5000)
    assert text.startswith("bad\\udcff name [0m x")
    assert len(text) <= 1000
    text.encode()


def test_events_as_text_and_as_json() -> None:
    text, lines = io.StringIO(), io.StringIO()
    Console(stream=text).event("job", "name \x1b[31m\nred ü", job="job_1")
    Console(as_json=True, stream=lines).event("job", "ü\n", job="job_1")
    assert text.getvalue().endswith("  name  [31m red ü\n")
    event = json.loads(lines.getvalue())
    assert (event["event"], event["message"], event["job"]) == ("job", "ü\n", "job_1")
    assert event["at"].endswith("Z")
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    Console(as_json=True, stream=narrow).event("job", "ü\n")
    assert json.loads(narrow.buffer.getvalue())["message"] == "ü\n"


def test_the_same_trouble_is_said_once() -> None:
    stream = io.StringIO()
    console = Console(stream=stream)
    for _n in range(10):
        console.trouble(LostAnswer("away"))
    console.trouble(LostAnswer("elsewhere"))
    assert len(stream.getvalue().splitlines()) == 2


def test_a_console_that_is_gone_stops_nothing() -> None:
    stream = io.StringIO()
    stream.close()
    Console(stream=stream).event("job", "text")


@pytest.mark.req("WORK-1")
def test_max_disk_counts_the_folder(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file").write_bytes(b"x" * 1_000_000)
    (tmp_path / "link").symlink_to("/usr")
    assert 1_000_000 <= folder_bytes(tmp_path) < 1_100_000
    assert Disk(tmp_path, None).within_limit()
    assert not Disk(tmp_path, 900_000).within_limit()
    assert "--max-disk" in (Disk(tmp_path, 900_000).problem() or "")
