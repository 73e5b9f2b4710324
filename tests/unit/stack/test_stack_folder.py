"""The data folder: private, one stack at a time, and sockets whose path fits."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from mingora_stack.errors import StackError
from mingora_stack.folder import MAX_SOCKET_PATH_BYTES, DataFolder


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    folder = DataFolder(tmp_path / "data")
    folder.prepare()
    return folder


@pytest.mark.req("OPS-2")
def test_the_folder_and_its_parts_are_private(folder: DataFolder) -> None:
    for part in (folder.path, folder.secrets, folder.run, folder.tls, folder.logs):
        assert stat.S_IMODE(part.stat().st_mode) == 0o700


@pytest.mark.req("OPS-2")
def test_a_folder_that_others_could_read_is_made_private_again(folder: DataFolder) -> None:
    folder.path.chmod(0o755)
    folder.prepare()
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700


@pytest.mark.req("OPS-2")
def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "home"
    other.mkdir()
    other.chmod(0o755)  # whatever the umask
    (other / "thesis.tex").write_text("")
    with pytest.raises(StackError, match="isn't a data folder"):
        DataFolder(other).prepare()
    assert stat.S_IMODE(other.stat().st_mode) == 0o755
    assert [entry.name for entry in other.iterdir()] == ["thesis.tex"]


@pytest.mark.req("OPS-2")
def test_a_folder_that_the_operator_migrated_before_the_first_start_is_ours(tmp_path: Path) -> None:
    (tmp_path / "platform.sqlite").write_bytes(b"")
    DataFolder(tmp_path).prepare()
    assert (tmp_path / "secrets").is_dir()


@pytest.mark.req("OPS-2")
def test_the_internal_key_is_long_private_and_made_once(folder: DataFolder) -> None:
    file = folder.internal_key_file()
    key = file.read_text()
    assert len(key) >= 43
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert DataFolder(folder.path).internal_key_file().read_text() == key


@pytest.mark.req("OPS-2")
def test_a_second_stack_is_refused_with_the_process_id_of_the_first(folder: DataFolder) -> None:
    with folder.claim(), pytest.raises(StackError, match=rf"process {os.getpid()}\)"), DataFolder(folder.path).claim():
        pass
    with DataFolder(folder.path).claim():
        pass


@pytest.mark.req("OPS-2")
def test_a_socket_lies_in_the_folder_when_its_path_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = DataFolder(Path("d"))
    folder.prepare()
    folder_long = DataFolder(tmp_path / ("x" * 100))
    folder_long.prepare()
    short, long = folder.socket("v.sock"), folder_long.socket("v.sock")
    for socket in (short, long):
        assert len(os.fsencode(socket)) <= MAX_SOCKET_PATH_BYTES
        assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
    assert folder_long.path not in long.parents
    long.write_text("")
    folder_long.forget_sockets()
    assert not long.parent.exists()


@pytest.mark.req("OPS-2")
def test_a_socket_left_by_a_killed_stack_goes_at_the_next_start(folder: DataFolder) -> None:
    left = folder.run / "valkey.sock"
    left.write_text("")
    folder.socket("valkey.sock")
    assert not left.exists()
