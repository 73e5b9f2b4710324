"""What the worker tells the platform of itself, when it tells it anew, and when it asks for a login."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mingora.errors import NotLoggedIn
from mingora.transport import Answer
from mingora_worker import register
from mingora_worker.config import parse
from mingora_worker.console import Console
from mingora_worker.interrupt import Interrupt
from mingora_worker.loop import Worker
from mingora_worker.machine import Machine
from mingora_worker.register import Registrar
from mingora_worker.runtimes.base import Offer, Runtime
from mingora_worker.state import NodeRecord, Root

NATIVE = Offer(("native",))
DOCKER = Offer(("docker",), "sha256:" + "0" * 64, {"engine": "20.10"})
REGISTERED = NodeRecord("http://127.0.0.1:9", "k" * 64, "node1", "token")


class Platform:
    """Answers every request, and keeps what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any]] = []

    def __call__(self, _server: str, **_options: Any) -> Platform:
        return self

    def __enter__(self) -> Platform:
        return self

    def __exit__(self, *_error: object) -> None: ...

    def close(self) -> None: ...

    def request_json(self, method: str, path: str, *, body: Any = None, **_options: Any) -> Answer:
        self.asked.append((method, path, body))
        return Answer(200, {}, {"id": "node1", "token": None, "name": "ali"})


@pytest.fixture
def platform(monkeypatch: pytest.MonkeyPatch) -> Platform:
    platform = Platform()
    monkeypatch.setattr(register, "Transport", platform)
    return platform


def registrar(
    root: Path, offer: Callable[[], Offer], record: NodeRecord | None = REGISTERED, **environ: str
) -> Registrar:
    root.mkdir(exist_ok=True)
    if record is not None:
        Root(root).save_node(record)
    environ = {"HOME": str(root), "XDG_CONFIG_HOME": str(root), **environ}
    machine = Machine("machine", "linux-x86_64", 2, 1_000, "fingerprint", None)
    config = parse(["--root", str(root), "--allow-own-code"])
    return Registrar(Root(root), config, machine, offer, Console(), pause=lambda _seconds: None, environ=environ)


@pytest.mark.req("WORK-1", "WORK-7")
def test_an_isolation_is_told_only_where_there_is_one(tmp_path: Path, platform: Platform) -> None:
    for offer in (NATIVE, DOCKER):
        registrar(tmp_path, lambda offer=offer: offer).begin()  # type: ignore[misc]
    native, docker = (body for _method, _path, body in platform.asked)
    assert "isolation" not in native  # an older platform refuses what it doesn't know
    assert docker["isolation"] == DOCKER.isolation


@pytest.mark.req("WORK-7")
def test_an_offer_that_is_another_now_is_known_for_it(tmp_path: Path, platform: Platform) -> None:
    offers = [DOCKER]
    ours = registrar(tmp_path, lambda: offers[-1])
    assert not ours.outdated  # nothing was told yet
    ours.begin()
    assert not ours.outdated
    offers.append(Offer(DOCKER.runtimes, DOCKER.image_digest, {"engine": "28.0"}))
    assert ours.outdated
    ours.begin()
    assert not ours.outdated
    assert [body["isolation"]["engine"] for _method, _path, body in platform.asked] == ["20.10", "28.0"]


@pytest.mark.req("AUTH-9")
def test_a_login_is_needed_until_the_node_has_a_token(tmp_path: Path) -> None:
    for record in (None, NodeRecord("http://127.0.0.1:9", "k" * 64)):
        with pytest.raises(NotLoggedIn) as refused:
            registrar(tmp_path, lambda: NATIVE, record).need_login()
        assert "mingora login" in (refused.value.hint or "")
    registrar(tmp_path, lambda: NATIVE, REGISTERED).need_login()
    registrar(tmp_path / "new", lambda: NATIVE, None, MINGORA_URL="http://127.0.0.1:9", MINGORA_TOKEN="t").need_login()


@pytest.mark.req("AUTH-9", "WORK-1")
def test_a_check_that_finds_nothing_to_offer_registers_nothing(tmp_path: Path, platform: Platform) -> None:
    said = registrar(tmp_path, lambda: Offer(()), MINGORA_TOKEN="t").probe()
    assert "ali" in said
    assert [(method, path) for method, path, _body in platform.asked] == [("GET", "/account")]


class Ready(Exception):
    """The runtimes are prepared."""


def worker(root: Path, ours: Registrar, prepare: Callable[[Callable[[], object]], dict[str, Runtime]]) -> Worker:
    return Worker(Root(root), parse(["--root", str(root)]), ours, prepare, Console(), Interrupt())


@pytest.mark.req("AUTH-9", "WORK-7")
def test_the_login_is_asked_for_before_an_image_is_pulled(tmp_path: Path) -> None:
    def prepare(_check: Callable[[], object]) -> dict[str, Runtime]:
        raise Ready

    with pytest.raises(NotLoggedIn):
        worker(tmp_path, registrar(tmp_path, lambda: DOCKER, None), prepare).run()
    with pytest.raises(Ready):
        worker(
            tmp_path, registrar(tmp_path, lambda: DOCKER, None, MINGORA_TOKEN="t", MINGORA_URL="http://x"), prepare
        ).run()


@pytest.mark.req("WORK-7")
def test_another_profile_is_told_before_the_next_claim(
    tmp_path: Path, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mingora_worker.loop.Transport", platform)
    offers = [DOCKER]
    ours = registrar(tmp_path, lambda: offers[-1])
    ours.begin()
    mine = worker(tmp_path, ours, lambda _check: {})
    mine._enter(REGISTERED)
    monkeypatch.setattr(mine._disk, "problem", lambda: None)
    for engine in ("20.10", "28.0", "28.0"):
        offers.append(Offer(DOCKER.runtimes, DOCKER.image_digest, {"engine": engine}))
        assert mine._has_room()
    told = [body["isolation"]["engine"] for _method, path, body in platform.asked if path == "/nodes"]
    assert told == ["20.10", "28.0"]
