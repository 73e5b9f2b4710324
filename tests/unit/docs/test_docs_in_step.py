"""The documents say what is true: files that architecture.md names exist, settings and READMEs are in step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from mingora_api.config import Config as ApiConfig
from mingora_blobstore.config import Config as BlobstoreConfig
from mingora_common.config import ConfigError
from mingora_common.serving import Address
from mingora_scheduler.config import Config as SchedulerConfig
from mingora_scheduler.config import TaskConfig

ROOT = Path(__file__).parents[3]


@pytest.mark.req("DOC-1")
def test_every_file_that_the_architecture_names_exists() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:cli|worker|services|devtools|docs|tests|bench)/[^`\s]*)`", text))
    assert len(named) > 30
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


class Recording(Mapping[str, str]):
    """An environment that is empty and remembers what was asked of it."""

    def __init__(self) -> None:
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.asked.add(name)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


@pytest.mark.req("OPS-2")
def test_every_setting_is_documented_and_every_documented_setting_is_read() -> None:
    environment = Recording()
    Address.from_env(environment)
    for config in (ApiConfig, BlobstoreConfig, SchedulerConfig, TaskConfig):
        with pytest.raises(ConfigError):
            config.from_env(environment)
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    # Every setting is asked for by its name and by NAME_FILE.
    settings = {name for name in environment.asked if name + "_FILE" in environment.asked}
    services = text.partition("## Services")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `([A-Z_]+)` \|", services, re.MULTILINE)) == settings


@pytest.mark.req("DOC-1")
def test_both_readmes_have_the_same_commands_and_links() -> None:
    english, chinese = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh-CN.md"))

    def commands(text: str) -> list[str]:
        lines = "\n".join(re.findall(r"```[a-z]*\n(.*?)```", text, re.DOTALL)).splitlines()
        return [re.sub(r"JOB|任务编号|NAME|主机名", "X", line.partition(" #")[0].strip()) for line in lines]

    def links(text: str) -> set[str]:
        return set(re.findall(r"\]\(([^)]+)\)", text)) - {"README.md", "README.zh-CN.md"}

    assert commands(english) == commands(chinese)
    assert links(english) == links(chinese)
    assert [link for link in links(english) if not (ROOT / link).exists()] == []
