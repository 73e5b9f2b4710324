"""The virtual environment beside dev.py: made once, brought up to date when a requirements file changes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")
PACKAGES = ("cli", "worker", "services")


class SetupError(Exception):
    """The environment can't be made; the message names the fix."""


def ensure(profile: str) -> Path:
    """Make `.venv` hold what ``profile`` needs and return its Python.

    Args:
        profile: ``services`` (to run) or ``dev`` (to test and check as well).
    """
    stamp, wanted = VENV / f".installed-{profile}", _fingerprint(profile)
    if not PYTHON.exists():
        _say("Making .venv …")
        _make()
    if not stamp.exists() or stamp.read_text() != wanted:
        _say(f"Installing packages ({profile}); this takes a minute the first time …")
        _pip("install", "--require-hashes", "-r", str(ROOT / "requirements" / f"{profile}.txt"))
        # Our own three distributions, editable: what runs is what is in this folder.
        editable = [word for package in PACKAGES for word in ("-e", str(ROOT / package))]
        _pip("install", "--no-deps", "--no-build-isolation", *editable)
        stamp.write_text(wanted)
    return PYTHON


def call(profile: str, *arguments: str, env: dict[str, str] | None = None) -> int:
    """Run `.venv`'s Python with ``arguments`` in the project's folder; returns its exit code."""
    try:
        python = ensure(profile)
    except SetupError as error:
        _say(str(error))
        return 1
    return subprocess.run(
        [str(python), *arguments], cwd=ROOT, env={**os.environ, **(env or {})}, check=False
    ).returncode


def replace_by(profile: str, *arguments: str) -> int:
    """Become `.venv`'s Python running ``arguments`` where the user is, so that signals reach it and nobody else.

    ``-P``: a module's name means ours or the library's, never a file that lies in the user's folder.
    """
    try:
        python = ensure(profile)
    except SetupError as error:
        _say(str(error))
        return 1
    if os.name == "nt":
        return call(profile, *arguments)
    os.execv(python, [str(python), "-P", *arguments])
    raise AssertionError("execv doesn't return")


def _make() -> None:
    try:
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    except subprocess.CalledProcessError:
        raise SetupError(
            "This Python can't make a virtual environment. On Debian or Ubuntu: apt install python3-venv"
        ) from None


def _pip(*arguments: str) -> None:
    # Never --isolated: it would lose the machine's own index and wheel folders.
    command = [str(PYTHON), "-m", "pip", "-qq", "--disable-pip-version-check", *arguments]
    if subprocess.run(command, check=False).returncode != 0:
        raise SetupError("pip could not install the packages; its own message is above.")


def _fingerprint(profile: str) -> str:
    digest = hashlib.sha256(sys.version.encode() + str(ROOT).encode())
    files = [ROOT / "requirements" / f"{profile}.txt", *(ROOT / package / "pyproject.toml" for package in PACKAGES)]
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
