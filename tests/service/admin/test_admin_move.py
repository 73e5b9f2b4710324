"""Export and import: a platform is the same one wherever it has been moved to, and nothing is ever half imported."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import stat
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from blob_support import Caller, random_bytes, sha
from moving_support import INPUT, LOG, ORPHAN, RESULT, Moved, Whole, rows_of, whole
from scheduler_platform import Worker
from support import FakeClock

from mingora_blobstore.domain.objects import PartKey
from mingora_blobstore.store.sqlite_content import SqliteContent
from mingora_common.db import migrate, schema
from mingora_common.http import API_PREFIX
from mingora_stack.admin import importing
from mingora_stack.admin.archive import Writer
from mingora_stack.admin.exporting import Exporter
from mingora_stack.admin.keyset import KeySet

Admin = Callable[..., Any]
ROOT = Path(__file__).parents[3]


@pytest.fixture
def archive(source: Whole, moved: Moved, admin: Admin, tmp_path: Path) -> Path:
    path = tmp_path / "platform.mingora"
    admin(source.url, source.content_file, "export", str(path))
    return path


@pytest.fixture
def content(tmp_path: Path) -> Path:
    return tmp_path / "target-content.sqlite"


def tables_are_empty(url: str) -> bool:
    migrate.upgrade(url)
    return not any(rows_of(url, sa.select(table).limit(1)) for table in schema.metadata.tables.values())


def parts_in(path: Path) -> int:
    return len(SqliteContent(str(path)).older(2**60, 0, 1000)) if path.exists() else 0


@pytest.mark.req("OPS-1", "OPS-2")
def test_a_moved_platform_is_the_same_one(
    source: Whole, moved: Moved, archive: Path, admin: Admin, target_url: str, content: Path, clock: FakeClock
) -> None:
    before = source.dump()
    done = admin(target_url, content, "import", str(archive))
    assert done["parts"] == 3 + 1 + 1 and done["lostParts"] == 0 and done["rows"] > 40
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    with whole(target_url, content, clock, moved) as target:
        (made,) = rows_of(target_url, sa.select(schema.audit).where(schema.audit.c.action == "platform.import"))
        assert made.actor.startswith("operator:") and made.id > max(row[0] for row in before["audit"])
        assert target.dump() == before
        user = Caller(target.blobs.app, moved.user.token)
        for object_id, data in ((moved.input_id, INPUT), (moved.result_id, RESULT)):
            assert user.call("GET", f"/objects/{object_id}/content").data == data
        assert user.usage() == moved.user.usage()
        assert ORPHAN not in [key for _, key in target.blobs.content.older(2**60, 0, 100)]


@pytest.mark.req("OPS-1", "AUTH-9", "JOB-7")
def test_workers_and_running_jobs_go_on_sanely(
    source: Whole, moved: Moved, archive: Path, admin: Admin, target_url: str, content: Path, clock: FakeClock
) -> None:
    admin(target_url, content, "import", str(archive))
    with whole(target_url, content, clock, moved) as target:
        platform = target.platform
        idle, busy = (Worker(platform, old.id, old.token, old.lease) for old in (moved.idle, moved.busy))
        assert busy.beat().status_code == 200, "a worker that found the new address within the minute goes on"
        clock.advance(61)
        platform.expire()
        assert platform.status(moved.running).state in ("queued", "failed")
        assert busy.beat().status_code in (401, 409)
        job = platform.seed.job(platform.account, "after")
        idle.claim(status=204)
        clock.advance(1)
        platform.place()
        idle.claim("claim-9999999999")
        assert idle.lease["jobId"] in (job, moved.running)


@pytest.mark.req("OPS-1")
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_full_platform_takes_no_import(
    source: Whole, moved: Moved, archive: Path, admin: Admin, target_url: str, content: Path
) -> None:
    admin(target_url, content, "import", str(archive))
    dump = {name: rows_of(target_url, sa.select(table)) for name, table in schema.metadata.tables.items()}
    assert "isn't empty" in admin(target_url, content, "import", str(archive), fails=1)
    assert dump == {name: rows_of(target_url, sa.select(table)) for name, table in schema.metadata.tables.items()}
    assert parts_in(content) == 5


def cut(data: bytes) -> bytes:
    return data[: len(data) * 2 // 3]


def without_end(data: bytes) -> bytes:
    return rewritten(data, lambda name, body: None if name == "end.json" else body)


def other_part(data: bytes) -> bytes:
    return rewritten(data, lambda name, body: body[:-1] + b"x" if name.startswith("content/") else body)


def other_row(data: bytes) -> bytes:
    return rewritten(data, lambda name, body: body.replace(b'"ali"', b'"eve"'))


def row_less(data: bytes) -> bytes:
    return rewritten(data, lambda name, body: None if name.startswith("tables/tokens/") else body)


def way_out(data: bytes) -> bytes:
    return rewritten(data, lambda name, body: body, names=lambda name: name.replace("content/", "../content/"))


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def newer(data: bytes) -> bytes:
    return rewritten(data, lambda name, body: body.replace(b'"version":1', b'"version":2'))


def foreign_schema(data: bytes) -> bytes:
    return rewritten(data, lambda name, body: body.replace(b'"tenants":["id"', b'"tenants":["uid"'))


def rewritten(
    data: bytes, change: Callable[[str, bytes], bytes | None], names: Callable[[str], str] = lambda name: name
) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(data)) as old, tarfile.open(fileobj=out, mode="w") as new:
        for member in old:
            file = old.extractfile(member)
            assert file is not None
            body = change(member.name, file.read())
            if body is not None:
                info = tarfile.TarInfo(names(member.name))
                info.size = len(body)
                new.addfile(info, io.BytesIO(body))
    return out.getvalue()


@pytest.mark.req("OPS-1")
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (cut, "cut off"), (without_end, "cut off"), (other_part, "altered"), (other_row, "altered"),
        (row_less, "altered"), (way_out, "doesn't belong"), (flipped, ""), (newer, "format version 2"),
        (foreign_schema, "other tables"), (lambda data: b"", "isn't an archive"), (lambda data: b"x" * 5000, "isn't"),
    ],
)  # fmt: skip
def test_a_damaged_archive_changes_nothing(
    damage: Callable[[bytes], bytes], told: str, archive: Path, admin: Admin, tmp_path: Path, content: Path
) -> None:
    broken = tmp_path / "broken.mingora"
    broken.write_bytes(damage(archive.read_bytes()))
    target = f"sqlite:///{tmp_path}/fresh.sqlite"
    error = admin(target, content, "import", str(broken), fails=1)
    assert told in error and "Traceback" not in error
    assert not (tmp_path / "fresh.sqlite").exists() and not content.exists()


@pytest.mark.req("OPS-1")
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_an_import_that_fails_late_leaves_nothing(
    archive: Path, admin: Admin, target_url: str, content: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive changes between the check and the import: the worst moment, with all bytes stored."""
    monkeypatch.setattr("mingora_stack.admin.cli.verify", lambda stream: None)
    archive.write_bytes(other_row(archive.read_bytes()))
    assert "altered" in admin(target_url, content, "import", str(archive), fails=1)
    assert tables_are_empty(target_url) and parts_in(content) == 0


