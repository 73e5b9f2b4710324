"""Settings come from the environment, and every problem is told at once."""

from __future__ import annotations

import pytest

from mingora_common.config import ConfigError
from mingora_scheduler.config import Config, TaskConfig

GOOD = {
    "DATABASE_URL": "sqlite:////d", "REDIS_URL": "unix:///r", "MINGORA_INTERNAL_KEY": "0123456789abcdef" * 2,
    "MINGORA_BLOBSTORE_URL": "http://blobstore",
}  # fmt: skip


@pytest.mark.req("OPS-2")
def test_defaults_and_overrides() -> None:
    config = Config.from_env(GOOD)
    assert (config.max_waiters, config.node_token_days, config.internal_ca_file) == (256, 30, None)
    assert config.node_token_life == 30 * 86_400_000
    more = {"MINGORA_MAX_WAITERS": "5", "MINGORA_NODE_TOKEN_DAYS": "2", "MINGORA_INTERNAL_CA_FILE": "/ca"}
    config = Config.from_env({**GOOD, **more})
    assert (config.max_waiters, config.node_token_days, config.internal_ca_file) == (5, 2, "/ca")


@pytest.mark.req("OPS-2")
def test_every_problem_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        Config.from_env({"MINGORA_MAX_WAITERS": "0", "MINGORA_INTERNAL_KEY": "short"})
    for name in (*GOOD, "MINGORA_MAX_WAITERS"):
        assert name in str(caught.value)


@pytest.mark.req("OPS-2")
def test_the_task_worker_needs_no_secret() -> None:
    config = TaskConfig.from_env({"DATABASE_URL": "sqlite:////d", "REDIS_URL": "unix:///r"})
    assert (config.database_url, config.redis_url) == ("sqlite:////d", "unix:///r")
    with pytest.raises(ConfigError, match="REDIS_URL"):
        TaskConfig.from_env({"DATABASE_URL": "x"})
