"""The secrets of a platform in containers: made once, kept, checked."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
import sqlalchemy as sa

from mingora_common.config import Env, weakness
from mingora_stack import init
from mingora_stack.init import InitError, make

SECRETS = ("database/password", "redis/password", "internal/key", "metrics/key", "coordinator/key")
FILES = {*SECRETS, "database/url", "redis/url", "redis/redis.conf"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for circle in ("database", "redis", "internal", "metrics", "coordinator"):
        (tmp_path / circle).mkdir()
    return tmp_path


def made(folder: Path) -> list[Path]:
    return make(folder, database="postgres:5432", redis="redis:6379")


def texts(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.req("OPS-1")
def test_every_secret_is_made_once_and_for_its_owner_alone(folder: Path) -> None:
    assert {str(path.relative_to(folder)) for path in made(folder)} == FILES
    first = texts(folder)
    assert set(first) == FILES
    assert {stat.S_IMODE((folder / name).stat().st_mode) for name in FILES} == {0o400}
    values = [first[name] for name in SECRETS]
    assert len(set(values)) == len(SECRETS)
    assert [weakness(value) for value in values] == [None] * len(SECRETS)
    assert made(folder) == []
    assert texts(folder) == first


@pytest.mark.req("OPS-1")
def test_addresses_carry_the_secrets(folder: Path) -> None:
    made(folder)
    found = texts(folder)
    url = sa.make_url(found["database/url"])
    assert (url.username, url.password, url.host, url.port) == ("mingora", found["database/password"], "postgres", 5432)
    assert found["redis/url"] == f"redis://:{found['redis/password']}@redis:6379/0"
    assert found["redis/redis.conf"] == f"requirepass {found['redis/password']}\n"


@pytest.mark.req("OPS-1")
def test_a_secret_that_an_operator_put_there_is_kept_and_the_addresses_follow(folder: Path) -> None:
    made(folder)
    own = "an/own+one:0123456789-0123456789@x"
    (folder / "database" / "password").unlink()
    (folder / "database" / "password").write_text(own + "\n")
    assert made(folder) == [folder / "database" / "url"]
    assert sa.make_url(texts(folder)["database/url"]).password == own


@pytest.mark.req("OPS-1")
@pytest.mark.parametrize(
    "weak",
    [
        "",
        "a-bit-too-little",
        "changeme" * 4,
        "k" * 40,
        "Password-0123456789-abcdefghijklm",
        "with spaces 0123456789-abcdefghijklm",
        "with'apostrophe-0123456789-abcdefghijklm",
        'with"quotation-0123456789-abcdefghijklm',
        "with\\backslash-0123456789-abcdefghijklm",
    ],
)
def test_a_weak_secret_is_refused_with_the_fix_and_not_shown(
    folder: Path, weak: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "redis" / "password").write_text(weak)
    with pytest.raises(InitError, match="Delete the file") as caught:
        made(folder)
    assert "redis/password" in str(caught.value)
    assert not weak or weak not in str(caught.value)
    assert init.run([str(folder)]) == 1
    assert "mingora-init: The secret" in capsys.readouterr().err


@pytest.mark.req("OPS-1")
@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_that_is_no_text_is_refused_with_the_fix(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"\xff\xfe0123456789-0123456789-abcdefghijklm")
    with pytest.raises(InitError, match=rf"{name} isn't text in UTF-8\. Delete the file"):
        made(folder)


@pytest.mark.req("OPS-1")
def test_an_address_that_was_damaged_is_written_again(folder: Path) -> None:
    made(folder)
    (folder / "redis" / "url").unlink()
    (folder / "redis" / "url").write_bytes(b"\xff")
    assert made(folder) == [folder / "redis" / "url"]


@pytest.mark.req("OPS-1")
@pytest.mark.parametrize("address", ["postgres", "postgres:", ":5432", "postgres:five", "postgres:123456", "db:٥"])
def test_an_address_without_host_or_port_is_refused_before_anything_is_made(
    folder: Path, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init.run([str(folder), "--database", address]) == 1
    assert f"{address} isn't an address of PostgreSQL: write HOST:PORT" in capsys.readouterr().err
    assert texts(folder) == {}


@pytest.mark.req("OPS-1")
def test_a_secret_and_its_name_are_on_the_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr("os.fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    made(folder)
    for name in FILES:
        path = folder / name
        file = synced.index(f"{path}.new")
        assert synced[file + 1] == str(path.parent)


@pytest.mark.req("OPS-1")
def test_a_folder_that_is_missing_is_named_with_who_must_own_it(tmp_path: Path) -> None:
    with pytest.raises(InitError, match=r"database/password.*belong to the user"):
        made(tmp_path)


@pytest.mark.req("OPS-1")
def test_a_full_disk_leaves_no_half_secret(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(InitError, match="No space left on device"):
        made(folder)
    assert not any((folder / name).exists() for name in FILES)
    monkeypatch.undo()
    assert len(made(folder)) == len(FILES)


@pytest.mark.req("OPS-1", "OPS-2")
@pytest.mark.parametrize("weak", ["a-bit-too-little", "default-0123456789-abcdefghijklmnop", "ab" * 20])
def test_a_service_refuses_a_weak_secret(weak: str) -> None:
    env = Env({"KEY": weak})
    env.secret("KEY")
    with pytest.raises(Exception, match="32 random characters") as caught:
        env.check()
    assert weak not in str(caught.value)
