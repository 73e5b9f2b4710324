"""Files for the tests of the header parser, well formed and not."""

from __future__ import annotations

import json
import math
from typing import Any

import safetensors
from hypothesis import strategies as st

from mingora_coordinator.domain import header

CAP = 1 << 20
NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20).filter(
    lambda name: name != header.METADATA
)
TOKENS = [" ", "\n", "\t", "\0", "0", "-", ".", "e1", '"', "{", "}", "[]", ",", ":", "\\ud800", "é"]
SHAPES = st.lists(st.integers(0, 5), max_size=4).map(tuple)
SCALARS = st.none() | st.booleans() | st.integers(-2, 2**70) | st.floats() | st.text(max_size=3)
VALUES: st.SearchStrategy[Any] = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(NAMES, SCALARS, max_size=3)


def library_reads(file: bytes) -> list[tuple[str, dict[str, Any]]]:
    """The tensors by the safetensors library; raises its SafetensorError."""
    tensors: list[tuple[str, dict[str, Any]]] = safetensors.deserialize(file)  # type: ignore[no-untyped-call]
    return tensors


def body(text: str | bytes, data: bytes = b"") -> bytes:
    """A file of this header, whatever it is, and this data region."""
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return len(raw).to_bytes(8, "little") + raw + data


def entry(dtype: Any = "F32", shape: Any = (1,), offsets: Any = (0, 4), **more: Any) -> dict[str, Any]:
    """What a header says of one tensor."""
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets, **more}


def parse(file: bytes, cap: int = CAP) -> header.Header:
    return header.parse(file, len(file), cap)


@st.composite
def layouts(draw: st.DrawFn) -> list[header.Tensor]:
    """Tensors of any dtypes that fill a data region in the order of the list."""
    tensors: list[header.Tensor] = []
    begin = 0
    for name in draw(st.lists(NAMES, unique=True, max_size=6)):
        dtype, shape = draw(st.sampled_from(sorted(header.BITS))), draw(SHAPES)
        bits = math.prod(shape) * header.BITS[dtype]
        if bits % 8:
            shape, bits = (*shape, 8), bits * 8
        tensors.append(header.Tensor(name, dtype, shape, begin, begin + bits // 8))
        begin += bits // 8
    return tensors


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A well-formed file with one thing of its header changed: a value, a field, or a stretch of the text."""
    tensors = draw(layouts())
    entries: dict[str, Any] = {
        tensor.name: entry(tensor.dtype, list(tensor.shape), [tensor.begin, tensor.end]) for tensor in tensors
    }
    if draw(st.booleans()):
        entries[header.METADATA] = {"format": "pt"}
    if draw(st.booleans()) and entries:
        name = draw(st.sampled_from(sorted(entries)))
        field = draw(st.sampled_from(["dtype", "shape", "data_offsets", "strides"]))
        entries[name][field] = draw(VALUES)
    text = json.dumps(entries, ensure_ascii=draw(st.booleans()))
    if draw(st.booleans()):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.sampled_from(TOKENS)) + text[at + draw(st.integers(0, 2)) :]
    size = max((tensor.end for tensor in tensors), default=0)
    return body(text, bytes(max(0, size + draw(st.sampled_from([0, 0, 0, -1, 1])))))
