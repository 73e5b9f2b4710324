"""Counting, sizes and mounts of outputs, without an engine."""

from __future__ import annotations

import errno
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mingora_worker.runtimes.docker import output_loop, output_watchdog
from mingora_worker.runtimes.docker.output import OutputFailed, OutputFull, Place, need_room, preset_entries
from mingora_worker.runtimes.docker.output_loop import image_bytes, mounts_below, run
from mingora_worker.runtimes.docker.output_watchdog import WatchdogOutput, exceeds

pytestmark = [
    pytest.mark.req("WORK-7"),
    pytest.mark.skipif(sys.platform == "win32", reason="makes POSIX files"),
]

MIB = 1 << 20


@pytest.fixture
def place(tmp_path: Path) -> Place:
    folder = tmp_path / "job"
    (folder / "project" / "results").mkdir(parents=True)
    return Place(
        folder, os.getuid(), os.getgid(), MIB, 10, engine=cast(Any, None), labels={}, image="",
        preset=folder / "project" / "results",
    )  # fmt: skip


def test_bytes_and_entries_are_counted_to_the_limit(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_bytes(bytes(2 * MIB))
    (tmp_path / "link").symlink_to("/")
    used = sum(path.lstat().st_blocks * 512 for path in tmp_path.rglob("*"))
    assert used >= 2 * MIB
    assert not exceeds(tmp_path, used + 1, 5)
    assert exceeds(tmp_path, used, 5)
    assert exceeds(tmp_path, used + 1, 4)


def test_holes_count_nothing(tmp_path: Path) -> None:
    with open(tmp_path / "holes", "wb") as file:
        file.truncate(1 << 40)
    assert not exceeds(tmp_path, MIB, 10)


def test_a_tree_too_deep_to_be_counted_is_too_much(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    for _level in range(30):
        os.mkdir("d" * 200, dir_fd=folder)
        inner = os.open("d" * 200, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    assert exceeds(tmp_path, 1 << 40, 1_000)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root reads everything")
def test_a_folder_that_cannot_be_counted_is_too_much(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(0o000)
    assert exceeds(tmp_path, 1 << 40, 1_000)


def test_what_vanishes_while_it_is_counted_counts_nothing(tmp_path: Path) -> None:
    assert not exceeds(tmp_path / "gone", MIB, 10)


def test_counting_pauses_for_nine_times_what_it_took(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    made = WatchdogOutput(place)
    clock = [100.0]
    counted: list[float] = []

    def count(*_arguments: object) -> bool:
        counted.append(clock[0])
        clock[0] += 1.0
        return len(counted) > 1

    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    monkeypatch.setattr(output_watchdog, "exceeds", count)
    told = []
    for _second in range(10):
        told.append(made.full())
        clock[0] += 1.0
    assert counted == [100.0, 110.0]
    assert told == [False] * 9 + [True]
    made.close()


def test_a_watchdog_starts_with_the_projects_own_results(place: Place) -> None:
    (place.preset / "sub").mkdir()
    (place.preset / "sub" / "file").write_text("mine")
    made = WatchdogOutput(place)
    assert [(file.path, file.size) for file in made.collect(lambda: None).files] == [("sub/file", 4)]
    assert not made.over()
    assert cast(dict[str, object], made.mount("/in/side")) == {
        "Target": "/in/side", "Source": str(place.folder / "output"), "Type": "bind", "ReadOnly": False
    }  # fmt: skip
    made.close()
    made.close()
    assert [path.name for path in place.folder.iterdir()] == ["project"]


@pytest.mark.parametrize("limits", [{"limit_bytes": 7}, {"limit_inodes": 2}])
def test_a_preset_over_the_limit_is_refused_before_it_is_copied(place: Place, limits: dict[str, int]) -> None:
    (place.preset / "sub").mkdir()
    (place.preset / "sub" / "a").write_text("four")
    (place.preset / "sub" / "b").write_text("four")
    assert sorted(name for _source, name, _folder in preset_entries(place)) == ["sub", "sub/a", "sub/b"]
    with pytest.raises(OutputFull):
        WatchdogOutput(replace(place, **cast(Any, limits)))
    assert [path.name for path in place.folder.iterdir()] == ["project"]


def test_a_disk_that_fills_while_the_preset_is_copied(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.preset / "file").write_text("x")

    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("shutil.copyfile", full)
    with pytest.raises(OutputFull):
        WatchdogOutput(place)
    assert [path.name for path in place.folder.iterdir()] == ["project"]


def test_the_last_of_the_disk_is_nobodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _folder: type("Usage", (), {"free": 300 * MIB}))
    need_room(tmp_path, 44 * MIB)
    with pytest.raises(OSError) as caught:
        need_room(tmp_path, 44 * MIB + 1)
    assert caught.value.errno == errno.ENOSPC


@given(st.integers(1, 1 << 40), st.integers(1, 1 << 20))
def test_an_image_holds_its_limit_and_its_inodes(limit: int, inodes: int) -> None:
    size = image_bytes(limit, inodes)
    assert size % 4096 == 0
    assert size - min(size // 50, 16 * MIB) - inodes * 256 >= limit
    assert size <= (limit + inodes * 256) * 1.03 + MIB


def test_mounts_are_found_by_their_real_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = tmp_path / "real one"
    (real / "jobs").mkdir(parents=True)
    (tmp_path / "link").symlink_to(real)
    table = tmp_path / "mountinfo"
    points = [real, real / "jobs" / "a" / "output", tmp_path / "real one more", real / "jobs" / "b\n" / "output"]
    escaped = [str(point).replace(" ", "\\040").replace("\n", "\\012") for point in points]
    table.write_text("".join(f"36 35 98:0 / {point} rw,noatime shared:1 - ext4 /dev/x rw\n" for point in escaped))
    monkeypatch.setattr(output_loop, "_MOUNTS", table)
    assert mounts_below(tmp_path / "link") == [points[3], points[1]]
    table.unlink()
    assert mounts_below(tmp_path / "link") == []


def test_tools_say_why_they_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    run("true")
    for command, said in [
        (("sh", "-c", "echo first >&2; echo why >&2; exit 3"), "sh: why"),
        (("sh", "-c", "exit 3"), "sh: 3"),
        (("no-such-tool",), "no-such-tool is missing on this machine."),
    ]:
        with pytest.raises(OutputFailed) as caught:
            run(*command)
        assert caught.value.message == said
    monkeypatch.setattr(output_loop, "TOOL_SECONDS", 0.01)
    with pytest.raises(OutputFailed):
        run("sleep", "60")
