"""What can't work is refused before it begins: every problem at once, with its fix, without a trace or a secret."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from mingora_api.config import Config
from mingora_blobstore.server import check_content
from mingora_common.config import ConfigError, Env
from mingora_common.db import migrate
from mingora_common.db.reach import explain, url_problem
from mingora_common.startup import checked
from mingora_stack.admin.cli import run

KEY = "q7Zr0Wc4nB1xLk9TgYp3VhS8mEd2uJf5"
PASSWORD = "hunter2-Rj49vKq1"
GOOD = {
    "REDIS_URL": f"redis://:{PASSWORD}@127.0.0.1:1/0", "MINGORA_INTERNAL_KEY": KEY, "MINGORA_LISTEN": "127.0.0.1:0",
    "MINGORA_BLOBSTORE_URL": "http://127.0.0.1:1",
}  # fmt: skip
SERVICES = (
    "mingora_api.server",
    "mingora_blobstore.server",
    "mingora_scheduler.server",
    "mingora_scheduler.tasks.worker",
)


def start(module: str, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Start a program that won't; it must say why on stderr, in lines for people."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "PYTHONPATH")}
    done = subprocess.run(
        [sys.executable, "-m", module, *words], env={**kept, **settings}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1, done
    assert "Traceback" not in done.stderr and PASSWORD not in done.stderr and KEY not in done.stderr
    return done


def settings(tmp_path: Path, **changed: str) -> dict[str, str]:
    url = f"sqlite:///{tmp_path}/platform.sqlite"
    return {**GOOD, "DATABASE_URL": url, "MINGORA_CONTENT_FILE": f"{tmp_path}/content.sqlite", **changed}


def missing(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/none/platform.sqlite"


def no_database(tmp_path: Path) -> str:
    (tmp_path / "letter").write_bytes(b"dear friend, this is no database " * 40)
    return f"sqlite:///{tmp_path}/letter"


def newer(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/newer.sqlite"
    migrate.upgrade(url)
    with sqlite3.connect(tmp_path / "newer.sqlite") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    return url


def unmigrated(tmp_path: Path) -> str:
    sqlite3.connect(tmp_path / "old.sqlite").close()
    return f"sqlite:///{tmp_path}/old.sqlite"


URLS: list[tuple[Callable[[Path], str], str]] = [
    (missing, "there is no folder"),
    (no_database, "isn't a database"),
    (newer, "newer Mingora"),
    (unmigrated, "mingora-admin migrate"),
    (lambda _: f"postgresql+psycopg://mingora:{PASSWORD}@127.0.0.1:1/mingora", "start PostgreSQL there"),
    (lambda _: f"postgresql+psycopg://mingora:{PASSWORD}@no-such-host.invalid/mingora", "no machine of the name"),
    (lambda _: f"mysql://mingora:{PASSWORD}@127.0.0.1/mingora", "doesn't use"),
    (lambda _: f"postgresql://mingora:{PASSWORD}@127.0.0.1/mingora", "write sqlite:// or postgresql+psycopg://"),
    (lambda _: f"postgresql+psycopg://mingora:{PASSWORD}@127.0.0.1", "names no database"),
    (lambda _: "sqlite:///relative.sqlite", "whole path"),
    (lambda _: f"what? {PASSWORD}", "isn't a database address"),
]


def refused(command: list[str], environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """What a service's start and a command of mingora-admin say."""
    with pytest.raises(ConfigError) as caught:
        checked(Config.from_env, environ)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        assert run(command) == 1
    told = (str(caught.value), said.getvalue())
    assert not any(secret in text for secret in (PASSWORD, KEY) for text in told)
    return told


