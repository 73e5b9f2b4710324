"""What of a folder is sent, what is left out, and what is refused."""

from __future__ import annotations

import hashlib
import os
import socket
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mingora.errors import ProjectError
from mingora.ignore import Rules
from mingora.manifest import build, check_limits, scan
from mingora.paths import clashes, path_problem

Tree = Callable[..., Path]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    def make(*paths: str, **texts: str) -> Path:
        for path in paths:
            target = tmp_path / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.mkdir() if path.endswith("/") else target.write_bytes(path.encode())
        for name, text in texts.items():
            (tmp_path / name).write_text(text)
        return tmp_path

    return make


def taken(root: Path) -> set[str]:
    return {item.path for item in scan(root, rules=Rules.of(root))}


def refused(root: Path) -> dict[str, str]:
    with pytest.raises(ProjectError) as caught:
        scan(root, rules=Rules.of(root))
    return dict(caught.value.problems)


@pytest.mark.req("CLI-4", "CLI-7")
def test_entries_have_size_digest_and_executable_bit(tree: Tree) -> None:
    root = tree("b/__init__.py", "a.sh", "ölçüm 数据.csv")
    (root / "b/__init__.py").write_bytes(b"")
    (root / "a.sh").chmod(0o755)
    files = build(root)
    assert [(item.path, item.size, item.executable) for item in files] == [
        ("a.sh", 4, os.name != "nt"), ("b/__init__.py", 0, False), ("ölçüm 数据.csv", 19, False),
    ]  # fmt: skip
    assert [item.sha256 for item in files] == [
        hashlib.sha256(data).hexdigest() for data in (b"a.sh", b"", "ölçüm 数据.csv".encode())
    ]


@pytest.mark.req("CLI-4", "CLI-5")
@pytest.mark.parametrize(
    "path",
    [
        "job.json", ".mingoraignore", ".git/config", "sub/.git", ".local/x", ".env", ".env.production", "sub/.envrc",
        ".mingora-research.json", "venv/bin/python", "sub/.venv/x", "results/old.json", "key.pem", "sub/id_rsa",
        "id_ed25519.pub", ".ssh/config", ".aws/credentials", "credentials.json", ".netrc", ".pypirc", ".kube/config",
        "__pycache__/a.pyc", "a.pyc", "x.tmp", "a~", ".DS_Store", ".ipynb_checkpoints/n.ipynb", "KEY.PEM", "server.key",
    ],
)  # fmt: skip
def test_left_out_by_default(tree: Tree, path: str) -> None:
    assert taken(tree("main.py", path)) == {"main.py"}


@pytest.mark.req("CLI-5")
@pytest.mark.parametrize(
    "path",
    ["sub/job.json", "sub/results/x", "environment.yml", "env/x", "keys.txt", "weights.pt", ".gitignore", "tmp/x",
     "monkey", "results.csv", ".github/x"],
)  # fmt: skip
def test_not_left_out(tree: Tree, path: str) -> None:
    assert taken(tree(path)) == {path}


@pytest.mark.req("CLI-5")
def test_a_virtual_environment_of_any_name_is_left_out(tree: Tree) -> None:
    assert taken(tree("main.py", "my-env/pyvenv.cfg", "my-env/lib/x.py")) == {"main.py"}


@pytest.mark.req("CLI-5")
def test_own_rules_add_and_bring_back_but_never_secrets(tree: Tree) -> None:
    root = tree("main.py", "data/big.bin", "data/keep.bin", "notes.tmp", "k.pem", ".env", "results/r.json")
    (root / ".mingoraignore").write_bytes(
        "\ufeffdata/*\r\n!data/keep.bin\r\n!*.tmp\n!*.pem\n!.env\n!/results\n".encode()
    )
    assert taken(root) == {"main.py", "data/keep.bin", "notes.tmp", "results/r.json"}


@pytest.mark.req("CLI-5")
def test_what_is_left_out_is_not_looked_into(tree: Tree) -> None:
    root = tree("main.py", "venv/bin/", "data/")
    (root / "venv/bin/python").symlink_to("/usr/bin/python3")
    os.mkfifo(root / "data/pipe")
    (root / ".mingoraignore").write_text("data/\n")
    assert taken(root) == {"main.py"}


@pytest.mark.req("CLI-5")
def test_symbolic_links_are_refused_by_path(tree: Tree) -> None:
    root = tree("main.py", "real/x", "sub/")
    (root / "sub/file").symlink_to(root / "main.py")
    (root / "folder").symlink_to(root / "real")
    (root / "dangling").symlink_to(root / "nothing")
    found = refused(root)
    assert set(found) == {"sub/file", "folder", "dangling"}
    assert all("symbolic link" in text for text in found.values())


