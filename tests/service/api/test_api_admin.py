"""``mingora-admin`` from its arguments to the database and back."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from service.api.api_harness import QUICK
from support import FakeClock, Seed, bearer

from mingora_api.admin import session
from mingora_api.admin.cli import run
from mingora_api.domain.passwords import Passwords
from mingora_api.store import accounts
from mingora_common.auth import TokenReader
from mingora_common.clock import SystemClock
from mingora_common.db import schema
from mingora_common.db.engine import Database
from mingora_common.errors import ServiceError

PASSWORD = "doğru at pili"
Admin = Callable[..., Any]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "Passwords", lambda: Passwords(QUICK))


@pytest.fixture
def admin(database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Admin:
    """Run a command on this test's platform: its JSON, or its error when it fails."""
    monkeypatch.setenv("DATABASE_URL", database_url)
    run(["migrate"])

    def command(*words: str, stdin: str = "", fails: int = 0) -> Any:
        capsys.readouterr()
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        assert run([*words, "--json"]) == fails
        printed = capsys.readouterr()
        return printed.err if fails else json.loads(printed.out)

    return command


def matches(url: str, name: str, password: str) -> bool:
    database = Database(url, None)
    with database.read() as connection:
        account = accounts.find_account(connection, name)
    database.close()
    return account is not None and Passwords(QUICK).verify(account.password_hash, password)


@pytest.mark.req("AUTH-1", "AUTH-6")
def test_tenants_and_accounts(admin: Admin, database_url: str) -> None:
    assert [row["name"] for row in admin("tenant", "list")["tenants"]] == ["default"]
    assert admin("tenant", "create", "Fizik")["name"] == "Fizik"
    assert "exists" in admin("tenant", "create", "Fizik", fails=1)
    made = admin("account", "create", "李雷", "--tenant", "Fizik", "--password-stdin", stdin=PASSWORD + "\n")
    assert made["id"].startswith("acc_") and "password" not in made
    assert matches(database_url, "李雷", PASSWORD)
    listed = admin("account", "list")["accounts"]
    assert [(row["name"], row["tenant"], row["disabled"]) for row in listed] == [("李雷", "Fizik", None)]
    assert admin("account", "limits", "李雷")["limits"] == {
        "maxFileBytes": 8388608, "maxBytes": 67108864, "maxFiles": 1000, "maxJobs": 1000, "maxNodes": 200
    }  # fmt: skip


@pytest.mark.req("AUTH-1")
def test_a_password_is_generated_where_nobody_can_be_asked(admin: Admin, database_url: str) -> None:
    password = admin("account", "create", "ali")["password"]
    assert len(password) == 20 and matches(database_url, "ali", password)


@pytest.mark.req("AUTH-1")
@pytest.mark.parametrize(
    ("words", "stdin", "told"),
    [
        (("account", "create", "a b"), "", "letters"),
        (("account", "create", "ali", "--tenant", "Kimya"), "", "tenant create"),
        (("account", "create", "ali", "--password-stdin"), "short\n", "at least 8"),
        (("account", "create", "ali", "--password-stdin"), "", "at least 8"),
        (("account", "password", "veli"), "", "account list"),
        (("account", "disable", "veli"), "", "account list"),
        (("account", "limits", "veli"), "", "account list"),
        (("token", "list", "veli"), "", "account list"),
        (("token", "revoke", "tok_unknown1"), "", "token list"),
        (("tenant", "create", ""), "", "1 to 100"),
    ],
)
def test_what_cannot_be_done_is_told_with_the_fix(admin: Admin, words: tuple[str, ...], stdin: str, told: str) -> None:
    assert told in admin(*words, stdin=stdin, fails=1)
    assert admin("account", "list")["accounts"] == []
    assert admin("audit")["audit"] == []


@pytest.mark.req("AUTH-1")
def test_an_account_is_made_once_in_any_spelling(admin: Admin, database_url: str) -> None:
    admin("account", "create", "g\u00fcl", "--password-stdin", stdin=PASSWORD)
    assert "exists already" in admin("account", "create", "gu\u0308l", fails=1)
    assert matches(database_url, "g\u00fcl", PASSWORD)


@pytest.mark.req("AUTH-4", "AUTH-8", "AUTH-9")
def test_passwords_disabling_and_revoking_stop_tokens_at_once(admin: Admin, database_url: str) -> None:
    clock = FakeClock(SystemClock().now())
    seed, database = Seed(database_url, clock), Database(database_url, None)
    reader = TokenReader(database, clock)

    def works(token: str) -> bool:
        try:
            return bool(reader.verify(bearer(token)["Authorization"]))
        except ServiceError:
            return False

    account = admin("account", "create", "ali")["id"]
    user, node = seed.token(account), seed.work_token(account, "node_12345678")
    assert admin("account", "password", "ali", "--password-stdin", stdin=PASSWORD)["revokedTokens"] == 1
    assert matches(database_url, "ali", PASSWORD)
    assert not works(user) and works(node)
    user = seed.token(account)
    admin("account", "disable", "ali")
    assert not works(user) and not works(node)
    admin("account", "enable", "ali")
    assert works(user) and works(node)
    listed = admin("token", "list", "ali")["tokens"]
    assert [row["kind"] for row in listed] and {row["kind"] for row in listed} == {"user", "node"}
    for row in listed * 2:
        assert admin("token", "revoke", row["id"])["revoked"] is True
    assert not works(user) and not works(node)
    assert admin("token", "list")["tokens"] == []
    lines = admin("audit", "--last", "6")["audit"]
    assert [line["action"] for line in lines] == [
        "account.create", "account.password", "account.disable", "account.enable", "token.revoke", "token.revoke"
    ]  # fmt: skip
    assert all(line["actor"].startswith("operator:") for line in lines)
    assert PASSWORD not in json.dumps(lines, ensure_ascii=False)
    seed.engine.dispose()
    database.close()


