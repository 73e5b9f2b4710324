"""job.json: read strictly, and checked by the server's schema as another validator would."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from mingora import jobfile
from mingora.errors import ProjectError
from mingora.schema import problems

SCHEMA = json.loads((Path(__file__).parents[3] / "services/api/mingora_api/domain/job.schema.json").read_text())
OTHER = Draft202012Validator(SCHEMA)
FULL: dict[str, Any] = {
    "schemaVersion": 1, "name": "n", "command": ["python3", "main.py"], "env": {"A": "b"}, "data": ["SET"],
    "runtime": "native", "resources": {"ranks": 2, "cpu": 1, "memoryMiB": 64, "gpu": 0, "networkGroup": None},
    "environment": {"imageDigest": "sha256:" + "0" * 64}, "model": {"version": "1", "format": "pt", "license": "MIT"},
    "training": {"algorithm": "fsdp", "steps": 3, "learningRate": 0.1, "seed": 0},
    "rendezvous": {"host": "127.0.0.1", "port": 29500}, "resumeFrom": "job_12345678", "timeoutSeconds": 5,
    "priority": -1,
    "retry": {"max": 1, "onExitCodes": [1, 2], "onLogPatterns": ["x"]},
}  # fmt: skip


@pytest.mark.req("CLI-4")
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-3, 3)
        | st.floats(-2, 2)
        | st.sampled_from(["", "native", "A", "sha256:"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from([*SCHEMA["properties"], "cpu", "gpu", "x"]), inner, max_size=4)
        ),
        max_leaves=8,
    )
)
def test_agrees_with_another_validator_on_any_value(value: Any) -> None:
    assert bool(problems(value, SCHEMA)) == (not OTHER.is_valid(value))


@pytest.mark.req("CLI-4")
@settings(max_examples=300)
@given(
    st.integers(0, 2**32),
    st.sampled_from([None, True, 0, 1, 1.0, -1, 2.5, 10**9, "", "x", "x" * 300, [], {}, ["a", "a"]]),
)
def test_agrees_with_another_validator_on_broken_jobs(seed: int, value: Any) -> None:
    rng, spec = random.Random(seed), copy.deepcopy(FULL)
    place: Any = spec
    while True:
        key = rng.choice(list(place) if isinstance(place, dict) else range(len(place)))
        if not isinstance(place[key], dict | list) or not place[key] or rng.random() < 0.4:
            break
        place = place[key]
    place[key] = value
    assert bool(problems(spec, SCHEMA)) == (not OTHER.is_valid(spec))


@pytest.mark.req("CLI-4")
def test_a_full_job_is_fine() -> None:
    assert problems(FULL, SCHEMA) == []
    jobfile.check(FULL, SCHEMA)


@pytest.mark.req("CLI-4", "CLI-6")
@pytest.mark.parametrize(
    ("change", "where", "text"),
    [
        ({"time_out_seconds": 5}, "time_out_seconds", 'did you mean "timeoutSeconds"?'),
        ({"zzz": 5}, "zzz", "is not a known field"),
        ({"runtime": "Native"}, "runtime", 'did you mean "native"?'),
        ({"schemaVersion": True}, "schemaVersion", "must be 1"),
        ({"command": "python3 main.py"}, "command", "must be array, is string"),
        ({"resources": {"memoryMib": 5}}, "resources.memoryMib", 'did you mean "memoryMiB"?'),
        ({"resources": {"cpu": True}}, "resources.cpu", "must be integer, is boolean"),
        ({"resources": {"cpu": 0}}, "resources.cpu", "at least 1"),
        ({"command": ["a", 5]}, "command[1]", "must be string, is integer"),
        ({"env": {"MINGORA_X": "1"}}, "env.MINGORA_X", "the name"),
        ({"data": ["A", "A"]}, "data", "twice"),
        ({"training": {"learningRate": 0}}, "training.learningRate", "more than 0"),
        ({"model": {"format": "pt", "license": "MIT"}}, "model", 'lacks the field "version"'),
    ],
)
def test_problems_name_the_place_and_a_way_out(change: dict[str, Any], where: str, text: str) -> None:
    found = dict(problems({**FULL, **change}, SCHEMA))
    assert list(found) == [where]
    assert text in found[where]


@pytest.mark.req("CLI-4")
@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b'{"a": 1,\n "a": 2}', '"a" is there twice'),
        (b'{"a": {"b": 1, "b": 1}}', '"b" is there twice'),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": -Infinity}', "-Infinity is not a JSON number"),
        (b'{"a": 1e999}', "1e999 is not a JSON number"),
        (b'{\n  "a": 1,\n}', "line 3, column 1"),
        (b'{"a": \xff}', "not UTF-8 at byte 6"),
        (b"[]", "must be an object"),
        (b"", "line 1, column 1"),
        (b"[" * 100000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
    ],
)
def test_bad_json_is_refused_with_its_place(raw: bytes, text: str) -> None:
    with pytest.raises(ProjectError) as caught:
        jobfile.parse(raw)
    assert text in caught.value.message


@pytest.mark.req("CLI-4")
def test_a_byte_order_mark_is_passed_over_and_a_missing_file_named(tmp_path: Path) -> None:
    assert jobfile.parse(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}
    with pytest.raises(ProjectError, match=r"job\.json"):
        jobfile.read(tmp_path)


@pytest.mark.req("CLI-4")
@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('{"name": "x", // a comment\n "a": 1}', "comments"),
        ('{"name": "x", /* c */ "a": 1}', "comments"),
        ('{"name": "x" # c\n}', "comments"),
        ("# c\n{}", "comments"),
        ('{"name": "x",}', "comma"),
        ('{"command": ["a", "b",\n]}', "comma"),
        ("{'name': 'x'}", "double quotes"),
        ('{"name": }', None),
        ("", None),
        ("}", None),
    ],
)
def test_habits_from_other_languages_are_named(text: str, hint: str | None) -> None:
    with pytest.raises(ProjectError) as caught:
        jobfile.parse(text.encode())
    assert (hint in (caught.value.hint or "")) if hint else caught.value.hint is None


@pytest.mark.req("CLI-4")
def test_another_encoding_is_named() -> None:
    with pytest.raises(ProjectError) as caught:
        jobfile.parse("{}".encode("utf-16"))
    assert "UTF-8" in (caught.value.hint or "")