@pytest.mark.req("OPS-1")
@pytest.mark.parametrize(("url", "told"), URLS, ids=[told for _, told in URLS])
def test_a_wrong_database_is_told_by_services_and_admin(
    url: Callable[[Path], str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, admin = refused(["account", "list"], settings(tmp_path, DATABASE_URL=url(tmp_path)), monkeypatch)
    assert told in service
    assert ("There is no platform at" if url is missing else told) in admin


@pytest.mark.req("OPS-1")
@pytest.mark.engine("postgres")
def test_a_missing_database_and_user_of_a_server_are_told(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for changed in ({"database": "no_such_database"}, {"username": "no_such_user", "password": PASSWORD}):
        url = sa.make_url(postgres_url).set(**changed).render_as_string(hide_password=False)  # type: ignore[arg-type]
        told = refused(["migrate"], settings(tmp_path, DATABASE_URL=url), monkeypatch)
        assert all("create it there" in text for text in told)


@pytest.mark.req("OPS-1")
@pytest.mark.parametrize("service", SERVICES)
def test_every_problem_is_told_at_once(service: str, tmp_path: Path) -> None:
    environ = settings(
        tmp_path, DATABASE_URL=newer(tmp_path), MINGORA_INTERNAL_KEY="changeme", REDIS_URL="redis://h:6379"
    )
    environ["MINGORA_CONTENT_FILE"] = ""
    told = start(service, **environ).stderr
    assert len(told.splitlines()) == 1 and "newer Mingora" in told
    if service == "mingora_blobstore.server":
        assert "MINGORA_CONTENT_FILE" in told
    else:
        assert "REDIS_URL has no password" in told
    if not service.endswith("worker"):
        assert "MINGORA_INTERNAL_KEY is too short" in told


@pytest.mark.req("OPS-1")
@pytest.mark.parametrize("content", ["folder", "letter", "nowhere/content.sqlite"])
def test_a_content_file_that_cannot_be_used_is_told(content: str, tmp_path: Path) -> None:
    no_database(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match=f"{tmp_path}/{content} .*can't be used"):
        check_content(f"{tmp_path}/{content}")


@pytest.mark.req("OPS-2")
def test_the_stack_tells_of_both_of_its_files_and_stops(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "secrets").mkdir(mode=0o700, parents=True)
    for name in ("platform.sqlite", "content.sqlite"):
        (data / name).write_bytes(b"dear friend, this is no database " * 40)
    told = start("mingora_stack.cli", "up", "--data", str(data), "--port", "0").stderr
    assert re.search(r"platform\.sqlite can't be used: it isn't a database.*content\.sqlite can't be used", told)


@pytest.mark.req("OPS-2")
def test_the_stack_refuses_a_weak_key_that_was_put_there(tmp_path: Path) -> None:
    secrets = tmp_path / "data" / "secrets"
    secrets.mkdir(mode=0o700, parents=True)
    (secrets / "internal.key").write_text("changeme")
    told = start("mingora_stack.cli", "up", "--data", str(tmp_path / "data"), "--port", "0").stderr
    assert "internal.key is too short" in told.splitlines()[-1] and "Delete the file" in told


@pytest.mark.req("OPS-1")
@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("redis://127.0.0.1:6379/0", "no password"), ("redis://user@127.0.0.1:6379/0", "no password"),
        ("redis://:changeme@h:6379", "too short"), ("redis://:password-password@h", "placeholder"),
        ("http://h", "isn't an address of Redis"), ("unix://", "isn't an address"), ("redis://:x@h:99999", "isn't an"),
        (f"redis://:{PASSWORD}@127.0.0.1:6379/0", None), (f"rediss://:{PASSWORD}@h/0", None),
        ("unix:///run/r.sock", None),
    ],
)  # fmt: skip
def test_redis_needs_a_password_wherever_it_has_a_port(url: str, problem: str | None) -> None:
    env = Env({"REDIS_URL": url})
    assert env.redis_url() == url
    if problem is None:
        env.check()
        return
    with pytest.raises(ConfigError, match=problem) as caught:
        env.check()
    assert "changeme" not in str(caught.value)


@pytest.mark.req("OPS-1")
@pytest.mark.parametrize(
    ("said", "told"),
    [
        ('FATAL:  password authentication failed for user "mingora"', "user or the password is wrong"),
        ("fe_sendauth: no password supplied", "user or the password is wrong"),
        ("FATAL:  sorry, too many clients already", "max_connections"),
        ("FATAL:  the database system is starting up", "in a moment"),
        ('could not extend file "base/1": No space left on device', "disk is full"),
        ("cannot execute INSERT in a read-only transaction", "standby"),
        (f"something new with {PASSWORD} in it", "something new with *** in it"),
    ],
)
def test_what_a_server_says_becomes_what_to_do(said: str, told: str) -> None:
    url = sa.make_url(f"postgresql+psycopg://mingora:{PASSWORD}@db/mingora")
    text = explain(OperationalError("SELECT 1", {}, Exception(said)), url)
    assert told in text and PASSWORD not in text


@pytest.mark.req("OPS-1")
def test_good_addresses_are_taken() -> None:
    for url in (
        "sqlite:////d/p.sqlite",
        f"postgresql+psycopg://m:{PASSWORD}@db:5432/mingora",
        "postgresql+psycopg:///m",
    ):
        assert url_problem(url) is None