@pytest.mark.req("BLOB-7")
def test_limits_are_changed_and_shown(admin: Admin, database_url: str) -> None:
    admin("account", "create", "ali")
    changed = admin("account", "limits", "ali", "--max-bytes", "512MiB", "--max-jobs", "0")["limits"]
    assert (changed["maxBytes"], changed["maxJobs"], changed["maxFiles"]) == (512 << 20, 0, 1000)
    assert admin("account", "limits", "ali")["limits"] == changed
    for wrong in ("-1", "1.5", "lots", "1KB", str(2**53 + 1)):
        with pytest.raises(SystemExit):
            run(["account", "limits", "ali", "--max-bytes", wrong])


@pytest.mark.req("AUTH-1")
def test_people_are_shown_tables_without_control_characters(
    admin: Admin, database_url: str, clock: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    account = admin("account", "create", "李雷")["id"]
    now = SystemClock().now()
    seed = Seed(database_url, clock)
    seed.insert(
        schema.tokens, id="tok_12345678", account_id=account, hash="0", name="\x1b]0;evil\x07", scopes="",
        created_at=now, expires_at=now + 60_000,
    )  # fmt: skip
    seed.engine.dispose()
    assert run(["token", "list"]) == 0
    heading, row = capsys.readouterr().out.splitlines()
    assert heading.split()[:4] == ["ID", "ACCOUNT", "KIND", "NAME"]
    assert "?]0;evil?" in row and "\x1b" not in row
    # 李雷 takes four columns, so its line is two characters shorter.
    assert heading.index("KIND") == row.index("user") + 2
    assert run(["audit", "--last", "1"]) == 0
    assert "account.create" in capsys.readouterr().out


@pytest.mark.req("OPS-2")
def test_the_platform_is_found_or_the_fix_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    assert run(["account", "list"]) == 1
    assert "--data" in capsys.readouterr().err
    data = tmp_path / "new" / "data"
    assert run(["--data", str(data), "account", "list"]) == 1
    assert "mingora-admin migrate" in capsys.readouterr().err
    assert not data.exists()
    assert run(["--data", str(data), "migrate"]) == 0
    assert (data / "platform.sqlite").stat().st_mode & 0o077 == 0
    assert run(["--data", str(data), "tenant", "list"]) == 0
    assert "default" in capsys.readouterr().out
    engine = sa.create_engine(f"sqlite:///{data}/platform.sqlite")
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    for command in (["tenant", "list"], ["migrate"]):
        assert run(["--data", str(data), *command]) == 1
        assert "newer" in capsys.readouterr().err
    monkeypatch.setenv("DATABASE_URL", "postgresql+psycopg://nobody@127.0.0.1:1/none")
    assert run(["account", "list"]) == 1
    assert "can't be used" in capsys.readouterr().err
    monkeypatch.setenv("DATABASE_URL", "what?")
    assert run(["account", "list"]) == 1
    assert "isn't a database address" in capsys.readouterr().err


@pytest.mark.req("AUTH-6")
def test_the_default_tenant_is_made_once(database_url: str, clock: FakeClock) -> None:
    database = Database(database_url, schema.API)
    for _ in range(2):
        accounts.ensure_default_tenant(database, clock)
    with database.read() as connection:
        assert [row.name for row in accounts.list_tenants(connection)] == ["default"]
    database.close()


@pytest.mark.req("OPS-1")
def test_the_schema_is_taken_back_only_to_one_that_there_was(admin: Admin, database_url: str) -> None:
    admin("account", "create", "ali")
    assert "knows 0002, 0001" in admin("migrate", "--down-to", "base", fails=1)
    assert admin("migrate", "--down-to", "0001")["migrated"]
    assert "mingora-admin migrate" in admin("account", "list", fails=1)
    assert admin("migrate")["migrated"]
    assert [account["name"] for account in admin("account", "list")["accounts"]] == ["ali"]


@pytest.mark.req("AUTH-8")
def test_old_lines_of_the_audit_log_are_deleted_and_that_is_a_line(admin: Admin, seed: Seed) -> None:
    now = SystemClock().now()
    for number in range(12):
        age = number * 10 * 86_400_000
        seed.insert(schema.audit, at=now - age, actor="x", action=f"day-{number * 10}")
    assert admin("audit", "--prune-days", "65")["deleted"] == 5
    kept = {line["action"]: line["data"] for line in admin("audit")["audit"]}
    assert "day-60" in kept and "day-70" not in kept
    assert kept["audit.prune"] == {"days": 65, "deleted": 5}
