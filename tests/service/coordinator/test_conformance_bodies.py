"""The results that the conformance test sends: valid ones are read, the others are wrong in the way they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import safetensors
from coordinator_bodies import Adapter as Arrays
from safetensors.numpy import load, save

from mingora_coordinator.conformance import results
from mingora_coordinator.conformance.results import OTHERS, UNREADABLE, UNREADABLE_BY_THE_STRICT, Adapter, Make
from mingora_coordinator.domain.header import Difference, Header, NotSafetensors, difference, parse

pytestmark = pytest.mark.req("CONF-1")

ADAPTERS: dict[str, Arrays] = {
    "matrices": {"a.A": np.ones((3, 4), np.float32), "b.B": np.zeros((4, 2), np.float32), "c": np.ones(5, np.float32)},
    "squares": {"a": np.eye(3, dtype=np.float32), "b": np.eye(2, dtype=np.float32)},
    "a vector": {"a": np.arange(7, dtype=np.float32)},
    "a scalar": {"a": np.array(3, np.float32)},
    "one value": {"a": np.ones((1, 1), np.float32)},
    "with others": {
        "0": np.zeros(0, np.float32),
        "half": np.ones((2, 3), np.float16),
        "m": np.full((3, 2), 3e38, np.float32),
        "wide": np.ones((2, 2), np.float64),
    },
}
adapters = pytest.mark.parametrize("arrays", ADAPTERS.values(), ids=ADAPTERS.keys())


def header(file: bytes) -> Header:
    return parse(file, len(file), 1 << 20)


@adapters
def test_valid_results_differ_from_the_weights_and_from_each_other(arrays: Arrays) -> None:
    file = save(arrays)
    made = {Adapter(file).valid(step) for step in (1, 2, 3)}
    for result in made:
        assert difference(header(file), header(result)) is None
        assert all(np.isfinite(values).all() for values in load(result).values())
    assert len({file, *made}) == 4


@adapters
@pytest.mark.parametrize(("name", "make"), [(name, make) for name, _, make in UNREADABLE])
def test_what_is_unreadable_is_so_for_everybody(name: str, make: Make, arrays: Arrays) -> None:
    body = make(Adapter(save(arrays)))
    with pytest.raises(NotSafetensors):
        header(body)
    with pytest.raises(safetensors.SafetensorError):
        load(body)


@adapters
@pytest.mark.parametrize(("name", "make"), [(name, make) for name, _, make in UNREADABLE_BY_THE_STRICT])
def test_what_only_the_strict_refuse_is_advice(name: str, make: Make, arrays: Arrays) -> None:
    body = make(Adapter(save(arrays)))
    with pytest.raises(NotSafetensors):
        header(body)
    load(body)


@adapters
@pytest.mark.parametrize(("name", "make"), [(name, make) for name, _, make in OTHERS])
def test_another_adapter_differs_in_what_its_check_says(name: str, make: Make, arrays: Arrays) -> None:
    file = save(arrays)
    body = make(Adapter(file))
    found = difference(header(file), header(body))
    if name.startswith(("nan", "inf", "minus-inf")):
        assert found is None
        values = load(body)
        assert sum(int((~np.isfinite(array)).sum()) for array in values.values()) == 1
        return
    assert found is not None
    kinds = {"key": Difference.KEYS, "shape": Difference.SHAPE, "dtype": Difference.DTYPE}
    assert found[0] is kinds[name.split("-")[0]]
    assert load(body) is not None


@pytest.mark.parametrize(
    ("name", "wrong"), [("first", "a.A"), ("middle", "b.B"), ("last", "c"), ("lora-b", "d.lora_B")]
)
def test_the_mistake_is_in_the_tensor_that_is_said(name: str, wrong: str) -> None:
    arrays: Arrays = {"a.A": np.ones((2, 3), np.float32), "b.B": np.ones((3, 2), np.float32)}
    if name == "lora-b":
        arrays["d.lora_B"] = np.ones((3, 2), np.float32)
    file = save(arrays | {"c": np.ones(4, np.float32)}) if name != "lora-b" else save(arrays)
    adapter = Adapter(file)
    names = [tensor.name for tensor in adapter.tensors]
    makes = {own: make for own, _, make in OTHERS}
    changed = makes[f"nan-{name}"](adapter)
    assert Adapter(changed).damaged() == wrong, names
    found = difference(header(file), header(makes[f"shape-{name}"](adapter)))
    assert found is not None
    assert found[1] == wrong


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_seen_in_every_dtype(dtype: type[np.floating[Any]], value: float) -> None:
    arrays = {"a": np.ones(3, np.float32), "b": np.array([np.finfo(dtype).max, 0, -1], dtype)}
    assert Adapter(save(arrays)).damaged() is None
    arrays["b"][1] = value
    assert Adapter(save(arrays)).damaged() == "b"


def test_values_are_changed_only_as_far_as_plain_python_is_quick() -> None:
    large = {"a": np.ones(results.CHANGED_VALUES * 3, np.float32)}
    changed = load(Adapter(save(large)).valid(1))["a"]
    assert (changed != 1).sum() == results.CHANGED_VALUES


@pytest.mark.parametrize("arrays", [{"a": np.ones(3, np.float16)}, {"a": np.zeros(0, np.float32)}, {}])
def test_no_results_are_made_of_an_adapter_without_float32_values(arrays: Arrays) -> None:
    with pytest.raises(ValueError, match="no float32"):
        Adapter(save(arrays))
