"""The command line, what is read from it and what is refused."""

from __future__ import annotations

import re
import socket
import sys
from pathlib import Path

import pytest

from mingora.errors import UsageProblem
from mingora_worker.config import parse
from mingora_worker.offering import needs_docker_package

ROOT = ["--root", "work"]


@pytest.mark.req("WORK-1")
def test_all_options(tmp_path: Path) -> None:
    found = parse(
        [
            *ROOT, "--allow-own-code", "--name", "lab 1", "--network-group", "lab", "--allow-cluster-network",
            "--gpu-index", "1", "--server", "https://x.example", "--ca-file", "ca.crt", "--label", "rack=3",
            "--label", "owner=Ada L.", "--data", f"SET={tmp_path}", "--max-disk", "20G", "--once", "--json-logs",
        ]
    )  # fmt: skip
    assert found.root == Path.cwd() / "work"
    assert (found.name, found.network_group, found.allow_cluster_network) == ("lab 1", "lab", True)
    assert (found.gpu_index, found.server, found.ca_file) == (1, "https://x.example", str(Path.cwd() / "ca.crt"))
    assert found.labels == {"rack": "3", "owner": "Ada L."}
    assert found.data == {"SET": tmp_path}
    assert found.max_disk == 20 << 30
    assert (found.once, found.check, found.json_logs) == (True, False, True)


@pytest.mark.req("WORK-1")
def test_defaults_run_nothing() -> None:
    found = parse(ROOT)
    assert not found.allow_own_code
    assert found.name
    assert found.max_disk is None


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("2K", 2048), ("3m", 3 << 20), ("4GiB", 4 << 30), ("5TB", 5 << 40)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse([*ROOT, "--max-disk", text]).max_disk == size


@pytest.mark.parametrize(
    "arguments",
    [
        ["--max-disk", "much"],
        ["--max-disk", "-1"],
        ["--label", "noequals"],
        ["--label", "=x"],
        ["--label", "a=1", "--label", "a=2"],
        ["--label", "a=b\x1bc"],
        ["--data", "lower=/"],
        ["--data", "SET=/does/not/exist"],
        ["--name", "x" * 101],
        ["--name", "a\nb"],
        ["--network-group", ""],
    ],
)
def test_what_is_refused_names_the_option(arguments: list[str]) -> None:
    with pytest.raises(UsageProblem, match=re.escape(arguments[0])):
        parse([*ROOT, *arguments])


@pytest.mark.parametrize("arguments", [[], [*ROOT, "--gpu-index", "-1"], [*ROOT, "--unknown"], [*ROOT, "--all"]])
def test_usage_errors_exit_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(arguments)
    assert caught.value.code == 2
    assert capsys.readouterr().err


def test_a_host_name_over_the_limit_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "h" * 300)
    assert parse(ROOT).name == "h" * 100


@pytest.mark.req("WORK-7")
def test_the_missing_package_is_installed_for_the_python_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    monkeypatch.setattr(sys, "executable", "/opt/my tools/bin/python")
    with pytest.raises(UsageProblem) as refused:
        needs_docker_package()
    assert "'/opt/my tools/bin/python' -m pip install 'docker>=7.1'" in (refused.value.hint or "")
