"""`dev.py check`: every check that isn't a test. Each prints its name; the first line of a failure says what to run."""

from __future__ import annotations

import sys

from devtools import venv

CLIENTS = ("cli/mingora", "worker/mingora_worker", "worker/mingora_volunteer")
SOURCES = ("cli", "worker", "services", "tests", "bench", "devtools", "dev.py")


def run(*, fix: bool) -> int:
    """Run all checks, also after a failure; returns 0 when all are clean."""
    steps = {
        "ruff": ("-m", "ruff", "check", *(["--fix"] if fix else []), *SOURCES),
        "format": ("-m", "ruff", "format", *([] if fix else ["--check"]), *SOURCES),
        "types": ("-m", "mypy", *_typed()),
        "types, Python 3.10": ("-m", "mypy", "--python-version", "3.10", *CLIENTS),
        "imports": ("-c", "from importlinter.cli import lint_imports_command as run; run()"),
        "catalogues": ("-m", "devtools.catalogues", *(["--fix"] if fix else [])),
        "openapi": ("-m", "devtools.openapi", *(["--fix"] if fix else [])),
        "seccomp": ("-m", "devtools.seccomp", *(["--fix"] if fix else [])),
        "requirements": ("-m", "devtools.requirements", *(["--fix"] if fix else [])),
    }
    failed = []
    for name, words in steps.items():
        print(f"— {name}", flush=True)
        if venv.call("dev", *words) != 0:
            failed.append(name)
    if failed:
        print(f"Not clean: {', '.join(failed)}. `python3 dev.py check --fix` mends what it can.", file=sys.stderr)
        return 1
    print("All clean.")
    return 0


def _typed() -> list[str]:
    # The launchers share their names with the packages beside them, so mypy is given the packages.
    packages = [
        *CLIENTS,
        "services/common/mingora_common",
        "services/api/mingora_api",
        "services/blobstore/mingora_blobstore",
        "services/scheduler/mingora_scheduler",
        "services/stack/mingora_stack",
        "services/coordinator_v1/mingora_coordinator",
        "services/coordinator_v1/examples",
    ]
    return [*packages, "bench", "devtools", "dev.py", "tests"]
