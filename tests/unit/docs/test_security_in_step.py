"""docs/security.md names every measure, every kind of output and every entry of the profile, and no others."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from pathlib import Path

import pytest

from mingora_worker.runtimes.docker import limits
from mingora_worker.runtimes.docker.canary import _Canary
from mingora_worker.runtimes.docker.outputs import KINDS
from mingora_worker.runtimes.docker.runtime import DockerRuntime
from mingora_worker.runtimes.docker.settings import HARDENINGS

TEXT = (Path(__file__).parents[3] / "docs" / "security.md").read_text(encoding="utf-8")
COLUMNS = 8


def table(heading: str) -> list[list[str]]:
    """The cells of a section's table, without its head."""
    section = TEXT.partition(f"\n## {heading}")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def names(rows: list[list[str]]) -> list[str]:
    return [name for row in rows for name in re.findall(r"`(\w[\w-]*)`", row[0])]


@pytest.mark.req("DOC-1", "WORK-7")
def test_every_measure_has_a_row_and_every_row_is_a_measure() -> None:
    rows = table("The measures")
    assert names(rows) == list(HARDENINGS)
    assert {len(row) for row in rows} == {COLUMNS}
    assert [row[0] for row in rows for cell in row[3:] if not re.match(r"(yes|no|partly|\?|–)(: |, |$)", cell)] == []


@pytest.mark.req("DOC-1", "WORK-7")
def test_every_kind_of_output_is_there_in_the_order_in_which_it_is_tried() -> None:
    assert names(table("Output")) == [kind.kind for kind in KINDS]


@pytest.mark.req("DOC-1", "WORK-7")
def test_the_output_s_limits_are_those_that_it_has() -> None:
    assert (limits.DISK_SHARE, limits.GIVEN_SHARE) == (0.1, 0.5)
    text = " ".join(TEXT.split())
    assert "a tenth of the disk that is free at the job's start, or half of what `--max-disk` leaves" in text
    assert f"{limits.MOST_OUTPUT_BYTES >> 30} GiB at most, and {limits.OUTPUT_INODES:,} files" in text


@pytest.mark.req("DOC-1", "WORK-7")
def test_every_entry_of_the_profile_is_explained() -> None:
    makers = (_Canary._profile, DockerRuntime.prepare, DockerRuntime.isolation)
    trees = [ast.parse(textwrap.dedent(inspect.getsource(maker))) for maker in makers]
    written = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Dict)]
    keys = {key.value for node in written for key in node.keys if isinstance(key, ast.Constant)}
    assert set(names(table("The canary"))) == keys
