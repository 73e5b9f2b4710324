"""What is taken of the engine's archive of a job's results, however hostile its names, types and bytes."""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import stat
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mingora_worker import results
from mingora_worker.results import MAX_FILES, TooManyFiles, collect
from mingora_worker.runtimes.docker import archive
from mingora_worker.runtimes.docker.archive import Contents, take
from mingora_worker.runtimes.docker.output import OutputFailed

pytestmark = pytest.mark.req("WORK-7", "WORK-3")

MIB = 1 << 20
PAGE = 4096
TOP = "output/"


def entry(name: str, content: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(TOP + name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def tar(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT, errors="surrogateescape") as made:
        made.addfile(folder("")[0])
        for info, content in entries:
            made.addfile(info, io.BytesIO(content))
    return file.getvalue()


def folder(name: str) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, type=tarfile.DIRTYPE, mode=0o755)


def pieces(data: bytes, size: int = 10_000) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def taken(data: bytes, spool: Path, limit: int = MIB, check: Callable[[], object] = lambda: None) -> Contents:
    spool.mkdir()
    return take(pieces(data), spool, limit, check)


def test_files_with_digest_size_and_executable_bit(tmp_path: Path) -> None:
    data = tar(folder("a"), entry("a/b", b"bytes", mode=0o644), entry("run", b"#!", mode=0o755), entry("ü", b""))
    contents = taken(data, tmp_path / "spool")
    assert [(f.path, f.size, f.executable) for f in contents.found.files] == [
        ("a/b", 5, False), ("run", 2, True), ("ü", 0, False)
    ]  # fmt: skip
    for file in contents.found.files:
        assert file.source.parent == tmp_path / "spool"
        assert hashlib.sha256(file.source.read_bytes()).hexdigest() == file.sha256
        assert (file.source.stat().st_size, file.source.stat().st_mtime_ns) == (file.size, file.mtime_ns)
    assert (contents.entries, contents.size, contents.holes) == (4, 2 * PAGE, None)
    assert contents.found.refused == []


def test_long_archives_and_long_files_are_read_to_their_end(tmp_path: Path) -> None:
    content = os.urandom(3 * MIB)
    data = tar(*(entry(f"{number:04}", b"x") for number in range(2_000)), entry("long", content))
    asked = []
    contents = taken(data, tmp_path / "spool", 12 * MIB, lambda: asked.append(1))
    assert len(contents.found.files) == 2_001
    assert contents.found.files[-1].sha256 == hashlib.sha256(content).hexdigest()
    assert len(asked) >= 2_001 + 2_000 + 3 * MIB // archive.BLOCK  # for each entry, and for each piece of a file


def test_an_empty_folder_has_no_results(tmp_path: Path) -> None:
    assert taken(tar(), tmp_path / "spool") == Contents()


def test_what_is_no_file_is_refused_and_the_rest_kept(tmp_path: Path) -> None:
    kinds = [tarfile.SYMTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.CONTTYPE, b"Z"]
    entries = [entry(f"odd{number}", type=kind, linkname="/etc/passwd") for number, kind in enumerate(kinds)]
    contents = taken(tar(*entries, entry("good", b"good")), tmp_path / "spool")
    assert [file.path for file in contents.found.files] == ["good"]
    assert len(contents.found.refused) == len(kinds)
    assert [path.name for path in (tmp_path / "spool").iterdir()] == ["0"]


def test_no_name_leads_out_of_the_spool(tmp_path: Path) -> None:
    names = ["../up", "/absolute", "a/../../up", ".", "..", "a//b", "new\nline", "back\\slash", "\udcff", "x" * 256]
    contents = taken(tar(*(entry(name, b"evil") for name in names), entry("good")), tmp_path / "spool")
    assert [file.path for file in contents.found.files] == ["good"]
    assert len(contents.found.refused) == len(names)
    assert [path.name for path in tmp_path.iterdir()] == ["spool"]
    assert all(text.isprintable() for text in contents.found.refused)


def test_what_is_in_a_refused_folder_is_refused_with_it(tmp_path: Path) -> None:
    data = tar(folder("a\n"), entry("a\n/x", b"x"), folder("a\n/b"), entry("a\n/b/c", b"x"), entry("good"))
    contents = taken(data, tmp_path / "spool")
    assert [file.path for file in contents.found.files] == ["good"]
    assert len(contents.found.refused) == 1
    assert contents.size == 2 * PAGE


def test_of_a_file_with_two_names_neither_is_taken(tmp_path: Path) -> None:
    link = entry("b", type=tarfile.LNKTYPE, linkname=TOP + "a")
    contents = taken(tar(entry("a", b"a"), link, entry("c")), tmp_path / "spool")
    assert [file.path for file in contents.found.files] == ["c"]
    assert [text[0] for text in contents.found.refused] == ["b", "a"]


def test_names_that_clash_elsewhere_leave_one(tmp_path: Path) -> None:
    names = ["README", "readme", "e\u0301", "\u00e9"]
    contents = taken(tar(*map(entry, names)), tmp_path / "spool")
    assert [file.path for file in contents.found.files] == ["README", "e\u0301"]
    assert len(contents.found.refused) == 2


def test_a_name_that_comes_twice_is_no_folders(tmp_path: Path) -> None:
    with pytest.raises(OutputFailed):
        taken(tar(entry("a", b"one"), entry("a", b"two")), tmp_path / "spool")


def test_a_file_of_less_than_no_bytes_makes_no_room(tmp_path: Path) -> None:
    info = tarfile.TarInfo(TOP + "a")
    info.size = -(1 << 30)
    data = info.tobuf(tarfile.GNU_FORMAT) + tar(entry("b", bytes(PAGE)))
    with pytest.raises(OutputFailed):
        taken(data, tmp_path / "spool", PAGE)


def test_a_file_larger_than_its_disk_ends_it_unread(tmp_path: Path) -> None:
    info = tarfile.TarInfo(TOP + "holes")
    info.size = 1 << 40
    data = tar(entry("a", b"a"))[: 3 * 512] + info.tobuf(tarfile.PAX_FORMAT)

    def endless() -> Iterator[bytes]:
        yield data
        for _ in range(8):
            yield bytes(1 << 16)
        pytest.fail("the holes are read")

    (tmp_path / "spool").mkdir()
    contents = take(endless(), tmp_path / "spool", MIB, lambda: None)
    assert contents.holes == "holes"
    assert [file.path for file in contents.found.files] == ["a"]


def test_the_limit_is_of_whole_pages(tmp_path: Path) -> None:
    data = tar(entry("a", bytes(PAGE)), entry("b", b"b"), entry("c", b""), entry("d", b"d"))
    assert taken(data, tmp_path / "most", 3 * PAGE).holes is None
    assert taken(data, tmp_path / "less", 2 * PAGE).holes == "d"
    assert taken(data, tmp_path / "part", 2 * PAGE + 1).holes is None


def test_there_is_a_most_of_files_of_entries_and_of_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_FILES", 10)
    assert len(taken(tar(*(entry(f"{n:02}") for n in range(10))), tmp_path / "enough").found.files) == 10
    with pytest.raises(TooManyFiles):
        taken(tar(*(entry(f"{n:02}") for n in range(11))), tmp_path / "files")
    monkeypatch.setattr(archive, "MAX_ENTRIES", 10)
    with pytest.raises(TooManyFiles):
        taken(tar(*(folder(f"{n:02}") for n in range(11))), tmp_path / "folders")
    monkeypatch.setattr(archive, "MAX_ENTRIES", 100)
    monkeypatch.setattr(results, "MAX_FILES", 10)
    with pytest.raises(TooManyFiles):
        taken(tar(*(entry(f"{n:02}\n") for n in range(20))), tmp_path / "refusals")


def test_a_check_may_end_it(tmp_path: Path) -> None:
    def check() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        taken(tar(entry("a", b"a")), tmp_path / "spool", check=check)


def test_an_archive_that_breaks_off_is_no_archive(tmp_path: Path) -> None:
    whole = tar(folder("a"), entry("a/b", bytes(2_000)), entry("c" * 200, b"long"))
    end = len(whole.rstrip(b"\0")) // 512 * 512 + 512
    for length, number in zip(range(0, end, 256), itertools.count()):
        with pytest.raises(OutputFailed):
            taken(whole[:length], tmp_path / str(number))


@pytest.mark.timeout(30)
def test_a_header_without_end_doesnt_fill_the_memory(tmp_path: Path) -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 1 << 40
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        yield header.tobuf(tarfile.GNU_FORMAT)
        while True:
            sent += MIB
            yield b"1" * MIB

    (tmp_path / "spool").mkdir()
    with pytest.raises(OutputFailed):
        take(endless(), tmp_path / "spool", MIB, lambda: None)
    assert sent <= 4 * MIB


def test_headers_in_headers_end_too(tmp_path: Path) -> None:
    header = tarfile.TarInfo("x")
    header.type = tarfile.XHDTYPE
    with pytest.raises(OutputFailed):
        taken(header.tobuf(tarfile.GNU_FORMAT) * 5_000, tmp_path / "spool")


@pytest.mark.parametrize("keys", [{"size": "-5"}, {"size": "999999999999"}, {"GNU.sparse.map": "0,1,2"}])
def test_pax_records_that_lie_about_the_size(tmp_path: Path, keys: dict[str, str]) -> None:
    info, content = entry("a", b"abc")
    info.pax_headers = keys
    try:
        contents = taken(tar((info, content), entry("b")), tmp_path / "spool")
    except OutputFailed:
        return
    assert all(file.path == "b" for file in contents.found.files)


NAMES = st.lists(
    st.one_of(
        st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=8),
        st.sampled_from([".", "..", "a", "A", "\udcff", "d" * 255, "d" * 256, ".mingora-partial", "results"]),
    ),
    min_size=1,
    max_size=4,
).map("/".join)
TYPES = st.sampled_from(
    [tarfile.REGTYPE] * 4 + [tarfile.AREGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE,
     tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.CONTTYPE, b"Z"]
)  # fmt: skip
ENTRIES = st.lists(st.tuples(NAMES, TYPES, st.binary(max_size=600), NAMES), max_size=12)


