"""The file entries that a job names as its inputs."""

from __future__ import annotations

import re
from typing import Any

from mingora_api.domain.problems import Problem, Problems
from mingora_common.filepaths import collision, path_problem
from mingora_common.ids import is_id

MAX_INPUTS = 1000
FIELDS = ("path", "objectId", "size", "sha256", "executable")

_SHA256 = re.compile(r"[0-9a-f]{64}")


def check_inputs(inputs: list[Any], problems: Problems) -> None:
    """Add what is wrong with ``inputs`` (docs/protocol.md, "A file entry") to ``problems``."""
    if len(inputs) > MAX_INPUTS:
        problems.add("inputs", f"has {len(inputs)} files, at most {MAX_INPUTS} are allowed")
        return
    before = len(problems)
    for index, entry in enumerate(inputs):
        problems.extend(_entry_problems(f"inputs[{index}]", entry))
    if len(problems) > before:
        return
    clash = collision(entry["path"] for entry in inputs)
    if clash is not None:
        problems.add("inputs", f"'{clash[0]}' and '{clash[1]}' can't both exist on every file system")


def _entry_problems(where: str, entry: Any) -> list[Problem]:
    if not isinstance(entry, dict):
        return [Problem(where, "must be an object")]
    found = [Problem(f"{where}.{name}"[:200], "isn't a known field") for name in entry if name not in FIELDS]
    missing = [name for name in FIELDS if name not in entry]
    if missing:
        return [*found, *(Problem(f"{where}.{name}", "is missing") for name in missing)]
    path = entry["path"]
    trouble = "must be text" if not isinstance(path, str) else path_problem(path)
    if trouble is None and path == "job.json":
        trouble = "job.json is the job's description and isn't an input"
    if trouble is not None:
        found.append(Problem(f"{where}.path", trouble))
    if not is_id("obj", entry["objectId"]):
        found.append(Problem(f"{where}.objectId", "must be an object's id"))
    if type(entry["size"]) is not int or not 0 <= entry["size"] <= 2**53:
        found.append(Problem(f"{where}.size", "must be a whole number of bytes"))
    if not isinstance(entry["sha256"], str) or _SHA256.fullmatch(entry["sha256"]) is None:
        found.append(Problem(f"{where}.sha256", "must be 64 hex digits in lower case"))
    if not isinstance(entry["executable"], bool):
        found.append(Problem(f"{where}.executable", "must be true or false"))
    return found
