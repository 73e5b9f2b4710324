"""The parser of safetensors headers: what it reads, what it refuses, and that the library reads all that it reads."""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from header_support import CAP, NAMES, body, damaged, entry, layouts, library_reads, parse
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.numpy import save

from mingora_coordinator.domain.header import (
    CAP_FLOOR,
    Difference,
    NotSafetensors,
    Tensor,
    cap_for,
    difference,
    render,
    same_layout,
)
from mingora_coordinator.domain.header import parse as parse_first

pytestmark = pytest.mark.req("COORD-1")
FIRST = '"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
SECOND = '"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}'

shapes = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
float_arrays = arrays.arrays(np.float32, shapes)


@settings(deadline=None)
@given(st.dictionaries(NAMES, float_arrays, max_size=5))
def test_reads_what_the_library_writes_and_writes_the_same_bytes(adapter: dict[str, np.ndarray]) -> None:
    file = save(adapter)
    found = parse(file)
    assert {tensor.name: tensor.shape for tensor in found.tensors} == {k: v.shape for k, v in adapter.items()}
    for tensor in found.tensors:
        data = file[found.data_start + tensor.begin : found.data_start + tensor.end]
        assert (tensor.dtype, data) == ("F32", adapter[tensor.name].tobytes())
    assert render(found.tensors) == file[: found.data_start]


@settings(deadline=None)
@given(layouts())
def test_the_library_reads_what_is_rendered(tensors: list[Tensor]) -> None:
    file = render(tensors) + bytes(tensors[-1].end if tensors else 0)
    assert set(parse(file).tensors) == set(tensors)
    assert len(file) - (tensors[-1].end if tensors else 0) == parse(file).data_start
    assert parse(file).data_start % 8 == 0
    seen = {name: (info["dtype"], tuple(info["shape"])) for name, info in library_reads(file)}
    assert seen == {tensor.name: (tensor.dtype, tensor.shape) for tensor in tensors}


@settings(deadline=None)
@given(damaged())
def test_a_damaged_header_is_refused_or_one_that_the_library_reads_too(file: bytes) -> None:
    try:
        found = parse(file)
    except NotSafetensors as refusal:
        assert len(str(refusal)) < 600
        assert str(refusal).isascii()
        assert str(refusal).isprintable()
        return
    assert {tensor.name for tensor in found.tensors} == {name for name, _ in library_reads(file)}


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(file: bytes) -> None:
    for candidate in (file, body(file), body(b"{" + file + b"}")):
        try:
            parse(candidate)
        except NotSafetensors:
            continue


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("", b""),
        ("null", b""),
        ("[]", b""),
        (" {}", b""),
        ("\ufeff{}", b""),
        ("{}\n", b""),
        ("{}\0", b""),
        ("{}{}", b""),
        ("{}", b"x"),
        ("{" + FIRST + "}", b"123"),
        ("{" + FIRST + "}", b"12345"),
        ("{" + FIRST + "," + FIRST + "}", b"1234"),
        ("{" + FIRST + "," + SECOND.replace("4,8", "0,4") + "}", b"1234"),
        ("{" + FIRST + "," + SECOND.replace("4,8", "2,6") + "}", b"123456"),
        ("{" + FIRST + "," + SECOND.replace("4,8", "5,9") + "}", b"123456789"),
        ("{" + FIRST.replace("[0,4]", "[4,8]") + "}", b"12345678"),
        ("{" + FIRST.replace('"dtype"', '"dtype":"F32","dtype"') + "}", b"1234"),
        ("{" + FIRST.replace("[1]", "[1.0]") + "}", b"1234"),
        ("{" + FIRST.replace("[1]", "[1e0]") + "}", b"1234"),
        ("{" + FIRST.replace("[1]", "[-0]").replace("[0,4]", "[0,0]") + "}", b""),
        ("{" + FIRST.replace("[1]", "[-1]") + "}", b"1234"),
        ("{" + FIRST.replace("[1]", "[NaN]") + "}", b"1234"),
        ("{" + FIRST.replace("[1]", "[" + "9" * 5000 + "]") + "}", b"1234"),
        ("{" + FIRST.replace("[1]", "[" * 50_000) + "}", b"1234"),
        ('{"x":' * 50_000 + "}" * 50_000, b""),
        ('{"__metadata__":null}', b""),
        ('{"__metadata__":{"a":1}}', b""),
        ('{"__metadata__":{"a":["b"]}}', b""),
        ('{"__metadata__":{"a":"1","a":"1"}}', b""),
        ('{"__metadata__":{},"__metadata__":{}}', b""),
        ('{"__metadata__":{"a":"\\ud800"}}', b""),
        (b'{"\xff":{}}', b""),
        ("{}".encode("utf-16"), b""),
    ],
)
def test_refuses_what_is_not_well_formed(text: str | bytes, data: bytes) -> None:
    with pytest.raises(NotSafetensors):
        parse(body(text, data))


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("nul\0", {}),
        ("line\n", {}),
        ("del\x7f", {}),
        ("half\ud800", {}),
        ("a", {"more": 1}),
        ("a", {"dtype": "f32"}),
        ("a", {"dtype": ["F32"]}),
        ("a", {"dtype": None}),
        ("a", {"shape": True}),
        ("a", {"shape": [True]}),
        ("a", {"shape": {"0": 1}}),
        ("a", {"shape": ["1"]}),
        ("a", {"shape": [2]}),
        ("a", {"shape": [1] * 65}),
        ("a", {"shape": [2**53 + 1, 0], "data_offsets": [0, 0]}),
        ("a", {"shape": [0, 2**53 + 1], "data_offsets": [0, 0]}),
        ("a", {"shape": [2**40, 2**40, 0], "data_offsets": [0, 0]}),
        ("a", {"shape": [2**32, 2**32]}),
        ("a", {"data_offsets": [4, 0]}),
        ("a", {"data_offsets": [0, 4, 8]}),
        ("a", {"data_offsets": [0]}),
        ("a", {"data_offsets": [False, 4]}),
        ("a", {"data_offsets": "04"}),
        ("a", {"dtype": "F4", "shape": [7]}),
    ],
)
def test_refuses_an_entry_that_is_not_the_formats(name: str, changed: dict[str, object]) -> None:
    fine = body(json.dumps({"a": entry()}), b"1234")
    assert len(parse(fine).tensors) == 1
    data = b"" if changed.get("data_offsets") == [0, 0] else b"1234"
    with pytest.raises(NotSafetensors):
        parse(body(json.dumps({name: entry() | changed}), data))


