"""The conformance test: passes what is conformant, and finds each broken rule by the check that is named for it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from service.coordinator import conformance_mutants as mutants
from service.coordinator.conformance_mutants import MUTANTS, http_1_0, keyed, served, without_information
from service.coordinator.minimal_process import Minimal

from mingora_coordinator.conformance import command, session

pytestmark = pytest.mark.req("CONF-1")
Run = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command and gives its exit code and report."""
    monkeypatch.setattr(session, "PATIENCE", 0.5)
    target = tmp_path / "report.json"

    def asked(url: str, *words: str) -> tuple[int, dict[str, Any]]:
        parser = argparse.ArgumentParser()
        command.add_arguments(parser)
        code = command.run(parser.parse_args(["--url", url, "--json", str(target), *words]))
        return code, json.loads(target.read_text()) if target.exists() else {}

    return asked


def outcomes(report: dict[str, Any]) -> dict[str, str]:
    return {check["id"]: check["outcome"] for check in report["checks"]}


@pytest.mark.req("MINI-1")
def test_the_minimal_coordinator_is_conformant_and_stays_as_it_was(tmp_path: Path, run: Run) -> None:
    with Minimal(tmp_path) as minimal:
        before = minimal.told("/durum")
        code, report = run(minimal.url)
        assert (code, report["conformant"], report["mode"]) == (0, True, "safe")
        assert {name for name, outcome in outcomes(report).items() if outcome == "failed"} == set()
        after = minimal.told("/durum")
        for field in ("tur", "bekleyen_sonuc", "ozet", "gunluk"):
            assert after[field] == before[field]
        assert len(after["isciler"]) == 1


@pytest.mark.req("MINI-1")
def test_the_minimal_coordinator_passes_whole_rounds_to_the_end(tmp_path: Path, run: Run) -> None:
    with Minimal(tmp_path) as minimal:
        code, report = run(minimal.url, "--full")
        assert (code, report["conformant"], report["mode"]) == (0, True, "full")
        found = outcomes(report)
        assert {name for name, outcome in found.items() if outcome == "failed"} == set()
        assert {name for name, outcome in found.items() if outcome == "skipped"} == {
            "key.required", "key.wrong", "key.bilgi-open", "sonuc.over",
        }  # fmt: skip
        assert minimal.told("/gorev", isci="ali") == {"bitti": True}
        code, report = run(minimal.url, "--full")
        assert (code, outcomes(report)["sonuc.over"]) == (0, "passed")


@pytest.mark.req("MINI-1")
def test_one_result_a_round_is_conformant_too(tmp_path: Path, run: Run) -> None:
    with Minimal(tmp_path, results=1) as minimal:
        code, report = run(minimal.url, "--full")
        assert (code, outcomes(report)["tur.end-result"], outcomes(report)["gorev.bekle"]) == (0, "passed", "skipped")


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_a_broken_rule_is_found_by_its_check(name: str, run: Run) -> None:
    mutant = MUTANTS[name]
    with served(mutant.mutate, results=mutant.results) as url:
        code, report = run(url, *(["--full"] if mutant.full else []))
    failed = [check for check in report["checks"] if check["outcome"] == "failed"]
    assert code == 1
    assert mutant.check in [check["id"] for check in failed]
    assert all(check["expected"] and check["seen"] for check in failed)


@pytest.mark.parametrize("mutation", [without_information, http_1_0])
def test_what_is_recommended_fails_nobody(mutation: Callable[[Any], None], run: Run) -> None:
    with served(mutation) as url:
        code, report = run(url)
    assert (code, report["conformant"]) == (0, True)
    found = outcomes(report)
    if mutation is without_information:
        assert {found[name] for name in found if name.startswith("bilgi.")} == {"notOffered"}
    else:
        assert found["general.http-1.1"] == "failed"


@pytest.mark.parametrize(
    ("mutation", "check"),
    [
        (mutants.ozet_of_the_first_round, "tur.ozet"),
        (mutants.describes_other_weights, "bilgi.weights"),
        (mutants.describes_another_size, "bilgi.weights"),
        (mutants.describes_the_first_weights, "tur.bilgi"),
    ],
)
def test_a_broken_recommendation_is_found_and_fails_nobody(
    mutation: Callable[[Any], None], check: str, run: Run
) -> None:
    with served(mutation) as url:
        code, report = run(url, "--full")
    assert (code, outcomes(report)[check]) == (0, "failed")


