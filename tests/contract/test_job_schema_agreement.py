"""The client's check of job.json before an upload never refuses what the server accepts, and finds what it can."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mingora.schema import problems as client_problems
from mingora_api.domain.problems import Problems
from mingora_api.domain.spec import SCHEMA, check_spec

FULL: dict[str, Any] = {
    "schemaVersion": 1,
    "name": "x",
    "command": ["python", "-u", "main.py"],
    "env": {"A_1": "değer"},
    "data": ["CORPUS"],
    "runtime": "docker",
    "resources": {"ranks": 2, "cpu": 4, "memoryMiB": 1024, "gpu": 1, "networkGroup": None},
    "environment": {"imageDigest": "sha256:" + "0" * 64},
    "model": {"version": "1", "format": "safetensors", "license": "Apache-2.0"},
    "training": {"steps": 10, "learningRate": 0.5},
    "rendezvous": {"host": "10.0.0.1", "port": 29500},
    "timeoutSeconds": 60,
    "priority": -3,
    "retry": {"max": 2, "onExitCodes": [75], "onLogPatterns": ["out of memory"]},
}
PATHS = [(name,) for name in FULL] + [
    (name, inner) for name, value in FULL.items() if isinstance(value, (dict, list))
    for inner in (value if isinstance(value, dict) else range(len(value)))
]  # fmt: skip
VALUES = st.one_of(
    st.integers(-200, 2**33),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.sampled_from(
        [None, True, "native", "A", "line\n", "sha256:" + "a" * 64, [], {}, [1, 1], ["A", "B"], {"B": "c"}]
    ),
)


def server_accepts(spec: dict[str, Any]) -> bool:
    found = Problems()
    check_spec(spec, found)
    return len(found) == 0


@pytest.mark.req("JOB-1")
@given(st.sampled_from(PATHS), VALUES)
def test_what_the_server_accepts_the_client_sends(path: tuple[Any, ...], value: Any) -> None:
    spec = copy.deepcopy(FULL)
    place: Any = spec
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    if server_accepts(spec):
        assert client_problems(spec, SCHEMA) == []


@pytest.mark.req("JOB-1")
@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""}, {"command": "x"}, {"resources": {"cpu": 0}}, {"resources": {"cores": 1}}, {"nome": "x"},
        {"env": {"MINGORA_X": ""}}, {"data": ["A", "A"]}, {"runtime": "vm"}, {"retry": {"onExitCodes": [0]}},
        {"model": {"version": "1"}}, {"environment": {"imageDigest": "latest"}},
    ],
)  # fmt: skip
def test_both_refuse_common_mistakes(wrong: dict[str, Any]) -> None:
    assert server_accepts(FULL) and client_problems(FULL, SCHEMA) == []
    assert not server_accepts({**FULL, **wrong})
    assert client_problems({**FULL, **wrong}, SCHEMA) != []
