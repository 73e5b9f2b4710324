"""What outlives the process: rounds, momentum, results, slices, counters, ledger; and going back."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coordinator_support import Local, adapter, moved, wait_for
from safetensors.numpy import load_file, save
from support import FakeClock

from mingora_coordinator.cli import main
from mingora_coordinator.store import durable
from mingora_coordinator.store.adapter_file import Unusable, first_header
from mingora_coordinator.store.counters import Counter
from mingora_coordinator.store.durable import Lines, last_line, read_lines
from mingora_coordinator.store.folder import DataFolder, FolderError
from mingora_coordinator.training.ledger import MAX_REFUSED_LINES, RoundJournal
from mingora_coordinator.training.standing import Standing

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command on this test's folder: exit code, stdout, stderr."""

    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([*words, "--data-dir", str(tmp_path / "data")])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def run_round(coordinator: Local, workers: str = "ab", by: float = 0.01) -> None:
    number, _digest, globe = coordinator.weights()
    for place, worker in enumerate(workers):
        coordinator.get(f"/gorev?isci={worker}")
        assert coordinator.send(worker, number, moved(globe, by * (place + 1)))[0] == 200
    wait_for(lambda: coordinator.training.published.number == number + 1)


@pytest.mark.req("COORD-6")
def test_a_restart_changes_nothing(tmp_path: Path) -> None:
    undisturbed, disturbed = tmp_path / "a", tmp_path / "b"
    undisturbed.mkdir()
    disturbed.mkdir()
    with Local(undisturbed, min_results=3) as one:
        for _ in range(3):
            run_round(one, "abc")
        expected = one.weights()[1]
    for number in range(3):
        for place, worker in enumerate("abc"):
            with Local(disturbed, min_results=3) as another:
                assert another.get("/durum")["bekleyen_sonuc"] == list("abc"[:place])
                _tur, _digest, globe = another.weights()
                assert another.send(worker, number, moved(globe, 0.01 * (place + 1)))[0] == 200
                if place:
                    assert another.send("a", number, adapter())[0] == 409
    with Local(disturbed, min_results=3) as another:
        assert another.weights()[:2] == (3, expected)
        state = another.get("/durum")
        assert state["trafik"]["yuklenen_bayt"] >= 9 * len(save(adapter()))
        assert [entry["tur"] for entry in state["gunluk"]] == [0, 1, 2]


@pytest.mark.req("COORD-2", "COORD-6")
def test_slices_outlive_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        with Local(tmp_path, shards=4, min_results=4) as coordinator:
            assert [coordinator.get(f"/gorev?isci={name}")["parca"] for name in "abc"] == [0, 1, 2]


@pytest.mark.req("COORD-6")
def test_enough_results_close_the_round_at_the_start(tmp_path: Path) -> None:
    with Local(tmp_path, min_results=3) as coordinator:
        assert [coordinator.send(name, 0, adapter())[0] for name in "ab"] == [200, 200]
    with Local(tmp_path, min_results=2) as coordinator:
        wait_for(lambda: coordinator.training.published.number == 1)


@pytest.mark.req("COORD-3", "COORD-6")
def test_a_time_limit_goes_on_over_a_restart(tmp_path: Path) -> None:
    clock = FakeClock()
    with Local(tmp_path, min_results=3, timeout=100, clock=clock) as coordinator:
        assert coordinator.send("a", 0, adapter())[0] == 200
    clock.advance(101)
    with Local(tmp_path, min_results=3, timeout=100, clock=clock) as coordinator:
        wait_for(lambda: coordinator.training.published.number == 1)


@pytest.mark.req("COORD-6")
def test_what_was_not_recorded_is_removed_at_the_start(tmp_path: Path) -> None:
    with Local(tmp_path) as coordinator:
        assert coordinator.send("a", 0, adapter())[0] == 200
        results = coordinator.training.published.folder.results
        (results / "orphan.safetensors").write_bytes(b"x")
        coordinator.folder.new_incoming().write_bytes(b"half a body")
        (results.parent.parent / ".next").mkdir()
        with (results.parent / "journal.jsonl").open("ab") as journal:
            journal.write(b'{"event": "accepted", "resu')
    with Local(tmp_path) as coordinator:
        assert coordinator.get("/durum")["bekleyen_sonuc"] == ["a"]
        assert len(list(results.iterdir())) == 1
        assert list(coordinator.folder.incoming.iterdir()) == []
        assert coordinator.send("b", 0, adapter())[0] == 200
    with Local(tmp_path) as coordinator:
        assert coordinator.training.published.number == 1


