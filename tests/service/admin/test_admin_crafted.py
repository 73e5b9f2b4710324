"""Archives that were made up by hand, with a right digest at their end: each is refused in one sentence."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from mingora_stack.admin import rows
from mingora_stack.admin.archive import ArchiveError, Writer
from mingora_stack.admin.cli import run
from mingora_stack.admin.importing import verify

pytestmark = pytest.mark.req("OPS-1")

DEEP = b"[" * 100_000
TENANT = ["ten_00000000", "name", 1]


def made(craft: Callable[[Writer], object], **end: Any) -> BinaryIO:
    """An archive with what ``craft`` puts into it; ``end`` replaces fields of its end."""
    out = io.BytesIO()
    writer = Writer(out, {"tables": rows.columns()}, 0)
    craft(writer)
    counted = {"parts": writer.parts, "partBytes": writer.part_bytes, "rows": writer.rows, "lostParts": []}
    writer._add("end.json", json.dumps({**counted, "sha256": writer._digest.hexdigest(), **end}).encode())
    writer._tar.close()
    out.seek(0)
    return out


def table(name: str, *held: Any) -> Callable[[Writer], object]:
    return lambda writer: writer.table(name, iter(held))


def raw(body: bytes) -> Callable[[Writer], object]:
    """A member of a table that is no JSON that the writer would write."""

    def craft(writer: Writer) -> None:
        writer.rows["tenants"] = 1
        writer._add("tables/tenants/000001.jsonl", body)

    return craft


def audit(data: Any) -> Callable[[Writer], object]:
    return table("audit", [1, 1, None, "a", "b", None, None, data])


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "craft",
    [
        table("nothing", [1]), table("tenants", 1), table("tenants", [1]), table("tenants", [*TENANT, 1]),
        table("tenants", [1, "name", 1]), table("tenants", [None, "name", 1]), table("tenants", ["id", "n", 10**30]),
        table("tenants", ["id", "n", True]), table("tenants", ["id", "n", 1.5]), table("tenants", ["id", "n", [1]]),
        table("tenants", ["id", "\ud800", 1]), table("log_chunks", ["a", 0, 0, 1, "raw", "é"]),
        table("log_chunks", ["a", 1 << 31, 0, 1, "raw", ""]), audit(nested(200)),
        raw(DEEP), raw(b'["id","n",NaN]'), raw(b'["id","n",1' + b"0" * 5000 + b"]"), raw(b"\xff"),
    ],
)  # fmt: skip
def test_rows_that_are_none(craft: Callable[[Writer], object]) -> None:
    with pytest.raises(ArchiveError, match="The archive is damaged"):
        verify(made(craft))


@pytest.mark.parametrize(
    "end",
    [
        {"lostParts": None}, {"lostParts": [None]}, {"lostParts": [["obj_00000000", 1, 0]]},
        {"lostParts": [["../../etc", 1, 0, "0" * 64]]}, {"lostParts": [["obj_00000000", 1, 10**30, "0" * 64]]},
        {"rows": None}, {"rows": [1]}, {"rows": {"x": ""}},
    ],
)  # fmt: skip
def test_ends_that_are_none(end: dict[str, Any]) -> None:
    with pytest.raises(ArchiveError, match="The archive is damaged"):
        verify(made(table("tenants"), **end))


def test_a_manifest_that_is_deep() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        member = tarfile.TarInfo("mingora.json")
        member.size = len(DEEP)
        tar.addfile(member, io.BytesIO(DEEP))
    out.seek(0)
    with pytest.raises(ArchiveError, match="isn't an archive"):
        verify(out)


def test_what_is_right_is_taken() -> None:
    lost = [["obj_00000000", 1, 0, "0" * 64]]
    verify(made(table("tenants", TENANT, ["id", "çö", -(1 << 63)]), lostParts=lost))
    verify(made(audit({"a": [1, None, "ö", 1.5, nested(20)]})))


class Zeros(io.RawIOBase):
    """A header, then 3 GB that take no room on the disk; counts what is read."""

    def __init__(self, before: bytes, header: tarfile.TarInfo) -> None:
        self._head = io.BytesIO(before + header.tobuf(tarfile.USTAR_FORMAT))
        self.given = 0

    def read(self, size: int = -1) -> bytes:
        data = self._head.read(size) or bytes(size)
        self.given += len(data)
        return data


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
@pytest.mark.parametrize("first", [True, False])
def test_a_header_of_gigabytes_is_not_read(kind: bytes, first: bool) -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = kind, 3 << 30
    before = io.BytesIO()
    if not first:
        Writer(before, {"tables": rows.columns()}, 0)
    stream = Zeros(before.getvalue(), header)
    with pytest.raises(ArchiveError, match="header in it is far too large"):
        verify(stream)  # type: ignore[arg-type]
    assert stream.given < 1 << 20


def test_rows_that_contradict_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "twice.mingora").write_bytes(made(table("tenants", TENANT, TENANT)).read())
    monkeypatch.setenv("DATABASE_URL", f"sqlite:///{tmp_path}/platform.sqlite")
    monkeypatch.setenv("MINGORA_CONTENT_FILE", f"{tmp_path}/content.sqlite")
    assert run(["import", str(tmp_path / "twice.mingora")]) == 1
    said = capsys.readouterr().err
    assert "damaged or altered: tenants can't hold its rows" in said and "Traceback" not in said
