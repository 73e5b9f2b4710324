"""Pulling an image: how far it is, that it can be left, and what to do where it fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from docker.errors import APIError, ImageNotFound

from mingora_worker.runtimes.docker import image
from mingora_worker.runtimes.docker.engine import Engine, EngineProblem
from mingora_worker.runtimes.docker.reference import Reference, parse_reference

WANTED = parse_reference("registry.example.org/lab/train@sha256:" + "0" * 64)


class Stopping(Exception):
    """The worker was asked to stop."""


class FakeEngine:
    """An engine that has no image until one was pulled, and says `lines` meanwhile."""

    def __init__(self, lines: Callable[[], Iterable[dict[str, Any]]]) -> None:
        self.info = {"Architecture": "x86_64"}
        self.client = SimpleNamespace(api=SimpleNamespace(pull=self._pull), images=SimpleNamespace(get=self._get))
        self._lines = lines
        self._there = False

    def call(self, function: Callable[[], Any], check: Callable[[], object]) -> Any:
        check()
        return function()

    def _pull(self, repository: str, *, tag: str, stream: bool, decode: bool) -> Iterable[dict[str, Any]]:
        assert (repository, tag, stream, decode) == (WANTED.repository, WANTED.digest, True, True)
        yield from self._lines()
        self._there = True

    def _get(self, name: str) -> Any:
        if not self._there:
            raise ImageNotFound("none")
        found = {"Id": "sha256:1", "RepoDigests": [name], "Os": "linux", "Architecture": "amd64"}
        return SimpleNamespace(attrs=found)


def fetch(
    lines: Callable[[], Iterable[dict[str, Any]]],
    progress: Callable[[str], object] = lambda _text: None,
    check: Callable[[], object] = lambda: None,
    wanted: Reference = WANTED,
) -> str:
    return image.fetch(cast(Engine, FakeEngine(lines)), wanted, progress, check)


def layer(name: str, status: str, current: int | None = None) -> dict[str, Any]:
    return {"id": name, "status": status, "progressDetail": {} if current is None else {"current": current}}


@pytest.mark.req("WORK-7")
def test_it_is_told_how_far_a_pull_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image, "PROGRESS_SECONDS", 0.0)
    told: list[str] = []
    seen = threading.Event()
    expected = "Pulling: 2 of 3 layers, 7 MB."

    def progress(text: str) -> None:
        told.append(text)
        if text == expected:
            seen.set()

    def lines() -> Iterable[dict[str, Any]]:
        yield layer(WANTED.digest, "Pulling from lab/train")
        yield layer("a", "Already exists")
        yield from (layer(name, "Pulling fs layer") for name in "bc")
        yield from (layer("b", "Downloading", size) for size in (1_000_000, 5_000_000))
        yield layer("c", "Downloading", 2_500_000)
        yield from (layer("b", status) for status in ("Verifying Checksum", "Download complete"))
        yield from (layer("b", "Extracting", 300), layer("b", "Pull complete"))
        yield {"status": f"Digest: {WANTED.digest}"}
        assert seen.wait(20)

    assert fetch(lines, progress) == "sha256:1"
    assert expected in told


@pytest.mark.req("WORK-7")
def test_a_quick_pull_tells_nothing() -> None:
    told: list[str] = []
    fetch(lambda: [layer("a", "Pull complete")], told.append)
    assert told == []


@pytest.mark.req("WORK-7", "WORK-4")
def test_a_pull_that_says_nothing_can_be_left() -> None:
    going, end = threading.Event(), threading.Event()

    def lines() -> Iterable[dict[str, Any]]:
        going.set()
        end.wait(20)
        return []

    def check() -> None:
        if going.is_set():
            raise Stopping

    with pytest.raises(Stopping):
        fetch(lines, check=check)
    end.set()


@pytest.mark.req("WORK-7")
@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("unauthorized: authentication required", "docker login registry.example.org"),
        ("Head https://registry.example.org/v2/: no basic auth credentials", "docker login registry.example.org"),
        ("denied: requested access to the resource is denied", "docker login registry.example.org"),
        ('denied: Permission denied for "x"', "docker login registry.example.org"),
        ("pull access denied for x, repository does not exist or may require 'docker login'", "docker login"),
        ("manifest for x not found: manifest unknown: manifest unknown", "digest"),
        ("failed to register layer: open /usr/bin/x: permission denied", "Try: docker pull"),
        ("net/http: TLS handshake timeout", "Try: docker pull"),
    ],
)
@pytest.mark.parametrize("streamed", [True, False])
def test_a_refused_pull_says_what_to_do(said: str, hint: str, streamed: bool) -> None:
    def lines() -> Iterable[dict[str, Any]]:
        if streamed:
            return [{"errorDetail": {"message": said}, "error": said}]
        raise APIError(said)

    with pytest.raises(EngineProblem) as refused:
        fetch(lines)
    assert said in refused.value.message
    assert hint in (refused.value.hint or "")
    assert str(WANTED) in refused.value.message
