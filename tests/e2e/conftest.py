"""One shared stack a test process, accounts a test, and stacks of their own for tests that break them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from e2e_support import RunningStack, User


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
def new_user(tmp_path: Path) -> Iterator[Callable[[RunningStack], User]]:
    """Makes accounts, logged in; their workers end with the test."""
    users: list[User] = []

    def make(stack: RunningStack) -> User:
        users.append(User(stack, tmp_path / f"home{len(users)}"))
        return users[-1].create().login()

    yield make
    for user in users:
        user.close()


@pytest.fixture
def user(stack: RunningStack, new_user: Callable[[RunningStack], User]) -> User:
    """An account on the shared stack."""
    return new_user(stack)
