"""Flower's own environment, made on first use: it isn't a dependency of ours, only what we measure beside."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from devtools.venv import ROOT

REQUIREMENTS = ROOT / "requirements" / "flower.txt"
FOLDER = ROOT / "build" / "flower"


def python() -> Path:
    """The Python of an environment with the pinned Flower and our own NumPy's version.

    Raises:
        RuntimeError: it can't be made, or the two NumPys differ, so that the comparison would be of these.
    """
    ours = f"numpy=={version('numpy')} "
    if ours not in REQUIREMENTS.read_text():
        raise RuntimeError(f"{REQUIREMENTS} pins another NumPy than {ours}: run requirements/lock.sh")
    stamp, wanted = FOLDER / "installed", hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()
    found = FOLDER / "bin" / "python"
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(FOLDER, ignore_errors=True)
        _run(sys.executable, "-m", "venv", str(FOLDER))
        _run(str(found), "-m", "pip", "-qq", "install", "--require-hashes", "-r", str(REQUIREMENTS))
        stamp.write_text(wanted)
    return found


def _run(*command: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"Flower's environment can't be made:\n{done.stdout[-2000:]}")
