"""dev.py: how it reads its command line, and how it answers a Python that is too old."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from devtools import entry

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "words",
    [
        ["up", "--data", "./mingora-data", "--port", "8765"],
        ["up", "--help"],
        ["test", "-q", "tests/unit"],
        ["test", "tests/unit", "-q", "-n", "2"],
        ["test"],
    ],
)
def test_words_for_another_program_arrive_as_they_are(words: list[str]) -> None:
    options = entry.parse(words)
    assert (options.command, options.arguments) == (words[0], words[1:])


def test_own_options() -> None:
    assert entry.parse(["check", "--fix"]).fix
    options = entry.parse(["bench", "cli", "--json"])
    assert (options.name, options.json) == ("cli", True)
    with pytest.raises(SystemExit) as caught:
        entry.parse(["demo", "--data", "x"])
    assert caught.value.code == 2


def test_what_the_system_refuses_is_told_in_a_line(tmp_path: Path) -> None:
    """A checkout whose environment belongs to somebody else, or is no folder, say."""
    shutil.copy(ROOT / "dev.py", tmp_path)
    shutil.copytree(ROOT / "devtools", tmp_path / "devtools")
    done = subprocess.run(
        [sys.executable, tmp_path / "dev.py", "demo"], capture_output=True, text=True, check=False
    )  # no requirements/ there
    assert done.returncode == 1
    assert done.stderr.startswith("dev.py: ")
    assert "requirements" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("path", ["dev.py", "cli/mingora.py", "worker/mingora_worker.py"])
def test_an_old_python_reads_the_launchers_to_their_answer(path: str) -> None:
    """No annotations, f-strings or letters beyond ASCII: all of them end Python 2.7 or 3.6 with a syntax error."""
    text = (ROOT / path).read_bytes().decode("ascii")
    tree = ast.parse(text)
    for node in ast.walk(tree):
        assert not isinstance(node, ast.JoinedStr | ast.AnnAssign | ast.Starred)
        assert not isinstance(node, ast.FunctionDef) or node.returns is None
        assert not isinstance(node, ast.ImportFrom) or node.module != "__future__"
    checks = [number for number, node in enumerate(tree.body) if "version_info" in ast.unparse(node)]
    assert checks, "the version must be looked at"
    before = tree.body[: checks[0]]
    assert all(isinstance(node, ast.Expr | ast.Import) for node in before), "nothing new may be imported before it"
