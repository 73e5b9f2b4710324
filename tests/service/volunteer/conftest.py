"""One base model, text and adapter for all tests of a process; the libraries' warnings of each other are theirs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from service.volunteer.hostile import HostileCoordinator


@pytest.fixture
def hostile() -> Iterator[HostileCoordinator]:
    with HostileCoordinator() as server:
        yield server


@pytest.fixture(scope="session")
def base_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from service.volunteer.tiny_model import make_base_model

    torch.set_num_threads(1)
    return make_base_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def adapter(base_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from service.volunteer.tiny_model import make_adapter

    return make_adapter(base_model, tmp_path_factory.mktemp("adapter") / "round-0.safetensors")


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from service.volunteer.tiny_model import make_text

    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(make_text(1, 600), encoding="utf-8")
    return path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.filterwarnings("ignore::FutureWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning"))