@pytest.mark.req("COORD-6")
def test_a_damaged_adapter_or_a_lost_result_is_told_at_the_start(tmp_path: Path) -> None:
    with Local(tmp_path) as coordinator:
        assert coordinator.send("a", 0, adapter())[0] == 200
        folder = coordinator.training.published.folder
    (result,) = folder.results.iterdir()
    kept = result.read_bytes()
    result.unlink()
    with pytest.raises(FolderError, match="journal names, is missing"):
        Local(tmp_path)
    result.write_bytes(kept)
    raw = bytearray(folder.adapter.read_bytes())
    raw[-1] ^= 1
    folder.adapter.write_bytes(raw)
    with pytest.raises(FolderError, match="is damaged: restore a back-up, or go back"):
        Local(tmp_path)


@pytest.mark.req("COORD-6")
def test_two_coordinators_dont_share_a_folder(tmp_path: Path) -> None:
    with Local(tmp_path), pytest.raises(FolderError, match="stop it first"):
        Local(tmp_path)


@pytest.mark.req("COORD-6")
def test_the_ledger_tells_of_every_result(tmp_path: Path, command: Command) -> None:
    with Local(tmp_path, min_results=4, outer="mean") as coordinator:
        _number, _digest, globe = coordinator.weights()
        coordinator.send("bad", 0, b"no")
        coordinator.send("bad", 3, adapter())
        coordinator.send("bad", 0, moved(globe, float("inf")))
        steps = {"a": 0.01, "b": 0.02, "c": -0.005, "x": 1000.0}
        for worker, step in steps.items():
            assert coordinator.send(worker, 0, moved(globe, step))[0] == 200
        wait_for(lambda: "cosine" in coordinator.training.ledger.rounds()[-1]["results"][0])
    lines = [json.loads(line) for line in command("ledger")[1].splitlines()]
    refused = [(line["worker"], line["reason"], line["status"]) for line in lines if line["event"] == "refused"]
    assert refused == [("bad", "unreadable", 400), ("bad", "other_round", 409), ("bad", "not_finite", 422)]
    accepted = {line["result"]["worker"]: line["result"] for line in lines if line["event"] == "accepted"}
    assert {name: pytest.approx(abs(step) * 23**0.5, rel=1e-4) for name, step in steps.items()} == {
        name: result["distance"] for name, result in accepted.items()
    }
    assert all(result["size"] == len(save(globe)) and result["seconds"] >= 0 for result in accepted.values())
    (closed,) = [line for line in lines if line["event"] == "closed"]
    told = {result["worker"]: (result["used"], result["cosine"]) for result in closed["results"]}
    assert told == {
        "a": (True, pytest.approx(1, abs=1e-4)),
        "b": (True, pytest.approx(1, abs=1e-4)),
        "c": (True, pytest.approx(-1, abs=1e-4)),
        "x": (False, pytest.approx(1, abs=1e-4)),
    }


@pytest.mark.req("COORD-6")
def test_cosines_of_the_reference_step_are_to_the_mean_and_made_up_for_after_a_kill(tmp_path: Path) -> None:
    with Local(tmp_path, min_results=2, outer="nesterov") as coordinator:
        run_round(coordinator)
        _number, _digest, globe = coordinator.weights()
        first, second = (np.random.default_rng(seed).standard_normal(5) for seed in (1, 2))
        sent = {}
        for worker, step in (("a", first), ("b", second)):
            sent[worker] = {**globe, "scale": (globe["scale"] + step / 100).astype(np.float32)}
        coordinator.training.ledger.finish = lambda *_: None  # type: ignore[method-assign] # as if killed before
        for worker, body in sent.items():
            assert coordinator.send(worker, 1, body)[0] == 200
        wait_for(lambda: coordinator.training.published.number == 2)
        assert coordinator.folder.round(1).results.is_dir()
    mean = (first + second) / 2
    with Local(tmp_path, min_results=2) as coordinator:
        wait_for(lambda: "cosine" in coordinator.training.ledger.rounds()[-1]["results"][0])
        for result in coordinator.training.ledger.rounds()[-1]["results"]:
            own = {"a": first, "b": second}[result["worker"]]
            cosine = own @ mean / np.linalg.norm(own) / np.linalg.norm(mean)
            assert result["cosine"] == pytest.approx(cosine, abs=1e-4)
        wait_for(lambda: not coordinator.folder.round(1).results.exists())


