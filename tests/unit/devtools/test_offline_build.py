"""deploy/offline/build.sh says what it lacks before it makes anything."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "deploy" / "offline" / "build.sh"
NEEDED = ("bash", "dirname", "realpath", "mkdir", "flock", "rm", "umount", "df", "tail")

pytestmark = pytest.mark.skipif(os.name == "nt" or shutil.which("bash") is None, reason="needs bash")


def run(folder: Path, **programs: str) -> str:
    """Its stderr with nothing on the PATH but what it looks with, and ``programs`` (their shell lines)."""
    for name in NEEDED:
        found = shutil.which(name)
        assert found is not None
        if name not in programs:
            (folder / name).symlink_to(found)
    for name, line in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / name).chmod(0o755)
    environment = {"PATH": str(folder), "MINGORA_OFFLINE_CACHE": str(folder / "cache")}
    done = subprocess.run(["bash", str(SCRIPT), str(folder / "env")], env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert not (folder / "env").exists()
    return done.stderr


@pytest.mark.req("OPS-1")
def test_it_names_what_is_missing(tmp_path: Path) -> None:
    cases = {
        "needs root": {"id": "echo 1000"},
        "apt-get install debootstrap": {"id": "echo 0"},
        "no Docker Engine answers": {"id": "echo 0", "debootstrap": ":", "docker": "exit 1"},
        "MiB free and 3 GiB are needed": {
            "id": "echo 0", "debootstrap": ":", "docker": ":", "df": "echo Avail; echo 1000",
        },
    }  # fmt: skip
    for number, (said, programs) in enumerate(cases.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert said in run(folder, **programs)


@pytest.mark.req("OPS-1")
def test_no_mirror_is_written_into_it() -> None:
    assert "://" not in SCRIPT.read_text(encoding="utf-8")
