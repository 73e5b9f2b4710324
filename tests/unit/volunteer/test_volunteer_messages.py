"""The coordinator isn't trusted: what it says is checked by type and range before anything is done for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mingora_volunteer import messages
from mingora_volunteer.messages import BadAnswer, Done, Info, Task, Wait, info_of, task_of

# The page's own examples.
TASK = {
    "tur": 3, "toplam_tur": 20, "parca": 1, "n_parca": 4, "ic_adim": 20, "bs": 4, "seq": 512, "lr": 0.0002, "tohum": 0,
    "agirlik_sha256": "9f2c1a7be0d34c55" * 4,
}  # fmt: skip
ADAPTER = {
    "yontem": "lora", "r": 16, "alfa": 32, "dtype": "float32", "tensor_sayisi": 392,
    "hedef_moduller": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
}  # fmt: skip
INFO = {"protokol": "1", "tur": 3, "taban_model": "Qwen/Qwen3-0.6B-Base", "adaptor": ADAPTER}


@pytest.mark.req("VOL-1")
def test_the_pages_own_answers() -> None:
    assert task_of(TASK) == Task(3, 20, 1, 4, 20, 4, 512, 0.0002, 0, "9f2c1a7be0d34c55" * 4)
    assert task_of({"bekle": True, "tur": 3}) == Wait(3)
    assert task_of({"bitti": True}) == Done()
    assert info_of(INFO) == Info("Qwen/Qwen3-0.6B-Base", 16, 32.0, tuple(ADAPTER["hedef_moduller"]))  # type: ignore[arg-type]


@pytest.mark.req("VOL-1")
def test_only_the_protocols_version_is_needed_of_bilgi() -> None:
    assert info_of({"protokol": "1"}) == Info()
    assert info_of({"protokol": "1", "adaptor": {"dtype": "float32", "tensor_sayisi": 14}}) == Info()
    for protocol in ("2", 1, None, ["1"]):
        with pytest.raises(BadAnswer):
            info_of(INFO | {"protokol": protocol})


NO_VALUES: list[Any] = [None, True, "1", [], {}, -1, float("nan"), 10**400]
WRONG_TASKS: list[dict[str, Any]] = [
    *({name: value} for name in TASK for value in NO_VALUES),
    *({name: 2.0} for name in TASK if name not in {"lr"}),
    {"parca": 4}, {"n_parca": 0}, {"ic_adim": 0}, {"bs": 0}, {"seq": 1}, {"lr": 0}, {"lr": 1.5}, {"lr": float("inf")},
    {"ic_adim": messages.MAX_STEPS + 1}, {"bs": messages.MAX_BATCH + 1}, {"seq": messages.MAX_SEQUENCE + 1},
    {"bs": 1024, "seq": 131_072}, {"tohum": 1 << 63}, {"agirlik_sha256": "9F" * 32},
    {"agirlik_sha256": "9f" * 32 + "\n"},
]  # fmt: skip


@pytest.mark.req("VOL-1")
@pytest.mark.parametrize("wrong", WRONG_TASKS, ids=lambda wrong: str(wrong)[:40])
def test_a_task_outside_the_limits_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadAnswer):
        task_of(TASK | wrong)


@pytest.mark.req("VOL-1")
@pytest.mark.parametrize("missing", TASK)
def test_a_task_without_a_field_is_refused(missing: str) -> None:
    with pytest.raises(BadAnswer):
        task_of({name: value for name, value in TASK.items() if name != missing})


WRONG_ADAPTERS: list[dict[str, Any]] = [
    {"yontem": "full"}, {"dtype": "float16"}, {"r": 0},
    {"r": None}, {"r": 16.0}, {"alfa": None}, {"r": 10**6}, {"r": "16"}, {"r": True}, {"alfa": 0},
    {"alfa": -1}, {"alfa": float("inf")}, {"alfa": "32"}, {"hedef_moduller": []}, {"hedef_moduller": "all-linear"},
    {"hedef_moduller": ["q_proj"] * 65}, {"hedef_moduller": [".*"]}, {"hedef_moduller": ["(a+)+$"]},
    {"hedef_moduller": ["a.."]}, {"hedef_moduller": [1]}, {"hedef_moduller": ["a" * 201]},
]  # fmt: skip


@pytest.mark.req("VOL-1")
@pytest.mark.parametrize("wrong", WRONG_ADAPTERS, ids=lambda wrong: str(wrong)[:40])
def test_what_cannot_be_used_of_an_adapters_description_is_not_told(wrong: dict[str, Any]) -> None:
    (field,) = wrong
    names = {"r": "rank", "alfa": "alpha", "hedef_moduller": "modules"}
    told = replace(info_of(INFO), **{names[field]: None}) if field in names else info_of(INFO)
    assert info_of(INFO | {"adaptor": ADAPTER | wrong}) == told


@pytest.mark.req("VOL-1")
@pytest.mark.parametrize("adapter", NO_VALUES)
def test_an_adapter_that_is_not_described_is_not_told(adapter: Any) -> None:
    assert info_of(INFO | {"adaptor": adapter}) == Info("Qwen/Qwen3-0.6B-Base")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.req("VOL-1")
@given(JSON, st.dictionaries(st.sampled_from([*TASK, "bekle", "bitti", "protokol", "adaptor"]), JSON))
def test_any_other_answer_is_refused_and_never_crashes(answer: Any, fields: dict[str, Any]) -> None:
    for data in (answer, fields, {**TASK, **fields}, {**INFO, **fields}):
        for reads in (task_of, info_of):
            try:
                read = reads(data)
            except BadAnswer:
                continue
            if isinstance(read, Task):
                assert 0 <= read.part < read.parts and read.batch * read.sequence <= messages.MAX_BATCH_TOKENS
