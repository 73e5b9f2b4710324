"""The coordinator of protocol v1, beside Flower and beside plain endpoints, on adapters of the real LoRA shapes."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from bench import coordinator_accept, coordinator_close, coordinator_data, coordinator_publish, coordinator_serve
from devtools.processes import Processes

RESULTS = 32


def run() -> dict[str, Any]:
    """All figures. Those with a target are objects: the value, the target, and whether it is met."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="mingora-bench-") as name, Processes() as processes:
        folder = Path(name)
        coordinator_data.write(folder, RESULTS)
        for part in (coordinator_close, coordinator_publish, coordinator_accept, coordinator_serve):
            found |= part.figures(folder, processes)
    return {**found, "valid": found["acceptValid"] and found["serveValid"]}
