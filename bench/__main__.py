"""`python3 dev.py bench [NAME] [--json]`: run one benchmark or all; one JSON object, or readable lines."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable
from typing import Any

from bench import cli_start, coordinator, docker_jobs, gateway, logs, stack_idle, submit, upload

BENCHMARKS: dict[str, Callable[[], dict[str, Any]]] = {
    "cli": cli_start.run,
    "idle": stack_idle.run,
    "submit": submit.run,
    "upload": upload.run,
    "logs": logs.run,
    "gateway": gateway.run,
    "coordinator": coordinator.run,
    "docker": docker_jobs.run,
}

# What the main job is measured by.
GROUPS = {"main": ("submit", "upload", "logs", "cli", "idle")}


def main(arguments: list[str]) -> int:
    """Run what is named; 2 for an unknown name, 1 when a comparator was too slow for its figures to mean anything."""
    words = [word for word in arguments if not word.startswith("--")] or list(BENCHMARKS)
    names = [name for word in words for name in GROUPS.get(word, (word,))]
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"No benchmark {unknown[0]!r}; there are: {', '.join([*GROUPS, *BENCHMARKS])}", file=sys.stderr)
        return 2
    result: dict[str, Any] = {
        "schemaVersion": 1,
        "machine": {"python": platform.python_version(), "system": platform.platform(), "cpus": os.cpu_count()},
        "benchmarks": {},
    }
    for name in names:
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        result["benchmarks"][name] = BENCHMARKS[name]()
    if "--json" in arguments:
        print(json.dumps(result, indent=2))
    else:
        for name, figures in result["benchmarks"].items():
            print(name)
            for key, value in figures.items():
                print(f"  {key}: {value}")
    invalid = [name for name, figures in result["benchmarks"].items() if not figures.get("valid", True)]
    if invalid:
        print(f"Run again: the comparator of {', '.join(invalid)} was too far from its own bound.", file=sys.stderr)
    return 1 if invalid else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
