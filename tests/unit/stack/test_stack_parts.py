"""Small rules of the stack: back-off, paths to services, what children are told, bounded logs, Valkey's settings."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from mingora_common.config import Env
from mingora_stack import cli, database, settings, valkey
from mingora_stack.childlogs import BoundedLog, ChildLogs
from mingora_stack.errors import StackError
from mingora_stack.folder import DataFolder
from mingora_stack.leftovers import MARK
from mingora_stack.router import Router, service_of
from mingora_stack.supervisor import Backoff


@pytest.mark.req("OPS-2")
def test_restarts_come_ever_later_and_soon_again_after_a_steady_run() -> None:
    backoff = Backoff()
    delays = [backoff.delay(0.0) for _ in range(12)]
    assert delays[:4] == [0.1, 0.2, 0.4, 0.8]
    assert delays == sorted(delays)
    assert delays[-1] == 10.0
    assert backoff.delay(31.0) == 0.1
    assert backoff.failures == 1


@pytest.mark.req("REST-1")
@pytest.mark.parametrize(
    ("path", "service"),
    [
        ("/api/research/v1/objects", "blobstore"),
        ("/api/research/v1/objects/batch", "blobstore"),
        ("/api/research/v1/objects/obj_1/parts/0", "blobstore"),
        ("/api/research/v1/nodes", "scheduler"),
        ("/api/research/v1/nodes/node_1/claim", "scheduler"),
        ("/api/research/v1/explain/job_1", "scheduler"),
        ("/api/research/v1/jobs/job_1", "api"),
        ("/api/research/v1/tokens", "api"),
        ("/api/research/v1/policy", "api"),
        ("/api/research/v1/objectsx", "api"),
        ("/internal/pins", "blobstore"),
        ("/objects", "api"),
        ("/", "api"),
        ("", "api"),
    ],
)
def test_the_path_names_the_service(path: str, service: str) -> None:
    assert service_of(path) == service


def answering(status: str) -> Any:
    def service(_environ: dict[str, Any], start_response: Any) -> list[bytes]:
        start_response(status, [("Content-Type", "text/plain")])
        return [status.encode()]

    return service


@pytest.mark.req("OPS-3")
@pytest.mark.parametrize(("statuses", "expected"), [(("200 OK", "200 OK"), "200"), (("200 OK", "503 Away"), "503")])
def test_readiness_is_that_of_every_service(statuses: tuple[str, ...], expected: str) -> None:
    router = Router({f"service{number}": answering(status) for number, status in enumerate(statuses)})
    seen: list[str] = []
    body = router({"PATH_INFO": "/readyz"}, lambda status, headers: seen.append(status))
    assert seen[0].startswith(expected)
    assert b"".join(body)


@pytest.mark.req("OPS-2")
def test_children_get_what_they_need_and_nothing_that_happens_to_be_set(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "data")
    folder.prepare()
    told = settings.surroundings(
        folder,
        {"PATH": "/bin", "LC_ALL": "C", "GUNICORN_CMD_ARGS": "--reload", "LISTEN_FDS": "1", "MINGORA_TOKEN": "secret"},
    )
    ours = {"PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1"}
    assert told == {"PATH": "/bin", "LC_ALL": "C", MARK: folder.mark()} | ours


@pytest.mark.req("OPS-2")
@pytest.mark.parametrize("name", ["data", "my data", "100%", "Ünal", "a#b"])
def test_settings_name_the_same_files_whatever_the_folder_is_called(tmp_path: Path, name: str) -> None:
    folder = DataFolder(tmp_path / name)
    folder.prepare()
    told = settings.services(folder, redis_socket="/tmp/v.sock", url="http://127.0.0.1:1", ca_file=None)
    assert sa.make_url(told["DATABASE_URL"]).database == str(folder.platform)
    assert told["MINGORA_CONTENT_FILE"] == str(folder.content)
    assert Env(told).secret("MINGORA_INTERNAL_KEY") == folder.internal_key_file().read_text()


@pytest.mark.req("OPS-2")
def test_a_log_keeps_to_its_size(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "server.log", limit=100)
    for number in range(50):
        log.write(b"line %02d\n" % number)
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["server.log", "server.log.1"]
    assert all(file.stat().st_size <= 100 for file in files)
    assert files[0].read_bytes().endswith(b"line 49\n")
    assert files[1].read_bytes() + files[0].read_bytes() == b"".join(b"line %02d\n" % n for n in range(50))[-len(
        files[1].read_bytes() + files[0].read_bytes()
    ) :]  # fmt: skip


@pytest.mark.req("OPS-2")
def test_what_happened_is_noted_though_the_terminal_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr("sys.stderr", Gone())
    ChildLogs(tmp_path, verbose=False).note("server was ended by SIGKILL")
    assert (tmp_path / "stack.log").read_text().endswith(" server was ended by SIGKILL\n")


@pytest.mark.req("OPS-2")
def test_valkey_opens_no_port_and_writes_nothing() -> None:
    words = valkey.command(Path("/tmp/v.sock"), Path("/tmp"))
    options = dict(zip(words[1::2], words[2::2], strict=True))
    assert options["--port"] == "0"
    assert options["--unixsocketperm"] == "700"
    assert options["--save"] == ""
    assert options["--appendonly"] == "no"


@pytest.mark.parametrize("port", ["-1", "65536", "http"])
def test_a_port_is_a_port(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.run(["up", "--data", "d", "--port", port])
    assert stopped.value.code == 2
    assert "--port" in capsys.readouterr().err


@pytest.mark.req("OPS-2")
def test_a_database_that_is_none_is_said_to_be_unusable(tmp_path: Path) -> None:
    path = tmp_path / "platform.sqlite"
    path.write_bytes(b"this is no database at all, it is a letter to a friend" * 20)
    with pytest.raises(StackError, match=r"platform\.sqlite can't be used"):
        database.prepare(f"sqlite:///{path}", tmp_path / "content.sqlite")
