"""What people read in place of codes, states, and times."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from mingora import api_texts
from mingora.api_texts import problem_text, reason_text, state_text, waiting_text
from mingora.event_texts import event_text
from mingora.i18n import LOCALE_DIR, catalogue
from mingora.jobs import Job
from mingora.output import bar_text, time_text
from mingora_scheduler.domain import explain
from mingora_scheduler.domain.placement import Job as PlacedJob
from mingora_scheduler.domain.placement import Need, Node
from mingora_scheduler.routes import reports

AT = "2026-01-31T22:30:00.250Z"


@pytest.fixture(autouse=True)
def shanghai(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.req("CLI-12")
def test_times_are_those_of_the_readers_clock() -> None:
    assert time_text(AT) == "2026-02-01 06:30:00"
    assert time_text("soon") == "soon"
    job = Job(id="job_1", name="n", state="queued", createdAt=AT)
    assert ("Created", "2026-02-01 06:30:00") in job.rows()


@pytest.mark.req("CLI-12")
@pytest.mark.parametrize(
    ("kind", "data", "text"),
    [
        ("job.submitted", {"key": "first"}, "job.submitted         key=first"),
        (
            "attempt.reserved",
            {"attempt": 1, "ranks": [{"rank": 0, "nodeId": "node_1", "nodeName": "lab"}]},
            "attempt.reserved      attempt 1, lab",
        ),
        (
            "lease.reported",
            {"attempt": 2, "rank": 1, "nodeId": "node_1", "nodeName": "lab", "outcome": "failed", "exitCode": 3,
             "signal": None, "reason": {"code": "exit_code", "message": "Exit code 3."}},
            "lease.reported        attempt 2, rank 1, lab, failed, exit_code: Exit code 3.",
        ),
        ("lease.reported", {"attempt": 1, "outcome": "succeeded", "exitCode": 0},
         "lease.reported        attempt 1, succeeded, exit code 0"),
        ("job.retrying", {"attempt": 1, "inSeconds": 5.0}, "job.retrying          attempt 1, in 5 s"),
        ("job.cancel_requested", {}, "job.cancel_requested"),
        ("job.warning", {"attempt": 1, "rank": 0, "nodeName": "lab", "nodeId": "node_1", "message": "Weaker now."},
         "job.warning           attempt 1, lab, Weaker now."),
        ("something.new", {"odd": [1, "ü"]}, 'something.new         odd=[1, "ü"]'),
    ],
)  # fmt: skip
def test_an_event_is_a_line_for_people(kind: str, data: dict[str, Any], text: str) -> None:
    assert event_text({"seq": 3, "at": AT, "type": kind, "data": data}) == f"   3  2026-02-01 06:30:00  {text}"


@pytest.mark.req("CLI-12", "JOB-8")
def test_every_cause_of_waiting_has_words_in_other_languages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_texts, "choose_language", lambda: "tr")
    need = Need(2, "docker", 4, 400, True, "lab", "sha256:1", "sha256:2", frozenset({"A"}))
    poor = Node("node_1", "n", "acc_1", "m1", 1, 1, waiting=False)
    full = Node("node_2", "n", "acc_1", "m2", 4, 400, gpu_uuid="g1", pause_reason="disk", busy=True)
    good = Node(
        "node_3", "n", "acc_1", "m3", 4, 400, frozenset({"docker"}), "g1", "lab", True, "sha256:1", "sha256:2",
        frozenset({"A"}),
    )  # fmt: skip
    job = PlacedJob("job_1", "acc_1", 0, 0, need)
    twins = [good, replace(good, id="node_4")]
    found = explain.of_queued(job, [poor, full, *twins], frozenset({("m2", "g1")}), 0)
    codes = {problem.code for _node, problems in found.nodes for problem in problems}
    assert len(codes) == 14
    for code in codes:
        assert problem_text({"code": code, "message": "As it came."}).endswith("(As it came.)"), code
    assert problem_text({"code": "new", "message": "As it came."}) == "As it came."


@pytest.mark.req("CLI-12", "JOB-8")
def test_every_reason_has_words_in_other_languages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_texts, "choose_language", lambda: "tr")
    for code in {*reports.REASONS, "lease_lost"}:
        assert reason_text({"code": code, "message": "As it came."}).endswith("(As it came.)"), code


@pytest.mark.req("CLI-12", "JOB-8")
def test_what_a_job_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [{"problems": []}, {"problems": [{"code": "busy", "message": "It runs another job."}]}]
    found = {"jobId": "job_1", "state": "queued", "waiting": True, "summary": "It needs 2.", "nodes": nodes}
    assert waiting_text(found) == "It needs 2."
    monkeypatch.setattr(api_texts, "choose_language", lambda: "tr")
    assert waiting_text(found) == "The job waits; 1 of 2 machines could take it now. (It needs 2.)"
    assert waiting_text({**found, "waiting": False, "state": "running"}) == "job_1 is running."


@pytest.mark.req("CLI-12")
@pytest.mark.parametrize("language", ["zh_CN", "tr"])
def test_states_are_translated(language: str) -> None:
    messages = catalogue("mingora", LOCALE_DIR, language)
    for state in (*explain._STATES, "queued", "idle", "busy", "paused", "away"):
        assert messages.gettext(state) != state
        assert state_text(state) == state  # the tests' own language is English


@pytest.mark.req("CLI-12")
@pytest.mark.parametrize("name", ["Uploading", "Yükleniyor", "上传"])
@pytest.mark.parametrize("columns", [10, 20, 30, 40, 60, 80, 120])
def test_a_progress_bar_never_wraps(name: str, columns: int) -> None:
    text = bar_text(name, 0.5, " 50% 1023.9 MiB / 1023.9 MiB", columns)
    assert len(text) + text.count("上") + text.count("传") < columns
    assert text.startswith("50%"[: columns - 1] if columns <= 30 else name)
    if columns >= 80:
        assert f"[{'#' * 12}{'-' * 12}]" in text
