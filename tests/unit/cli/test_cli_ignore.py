"""`.mingoraignore` means what `.gitignore` means: compared with git itself over generated trees."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from mingora import ignore
from mingora.ignore import parse, verdict

# Whole trees of short names in few letters, so that patterns often meet them; written from gitignore's grammar.
NAMES = [
    *["a", "b"] * 3, *["ab"] * 2, "aab", "a.b", "x.py", "ü", "üb", " a", "a ", "[a]", "!a", "#b", "a-b", "A", "ab1",
    "**", "b\t",
]  # fmt: skip
PIECES = [
    "*", "**", "***", "?", "a", "b", "ab", ".", "x.py", "[ab]", "[!a]", "[^b]", "[a-b]", "[]a]", "[!]a]", "[[:alpha:]]",
    "[[:digit:]-b]", "[[:nope:]]", "[a", "[[:", "\\*", "\\[", "\\a", "\\", "ü", "[ü]", " ", "\\ ", "!", "#", "\\!",
    "\\#", "-", "[a\\]]", "[[:space:]]", "[--b]", "[b-]", "a**", "**b", "[/]", "?b", "\t",
]  # fmt: skip


def pattern(rng: random.Random) -> str:
    parts = [
        "".join(rng.choices(PIECES, k=rng.choice([1, 1, 1, 2, 2, 3]))) for _n in range(rng.choice([1, 1, 1, 2, 2, 3]))
    ]
    line = "/".join(parts)
    line = (
        rng.choice(["", "", "", "/", "!", "!/", "**/", "\\!"]) + line + rng.choice(["", "", "", "/", "/**", "/*", "//"])
    )
    return line + rng.choice(["", "", "", "  ", "\\ ", "\r", "\\"])


def tree(rng: random.Random, root: Path) -> None:
    folders = [root]
    for _n in range(rng.randint(4, 14)):
        path = rng.choice(folders) / rng.choice(NAMES)
        if path.exists():
            continue
        if rng.random() < 0.45:
            path.mkdir()
            folders.append(path)
        else:
            path.touch()


def walk(root: Path, rules: list[ignore.Rule]) -> dict[str, bool]:
    """Every path and whether it is left out, nothing inside a folder that is left out looked at by rules."""
    result: dict[str, bool] = {}

    def visit(folder: Path, prefix: str, out: bool) -> None:
        for entry in os.scandir(folder):
            path = prefix + entry.name
            if path == ".gitignore":
                continue
            result[path] = out or bool(verdict(rules, path, entry.is_dir()))
            if entry.is_dir():
                visit(Path(entry.path), f"{path}/", result[path])

    visit(root, "", False)
    return result


GIT = [
    "git", "--git-dir=../repository", "--work-tree=.", "-c", "core.excludesFile=", "-c", "core.ignoreCase=false",
]  # fmt: skip


@pytest.mark.req("CLI-5")
@pytest.mark.parametrize("block", range(6))
@pytest.mark.skipif(shutil.which("git") is None, reason="compares with git")
def test_same_verdict_as_git_on_generated_trees(tmp_path: Path, block: int) -> None:
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "repository")], check=True)
    for number in range(100):
        seed = block * 1000 + number
        rng = random.Random(seed)
        root = tmp_path / str(number)
        root.mkdir()
        tree(rng, root)
        text = (
            rng.choice(["", "\ufeff"])
            + "\n".join(pattern(rng) for _n in range(rng.randint(1, 6)))
            + rng.choice(["", "\n"])
        )
        (root / ".gitignore").write_bytes(text.encode())
        ours = walk(root, parse(text.removeprefix("\ufeff")))
        asked = "".join(f"{path}\0" for path in ours).encode()
        answer = subprocess.run(
            [*GIT, "check-ignore", "--no-index", "-z", "--stdin"],
            cwd=root,
            input=asked,
            capture_output=True,
            check=False,
        )
        assert answer.returncode in (0, 1), answer.stderr
        theirs = set(answer.stdout.decode().split("\0")) - {""}
        assert {path for path, out in ours.items() if out} == theirs, (seed, text)
