"""The file of an archive: its owner's alone, whole or not there, and never in the place of another."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from mingora_api.admin.session import AdminError
from mingora_stack.admin.outfile import written

pytestmark = pytest.mark.req("OPS-1")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "platform.mingora"


@pytest.fixture
def partial(path: Path) -> Path:
    return path.with_name("platform.mingora.partial")


def write(path: Path) -> None:
    with written(path) as file:
        file.write(b"new")


def test_what_a_killed_run_left_becomes_its_owners_alone(path: Path, partial: Path) -> None:
    partial.write_bytes(b"much that is old")
    partial.chmod(0o666)
    write(path)
    assert path.read_bytes() == b"new" and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.stat().st_nlink == 1 and not partial.exists()


def test_a_partial_that_is_another_file_too_is_left_alone(path: Path, partial: Path, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"precious")
    partial.hardlink_to(tmp_path / "other")
    with pytest.raises(AdminError, match="partial wasn't left by an earlier export"):
        write(path)
    assert (tmp_path / "other").read_bytes() == partial.read_bytes() == b"precious" and not path.exists()


def test_a_partial_that_is_no_file_is_refused(path: Path, partial: Path) -> None:
    os.mkfifo(partial)
    with pytest.raises(AdminError, match="partial wasn't left by an earlier export"):
        write(path)


def test_a_file_that_was_made_meanwhile_stays(path: Path, partial: Path) -> None:
    with pytest.raises(AdminError, match="exists already"), written(path) as file:
        file.write(b"new")
        path.write_bytes(b"precious")
    assert path.read_bytes() == b"precious" and not partial.exists()


def test_a_file_that_another_process_finished_just_now_stays(
    path: Path, partial: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opened while the other one wrote it, locked after that one had given it its name."""
    opened = os.open

    def finished_after(name: Path, flags: int, mode: int = 0o777) -> int:
        descriptor = opened(name, flags, mode)
        os.write(descriptor, b"theirs")
        partial.rename(path)
        return descriptor

    monkeypatch.setattr(os, "open", finished_after)
    with pytest.raises(AdminError, match="Another process was writing"):
        write(path)
    assert path.read_bytes() == b"theirs"


def test_two_at_a_time_are_refused(path: Path) -> None:
    with written(path) as file:
        file.write(b"first")
        with pytest.raises(AdminError, match="Another process is writing"):
            write(path)
    assert path.read_bytes() == b"first"