@pytest.mark.parametrize(
    "first", [b"\x1f\x8b\x08\0\0\0\0\0", b"PK\x03\x04\x14\0\0\0", b"\x80\x05\x95\0\0\0\0\0", b"\x93NUMPY"]
)
def test_other_formats_are_no_safetensors(first: bytes) -> None:
    with pytest.raises(NotSafetensors):
        parse(first + bytes(4096))


def test_accepts_white_space_and_metadata_and_forgets_it() -> None:
    text = '{ "__metadata__" : {"format":"pt\\u0000"},\n\t"": ' + json.dumps(entry(shape=[])) + "}   "
    found = parse(body(text, b"1234"))
    assert found.tensors == (Tensor("", "F32", (), 0, 4),)
    assert found.data_start == 8 + len(text)


def test_tensors_without_bytes_may_stand_only_between_others() -> None:
    entries = {"z": entry(shape=[3, 0], offsets=[4, 4]), "a": entry(), "b": entry(offsets=[4, 8])}
    assert [tensor.name for tensor in parse(body(json.dumps(entries), bytes(8))).tensors] == ["a", "z", "b"]
    with pytest.raises(NotSafetensors, match="gap or an overlap"):
        parse(body(json.dumps(entries | {"z": entry(shape=[0], offsets=[2, 2])}), bytes(8)))


def test_the_cap_is_exact_and_checked_before_the_header_is_read() -> None:
    file = body("{}" + " " * 62)
    assert parse(file, cap=64).data_start == 72
    with pytest.raises(NotSafetensors, match="over 63 bytes"):
        parse(file, cap=63)
    with pytest.raises(NotSafetensors, match="over 63 bytes"):
        parse((2**64 - 1).to_bytes(8, "little") + file, cap=63)
    assert cap_for(100) == CAP_FLOOR
    assert cap_for(50_000) > 2 * 50_000


def test_reads_the_first_bytes_of_a_longer_file_and_a_map_of_one(tmp_path: Path) -> None:
    file = body("{" + FIRST + "}", b"1234")
    start = len(file) - 4
    assert parse_first(file[:start], len(file), CAP) == parse(file)
    with pytest.raises(NotSafetensors, match="shorter"):
        parse_first(file[: start - 1], len(file), CAP)
    with pytest.raises(NotSafetensors, match="fill 4 bytes"):
        parse_first(file, len(file) + 1, CAP)
    (tmp_path / "file").write_bytes(file)
    with open(tmp_path / "file", "rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert parse_first(mapped, len(file), CAP) == parse(file)  # and leaves no view: closing the map would fail


def test_a_difference_is_of_keys_then_shapes_then_dtypes() -> None:
    def of(*tensors: tuple[str, str, list[int]]) -> bytes:
        entries, begin = {}, 0
        for name, dtype, shape in tensors:
            size = int(np.prod(shape)) * (2 if dtype == "F16" else 4)
            entries[name] = entry(dtype, shape, [begin, begin + size])
            begin += size
        return body(json.dumps(entries), bytes(begin))

    own = parse(of(("a", "F32", [2, 3]), ("b", "F32", [1])))
    moved = parse(of(("b", "F32", [1]), ("a", "F32", [2, 3])))
    assert difference(own, own) is None
    assert same_layout(own, own)
    assert difference(own, moved) is None
    assert not same_layout(own, moved)
    cases = [
        (of(("a", "F16", [3, 2])), (Difference.KEYS, "b")),
        (of(("a", "F32", [2, 3]), ("b", "F32", [1]), ("c", "F32", [])), (Difference.KEYS, "c")),
        (of(("a", "F16", [2, 3]), ("b", "F32", [])), (Difference.SHAPE, "b")),
        (of(("a", "F32", [3, 2]), ("b", "F32", [1])), (Difference.SHAPE, "a")),
        (of(("a", "F32", [2, 3]), ("b", "I32", [1])), (Difference.DTYPE, "b")),
    ]
    for file, expected in cases:
        assert difference(own, parse(file)) == expected


@pytest.mark.timeout(540)
def test_a_million_inputs_of_a_fuzzer(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    runs = 1_000_000 if os.environ.get("CI") else 30_000
    target = Path(__file__).with_name("header_fuzz.py")
    ended = subprocess.run(
        [sys.executable, str(target), str(corpus), f"-runs={runs}"],
        cwd=tmp_path,
        env={"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert f"Done {runs} runs" in ended.stderr
