"""The image that jobs run in: fetched before the first claim, and looked at before it is used."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from docker.errors import ImageNotFound

from mingora_worker.runtimes.docker.engine import FAILURES, Engine, EngineProblem, explanation
from mingora_worker.runtimes.docker.reference import Reference
from mingora_worker.texts import _

# Engines leave Docker Hub's own names out.
_HUB = re.compile(r"^(?:docker\.io/)?(?:library/)?")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def fetch(engine: Engine, wanted: Reference, progress: Callable[[str], None]) -> str:
    """Makes sure that the image is there and fit for jobs; returns its id.

    `progress` is called with what the engine does, and may raise. Raises `EngineProblem`.
    """
    found = _inspect(engine, wanted)
    if found is None:
        _pull(engine, wanted, progress)
        found = _inspect(engine, wanted)
    if found is None:
        raise EngineProblem(_("The engine has pulled {image} and doesn't have it.").format(image=wanted))
    _check(engine, wanted, found)
    return str(found["Id"])


def _inspect(engine: Engine, wanted: Reference) -> dict[str, Any] | None:
    try:
        return engine.call(lambda: engine.client.images.get(str(wanted)).attrs)
    except ImageNotFound:
        return None


def _pull(engine: Engine, wanted: Reference, progress: Callable[[str], None]) -> None:
    try:
        for line in engine.client.api.pull(wanted.repository, tag=wanted.digest, stream=True, decode=True):
            if "error" in line:
                raise EngineProblem(
                    _("{image} can't be pulled: {reason}").format(image=wanted, reason=line["error"]),
                    hint=_("Try: docker pull {image}").format(image=wanted),
                )
            progress(str(line.get("status", "")))
    except FAILURES as error:
        raise EngineProblem(
            _("{image} can't be pulled: {reason}").format(image=wanted, reason=explanation(error)),
            hint=_("Try: docker pull {image}").format(image=wanted),
        ) from error


def _check(engine: Engine, wanted: Reference, found: dict[str, Any]) -> None:
    if _HUB.sub("", str(wanted)) not in _digests(found):
        raise EngineProblem(_("The engine's {image} has another digest.").format(image=wanted))
    volumes = sorted((found.get("Config") or {}).get("Volumes") or {})
    if volumes:
        raise EngineProblem(
            _("{image} declares volumes ({volumes}): a job would write there past every limit.").format(
                image=wanted, volumes=", ".join(volumes)
            ),
            hint=_("Use an image without VOLUME."),
        )
    system, machine = found.get("Os"), found.get("Architecture")
    own = str(engine.info.get("Architecture"))
    own = _ARCHITECTURES.get(own, own)
    if (system, machine) != ("linux", own):
        text = _("{image} is for {system}/{machine}; this engine runs linux/{own}.")
        raise EngineProblem(text.format(image=wanted, system=system, machine=machine, own=own))


def _digests(found: dict[str, Any]) -> set[str]:
    """The names by digest under which the engine has the image."""
    return {_HUB.sub("", str(name)) for name in found.get("RepoDigests") or []}
