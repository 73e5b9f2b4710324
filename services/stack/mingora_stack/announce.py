"""What people are told once the stack serves: where it is, and the commands that come next, ready to be copied."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path


def announcement(url: str, data: Path, ca_file: Path | None) -> str:
    """The lines for a stack at ``url`` on the folder ``data``; ``ca_file`` is its own authority's, for HTTPS."""
    trust = "" if ca_file is None else f" --ca-file {shlex.quote(str(ca_file))}"
    lines = [
        f"Mingora is running at {url} (Ctrl-C stops it; its data is in {data}).",
        f"  Make an account:  {_tool('mingora-admin')} --data {shlex.quote(str(data))} account create NAME",
        f"  Log in:           {_tool('mingora')} login --server {url}{trust} --identifier NAME",
    ]
    if ca_file is not None:
        lines += [
            f"  Another machine:  copy {ca_file} there as mingora-ca.crt, then",
            f"                    mingora login --server {url} --ca-file mingora-ca.crt --identifier NAME",
        ]
    return "\n".join(lines)


def _tool(name: str) -> str:
    """The command's name where the shell finds it, else its path beside this Python (a `.venv` not on the PATH)."""
    beside = Path(sys.executable).with_name(name)
    return name if shutil.which(name) or not beside.is_file() else shlex.quote(str(beside))
