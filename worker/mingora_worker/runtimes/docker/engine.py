"""The container engine as this worker reaches it: by DOCKER_HOST, or by the local socket."""

from __future__ import annotations

import contextlib
import shlex
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import docker
import docker.errors
import requests.exceptions
import urllib3.exceptions

from mingora.errors import MingoraError
from mingora_worker.runtimes.base import Lost
from mingora_worker.texts import _

T = TypeVar("T")
CALL_SECONDS = 20.0
# An engine that restarts is back within this time; what it ran is asked for then.
LOST_SECONDS = 30.0
RETRY_SECONDS = 0.2
# What calls of the SDK raise: its own errors, those of its transport, and the socket's.
ENGINE_FAILURES = (
    docker.errors.DockerException,
    requests.exceptions.RequestException,
    urllib3.exceptions.HTTPError,
)
FAILURES = (*ENGINE_FAILURES, OSError)
# `cgroupns` and one-shot statistics came with it (Docker 20.10).
LEAST_API = (1, 41)


class EngineProblem(MingoraError):
    """The engine, or what it was given, doesn't do; the message is for who runs the worker."""


class Engine:
    """A Docker Engine that answers. Calls of all threads go through `client`.

    It is listened to: `interrupted` says whether it went away since, for however short a time, `out_of_memory` has the
    ids of `label`'s containers of which it said that memory ran out.
    """

    def __init__(self, label: str) -> None:
        self.interrupted = False
        self.out_of_memory: set[str] = set()
        self.client = connect()
        try:
            self.info: dict[str, Any] = self.client.info()
            self.version = str(self.client.version()["Version"])
        except FAILURES as error:
            raise unreachable(error) from error
        api = tuple(int(part) for part in self.client.api.api_version.split("."))
        if api < LEAST_API:
            raise EngineProblem(
                _("The container engine {version} is too old.").format(version=self.version),
                hint=_("Docker Engine 20.10 or newer is needed."),
            )

        self._events = self.client.events(decode=True, filters={"label": label})
        threading.Thread(target=self._listen, name="engine", daemon=True).start()

    def _listen(self) -> None:
        with contextlib.suppress(*FAILURES, ValueError, AttributeError):  # what is closed meanwhile fails in many ways
            for event in self._events:
                if event.get("Action") == "oom":
                    self.out_of_memory.add(str(event.get("id") or (event.get("Actor") or {}).get("ID")))
        self.interrupted = True

    def close(self) -> None:
        with contextlib.suppress(*FAILURES, ValueError, AttributeError):
            self._events.close()
        self.client.close()

    @property
    def options(self) -> set[str]:
        """What the engine says of its own security: apparmor, seccomp, rootless, userns, selinux."""
        said = self.info.get("SecurityOptions") or []
        return {part.removeprefix("name=") for option in said for part in str(option).split(",")[:1]}

    def answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except FAILURES:
            return False

    def call(self, function: Callable[[], T], check: Callable[[], object] = lambda: None) -> T:
        """The result of `function`, tried again while the engine doesn't answer. Raises `Lost` after LOST_SECONDS.

        What the engine refuses goes through as the SDK's `APIError`; `check` is called between tries and may raise.
        """
        until = time.monotonic() + LOST_SECONDS
        while True:
            try:
                return function()
            except FAILURES as error:
                if is_answer(error):
                    raise
                if time.monotonic() >= until:
                    raise lost() from error
            check()
            time.sleep(RETRY_SECONDS)


def connect(timeout: float = CALL_SECONDS) -> docker.DockerClient:
    """A client of the engine; `timeout` seconds for each call. Raises `EngineProblem`."""
    try:
        return docker.from_env(version="auto", timeout=int(timeout))
    except FAILURES as error:
        raise unreachable(error) from error


def is_answer(error: Exception) -> bool:
    """Whether the engine itself answered, with a refusal that trying again doesn't change."""
    if isinstance(error, requests.exceptions.HTTPError):  # of which the SDK's APIError is a kind
        return error.response is not None and error.response.status_code not in {502, 503, 504}
    return isinstance(error, docker.errors.DockerException)


def explanation(error: Exception) -> str:
    """What the engine said, in one line."""
    return str(getattr(error, "explanation", None) or error).strip().replace("\n", " ")[:500]


def lost() -> Lost:
    text = _("The container engine hasn't answered for {seconds} seconds.")
    return Lost(text.format(seconds=round(LOST_SECONDS)))


def _remedy(error: Exception) -> str:
    said = str(error).lower()
    if "paramiko" in said:
        command = shlex.join([sys.executable, "-m", "pip", "install", "docker[ssh]"])
        return _("DOCKER_HOST=ssh://… needs one more package: {command}").format(command=command)
    over_tls = isinstance(error, docker.errors.TLSParameterError)
    if over_tls or any(word in said for word in ("certificate", "ssl", "https server")):
        return _("Over TLS: DOCKER_TLS_VERIFY=1, and DOCKER_CERT_PATH, the folder with ca.pem, cert.pem and key.pem.")
    return _("Start Docker, let this account use it (the group docker), or name the engine by DOCKER_HOST.")


def unreachable(error: Exception) -> EngineProblem:
    return EngineProblem(
        _("No container engine answers: {reason}").format(reason=explanation(error)),
        hint=_remedy(error),
    )