@st.composite
def hostile(draw: st.DrawFn) -> bytes:
    """Archives of odd entries, some of them damaged."""
    made = []
    for name, kind, content, link in draw(ENTRIES):
        info, _content = entry(name, content if kind in {tarfile.REGTYPE, tarfile.AREGTYPE} else b"", type=kind)
        info.linkname = TOP + link
        made.append((info, content))
    data = bytearray(tar(*made))
    for at, value in draw(st.lists(st.tuples(st.integers(0, len(data) - 1), st.integers(0, 255)), max_size=4)):
        data[at] = value
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


@settings(max_examples=300)
@given(hostile(), st.integers(1, 20_000), st.integers(1, 3) | st.just(1 << 20))
def test_any_archive_gives_good_files_or_a_refusal(data: bytes, limit: int, size: int) -> None:
    with tempfile.TemporaryDirectory() as root:
        spool = Path(root) / "spool"
        spool.mkdir()
        try:
            contents = take(pieces(data, max(size, 512)), spool, limit, lambda: None)
        except OutputFailed:
            contents = Contents()
        assert os.listdir(root) == ["spool"]
        assert all(stat.S_ISREG(path.lstat().st_mode) for path in spool.iterdir())
        assert sum(path.stat().st_size for path in spool.iterdir()) <= limit + PAGE
        assert len(contents.found.files) <= MAX_FILES
        paths = [file.path for file in contents.found.files]
        assert paths == sorted(set(paths), key=paths.index) == sorted(paths)
        for file in contents.found.files:
            assert hashlib.sha256(file.source.read_bytes()).hexdigest() == file.sha256


@settings(max_examples=50)
@given(st.dictionaries(st.text("aAbé\u0301\n\\ ", min_size=1, max_size=3), st.binary(max_size=50), max_size=6))
def test_an_archive_and_its_folder_give_the_same(files: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as root:
        made = Path(root) / "output"
        made.mkdir()
        for name, content in files.items():
            (made / name).write_bytes(content)
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w") as packed:
            packed.add(made, "output")
        spool = Path(root) / "spool"
        spool.mkdir()
        by_archive = take(pieces(file.getvalue()), spool, MIB, lambda: None).found
        by_folder = collect(Path(root), "output")
        assert [(f.path, f.sha256) for f in by_archive.files] == [(f.path, f.sha256) for f in by_folder.files]
        assert sorted(by_archive.refused) == sorted(by_folder.refused)
