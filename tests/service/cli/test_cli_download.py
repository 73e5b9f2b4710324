"""Results over real HTTP: verified, resumed, and never outside the folder."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from service.cli.mingora_fake import FakePlatform

from mingora.client import Client
from mingora.download import PARTIAL, download_files
from mingora.errors import IntegrityError, JobUnfinished, ResultConflict
from mingora.transport import Transport

CONTENT = r"/objects/obj_\d+/content"


def fetch(transport: Transport, entries: list[dict[str, object]], to: Path, *, overwrite: bool = False) -> list[Path]:
    return download_files(transport, entries, to, sleep=lambda _seconds: None, overwrite=overwrite)


@pytest.mark.req("CLI-7", "CLI-9", "CLI-11")
def test_results_arrive_with_names_bits_and_empty_files(platform: FakePlatform, client: Client, tmp_path: Path) -> None:
    results = [
        platform.result("summary.json", b"{}" * 500),
        platform.result("tables/ölçüm 数据.csv", b"a,b\n"),
        platform.result("empty", b""),
        platform.result("tool", b"#!", executable=True),
        platform.result("copy.csv", b"a,b\n"),
    ]
    platform.add_job(state="succeeded", results=results)
    paths = client.results("job_00000001", tmp_path / "out")
    assert [path.relative_to(tmp_path / "out").as_posix() for path in paths] == [entry["path"] for entry in results]
    assert [path.read_bytes() for path in paths] == [b"{}" * 500, b"a,b\n", b"", b"#!", b"a,b\n"]
    assert [os.access(path, os.X_OK) for path in paths] == [False, False, False, True, False]
    assert not (tmp_path / "out" / PARTIAL).exists()


@pytest.mark.req("CLI-9")
def test_several_ranks_results_lie_apart(platform: FakePlatform, client: Client, tmp_path: Path) -> None:
    results = [platform.result("log.txt", b"zero", rank=0), platform.result("log.txt", b"one", rank=1)]
    platform.add_job(state="succeeded", results=results)
    paths = client.results("job_00000001", tmp_path)
    assert {path.relative_to(tmp_path).as_posix(): path.read_bytes() for path in paths} == {
        "rank-0/log.txt": b"zero", "rank-1/log.txt": b"one",
    }  # fmt: skip


@pytest.mark.req("CLI-9")
def test_a_body_cut_half_way_goes_on_by_range(platform: FakePlatform, transport: Transport, tmp_path: Path) -> None:
    data = bytes(range(256)) * 8
    entry = platform.result("f", data)
    platform.fail("GET", CONTENT, "half", times=3)
    fetch(transport, [entry], tmp_path)
    assert (tmp_path / "f").read_bytes() == data
    ranges = [seen.headers.get("range") for seen in platform.asked("GET", CONTENT)]
    assert ranges == [None, "bytes=1024-", "bytes=1536-", "bytes=1792-"]
    assert platform.asked("GET", CONTENT)[1].headers["if-range"] == f'"{entry["sha256"]}"'


@pytest.mark.req("CLI-9")
def test_a_download_broken_off_for_good_goes_on_next_time(
    platform: FakePlatform, transport: Transport, tmp_path: Path
) -> None:
    data = bytes(range(256)) * 8
    entry = platform.result("f", data)
    platform.fail("GET", CONTENT, "half")
    platform.fail("GET", CONTENT, "answer", 403, code="insufficient_scope", retryable=False)
    with pytest.raises(Exception, match="down"):
        fetch(transport, [entry], tmp_path)
    assert not (tmp_path / "f").exists()
    fetch(transport, [entry], tmp_path)
    assert platform.asked("GET", CONTENT)[-1].headers["range"] == "bytes=1024-"
    assert (tmp_path / "f").read_bytes() == data


@pytest.mark.req("CLI-9")
def test_wrong_bytes_left_from_before_are_fetched_anew(
    platform: FakePlatform, transport: Transport, tmp_path: Path
) -> None:
    entry = platform.result("f", b"0123456789")
    (tmp_path / PARTIAL).mkdir()
    (tmp_path / PARTIAL / str(entry["sha256"])).write_bytes(b"!!!!")
    fetch(transport, [entry], tmp_path)
    assert (tmp_path / "f").read_bytes() == b"0123456789"


@pytest.mark.req("BLOB-1", "CLI-9")
@pytest.mark.parametrize("damage", [b"0123456788", b"012345678", b"0123456789!"])
def test_bytes_that_do_not_match_are_refused(
    platform: FakePlatform, transport: Transport, tmp_path: Path, damage: bytes
) -> None:
    entry = platform.result("f", b"0123456789")
    platform.content[str(entry["objectId"])] = {0: damage}
    with pytest.raises(IntegrityError, match="f:"):
        fetch(transport, [entry], tmp_path)
    assert not (tmp_path / "f").exists()


@pytest.mark.req("CLI-9")
def test_identical_files_are_kept_and_others_not_overwritten(
    platform: FakePlatform, transport: Transport, tmp_path: Path
) -> None:
    entries = [platform.result("same", b"same"), platform.result("new", b"new"), platform.result("mine", b"theirs")]
    (tmp_path / "same").write_bytes(b"same")
    (tmp_path / "mine").write_bytes(b"mine!!")
    with pytest.raises(ResultConflict, match="mine"):
        fetch(transport, entries, tmp_path)
    assert platform.asked("GET", CONTENT) == []
    assert not (tmp_path / "new").exists()
    fetch(transport, entries, tmp_path, overwrite=True)
    assert (tmp_path / "mine").read_bytes() == b"theirs"
    assert len(platform.asked("GET", CONTENT)) == 2


@pytest.mark.req("CLI-9")
@pytest.mark.parametrize(
    "path", ["../x", "/etc/x", "a/../../x", "a//b", "", ".", "a\\b", "a\nb", f"{PARTIAL}/x", "a/" + "b" * 256]
)
def test_a_name_that_leads_elsewhere_is_refused(
    platform: FakePlatform, transport: Transport, tmp_path: Path, path: str
) -> None:
    with pytest.raises(ResultConflict):
        fetch(transport, [platform.result(path, b"evil")], tmp_path / "out")
    assert platform.seen == []


@pytest.mark.req("CLI-9")
@pytest.mark.parametrize(
    "wrong", [{"sha256": "../../evil"}, {"sha256": "A" * 64}, {"sha256": None}, {"size": -1}, {"size": "4"}]
)
def test_a_digest_or_size_that_is_none_is_refused(
    platform: FakePlatform, transport: Transport, tmp_path: Path, wrong: dict[str, object]
) -> None:
    with pytest.raises(IntegrityError):
        fetch(transport, [{**platform.result("f", b"evil"), **wrong}], tmp_path / "a" / "b")
    assert platform.seen == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.req("CLI-9")
def test_symbolic_links_in_the_folder_are_not_followed(
    platform: FakePlatform, transport: Transport, tmp_path: Path
) -> None:
    outside, out = tmp_path / "outside", tmp_path / "out"
    outside.mkdir()
    out.mkdir()
    (out / "sub").symlink_to(outside)
    (outside / "target").write_bytes(b"precious")
    (out / "link").symlink_to(outside / "target")
    for path in ("sub/f", "link"):
        with pytest.raises(ResultConflict):
            fetch(transport, [platform.result(path, b"evil")], out, overwrite=True)
    (out / PARTIAL).symlink_to(outside)
    with pytest.raises(ResultConflict):
        fetch(transport, [platform.result("f", b"evil")], out)
    assert sorted(path.name for path in outside.iterdir()) == ["target"]
    assert (outside / "target").read_bytes() == b"precious"


@pytest.mark.req("CLI-12")
def test_an_unfinished_job_has_no_results_yet(platform: FakePlatform, client: Client, tmp_path: Path) -> None:
    platform.add_job(state="running")
    with pytest.raises(JobUnfinished) as caught:
        client.results("job_00000001", tmp_path / "out")
    assert caught.value.exit_code == 101
    assert not (tmp_path / "out").exists()


@pytest.mark.req("CLI-9")
def test_progress_ends_at_the_whole_size(platform: FakePlatform, transport: Transport, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    entries = [platform.result("a", b"x" * 50), platform.result("b", b"x" * 50), platform.result("c", b"y" * 30)]
    download_files(transport, entries, tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (80, 80)
    assert hashlib.sha256((tmp_path / "b").read_bytes()).hexdigest() == entries[1]["sha256"]
