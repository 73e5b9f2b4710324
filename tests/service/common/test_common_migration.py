"""A migration that is killed anywhere leaves the database as it was: the next one does it."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mingora_common.db import migrate

KILLED = """
import os, signal, sys
import sqlalchemy as sa
from mingora_common.db import migrate
left = int(sys.argv[2])

def count(_connection, _cursor, statement, *_rest):
    global left
    if statement.lstrip().startswith(("CREATE", "INSERT", "UPDATE")):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

sa.event.listen(sa.Engine, "before_cursor_execute", count)
migrate.upgrade(sys.argv[1])
"""


@pytest.mark.req("OPS-2")
@pytest.mark.parametrize("statements", [0, 1, 7, 20])
def test_a_killed_migration_is_done_again(tmp_path: Path, statements: int) -> None:
    url = f"sqlite:///{tmp_path}/platform.sqlite"
    killed = subprocess.run([sys.executable, "-c", KILLED, url, str(statements)], capture_output=True, timeout=60)
    assert killed.returncode == -9, killed.stderr
    migrate.upgrade(url)
    migrate.check(url)
    migrate.upgrade(url)


@pytest.mark.req("OPS-2")
def test_migrations_at_once_are_one(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/platform.sqlite"
    command = [sys.executable, "-c", "import sys; from mingora_common.db import migrate; migrate.upgrade(sys.argv[1])"]
    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(lambda _: subprocess.run([*command, url], capture_output=True, timeout=60), range(3)))
    assert [each.returncode for each in done] == [0, 0, 0], done
    migrate.check(url)
