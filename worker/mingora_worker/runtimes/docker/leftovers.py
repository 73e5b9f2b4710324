"""What a worker that was killed left with its engine, found by label and removed."""

from __future__ import annotations

import contextlib
import json
import re
import secrets
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from docker.errors import APIError, NotFound

from mingora_worker.console import Console
from mingora_worker.runtimes.docker import outputs
from mingora_worker.runtimes.docker.engine import Engine, EngineProblem, explanation
from mingora_worker.runtimes.docker.output import OutputFailed
from mingora_worker.state import LABEL_FILE, write_private
from mingora_worker.texts import _

WORKER = "mingora.worker"
LEASE = "mingora.lease"
JOB = "mingora.job"
AT_ONCE = 8
_LABEL = re.compile(r"[0-9a-f]{24}")


def worker_label(root: Path) -> str:
    """The same at every start in this folder, and on an engine that several machines use still this worker's alone."""
    path = root / LABEL_FILE
    try:
        found = str(json.loads(path.read_text("ascii"))["label"])
    except (OSError, ValueError, KeyError, TypeError):
        found = ""
    if not _LABEL.fullmatch(found):
        found = secrets.token_hex(12)
        write_private(path, {"label": found})
    return found


def label_of(worker: str) -> str:
    return f"{WORKER}={worker}"


def clear(
    engine: Engine, root: Path, worker: str, console: Console, check: Callable[[], object] = lambda: None
) -> None:
    """Nothing of the worker is left, or `EngineProblem` or `Lost` says why."""
    try:
        for name in remove_all(engine, worker, check):
            text = _("Removed the container {name}, which a former worker left.")
            console.event("container_removed", text.format(name=name), container=name)
        outputs.clear(root)
    except APIError as error:
        text = _("A container of a former worker can't be removed: {reason}")
        raise EngineProblem(text.format(reason=explanation(error))) from error
    except OutputFailed as error:
        raise EngineProblem(error.message) from error


def remove_all(engine: Engine, worker: str, check: Callable[[], object] = lambda: None) -> list[str]:
    """Ends and removes every container and volume of the worker; returns the names of the containers.

    Nothing is left when it returns. Raises `Lost`, `APIError`, what `check` raises.
    """
    api = engine.client.api
    wanted = {"label": label_of(worker)}
    removed: list[str] = []
    while containers := engine.call(lambda: api.containers(all=True, filters=wanted), check):
        removed += [name.lstrip("/") for found in containers for name in found["Names"][:1]]
        _each(containers, lambda found: engine.call(lambda: _remove(engine, found["Id"]), check))
    volumes = engine.call(lambda: api.volumes(filters=wanted), check)["Volumes"] or []
    _each(volumes, lambda found: engine.call(lambda: _remove_volume(engine, found["Name"]), check))
    return sorted(set(removed))


def _each(found: Iterable[dict[str, Any]], work: Callable[[dict[str, Any]], None]) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(work, found))


def _remove(engine: Engine, id: str) -> None:
    with contextlib.suppress(NotFound):
        try:
            engine.client.api.remove_container(id, v=True, force=True)
        except APIError as error:
            if error.status_code != 409:  # another call is removing it already
                raise


def _remove_volume(engine: Engine, name: str) -> None:
    with contextlib.suppress(NotFound):
        engine.client.api.remove_volume(name, force=True)