@pytest.mark.req("COORD-6")
def test_refusals_dont_fill_the_disk(tmp_path: Path) -> None:
    with Local(tmp_path) as coordinator:
        folder = coordinator.training.published.folder
    (tmp_path / "data" / "rounds" / "000000" / "journal.jsonl").unlink()
    journal = RoundJournal(folder, FakeClock())
    for _ in range(MAX_REFUSED_LINES + 10):
        journal.refused("x", "unreadable", status=400)
    assert sum(1 for _ in read_lines(folder.journal)) == MAX_REFUSED_LINES
    again = RoundJournal(folder, FakeClock())
    again.refused("x", "unreadable", status=400)
    assert sum(1 for _ in read_lines(folder.journal)) == MAX_REFUSED_LINES


@pytest.mark.req("COORD-6")
def test_rollback(tmp_path: Path, command: Command) -> None:
    with Local(tmp_path, rounds=5) as coordinator:
        digests = []
        for _ in range(3):
            digests.append(coordinator.weights()[1])
            run_round(coordinator)
        assert coordinator.send("a", 3, adapter())[0] == 200
        assert command("rollback", "1")[0] == 1  # it runs
    code, out, _ = command("rollback", "1")
    assert code == 0 and "Round 1 is open again; rounds 2 to 3 were moved" in out
    assert command("rollback", "7")[:2] == (1, "")
    with Local(tmp_path, rounds=5) as coordinator:
        tur, digest, globe = coordinator.weights()
        assert (tur, digest) == (1, digests[1])
        assert coordinator.get("/durum")["bekleyen_sonuc"] == []
        # Who trained before the rollback didn't train from what is given out now under the same number.
        assert coordinator.send("a", 1, globe) == (409, {"hata": "bu tur yeniden açıldı: önce görev isteyin"})
        assert coordinator.get("/gorev?isci=a")["tur"] == 1
        run_round(coordinator, by=0.5)
        assert coordinator.weights()[0] == 2
        assert coordinator.send("late", 2, globe)[0] == 409
        run_round(coordinator)
        run_round(coordinator)
        assert coordinator.weights()[0] == 4
        assert coordinator.send("late", 4, globe)[0] == 200  # 4 was never used before
    code, out, _ = command("ledger")
    assert sum(json.loads(line).get("undone", False) for line in out.splitlines()) >= 3


@pytest.mark.req("COORD-6")
@pytest.mark.parametrize("steps", range(1, 6))
def test_a_rollback_that_was_cut_short_leaves_a_training(tmp_path: Path, steps: int) -> None:
    with Local(tmp_path, rounds=6) as coordinator:
        for _ in range(4):
            run_round(coordinator)
    with Local(tmp_path, rounds=6) as coordinator:
        folder = coordinator.folder
    left = [steps]
    undo = folder.undo

    def cut(number: int, moment: int) -> None:
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        undo(number, moment)

    from mingora_coordinator.training.rollback import rollback

    folder.lock()
    folder.undo = cut  # type: ignore[method-assign]
    if steps <= 4:
        with pytest.raises(KeyboardInterrupt):
            rollback(folder, 0, 1)
    else:
        rollback(folder, 0, 1)
    folder.unlock()
    with Local(tmp_path, rounds=6) as coordinator:
        assert coordinator.weights()[0] == max(0, 5 - steps)
        run_round(coordinator)


@pytest.mark.req("COORD-6")
def test_export_is_a_folder_for_peft(tmp_path: Path, command: Command) -> None:
    given = {name: array for name, array in adapter().items() if name != "scale"}
    (tmp_path / "adapter_config.json").write_text(json.dumps({"lora_alpha": 32, "r": 3}))
    with Local(tmp_path, initial=save(given), outer="mean") as coordinator:
        run_round(coordinator)
        made = coordinator.weights()[2]
    target = tmp_path / "out"
    assert command("export", str(target))[0] == 0
    config = json.loads((target / "adapter_config.json").read_text())
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", 3, 32)
    assert (config["target_modules"], config["base_model_name_or_path"]) == (["q_proj"], "org/base")
    for name, array in load_file(target / "adapter_model.safetensors").items():
        assert np.array_equal(made[name], array)
    assert command("export", str(target))[0] == 1  # nothing is overwritten
    assert command("export", str(tmp_path / "first"), "--round", "0")[0] == 0
    assert (tmp_path / "first" / "adapter_model.safetensors").read_bytes() == save(given)
    assert command("export", str(tmp_path / "none"), "--round", "9")[0] == 1


