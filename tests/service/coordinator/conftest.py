"""A coordinator in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from coordinator_support import Local

Start = Callable[..., Local]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts coordinators over this test's folder; one that was left before is taken up."""
    with ExitStack() as stack:

        def open_local(**chosen: Any) -> Local:
            return stack.enter_context(Local(tmp_path, **chosen))

        yield open_local