@pytest.mark.parametrize("mutation", [mutants.more_in_the_task, mutants.rate_of_zero])
def test_what_the_protocol_leaves_open_is_no_fault(mutation: Callable[[Any], None], run: Run) -> None:
    with served(mutation) as url:
        code, report = run(url, "--full")
    assert (code, [name for name, outcome in outcomes(report).items() if outcome == "failed"]) == (0, [])


@pytest.mark.parametrize("results", [1, 2, 3])
@pytest.mark.parametrize("meanwhile", ["task", "bekle", "503"])
def test_a_round_may_be_published_later(
    meanwhile: str, results: int, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "PATIENCE", 60.0)
    with served(lambda module: mutants.closes_later(module, meanwhile), results=results) as url:
        code, report = run(url, "--full")
    found = outcomes(report)
    assert (code, [name for name, outcome in found.items() if outcome == "failed"]) == (0, [])
    assert {found[name] for name in ("tur.closes", "tur.published", "tur.end", "tur.end-result")} == {"passed"}


def test_a_round_of_many_results_is_not_closed_and_no_fault(run: Run) -> None:
    with served(results=40) as url:
        code, report = run(url, "--full")
    closes = next(check for check in report["checks"] if check["id"] == "tur.closes")
    assert (code, closes["outcome"], closes["seen"]) == (0, "skipped", "needs more than 32 results")


def test_what_a_live_round_may_have_taken_is_said_and_ends_the_test(run: Run) -> None:
    with served(mutants.takes_everything) as url:
        code, report = run(url)
    last = report["checks"][-1]
    assert (code, last["id"], last["outcome"]) == (1, "sonuc.unreadable", "failed")
    assert "the round may contain it now" in last["seen"]


@pytest.mark.req("COORD-4")
def test_a_key_that_nobody_asks_for_is_no_fault(run: Run) -> None:
    with served() as url:
        code, report = run(url, "--key", "gizli")
    found = outcomes(report)
    assert (code, {found[name] for name in found if name.startswith("key.")}) == (0, {"skipped"})


@pytest.mark.req("COORD-7")
def test_a_key_of_one_nickname_cannot_be_used(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with served(mutants.of_one_nickname) as url:
        assert run(url, "--key", "gizli") == (2, {})
    assert "the key belongs to a nickname: give the shared key" in capsys.readouterr().err


@pytest.mark.req("COORD-4")
def test_a_key_is_sent_asked_for_and_never_shown(run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with served(keyed) as url:
        code, report = run(url, "--key", "gizli")
        assert (code, report["conformant"]) == (0, True)
        assert {outcomes(report)[name] for name in ("key.required", "key.wrong", "key.bilgi-open")} == {"passed"}
        assert "gizli" not in capsys.readouterr().out + json.dumps(report)
        (tmp_path / "report.json").unlink()
        assert run(url) == (2, {})
        assert "it wants a key" in capsys.readouterr().err
        assert run(url, "--key", "baska") == (2, {})


@pytest.mark.req("COORD-4")
@pytest.mark.parametrize(
    ("open_paths", "text", "check"),
    [
        (("/bilgi", "/agirlik"), "yetkisiz", "key.required"),
        (("/bilgi", "/sonuc"), "yetkisiz", "key.wrong"),
        ((), "yetkisiz", "key.bilgi-open"),
        (("/bilgi",), "no key", "key.required"),
    ],
)
def test_a_gap_in_the_key_is_found(open_paths: tuple[str, ...], text: str, check: str, run: Run) -> None:
    with served(lambda module: keyed(module, open_paths, text)) as url:
        code, report = run(url, "--key", "gizli")
    assert (code, outcomes(report)[check]) == (1, "failed")


def test_the_report_has_its_form(run: Run) -> None:
    with served() as url:
        _, report = run(url)
    assert set(report) == {"schemaVersion", "protocol", "url", "mode", "startedAt", "conformant", "summary", "checks"}
    assert (report["schemaVersion"], report["protocol"], report["url"]) == (1, "1", url)
    assert set(report["summary"]) == {"mandatory", "recommended", "optional"}
    for level, counts in report["summary"].items():
        assert sum(counts.values()) == sum(check["level"] == level for check in report["checks"])
    names = [check["id"] for check in report["checks"]]
    assert len(set(names)) == len(names)
    for check in report["checks"]:
        assert set(check) == {"id", "level", "section", "rule", "outcome", "expected", "seen"}


def test_a_report_on_the_standard_output_is_alone_there(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with served() as url:
        assert run(url, "--json", "-")[0] == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["conformant"] is True
    assert "CONFORMANT (mandatory:" in printed.err
    assert "\033" not in printed.err