@pytest.mark.req("COORD-6")
def test_status_and_history(tmp_path: Path, command: Command) -> None:
    code, _out, err = command("status")
    assert code == 1 and "No training was begun" in err
    with Local(tmp_path, outer="mean") as coordinator:
        run_round(coordinator)
        assert coordinator.send("we\u202eird", 1, adapter())[0] == 200
        wait_for(lambda: "cosine" in coordinator.training.ledger.rounds()[-1]["results"][0])
        code, out, _ = command("status")  # while it runs
        assert code == 0 and "Round 1, open since" in out and "1 of this round: we?ird" in out
    state: dict[str, Any] = json.loads(command("status", "--json")[1])
    assert (state["round"], state["pending"], state["acceptedResults"]) == (1, ["we\u202eird"], 3)
    assert "Round 0: closed" in command("history")[1]
    assert [entry["round"] for entry in json.loads(command("history", "--json")[1])] == [0]


@pytest.mark.req("COORD-4", "COORD-6")
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: b"\x80\x04pickle", "isn't a safetensors file"),
        (lambda: save({"a": np.ones(3, np.float16)}), "only F32 can be averaged"),
        (lambda: save({"a": np.array([1, np.nan], np.float32)}), "NaN or infinite"),
        (lambda: save({"a": np.empty(0, np.float32)}), "has no values"),
    ],
)
def test_what_cant_start_a_training(tmp_path: Path, make: Callable[[], bytes], said: str) -> None:
    path = tmp_path / "initial.safetensors"
    path.write_bytes(make())
    with pytest.raises(Unusable, match=said):
        first_header(path)


@pytest.mark.req("COORD-6")
def test_another_initial_than_the_training_began_with_is_noticed(tmp_path: Path, command: Command) -> None:
    with Local(tmp_path):
        pass
    other = tmp_path / "other.safetensors"
    other.write_bytes(save(moved(adapter(), 1)))
    code, _out, err = command("serve", "--rounds", "2", "--min-results", "1", "--initial", str(other))
    assert code == 1 and "began with another adapter" in err
    shutil.rmtree(tmp_path / "data")
    code, _out, err = command("serve", "--rounds", "2", "--min-results", "1")
    assert code == 1 and "--initial FILE" in err


