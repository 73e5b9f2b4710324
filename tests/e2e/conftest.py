"""One shared stack a test process, accounts a test, and stacks of their own for tests that break them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import docker
import docker_images
import pytest
from docker_support import Registry
from docker_workers import fake_platform
from e2e_compose import ComposeStack
from e2e_support import RunningStack, Served, User
from service.worker.fake_platform import FakePlatform


def _running(data: Path) -> Iterator[RunningStack]:
    stack = RunningStack(data)
    try:
        stack.start()
        yield stack
        stack.check_faults()
    finally:
        stack.close()


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """A stack that tests may use but not break."""
    yield from _running(tmp_path_factory.mktemp("stack") / "data")


@pytest.fixture(scope="module")
def breakable_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """A stack whose processes a test may kill; the test leaves it running."""
    yield from _running(tmp_path_factory.mktemp("breakable") / "data")


@pytest.fixture
def new_stack(tmp_path: Path) -> Iterator[Callable[..., RunningStack]]:
    """Makes stacks of this test's own, not started yet."""
    stacks: list[RunningStack] = []

    def make(*options: str) -> RunningStack:
        stacks.append(RunningStack(tmp_path / f"data{len(stacks)}", *options))
        return stacks[-1]

    yield make
    for stack in stacks:
        stack.close()


@pytest.fixture
def new_user(tmp_path: Path) -> Iterator[Callable[[Served], User]]:
    """Makes accounts, logged in; their workers end with the test."""
    users: list[User] = []

    def make(stack: Served) -> User:
        users.append(User(stack, tmp_path / f"home{len(users)}"))
        return users[-1].create().login()

    yield make
    for user in users:
        user.close()


@pytest.fixture
def user(stack: RunningStack, new_user: Callable[[RunningStack], User]) -> User:
    """An account on the shared stack."""
    return new_user(stack)


@pytest.fixture(scope="session")
def compose_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposeStack]:
    """The platform in containers, built and started once; the tests of the group `compose` share it."""
    if not os.environ.get("MINGORA_TEST_DOCKER"):
        if os.environ.get("CI"):
            pytest.fail("CI needs a Docker Engine with compose: MINGORA_TEST_DOCKER is not set")
        pytest.skip("no Docker Engine with compose (MINGORA_TEST_DOCKER)")
    stack = ComposeStack(tmp_path_factory.mktemp("compose"))
    stack.build()
    try:
        stack.up()
        yield stack
    finally:
        stack.down()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Real processes on a machine that is busy otherwise take their time: the limit is for what hangs."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture
def far_user(user: User, proxy: Any, tmp_path: Path) -> Iterator[User]:
    """The user on a machine that reaches the stack through the test's own ``proxy`` only."""
    far = user.elsewhere(tmp_path / "far")
    far.stack = cast(RunningStack, SimpleNamespace(url=proxy.url, ca_file=None))
    yield far.login()
    far.close()


# -- of the Docker runtime's tests ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client() -> Iterator[docker.DockerClient]:
    """The machine's own engine."""
    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture(scope="module")
def image(registry: Registry) -> str:
    """The plain image, which the engine has."""
    return registry.pull(docker_images.plain(registry))


@pytest.fixture
def platform() -> Iterator[FakePlatform]:
    with fake_platform() as platform:
        yield platform
