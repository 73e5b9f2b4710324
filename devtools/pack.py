"""`dev.py zip`: the CLI and the worker in one archive that runs unpacked, the same bytes for the same sources."""

from __future__ import annotations

import zipfile
from pathlib import Path

from devtools.venv import ROOT

NAME = "mingora-tools"
VERSION = "0.1.0"
TREES = (
    ("cli", ("mingora.py", "mingora")),
    ("worker", ("mingora_worker.py", "mingora_worker")),
)
# A fixed time and fixed modes: the archive's digest says whether the content is the same.
TIME = (2026, 1, 1, 0, 0, 0)
LEFT_OUT = {"__pycache__", ".mypy_cache", ".ruff_cache", ".DS_Store"}


def build(target: Path | None = None) -> Path:
    """Write the archive (``dist/`` by default) and return its path."""
    target = target or ROOT / "dist" / f"{NAME}-{VERSION}.zip"
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for source, name in sorted(_files(), key=lambda pair: pair[1]):
            entry = zipfile.ZipInfo(f"{NAME}-{VERSION}/{name}", TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o755 if name.count("/") == 0 and name.endswith(".py") else 0o644) << 16
            archive.writestr(entry, source.read_bytes())
    return target


def _files() -> list[tuple[Path, str]]:
    found = [(ROOT / "LICENSE", "LICENSE"), (ROOT / "docs" / "tools.md", "README.md")]
    for folder, names in TREES:
        for name in names:
            top = ROOT / folder / name
            for path in [top] if top.is_file() else top.rglob("*"):
                relative = path.relative_to(ROOT / folder)
                if path.is_file() and not LEFT_OUT.intersection(relative.parts):
                    found.append((path, relative.as_posix()))
    return found
