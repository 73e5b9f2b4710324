"""The server's threads follow how many reads may wait."""

from __future__ import annotations

import pytest

from mingora_stack import server, settings

SERVICES = {
    "DATABASE_URL": "sqlite:////nowhere", "REDIS_URL": "unix:///nowhere", "MINGORA_BLOBSTORE_URL": "http://127.0.0.1",
    "MINGORA_INTERNAL_KEY": "0123456789abcdef" * 2, settings.LISTEN_FDS: "3",
}  # fmt: skip


@pytest.mark.req("JOB-9", "OPS-2")
@pytest.mark.parametrize(("waiters", "threads"), [({}, 128 + 256 + 128), ({"MINGORA_MAX_WAITERS": "7"}, 7 + 7 + 128)])
def test_each_waiting_read_has_a_thread_and_the_others_theirs(
    monkeypatch: pytest.MonkeyPatch, waiters: dict[str, str], threads: int
) -> None:
    for name, value in {**SERVICES, **waiters}.items():
        monkeypatch.setenv(name, value)
    assert server.server_settings()["threads"] == threads
