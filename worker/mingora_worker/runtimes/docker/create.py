"""Makes a container, and lets its user read what it is given."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from docker.errors import APIError
from docker.models.containers import Container

from mingora_worker.runtimes.docker.engine import Engine
from mingora_worker.runtimes.docker.settings import Box, arguments
from mingora_worker.runtimes.docker.user import User, own_uid


def create(
    engine: Engine,
    image_id: str,
    command: list[str],
    box: Box,
    change: Callable[[dict[str, Any]], dict[str, Any]] = lambda wanted: wanted,
) -> Container:
    """A container that isn't started. One of the same name, made by a call whose answer was lost, goes first."""
    wanted = change(arguments(box))
    try:
        return engine.client.containers.create(image_id, command, **wanted)
    except APIError as error:
        if error.status_code != 409:
            raise
        engine.client.api.remove_container(box.name, v=True, force=True)
        return engine.client.containers.create(image_id, command, **wanted)


def share(folder: Path, user: User) -> None:
    """Lets the container's user read the project where it isn't the worker's own: the folder above keeps others out."""
    if user.uid == own_uid():
        return
    for inside, folders, files in os.walk(folder):
        for name in files:
            path = Path(inside, name)
            mode = path.stat().st_mode
            path.chmod(mode | stat.S_IRGRP | stat.S_IROTH | (mode & stat.S_IXUSR) >> 3 | (mode & stat.S_IXUSR) >> 6)
        for path in [Path(inside, name) for name in folders] + [Path(inside)]:
            path.chmod(0o755)