@pytest.mark.req("CLI-5")
def test_pipes_and_sockets_are_refused(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tree("main.py")
    os.mkfifo(root / "pipe")
    monkeypatch.chdir(root)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        assert set(refused(root)) == {"pipe", "socket"}


@pytest.mark.req("CLI-5")
@pytest.mark.parametrize("path", ["secret.txt", "folder"])
def test_what_cannot_be_read_is_an_error(tree: Tree, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    root = tree("secret.txt", "folder/x")
    real_open, real_scan = open, os.scandir

    def refuse(opened: object, *args: object, **kwargs: object) -> object:
        if str(opened).endswith(path):
            raise PermissionError(13, "Permission denied", str(opened))
        return real_open(opened, *args, **kwargs)  # type: ignore[call-overload]

    def refuse_scan(opened: object) -> object:
        if str(opened).endswith(path):
            raise PermissionError(13, "Permission denied", str(opened))
        return real_scan(opened)  # type: ignore[call-overload]

    monkeypatch.setattr("builtins.open", refuse)
    monkeypatch.setattr(os, "scandir", refuse_scan)
    assert refused(root) == {path: "can't be read: Permission denied"}


@pytest.mark.req("CLI-5")
def test_names_that_clash_elsewhere_are_refused_naming_both(tree: Tree) -> None:
    root = tree("Data.csv", "data.csv", unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é"))
    found = refused(root)
    assert "Data.csv" in found["data.csv"]
    assert len(found) == 2


@pytest.mark.req("CLI-5")
@pytest.mark.parametrize("name", [b"a\\b", b"a\nb", b"\xff", b"\x1b[2J", b"\xc2\x85"])
def test_names_that_do_not_travel_are_refused_and_shown_harmlessly(tmp_path: Path, name: bytes) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_bytes(b"")
    with pytest.raises(ProjectError) as caught:
        scan(tmp_path, rules=Rules.of(tmp_path))
    assert all(part.isprintable() for part in caught.value.message.split("\n"))


@pytest.mark.req("CLI-5", "BLOB-4", "BLOB-7")
def test_limits_are_reported_all_at_once_before_hashing(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tree("a", "bbbbbbbb", "c")
    monkeypatch.setattr("mingora.manifest.hash_file", lambda _path: pytest.fail("hashed"))
    limits = {"maxInputs": 2, "maxFiles": 1000, "maxFileBytes": 5, "maxBytes": 9}
    with pytest.raises(ProjectError) as caught:
        build(root, limits=limits)
    assert [path for path, _text in caught.value.problems] == [".", "bbbbbbbb", "."]
    assert all(number in caught.value.message for number in ("3 files, 2", "8 bytes, 5", "10 bytes in all, 9"))
    check_limits(scan(root), {"maxInputs": 3, "maxFileBytes": 8, "maxBytes": 10})


@pytest.mark.req("CLI-4")
def test_a_missing_folder_or_a_file_is_no_project(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"")
    for path in (tmp_path / "none", tmp_path / "f"):
        with pytest.raises(ProjectError, match=path.name):
            scan(path)


@pytest.mark.req("CLI-4")
@pytest.mark.parametrize("path", ["a", "a/b.c", "ü/数", "..a", "a..", "a/...", "-", "a b", "x" * 255])
def test_good_paths(path: str) -> None:
    assert path_problem(path) is None


@pytest.mark.req("CLI-4")
@pytest.mark.parametrize(
    "path", ["", "/a", "a/", "a//b", ".", "a/./b", "../a", "a/..", "a\\b", "a\x00", "a\x7f", "\ud800", "x" * 256,
             "ü" * 128, "/".join(["x" * 200] * 6)],
)  # fmt: skip
def test_bad_paths(path: str) -> None:
    assert path_problem(path)


@pytest.mark.req("CLI-4")
def test_clashes_of_files_and_folders() -> None:
    assert clashes(["a", "b", "sub/a"]) == []
    assert ("A", "a") in clashes(["a", "A"])
    assert clashes(["x/y", "x"]) == [("x", "x/y")]
    assert ("X", "x") in clashes(["X/1", "x/2"])
    assert clashes(["straße", "STRASSE"])


@given(st.lists(st.text("aAéÉ/ß", min_size=1, max_size=5).filter(lambda p: path_problem(p) is None), unique=True))
@pytest.mark.req("CLI-4")
def test_without_clashes_a_case_blind_disk_holds_every_file(paths: list[str]) -> None:
    def fold(text: str) -> str:
        return unicodedata.normalize("NFC", text).casefold()

    files = [fold(path) for path in paths]
    folders = {fold("/".join(path.split("/")[:end])) for path in paths for end in range(1, path.count("/") + 1)}
    if not clashes(paths):
        assert len(set(files)) == len(files)
        assert not folders & set(files)