@pytest.mark.req("OPS-1")
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_disk_without_room_for_temporary_files_is_told(
    source: Whole, archive: Path, admin: Admin, tmp_path: Path, content: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, added = KeySet.add, []

    def full(self: KeySet, key: PartKey) -> None:
        added.append(key)
        if len(added) % 3 == 0:
            self._file.execute("PRAGMA max_page_count=1")
            self._file.execute("CREATE TABLE more (x)")
        add(self, key)

    monkeypatch.setattr(KeySet, "add", full)
    second, target = tmp_path / "second.mingora", f"sqlite:///{tmp_path}/t.sqlite"
    for error in (
        admin(source.url, source.content_file, "export", str(second), fails=1),
        admin(target, content, "import", str(archive), fails=1),
    ):
        assert "beside the content file" in error and "is full" in error and "Make room" in error
    assert not second.exists() and tables_are_empty(target) and parts_in(content) == 0


@pytest.mark.req("OPS-1")
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_content_that_a_sweep_takes_meanwhile_is_missed(
    archive: Path, admin: Admin, target_url: str, content: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert = importing.Importer._insert

    def swept(self: Any, connection: Any, member: Any) -> None:
        for _, key in self._content.older(2**60, 0, 1):
            self._content.delete(key)
        insert(self, connection, member)

    monkeypatch.setattr(importing.Importer, "_insert", swept)
    assert "Stop the services" in admin(target_url, content, "import", str(archive), fails=1)
    assert tables_are_empty(target_url) and parts_in(content) == 0


@pytest.mark.req("OPS-1")
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_an_import_that_was_killed_is_run_again(
    source: Whole, moved: Moved, archive: Path, admin: Admin, target_url: str, content: Path, clock: FakeClock
) -> None:
    code = (
        "import os, signal, sys\n"
        "from mingora_stack.admin import cli, importing\n"
        "importing.Importer._finish = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "cli.run(sys.argv[1:])\n"
    )
    environ = {**os.environ, "DATABASE_URL": target_url, "MINGORA_CONTENT_FILE": str(content)}
    killed = subprocess.run([sys.executable, "-c", code, "import", str(archive)], env=environ, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert tables_are_empty(target_url) and parts_in(content) == 5
    assert admin(target_url, content, "import", str(archive))["parts"] == 5
    with whole(target_url, content, clock, moved) as target:
        user = Caller(target.blobs.app, moved.user.token)
        assert user.call("GET", f"/objects/{moved.input_id}/content").data == INPUT


@pytest.mark.req("OPS-1")
def test_an_export_while_people_work_is_of_one_moment(
    source: Whole, moved: Moved, admin: Admin, tmp_path: Path, content: Path, target_url: str, clock: FakeClock
) -> None:
    """Objects come and go all the while: whatever the archive names is in it, byte for byte."""
    stop = threading.Event()
    made: dict[str, bytes] = {}

    def work() -> None:
        number = 10
        while not stop.is_set():
            data = random_bytes(40_000, number)
            object_id = moved.user.store(data)
            made[object_id] = data
            if number % 2:
                assert moved.user.call("DELETE", f"/objects/{object_id}").status_code == 204
            number += 1

    worker = threading.Thread(target=work)
    worker.start()
    try:
        while len(made) < 5:
            time.sleep(0.01)
        for number in range(3):
            admin(source.url, source.content_file, "export", str(tmp_path / f"{number}.mingora"))
    finally:
        stop.set()
        worker.join()
    assert admin(target_url, content, "import", str(tmp_path / "2.mingora"))["lostParts"] == 0
    with whole(target_url, content, clock, moved) as target:
        user = Caller(target.blobs.app, moved.user.token)
        complete = rows_of(target_url, sa.select(schema.objects.c.id).where(schema.objects.c.state == "complete"))
        ours = [row.id for row in complete if row.id in made]
        assert len(ours) > 1
        for object_id in ours:
            assert user.call("GET", f"/objects/{object_id}/content").data == made[object_id]


@pytest.mark.req("OPS-1")
def test_a_deletion_between_the_two_looks_is_in_neither(
    source: Whole, moved: Moved, admin: Admin, tmp_path: Path, content: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = Exporter._send_most
    late = random_bytes(9_000, 99)

    def meanwhile(self: Any, writer: Any, sent: Any) -> None:
        most(self, writer, sent)
        assert moved.user.call("DELETE", f"/objects/{early}").status_code == 204
        meanwhile.late = moved.user.store(late)  # type: ignore[attr-defined]

    early = moved.user.store(random_bytes(9_000, 98))
    monkeypatch.setattr(Exporter, "_send_most", meanwhile)
    path = tmp_path / "a.mingora"
    assert admin(source.url, source.content_file, "export", str(path))["lostParts"] == 0
    target = f"sqlite:///{tmp_path}/t.sqlite"
    admin(target, content, "import", str(path))
    ids = {row.id for row in rows_of(target, sa.select(schema.objects.c.id))}
    assert early not in ids and meanwhile.late in ids  # type: ignore[attr-defined]


@pytest.mark.req("OPS-1")
def test_uploads_never_wait_for_whoever_takes_the_archive(
    source: Whole, moved: Moved, admin: Admin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written to the stream while content is held still, and few bytes are read."""
    frozen, read, send_new, write = SqliteContent.frozen, SqliteContent.read, Exporter._send_new, Writer._add
    held, reads, passes = [False], [0], [0]

    @contextlib.contextmanager
    def watched(self: SqliteContent) -> Iterator[None]:
        with frozen(self):
            held[0] = True
            yield
            held[0] = False

    def counted(self: SqliteContent, *words: Any) -> bytes | None:
        reads[0] += held[0]
        return read(self, *words)

    def meanwhile(self: Exporter, *words: Any) -> None:
        """Many parts come during the first pass, one during each later one."""
        send_new(self, *words)
        for number in range(1 if passes[0] else 20):
            moved.user.store(random_bytes(500, 100 * passes[0] + number + 1000))
        passes[0] += 1

    def written(self: Writer, name: str, data: bytes) -> None:
        assert not held[0], name
        write(self, name, data)

    for number in range(10):
        moved.user.store(random_bytes(500, 900 + number))
    for target, name, patch in (
        (SqliteContent, "frozen", watched), (SqliteContent, "read", counted), (Exporter, "_send_new", meanwhile),
        (Writer, "_add", written),
    ):  # fmt: skip
        monkeypatch.setattr(target, name, patch)
    done = admin(source.url, source.content_file, "export", str(tmp_path / "a.mingora"))
    assert (passes[0], reads[0]) == (3, 1) and done["parts"] == 5 + 10 + 20 + 2 and done["lostParts"] == 0


@pytest.mark.req("OPS-1", "BLOB-2")
def test_what_was_lost_before_is_told_and_moves_along_as_lost(
    source: Whole, moved: Moved, admin: Admin, tmp_path: Path, content: Path, clock: FakeClock
) -> None:
    ((key),) = [k for _, k in source.blobs.content.older(2**60, 0, 100) if k.object_id == moved.result_id]
    source.blobs.content.delete(key)
    path = tmp_path / "a.mingora"
    assert admin(source.url, source.content_file, "export", str(path))["lostParts"] == 1
    target = f"sqlite:///{tmp_path}/t.sqlite"
    assert admin(target, content, "import", str(path))["lostParts"] == 1
    with whole(target, content, clock, moved) as it:
        answer = Caller(it.blobs.app, moved.user.token).call("GET", f"/objects/{moved.result_id}/content")
        assert answer.status_code == 409 and answer.json["error"]["code"] == "object_corrupt"


@pytest.mark.req("OPS-1")
def test_the_archive_is_a_tar_that_describes_itself(archive: Path) -> None:
    with tarfile.open(archive) as tar:
        names = tar.getnames()
        manifest = json.load(tar.extractfile("mingora.json"))  # type: ignore[arg-type]
        end = json.load(tar.extractfile("end.json"))  # type: ignore[arg-type]
    assert names[0] == "mingora.json" and names[-1] == "end.json"
    assert manifest["format"] == "mingora-archive" and manifest["version"] == 1
    assert manifest["schema"] == migrate.head() and manifest["tables"]["tenants"] == ["id", "name", "created_at"]
    assert end["parts"] == sum(name.startswith("content/") for name in names) and end["rows"]["jobs"] == 2


@pytest.mark.req("OPS-1")
def test_an_export_never_overwrites_and_a_killed_one_leaves_no_archive(
    source: Whole, moved: Moved, archive: Path, admin: Admin, tmp_path: Path
) -> None:
    before = archive.read_bytes()
    assert "exists already" in admin(source.url, source.content_file, "export", str(archive), fails=1)
    assert archive.read_bytes() == before
    code = (
        "import os, signal, sys\n"
        "from mingora_stack.admin import cli, archive\n"
        "archive.Writer.end = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "cli.run(sys.argv[1:])\n"
    )
    path = tmp_path / "second.mingora"
    environ = {**os.environ, "DATABASE_URL": source.url, "MINGORA_CONTENT_FILE": str(source.content_file)}
    killed = subprocess.run([sys.executable, "-c", code, "export", str(path)], env=environ, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not path.exists() and path.with_name("second.mingora.partial").exists()
    admin(source.url, source.content_file, "export", str(path))
    assert path.exists() and not path.with_name("second.mingora.partial").exists()


@pytest.mark.req("OPS-1")
def test_an_export_to_a_pipe_and_a_stack_folder_filled_from_it(
    source: Whole, moved: Moved, tmp_path: Path, clock: FakeClock
) -> None:
    command = [sys.executable, "-m", "mingora_stack.admin"]
    environ = {**os.environ, "DATABASE_URL": source.url, "MINGORA_CONTENT_FILE": str(source.content_file)}
    done = subprocess.run([*command, "export", "-"], env=environ, capture_output=True, check=True)
    assert b"Exported" in done.stderr
    path, folder = tmp_path / "piped", tmp_path / "data folder"
    bare = {name: value for name, value in environ.items() if name not in ("DATABASE_URL", "MINGORA_CONTENT_FILE")}
    filling = [*command, "--data", str(folder), "import"]
    path.write_bytes(done.stdout[:-20_000])
    for name in (str(path), "-"):
        refused = subprocess.run([*filling, name], env=bare, input=path.read_bytes(), capture_output=True)
        assert refused.returncode == 1 and b"cut off" in refused.stderr and b"Traceback" not in refused.stderr
        assert not folder.exists()
    into = subprocess.run([*filling, "-"], env=bare, input=done.stdout, capture_output=True)
    assert into.returncode == 0, into.stderr
    assert {entry.name for entry in folder.iterdir()} >= {"platform.sqlite", "content.sqlite", "secrets"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.glob("*.sqlite")} == {0o600}
    with whole(f"sqlite:///{folder}/platform.sqlite", folder / "content.sqlite", clock, moved) as target:
        client = target.blobs.app.test_client()
        got = client.get(
            f"{API_PREFIX}/objects/{moved.result_id}/content", headers={"Authorization": f"Bearer {moved.user.token}"}
        )
        assert sha(got.data) == sha(RESULT)
    out = subprocess.run([*command, "--data", str(folder), "export", "-"], env=bare, capture_output=True)
    assert out.returncode == 0 and len(LOG) < len(out.stdout)