@pytest.mark.req("COORD-6")
def test_a_line_that_cant_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    lines = Lines(tmp_path / "lines")
    lines.append({"n": 1}, durable=True)

    def full(_number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fdatasync", full)
    with pytest.raises(OSError, match="No space"):
        lines.append({"n": 2}, durable=True)
    monkeypatch.undo()
    lines.append({"n": 3}, durable=True)
    lines.close()
    assert [line["n"] for line in read_lines(tmp_path / "lines")] == [1, 3]


@pytest.mark.req("COORD-6")
def test_a_full_disk_refuses_a_result_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Local(tmp_path, min_results=2) as coordinator:

        def full(*_arguments: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(RoundJournal, "accepted", full)
            answer = coordinator.client.post("/sonuc?isci=a&tur=0", data=save(adapter()))
            assert answer.status_code == 503 and answer.headers["Retry-After"] == "60"
        assert list(coordinator.training.published.folder.results.iterdir()) == []
        assert coordinator.send("a", 0, adapter())[0] == 200
        with monkeypatch.context() as patch:
            patch.setattr("mingora_coordinator.training.training.RETRY_SECONDS", 0.05)
            patch.setattr("mingora_coordinator.training.training.CLOSE_PATIENCE", 0.1)
            patch.setattr("mingora_coordinator.training.training.close", full)
            assert coordinator.send("b", 0, adapter())[0] == 200  # it is recorded all the same
            assert coordinator.get("/gorev?isci=c") == {"bekle": True, "tur": 0}
        wait_for(lambda: coordinator.training.published.number == 1)


@pytest.mark.req("COORD-6")
def test_arriving_bodies_leave_room_for_the_next_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Local(tmp_path) as coordinator:
        nearly_full = shutil.disk_usage(tmp_path)._replace(free=coordinator.training.layout.body_cap)
        with monkeypatch.context() as patch:
            patch.setattr(shutil, "disk_usage", lambda _path: nearly_full)
            assert coordinator.send("a", 0, adapter())[0] == 503
        assert list(coordinator.folder.incoming.iterdir()) == []
        assert coordinator.send("a", 0, adapter())[0] == 200


@pytest.mark.req("COORD-6")
def test_a_damaged_training_is_told_before_serving(tmp_path: Path, command: Command) -> None:
    with Local(tmp_path) as coordinator:
        path = coordinator.training.published.folder.adapter
    path.write_bytes(path.read_bytes()[:-1])
    code, _out, err = command("serve", "--rounds", "2", "--min-results", "1")
    assert code == 1 and "is damaged" in err


@pytest.mark.req("COORD-6")
def test_a_next_round_that_cant_be_opened_yet_is_opened_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Local(tmp_path, min_results=2) as coordinator:
        assert coordinator.send("a", 0, adapter())[0] == 200
        failures: list[int] = []

        def failing(*_arguments: object) -> None:
            failures.append(1)
            raise OSError(24, "Too many open files")

        with monkeypatch.context() as patch:
            patch.setattr("mingora_coordinator.training.training.RETRY_SECONDS", 0.02)
            patch.setattr("mingora_coordinator.training.training.CLOSE_PATIENCE", 0.1)
            patch.setattr(Standing, "of", failing)
            assert coordinator.send("b", 0, adapter())[0] == 200
            wait_for(lambda: len(failures) > 2)
            assert coordinator.get("/gorev?isci=c") == {"bekle": True, "tur": 0}
        wait_for(lambda: coordinator.training.published.number == 1)
        run_round(coordinator)


@pytest.mark.req("COORD-6")
def test_a_publication_that_wasnt_made_durable_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Local(tmp_path, min_results=1, outer="mean") as coordinator:
        sync, failures = durable.sync_folder, list[Path]()

        def failing(path: Path) -> None:
            if path.name == "rounds" and not failures:
                failures.append(path)
                raise OSError(5, "Input/output error")
            sync(path)

        monkeypatch.setattr("mingora_coordinator.training.training.RETRY_SECONDS", 0.02)
        monkeypatch.setattr(durable, "sync_folder", failing)
        sent = moved(adapter(), 0.5)
        assert coordinator.send("a", 0, sent)[0] == 200
        wait_for(lambda: coordinator.training.published.number == 1)
        assert failures
        assert coordinator.weights()[2]["scale"].tolist() == sent["scale"].tolist()
    with Local(tmp_path, min_results=1, outer="mean") as coordinator:
        assert coordinator.weights()[0] == 1


@pytest.mark.req("COORD-6")
def test_a_file_that_was_closed_is_never_written_to(tmp_path: Path) -> None:
    lines = Lines(tmp_path / "lines")
    lines.append({"n": 1}, durable=False)
    lines.close()
    with (tmp_path / "other").open("wb") as other:  # gets the number that is free now
        with pytest.raises(OSError, match="Bad file descriptor"):
            lines.append({"n": 2}, durable=False)
        assert other.tell() == 0
    assert (tmp_path / "other").read_bytes() == b""
    assert last_line(tmp_path / "lines") == {"n": 1}


@pytest.mark.req("COORD-6")
@pytest.mark.parametrize("sizes", [[], [1], [1, 5000], [5000, 1], [3, 9000, 20_000], [4095, 4096, 4097]])
@pytest.mark.parametrize("torn", [b"", b'{"half', b"\0" * 5000])
def test_the_last_line_is_the_last_whole_one(tmp_path: Path, sizes: list[int], torn: bytes) -> None:
    path = tmp_path / "lines"
    lines = [json.dumps({"n": place, "pad": "x" * size}).encode() + b"\n" for place, size in enumerate(sizes)]
    path.write_bytes(b"".join(lines) + torn)
    found = last_line(path)
    assert found == (json.loads(lines[-1]) if lines else None)
    opened = Lines(path)
    opened.append({"n": "more"}, durable=True)
    opened.close()
    assert path.read_bytes() == b"".join(lines) + b'{"n":"more"}\n'
    assert last_line(tmp_path / "none") is None


@pytest.mark.req("COORD-6")
def test_what_was_changed_on_the_disk_is_told_at_the_start(tmp_path: Path, command: Command) -> None:
    with Local(tmp_path, rounds=5) as coordinator:
        run_round(coordinator)
        run_round(coordinator)
        assert coordinator.send("a", 2, adapter())[0] == 200
        rounds = coordinator.training.published.folder.path.parent
    newest = rounds / "000002"
    for name in (
        "momentum.f32",
        "adapter.safetensors",
        "journal.jsonl",
        f"results/{next((newest / 'results').iterdir()).name}",
    ):
        path = newest / name
        kept = path.read_bytes()
        for damaged in (kept[:-9], b"\n" + kept if name.endswith("jsonl") else kept[:-1] + b"\x7f"):
            if name.startswith("results") and len(damaged) == len(kept):
                continue  # told by its digest in the ledger only
            path.write_bytes(damaged)
            if name == "journal.jsonl" and damaged == kept[:-9]:
                continue  # a torn line: what a crash leaves
            with pytest.raises(FolderError):
                Local(tmp_path, rounds=5)
        path.write_bytes(kept)
    (newest / "tasks.jsonl").write_bytes(b"no JSON\n")  # slices are given out anew
    with Local(tmp_path, rounds=5) as coordinator:
        assert coordinator.get("/durum")["bekleyen_sonuc"] == ["a"]
    (rounds / "000001" / "momentum.f32").write_bytes(b"")
    code, _out, err = command("rollback", "1")
    assert code == 1 and "is damaged" in err and newest.is_dir()  # nothing was moved
    code, _out, err = command("export", str(tmp_path / "out"), "--round", "1")
    assert code == 1 and "is damaged" in err
    shutil.rmtree(rounds / "000002" / "results")
    (rounds / "000002" / "journal.jsonl").unlink()
    with Local(tmp_path, rounds=5) as coordinator:  # as a back-up without empty folders leaves it
        assert coordinator.get("/durum")["bekleyen_sonuc"] == []


@pytest.mark.req("COORD-6")
def test_the_counter_of_results_is_the_journals(tmp_path: Path) -> None:
    with Local(tmp_path, min_results=2) as coordinator:
        run_round(coordinator)
        assert coordinator.send("a", 1, adapter())[0] == 200
        coordinator.training.counters.set(Counter.ACCEPTED, 1)  # as if killed before it was counted
    with Local(tmp_path, min_results=2) as coordinator:
        assert coordinator.training.counters[Counter.ACCEPTED] == 3


@pytest.mark.req("COORD-6")
def test_a_task_is_given_while_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Local(tmp_path) as coordinator:

        def full(*_arguments: object, **_more: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Lines, "append", full)
        assert coordinator.get("/gorev?isci=a")["parca"] == 0
        assert coordinator.get("/gorev?isci=b")["parca"] == 1
        monkeypatch.undo()


@pytest.mark.req("COORD-6")
def test_a_lock_that_is_soon_free_is_waited_for(tmp_path: Path) -> None:
    held, wanted = DataFolder(tmp_path / "data"), DataFolder(tmp_path / "data")
    held.lock()
    threading.Timer(0.3, held.unlock).start()
    wanted.lock(patience=60)
    wanted.unlock()


@pytest.mark.req("COORD-6")
def test_refusals_around_a_close_are_all_in_the_ledger(tmp_path: Path) -> None:
    with Local(tmp_path, min_results=1, rounds=9) as coordinator:
        over = threading.Event()
        count = 0

        def refuse() -> None:
            nonlocal count
            while not over.is_set():
                coordinator.training.refused("x", "unreadable", status=400)
                count += 1

        refusing = threading.Thread(target=refuse)
        refusing.start()
        for number in range(8):
            assert coordinator.send("a", number, adapter())[0] == 200
            wait_for(lambda number=number: coordinator.training.published.number == number + 1)
        over.set()
        refusing.join(60)
        journals = [coordinator.folder.round(number).journal for number in coordinator.folder.numbers()]
    told = sum(line["event"] == "refused" for journal in journals for line in read_lines(journal))
    assert told == count
