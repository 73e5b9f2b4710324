"""The image that jobs run in: fetched before the first claim, and looked at before it is used."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from docker.errors import ImageNotFound

from mingora_worker.caller import Caller
from mingora_worker.runtimes.docker.engine import FAILURES, Engine, EngineProblem, explanation
from mingora_worker.runtimes.docker.reference import Reference
from mingora_worker.texts import _

# Engines leave Docker Hub's own names out.
_HUB = re.compile(r"^(?:docker\.io/)?(?:library/)?")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
PROGRESS_SECONDS = 10.0
# What registries and engines say, in lower case, where a login is missing or isn't enough.
_NO_ACCESS = ("unauthorized", "no basic auth credentials", "denied", "authentication required")
_NOT_THERE = ("not found", "manifest unknown", "does not exist")


def fetch(
    engine: Engine, wanted: Reference, progress: Callable[[str], object], check: Callable[[], object] = lambda: None
) -> str:
    """Makes sure that the image is there and fit for jobs; returns its id.

    While it is pulled `progress` gets a sentence every PROGRESS_SECONDS; `check` is called more often, and may raise,
    which abandons the pull. Raises `EngineProblem`, `Lost`.
    """
    found = _inspect(engine, wanted, check)
    if found is None:
        _pull(engine, wanted, progress, check)
        found = _inspect(engine, wanted, check)
    if found is None:
        raise EngineProblem(_("The engine has pulled {image} and doesn't have it.").format(image=wanted))
    _check(engine, wanted, found)
    return str(found["Id"])


def _inspect(engine: Engine, wanted: Reference, check: Callable[[], object]) -> dict[str, Any] | None:
    try:
        return engine.call(lambda: engine.client.images.get(str(wanted)).attrs, check)
    except ImageNotFound:
        return None


def _pull(engine: Engine, wanted: Reference, progress: Callable[[str], object], check: Callable[[], object]) -> None:
    pull = _Pull(engine, wanted)
    due = time.monotonic() + PROGRESS_SECONDS

    def tick() -> None:
        nonlocal due
        check()
        if time.monotonic() >= due:
            due = time.monotonic() + PROGRESS_SECONDS
            progress(pull.progress)

    Caller().call(pull.run, tick)  # an engine that waits for a registry says nothing, for however long


class _Pull:
    """One pull, run in a thread; `progress` says at any moment how far it is."""

    def __init__(self, engine: Engine, wanted: Reference) -> None:
        self._engine = engine
        self._wanted = wanted
        self._layers: dict[str, bool] = {}
        self._bytes: dict[str, int] = {}
        self._count()

    def run(self) -> None:
        """Raises `EngineProblem`."""
        api, wanted = self._engine.client.api, self._wanted
        try:
            for line in api.pull(wanted.repository, tag=wanted.digest, stream=True, decode=True):
                if "error" in line:
                    raise _refused(wanted, str(line["error"]))
                self._note(line)
        except FAILURES as error:
            raise _refused(wanted, explanation(error)) from error

    def _note(self, line: Mapping[str, Any]) -> None:
        layer, status = str(line.get("id", "")), str(line.get("status", ""))
        if not layer or status.startswith("Pulling from "):  # which names the image
            return
        self._layers[layer] = status in {"Pull complete", "Already exists"}
        if status == "Downloading":
            self._bytes[layer] = int((line.get("progressDetail") or {}).get("current") or 0)
        self._count()

    def _count(self) -> None:
        self.progress = _("Pulling: {done} of {all} layers, {megabytes} MB.").format(
            done=sum(self._layers.values()), all=len(self._layers), megabytes=sum(self._bytes.values()) // 1_000_000
        )


def _refused(wanted: Reference, reason: str) -> EngineProblem:
    said = reason.lower().replace(": permission denied", "")  # a file's, on the engine's machine
    if any(word in said for word in _NO_ACCESS):
        hint = _("As the account that runs the worker: docker login {registry}")
    elif any(word in said for word in _NOT_THERE):
        hint = _("Look whether name and digest are right: docker pull {image}")
    else:
        hint = _("Try: docker pull {image}")
    return EngineProblem(
        _("{image} can't be pulled: {reason}").format(image=wanted, reason=reason),
        hint=hint.format(image=wanted, registry=wanted.registry),
    )


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
