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
REQUIREMENTS = ROOT / "requirements"
PACKAGES = ("cli", "worker", "services")


class SetupError(Exception):
    """The environment can't be made; the message names the fix."""


def ensure(profile: str) -> Path:
    """Make `.venv` hold what ``profile`` needs and return its Python.

    Args:
        profile: ``services`` (to run) or ``dev`` (to test and check as well).
    """
    stamp, wanted = VENV / f".installed-{profile}", _fingerprint(profile)
    if not _usable():
        _say("Making .venv …")
        _make()
    if not stamp.exists() or stamp.read_text() != wanted:
        _say(f"Installing packages ({profile}); this takes a minute the first time …")
        # The lock is complete. Of torch, which is no part of it, pip would miss the hashes of what needs it.
        _pip("install", "--no-deps", "--require-hashes", "-r", str(REQUIREMENTS / f"{profile}.txt"))
        if profile == "dev":
            _pip("install", "--no-deps", "-r", str(REQUIREMENTS / "torch.txt"))
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


def _usable() -> bool:
    """Whether `.venv` is there and whole: an interrupted or refused start leaves one without pip behind."""
    if not PYTHON.exists():
        return False
    if any(VENV.glob(".installed-*")):
        return True
    return subprocess.run([PYTHON, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0


def _make() -> None:
    _run(
        [sys.executable, "-m", "venv", "--clear", str(VENV)],
        "The virtual environment can't be made; the reason is above. Debian and Ubuntu need: apt install python3-venv",
    )


def _pip(*arguments: str) -> None:
    # Never --isolated: it would lose the machine's own index and wheel folders.
    _run(
        [str(PYTHON), "-m", "pip", "-qq", "--disable-pip-version-check", *arguments],
        "pip could not install the packages; its own message is above.",
    )


def _run(command: list[str], failed: str) -> None:
    """Run ``command``, showing what it says only when it fails: an interruption is told once, by dev.py."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        _say(done.stdout.rstrip())
        raise SetupError(failed)


def _fingerprint(profile: str) -> str:
    digest = hashlib.sha256(sys.version.encode() + str(ROOT).encode())
    files = [REQUIREMENTS / f"{profile}.txt", REQUIREMENTS / "torch.txt"]
    files += [ROOT / package / "pyproject.toml" for package in PACKAGES]
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
