"""What a submission must be: the schema of job.json, what this server can't run yet, and file entries."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from mingora_api.domain.inputs import check_inputs
from mingora_api.domain.jobs import fingerprint
from mingora_api.domain.problems import MAX_PROBLEMS, Problems
from mingora_api.domain.spec import SCHEMA, check_spec
from mingora_common.errors import ServiceError

SPEC: dict[str, Any] = {"schemaVersion": 1, "name": "x", "command": ["python"]}
FULL: dict[str, Any] = {
    **SPEC,
    "env": {"A_1": "değer"},
    "data": ["CORPUS"],
    "runtime": "docker",
    "resources": {"ranks": 2, "cpu": 4, "memoryMiB": 1024, "gpu": 1, "networkGroup": None},
    "environment": {"imageDigest": "sha256:" + "0" * 64, "fingerprint": "sha256:" + "0" * 64},
    "model": {"version": "1", "format": "safetensors", "license": "Apache-2.0"},
    "training": {"steps": 10, "learningRate": 1},
    "rendezvous": {"host": "10.0.0.1", "port": 29500},
    "timeoutSeconds": 60,
    "priority": -3,
    "retry": {"max": 2, "onExitCodes": [75], "onLogPatterns": ["out of memory"]},
}
ENTRY = {"path": "a", "objectId": "obj_12345678", "size": 0, "sha256": "0" * 64, "executable": False}


def problems_of(spec: Any = SPEC, inputs: Any = ()) -> list[dict[str, str]]:
    problems = Problems()
    check_spec(spec, problems)
    check_inputs(list(inputs), problems)
    try:
        problems.check()
    except ServiceError as error:
        assert error.kind.code == "invalid_job"
        found: list[dict[str, str]] = error.fields["problems"]
        return found
    return []


def changed(path: str, value: Any) -> dict[str, Any]:
    spec: dict[str, Any] = json.loads(json.dumps(FULL))
    *folders, last = path.split(".")
    place = spec
    for folder in folders:
        place = place[folder]
    place[last] = value
    return spec


@pytest.mark.req("JOB-1")
def test_valid_jobs() -> None:
    assert problems_of(SPEC) == []
    assert problems_of(FULL, [ENTRY, {**ENTRY, "path": "klasör/文件.py", "executable": True}]) == []


@pytest.mark.req("JOB-1")
@pytest.mark.parametrize(
    ("path", "value", "where", "what"),
    [
        ("schemaVersion", 2, "schemaVersion", "must be 1"),
        ("schemaVersion", True, "schemaVersion", "must be 1"),
        ("name", "", "name", "is empty"),
        ("name", "a\n", "name", "control characters"),
        ("name", "a\x9bx", "name", "control characters"),
        ("name", "\ud800", "name", "UTF-8"),
        ("command", [], "command", "is empty"),
        ("command", "python main.py", "command", "must be a list"),
        ("command", ["a", 1], "command[1]", "must be text"),
        ("command", ["a\0"], "command[0]", "NUL"),
        ("env", {"MINGORA_TOKEN": "x"}, "env.MINGORA_TOKEN", "MINGORA_"),
        ("env", {"A\n": "x"}, "env.A\n", "variable"),
        ("env", {"A": 1}, "env.A", "must be text"),
        ("data", ["A", "A"], "data", "twice"),
        ("data", ["A\n"], "data[0]", "capitals"),
        ("runtime", "podman", "runtime", '"docker"'),
        ("resources.cpu", 0, "resources.cpu", "must be 1 or more"),
        ("resources.cpu", 1.0, "resources.cpu", "whole number"),
        ("resources.cpu", True, "resources.cpu", "whole number"),
        ("resources.cores", 1, "resources.cores", "isn't a known field"),
        ("resources.networkGroup", 3, "resources.networkGroup", "text or null"),
        ("training.learningRate", 0, "training.learningRate", "more than 0"),
        ("training.algorithm", "fsdp", "training.algorithm", "isn't supported yet by this server (it has: jobs"),
        ("resumeFrom", "job_12345678", "resumeFrom", "isn't supported yet"),
        ("retry.max", 21, "retry.max", "must be 20 or less"),
        ("priority", "high", "priority", "whole number"),
        ("a", {"b": {"c": [[[[[[1]]]]]]}}, "a.b.c[0][0][0][0][0]", "nested too deeply"),
    ],
)
def test_what_is_wrong_is_named(path: str, value: Any, where: str, what: str) -> None:
    found = problems_of(changed(path, value))
    assert [problem["path"] for problem in found] == [where]
    assert what in found[0]["message"]


@pytest.mark.req("WORK-7", "JOB-1")
def test_gradient_sharded_in_a_container_is_refused_for_what_it_is() -> None:
    spec = {**changed("training.algorithm", "gradient_sharded"), "runtime": "docker"}
    (problem,) = problems_of(spec)
    assert problem["path"] == "runtime" and "no credential of the platform enters a container" in problem["message"]
    (problem,) = problems_of({**spec, "runtime": "native"})
    assert problem["path"] == "training.algorithm"


@pytest.mark.req("JOB-1")
def test_all_problems_are_told_at_once_but_bounded() -> None:
    found = problems_of({"nome": 1, "resources": {"cpu": 0, "gpu": 2}})
    assert {problem["path"] for problem in found} == {
        "nome", "schemaVersion", "name", "command", "resources.cpu", "resources.gpu"
    }  # fmt: skip
    assert len(problems_of({**SPEC, **{f"f{number}": 1 for number in range(200)}})) == MAX_PROBLEMS
    assert len(problems_of(inputs=[{}] * 1000)) == MAX_PROBLEMS
    assert len(problems_of({**SPEC, "command": [1] * 200})) == MAX_PROBLEMS


@pytest.mark.req("JOB-1")
@pytest.mark.parametrize(
    "huge",
    [
        {"data": [1, "a"] * 500_000}, {"command": ["a"] * 1_000_000}, {"env": {str(n): "" for n in range(300_000)}},
        {str(n): 0 for n in range(300_000)}, {"a": [[[0] * 90] * 90] * 90},
    ],
    ids=["data", "command", "env", "members", "lists"],
)  # fmt: skip
def test_a_huge_description_is_refused_quickly(huge: dict[str, Any]) -> None:
    started = time.process_time()
    assert problems_of({**SPEC, **huge}) == [{"path": "", "message": "has more than 1000 values"}]
    assert time.process_time() - started < 1


@pytest.mark.req("JOB-1")
def test_messages_dont_repeat_values() -> None:
    secret = "hunter2-hunter2"
    for spec in (
        changed("env", {"PASSWORD": secret + "\0"}),
        changed("env", {"P": [secret]}),
        {**SPEC, "name": [secret]},
    ):
        assert secret not in json.dumps(problems_of(spec))


@pytest.mark.req("JOB-1", "CLI-4")
@pytest.mark.parametrize(
    ("entry", "where"),
    [
        ("x", "inputs[0]"), ({**ENTRY, "mode": 1}, "inputs[0].mode"), ({**ENTRY, "path": "../a"}, "inputs[0].path"),
        ({**ENTRY, "path": "/a"}, "inputs[0].path"), ({**ENTRY, "path": "a\\b"}, "inputs[0].path"),
        ({**ENTRY, "path": 1}, "inputs[0].path"), ({**ENTRY, "path": "\ud800"}, "inputs[0].path"),
        ({**ENTRY, "path": "job.json"}, "inputs[0].path"), ({**ENTRY, "size": True}, "inputs[0].size"),
        ({**ENTRY, "size": -1}, "inputs[0].size"), ({**ENTRY, "size": 1.0}, "inputs[0].size"),
        ({**ENTRY, "sha256": "A" * 64}, "inputs[0].sha256"), ({**ENTRY, "sha256": "a" * 64 + "\n"}, "inputs[0].sha256"),
        ({**ENTRY, "objectId": "job_12345678"}, "inputs[0].objectId"),
        ({**ENTRY, "objectId": ["obj_12345678"]}, "inputs[0].objectId"),
        ({**ENTRY, "executable": 1}, "inputs[0].executable"),
        ({name: value for name, value in ENTRY.items() if name != "size"}, "inputs[0].size"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_named(entry: Any, where: str) -> None:
    assert [problem["path"] for problem in problems_of(inputs=[entry])] == [where]


@pytest.mark.req("JOB-1")
@pytest.mark.parametrize("paths", [("a", "a"), ("a", "A"), ("é", "e\u0301"), ("a", "a/b"), ("a/b", "A")])
def test_files_that_would_fall_together_are_refused(paths: tuple[str, str]) -> None:
    found = problems_of(inputs=[{**ENTRY, "path": path} for path in paths])
    assert [problem["path"] for problem in found] == ["inputs"]


@pytest.mark.req("BLOB-7")
def test_the_number_of_inputs_is_bounded() -> None:
    entries = [{**ENTRY, "path": f"f{number}"} for number in range(1001)]
    assert problems_of(inputs=entries[:1000]) == []
    assert "at most 1000" in problems_of(inputs=entries)[0]["message"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@pytest.mark.req("JOB-1")
@given(name=st.sampled_from(list(SCHEMA["properties"])), value=JSON)
def test_any_value_is_accepted_or_refused_with_a_reason(name: str, value: Any) -> None:
    found = problems_of({**SPEC, name: value})
    assert all(problem["path"] and problem["message"] for problem in found)
    if not found:  # what is accepted is valid by the schema that clients are given
        Draft202012Validator(SCHEMA).validate({**SPEC, name: value})


@pytest.mark.req("JOB-1")
def test_every_pattern_is_anchored_and_every_keyword_is_explained() -> None:
    known = {
        "$schema", "title", "description", "type", "additionalProperties", "required", "properties", "const", "enum",
        "minLength", "maxLength", "pattern", "minItems", "maxItems", "items", "uniqueItems", "maxProperties",
        "propertyNames", "minimum", "maximum", "exclusiveMinimum",
    }  # fmt: skip

    def schemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield schema
        for inner in (*schema.get("properties", {}).values(), schema.get("items"), schema.get("propertyNames")):
            if inner is not None:
                yield from schemas(inner)
        if isinstance(schema.get("additionalProperties"), dict):
            yield from schemas(schema["additionalProperties"])

    for schema in schemas(SCHEMA):
        assert set(schema) <= known
        if "pattern" in schema:
            assert schema["pattern"].startswith("^") and schema["pattern"].endswith("$")
            assert schema["description"].startswith("must ")


@pytest.mark.req("CLI-8")
@given(st.permutations(["a", "b/c", "ç", "z"]))
def test_the_fingerprint_depends_on_content_alone(paths: list[str]) -> None:
    def entries(order: list[str], object_id: str) -> list[dict[str, Any]]:
        return [{**ENTRY, "path": path, "objectId": object_id} for path in order]

    spec = {"name": "x", "command": ["a"]}
    same = fingerprint({"command": ["a"], "name": "x"}, entries(sorted(paths), "obj_1"))
    assert fingerprint(spec, entries(paths, "obj_2")) == same
    assert fingerprint({**spec, "name": "y"}, entries(paths, "obj_1")) != same
    assert fingerprint(spec, entries(paths[1:], "obj_1")) != same
