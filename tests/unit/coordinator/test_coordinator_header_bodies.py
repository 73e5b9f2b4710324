"""The list of damaged bodies, as the header's rules see it: what is unreadable, what is another adapter."""

from __future__ import annotations

import numpy as np
import pytest
from coordinator_bodies import Body, accepted, refused
from safetensors.numpy import save

from mingora_coordinator.domain.header import NotSafetensors, cap_for, difference, parse

pytestmark = pytest.mark.req("COORD-1")
ADAPTER = {
    "layers.0.lora_A": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4),
    "layers.0.lora_B": np.linspace(2, 3, 8, dtype=np.float32).reshape(4, 2),
    "layers.0.scale": np.ones(5, np.float32),
}
FILE = save(ADAPTER)
OWN = parse(FILE, len(FILE), cap_for(0))
CAP = cap_for(OWN.data_start - 8)
REFUSED, ACCEPTED = refused(ADAPTER), accepted(ADAPTER)


@pytest.mark.parametrize("body", REFUSED, ids=[name for name, _, _ in REFUSED])
def test_each_body_is_unreadable_or_another_adapter_or_has_a_value_that_is_not_finite(body: Body) -> None:
    _, file, status = body
    if status != 422:
        with pytest.raises(NotSafetensors):
            parse(file, len(file), CAP)
        return
    found = parse(file, len(file), CAP)
    if difference(OWN, found) is None:
        assert not np.isfinite(np.frombuffer(file, "<f4", offset=found.data_start)).all()


@pytest.mark.parametrize("name", [name for name, _ in ACCEPTED])
def test_odd_bodies_that_are_fine_are_read(name: str) -> None:
    file = dict(ACCEPTED)[name]
    found = parse(file, len(file), CAP)
    assert difference(OWN, found) is None
    assert np.isfinite(np.frombuffer(file[found.data_start :], "<f4")).all()


def test_there_are_enough_of_them() -> None:
    assert len(REFUSED) >= 60
    assert {status for _, _, status in REFUSED} == {413, 400, 422}
