"""Who may work and talk to whom: expired logins, revoked nodes, plain HTTP."""

from __future__ import annotations

import contextlib
import secrets
import socket
import sqlite3
from pathlib import Path
from typing import cast

import psutil
import pytest
from e2e_support import RunningStack, User, make_project, until


def expire_logins(user: User) -> None:
    """Put the end of all of the user's logins into the past."""
    platform = cast(RunningStack, user.stack).folder.platform
    with contextlib.closing(sqlite3.connect(platform, timeout=10)) as connection, connection:
        changed = connection.execute(
            "UPDATE tokens SET expires_at = 1 WHERE account_id = (SELECT id FROM accounts WHERE name = ?)", (user.name,)
        )
        assert changed.rowcount >= 1


@pytest.mark.req("AUTH-9", "WORK-5")
def test_a_worker_whose_login_has_ended_claims_the_next_job(user: User, tmp_path: Path) -> None:
    first = user.submit(make_project(tmp_path / "first", ["echo", "first"]))
    worker = user.worker()
    user.run("wait", first, "--timeout", "90")
    expire_logins(user)
    user.run("whoami", status=3)
    elsewhere = user.elsewhere(tmp_path / "desk").login()
    second = elsewhere.submit(make_project(tmp_path / "second", ["echo", "second"]))
    elsewhere.run("wait", second, "--timeout", "90")

    worker.terminate()
    worker.wait(60)
    user.worker()  # the same folder, with the ended login: the node's own token is enough
    third = elsewhere.submit(make_project(tmp_path / "third", ["echo", "third"]))
    elsewhere.run("wait", third, "--timeout", "90")


@pytest.mark.req("AUTH-4", "AUTH-9", "WORK-4")
def test_revoking_a_node_stops_its_job_at_the_next_heartbeat(user: User, tmp_path: Path) -> None:
    needle = f"60.{secrets.randbelow(10**12):012d}"

    def job_runs() -> bool:
        return any(needle in (process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))

    job_id = user.submit(make_project(tmp_path / "long", ["sleep", needle]))
    user.worker()
    until(job_runs, 60, "the job runs")
    (node,) = [token for token in user.json("token", "list")["tokens"] if token["kind"] == "node"]
    user.run("token", "revoke", node["id"])
    until(lambda: not job_runs(), 60, "the job is stopped")
    assert user.job(job_id)["state"] != "succeeded"


@pytest.mark.req("AUTH-5")
@pytest.mark.parametrize("tool", ["login", "worker"])
def test_plain_http_beyond_loopback_is_refused_before_anything_is_sent(user: User, tool: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.3)
        # This address reaches the listener above, but it isn't a loopback address.
        url = f"http://0.0.0.0:{listener.getsockname()[1]}"
        if tool == "login":
            done = user.run("login", "--server", url, "--identifier", "x", "--password-stdin", status=2, stdin=b"pw\n")
            assert b"HTTPS" in done.stderr
        else:
            worker = user.worker("--server", url)
            assert worker.wait(60) != 0
            assert "HTTPS" in (user.home / "worker.log").read_text()
        with pytest.raises(TimeoutError):
            listener.accept()


@pytest.mark.req("CLI-2", "JOB-2", "BLOB-7")
def test_a_machine_is_removed_and_makes_room_for_another(user: User, tmp_path: Path) -> None:
    user.stack.admin("account", "limits", user.name, "--max-nodes", "1")
    user.submit(make_project(tmp_path / "first", ["true"]))
    user.work_once()
    assert user.worker("--once", root="second").wait(60) != 0
    assert "mingora rm" in (user.home / "second.log").read_text()
    (node,) = user.json("nodes")["nodes"]
    user.run("rm", node["id"])
    assert user.json("nodes")["nodes"] == []
    user.run("rm", node["id"], status=4)
    user.submit(make_project(tmp_path / "second", ["true"]))
    assert user.worker("--once", root="second").wait(60) == 0
