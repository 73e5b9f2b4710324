"""What is taken from results/, and what never is."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
from pathlib import Path

import pytest

from mingora_worker import results
from mingora_worker.results import Collected, TooManyFiles, collect

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="makes POSIX files")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project" / "results").mkdir(parents=True)
    return tmp_path / "project"


def taken(found: Collected) -> list[str]:
    return [file.path for file in found.files]


@pytest.mark.req("WORK-3", "CLI-7")
def test_regular_files_with_size_digest_and_executable_bit(project: Path) -> None:
    out = project / "results"
    (out / "empty").touch()
    (out / "deep" / "er").mkdir(parents=True)
    (out / "deep" / "er" / "ü.bin").write_bytes(b"\0\1")
    (out / "run.sh").write_bytes(b"#!/bin/sh\n")
    (out / "run.sh").chmod(0o755)
    found = collect(project)
    assert [(f.path, f.size, f.executable) for f in found.files] == [
        ("deep/er/ü.bin", 2, False),
        ("empty", 0, False),
        ("run.sh", 10, True),
    ]
    assert found.files[0].sha256 == hashlib.sha256(b"\0\1").hexdigest()
    assert found.files[0].source.read_bytes() == b"\0\1"
    assert found.warnings == []


def test_no_results_is_no_problem(tmp_path: Path) -> None:
    assert collect(tmp_path) == Collected()


@pytest.mark.req("WORK-3")
def test_nothing_hostile_is_followed_or_waited_for(project: Path) -> None:
    out, secret = project / "results", project.parent / "secret"
    secret.write_text("secret")
    (out / "good").write_text("good")
    (out / "link").symlink_to(secret)
    (out / "dangling").symlink_to("nowhere")
    (out / "folder").symlink_to(project.parent)
    os.mkfifo(out / "pipe")
    os.link(secret, out / "hard")
    (out / "back\\slash").touch()
    (out / "new\nline").touch()
    (out / ("n" * 250)).mkdir()
    Path(os.fsdecode(os.fsencode(out) + b"/\xff")).touch()
    with socket.socket(socket.AF_UNIX) as listener:
        folder = os.open(out, os.O_RDONLY)
        try:
            listener.bind(f"/proc/self/fd/{folder}/socket")
        finally:
            os.close(folder)
    found = collect(project)
    assert taken(found) == ["good"]
    assert len(found.warnings) == 9
    assert not any("\n" in warning for warning in found.warnings)


@pytest.mark.req("WORK-3")
@pytest.mark.parametrize("where", ["results", "project"])
def test_a_link_in_place_of_a_folder_is_refused(project: Path, tmp_path: Path, where: str) -> None:
    other = tmp_path / "other" / "results"
    other.mkdir(parents=True)
    (other / "secret").touch()
    (project / "results").rmdir()
    if where == "results":
        (project / "results").symlink_to(other)
        found = collect(project)
        assert taken(found) == []
        assert len(found.warnings) == 1
    else:
        project.rmdir()
        project.symlink_to(other.parent)
        with pytest.raises(OSError):
            collect(project)


@pytest.mark.req("WORK-3")
def test_names_that_clash_elsewhere_leave_one(project: Path) -> None:
    out = project / "results"
    for name in ("readme", "README", "é", "e\u0301"):
        (out / name).touch()
    found = collect(project)
    assert len(found.files) == 2
    assert len(found.warnings) == 2


@pytest.mark.req("WORK-3")
def test_paths_have_the_protocols_length(project: Path) -> None:
    folder = project / "results"
    for _level in range(5):
        folder = folder / ("d" * 200)
    folder.mkdir(parents=True)
    (folder / "short").touch()
    (folder / ("f" * 30)).touch()
    found = collect(project)
    assert [path.rsplit("/")[-1] for path in taken(found)] == ["short"]
    assert len(found.warnings) == 1


def test_there_is_a_most_of_files_and_of_warnings(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "MAX_FILES", 30)
    for number in range(30):
        (project / "results" / f"link{number}").symlink_to("x")
    found = collect(project)
    assert len(found.warnings) == results.MAX_WARNINGS
    assert "11" in found.warnings[-1]
    for number in range(31):
        (project / "results" / f"file{number}").touch()
    with pytest.raises(TooManyFiles):
        collect(project)


def test_a_check_may_end_it(project: Path) -> None:
    (project / "results" / "file").touch()

    def check() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect(project, check=check)


@pytest.mark.req("WORK-3")
def test_a_name_that_no_download_could_write_leaves_the_rest_to_be_downloaded(project: Path) -> None:
    (project / "results" / ".mingora-partial").mkdir()
    (project / "results" / ".mingora-partial" / "x").touch()
    (project / "results" / "good").touch()
    found = collect(project)
    assert taken(found) == ["good"]
    assert [text.split(":")[0] for text in found.warnings] == [".mingora-partial"]


@pytest.mark.req("WORK-3")
@pytest.mark.timeout(10)
def test_a_tebibyte_of_holes_is_refused_unread(project: Path) -> None:
    with open(project / "results" / "holes", "wb") as file:
        file.truncate(1 << 40)
    with open(project / "results" / "few", "wb") as file:
        file.truncate(1 << 20)
    found = collect(project)
    assert taken(found) == ["few"]
    assert found.warnings == ["holes: is a huge file of almost nothing but holes"]


@pytest.mark.req("WORK-3")
@pytest.mark.timeout(10)
def test_a_file_that_grows_for_ever_is_refused(project: Path) -> None:
    growing = project / "results" / "growing"
    growing.write_bytes(b"x")

    def grow() -> None:
        with growing.open("ab") as file:
            file.write(b"x")

    found = collect(project, check=grow)
    assert (taken(found), found.warnings) == ([], ["growing: grew while it was read"])


@pytest.mark.req("WORK-3", "WORK-7")
def test_any_folder_can_be_collected(tmp_path: Path) -> None:
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / "file").write_text("x")
    (tmp_path / "link").symlink_to("output")
    found = collect(tmp_path, "output")
    assert (taken(found), found.files[0].source) == (["file"], tmp_path / "output" / "file")
    assert collect(tmp_path, "link").warnings == ["link: is no folder"]


@pytest.mark.req("WORK-3")
@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root reads everything")
def test_what_may_not_be_read_is_refused_and_keeps_its_rights(project: Path) -> None:
    out = project / "results"
    (out / "locked").mkdir()
    (out / "locked" / "file").touch()
    (out / "locked").chmod(0)
    (out / "file").touch(0o000)
    (out / "good").touch()
    found = collect(project)
    assert (taken(found), len(found.warnings)) == (["good"], 2)
    assert (out / "locked").stat().st_mode & 0o777 == 0
    (out / "locked").chmod(0o700)


@pytest.mark.req("WORK-3")
def test_a_folder_of_far_too_much_isnt_listed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "MAX_ENTRIES", 10)
    for number in range(11):
        (project / "results" / f"folder{number}").mkdir()
    with pytest.raises(TooManyFiles):
        collect(project)
    (project / "results" / "folder0").rmdir()
    assert collect(project) == Collected()


@pytest.mark.req("WORK-3")
def test_folders_alone_can_be_ended_too(project: Path) -> None:
    asked = []
    for number in range(5):
        (project / "results" / f"folder{number}").mkdir()
    collect(project, check=lambda: asked.append(1))
    assert len(asked) == 6


@pytest.mark.req("WORK-3")
def test_a_file_that_became_a_pipe_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between listing and opening."""
    (project / "results" / "file").touch()
    listing = results._Folder.entries

    def swapped(folder: results._Folder) -> list[os.DirEntry[str]]:
        found = listing(folder)
        (project / "results" / "file").unlink()
        os.mkfifo(project / "results" / "file")
        return found

    monkeypatch.setattr(results._Folder, "entries", swapped)
    found = collect(project)
    assert (taken(found), found.warnings) == ([], ["file: is a link, a pipe or a device"])


@pytest.mark.req("WORK-3", "WORK-7")
@pytest.mark.skipif(sys.platform == "win32", reason="files of holes are made by truncating")
def test_files_of_holes_are_read_no_further_than_their_output_could_hold(tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    for number in range(6):
        with (results / f"holes-{number}").open("wb") as file:
            file.truncate(300)
    found = collect(tmp_path, most_bytes=1_000)
    assert [file.path for file in found.files] == ["holes-0", "holes-1", "holes-2"]
    assert len(found.refused) == 3 and all("holes" in line for line in found.refused)
