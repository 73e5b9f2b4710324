"""What is on disk: the root and its lock, records, and the removal of folders that resist."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from mingora_worker.state import LeaseRecord, NodeRecord, ProcessId, Root, RootProblem, remove_tree, write_private


def record() -> LeaseRecord:
    return LeaseRecord("lease_1", 2, "job_1", "c" * 16, "mgl_x", 60.0, 1000, "mark", 77, [ProcessId(77, 1.5)])


@pytest.mark.req("WORK-1")
def test_a_root_is_private_and_for_one_worker(tmp_path: Path) -> None:
    root = Root(tmp_path / "a" / "root")
    root.open()
    assert stat.S_IMODE(root.path.stat().st_mode) == 0o700
    with pytest.raises(RootProblem, match="Another worker"):
        Root(root.path).open()
    root.close()
    again = Root(root.path)
    again.open()
    again.close()


def test_a_root_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RootProblem):
        Root(tmp_path / "file").open()


@pytest.mark.req("AUTH-9")
def test_the_node_is_kept_privately(tmp_path: Path) -> None:
    root = Root(tmp_path)
    assert root.node() is None
    node = NodeRecord("http://127.0.0.1:1", "k" * 64, "node_1", "mgn_secret")
    root.save_node(node)
    assert root.node() == node
    assert stat.S_IMODE((tmp_path / "node.json").stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["node.json"]


@pytest.mark.req("JOB-9")
def test_a_claim_is_pending_until_it_is_forgotten(tmp_path: Path) -> None:
    root = Root(tmp_path)
    assert root.pending_claim() is None
    root.save_claim("a" * 16)
    assert root.pending_claim() == "a" * 16
    root.forget_claim()
    root.forget_claim()
    assert root.pending_claim() is None


def test_a_lease_record_survives(tmp_path: Path) -> None:
    root = Root(tmp_path)
    root.open()
    folder = root.job("lease_1")
    folder.create()
    folder.save(record())
    (found,) = root.leftovers()
    assert found.record() == record()
    assert stat.S_IMODE((folder.path / "lease.json").stat().st_mode) == 0o600
    assert folder.remove()
    assert root.leftovers() == []
    root.close()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"unknown": 1}', b"\xff"])
def test_a_broken_record_is_none(tmp_path: Path, content: bytes) -> None:
    root = Root(tmp_path)
    for path in (root.path / "node.json", root.path / "claim.json"):
        path.write_bytes(content)
    assert root.node() is None
    assert root.pending_claim() is None


def test_a_private_file_is_never_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("kept")
    (tmp_path / "node.json.new").symlink_to(tmp_path / "victim")
    write_private(tmp_path / "node.json", {})
    assert (tmp_path / "victim").read_text() == "kept"
    assert (tmp_path / "node.json").read_text() == "{}"


@pytest.mark.req("WORK-3", "WORK-4")
@pytest.mark.timeout(10)
def test_what_a_job_puts_among_the_workers_records_blocks_nothing(tmp_path: Path) -> None:
    folder = Root(tmp_path).job("lease_1")
    folder.path.mkdir(parents=True)
    os.mkfifo(folder.path / "lease.json")
    assert folder.record() is None
    os.mkfifo(folder.path / "lease.json.new")
    folder.save(record())
    assert folder.record() == record()
    (folder.path / "lease.json").unlink()
    (folder.path / "lease.json").symlink_to("/dev/zero")
    assert folder.record() is None


def test_removal_follows_no_link_and_takes_back_its_rights(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("kept")
    folder = tmp_path / "job"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "file").touch()
    (folder / "link").symlink_to(kept)
    (folder / "a" / "b").chmod(0)
    (folder / "a").chmod(0)
    remove_tree(folder)
    assert not folder.exists()
    assert (kept / "file").read_text() == "kept"


def test_no_depth_withstands_removal(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(folder)
        for _level in range(3000):
            os.mkdir("inner")
            os.chdir("inner")
        Path("file").touch()
    finally:
        os.fchdir(here)
        os.close(here)
    remove_tree(folder)
    assert not folder.exists()


@pytest.mark.req("WORK-1")
def test_a_folder_of_somebody_elses_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    (tmp_path / "jobs").mkdir()
    with pytest.raises(RootProblem, match=r"thesis\.tex") as caught:
        Root(tmp_path).open()
    assert "--root" in (caught.value.hint or "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["jobs", "thesis.tex"]


@pytest.mark.req("WORK-1")
def test_a_workers_own_folder_stays_good(tmp_path: Path) -> None:
    """Whatever a start that was killed has left, and though a log was put there later."""
    (tmp_path / "killed" / "jobs").mkdir(parents=True)
    for name in ("killed", "used"):
        root = Root(tmp_path / name)
        root.open()
        root.close()
        (root.path / "worker.log").touch()
        root.open()
        root.close()
