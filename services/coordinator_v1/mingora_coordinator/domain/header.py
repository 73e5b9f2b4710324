"""Read and write the header of a safetensors file, more strictly than the safetensors library does.

Whatever is accepted here the library accepts too. Refused here and not there: a key that stands twice, anything before
the opening brace, fields and types of values beyond the format's own, control characters in names, padding other than
spaces. The format: 8 bytes of length (little-endian), a JSON object of that length, the tensors' bytes without gaps
(https://github.com/huggingface/safetensors#format).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from mmap import mmap
from typing import Any

LENGTH_BYTES = 8
METADATA = "__metadata__"
FIELDS = {"dtype", "shape", "data_offsets"}
# Bits a value. The sub-byte types may fill only whole bytes.
BITS = {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip
# What every reader of JSON agrees on; with the largest of BITS it stays inside the library's 64 bits.
MAX_INTEGER = 2**53
MAX_DIGITS = len(str(MAX_INTEGER))
# numpy's and torch's own limit.
MAX_DIMENSIONS = 64
# Half of a surrogate pair: JSON can write it and UTF-8 can't.
HALF = re.compile("[\ud800-\udfff]")
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
# The header of a result has the global's own keys, and at most white space or metadata besides. Four times as much
# lets one with other keys be read too, so that its sender hears which key is wrong (422) and not "unreadable" (400).
CAP_FACTOR = 4
CAP_FLOOR = 64 * 1024


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor: ``begin`` and ``end`` are bytes, counted from the start of the data region."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Header:
    """The tensors in the order of their bytes, which begin at byte ``data_start`` of the file."""

    tensors: tuple[Tensor, ...]
    data_start: int


class NotSafetensors(ValueError):
    """The bytes are no well-formed safetensors file. The text is for logs: short, and escaped."""


class Difference(Enum):
    """What of a header isn't as expected."""

    KEYS = "keys"
    SHAPE = "shape"
    DTYPE = "dtype"


def cap_for(own_header_length: int) -> int:
    """The largest header, in bytes, that is read of a result, where the global adapter's is ``own_header_length``.

    It bounds the number of tensors and the time of ``parse`` as well.
    """
    return max(CAP_FACTOR * own_header_length, CAP_FLOOR)


def parse(read: bytes | bytearray | memoryview | mmap, total: int, cap: int) -> Header:
    """The header of a file.

    Args:
        read: the file, or as many of its first bytes as 8 + ``cap``.
        total: the length of the whole file in bytes.
        cap: the largest header length that is accepted, in bytes.

    Raises:
        NotSafetensors: and nothing else, whatever the bytes are.
    """
    with memoryview(read) as view:
        if total < LENGTH_BYTES or len(view) < LENGTH_BYTES:
            raise NotSafetensors("shorter than the length of a header")
        length = int.from_bytes(view[:LENGTH_BYTES], "little")
        data_start = LENGTH_BYTES + length
        if length > cap:
            raise NotSafetensors(f"the header's length is over {cap} bytes")
        if data_start > min(total, len(view)):
            raise NotSafetensors("shorter than its header")
        raw = bytes(view[LENGTH_BYTES:data_start])
    tensors = [_tensor(name, entry) for name, entry in _entries(raw)]
    tensors.sort(key=lambda tensor: (tensor.begin, tensor.end, tensor.name))
    _check_cover(tensors, total - data_start)
    return Header(tuple(tensors), data_start)


def render(tensors: Iterable[Tensor]) -> bytes:
    """The first bytes of a file of these tensors: length, JSON without metadata, spaces up to a multiple of 8."""
    entries = {
        tensor.name: {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": (tensor.begin, tensor.end)}
        for tensor in tensors
    }
    raw = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    return len(raw).to_bytes(LENGTH_BYTES, "little") + raw


def difference(expected: Header, found: Header) -> tuple[Difference, str] | None:
    """The first difference and the tensor that has it: of the key sets, then of the shapes, then of the dtypes."""
    wanted = {tensor.name: tensor for tensor in expected.tensors}
    names = {tensor.name for tensor in found.tensors}
    if wanted.keys() != names:
        return Difference.KEYS, min(wanted.keys() ^ names)
    for tensor in found.tensors:
        if tensor.shape != wanted[tensor.name].shape:
            return Difference.SHAPE, tensor.name
    for tensor in found.tensors:
        if tensor.dtype != wanted[tensor.name].dtype:
            return Difference.DTYPE, tensor.name
    return None


def same_layout(expected: Header, found: Header) -> bool:
    """Whether both have the same tensors at the same places of their data regions."""
    return expected.tensors == found.tensors


def _entries(raw: bytes) -> list[tuple[str, Any]]:
    if not raw.startswith(b"{") or not raw.rstrip(b" ").endswith(b"}"):
        raise NotSafetensors("the header isn't an object padded with spaces")
    try:
        entries = _DECODER.decode(raw.decode("utf-8"))
    except UnicodeDecodeError:
        raise NotSafetensors("the header isn't UTF-8") from None
    except json.JSONDecodeError as error:
        raise NotSafetensors(f"the header isn't JSON: {error.msg[:60]} at {error.pos}") from None
    except RecursionError:
        raise NotSafetensors("the header is nested too deeply") from None
    metadata = entries.pop(METADATA, {})
    if type(metadata) is not dict or not all(type(value) is str for value in metadata.values()):
        raise NotSafetensors("the metadata isn't texts by name")
    if any(HALF.search(text) for pair in metadata.items() for text in pair):
        raise NotSafetensors("half a character in the metadata")
    return list(entries.items())


def _tensor(name: str, entry: Any) -> Tensor:
    shown = ascii(name[:40])
    if CONTROL.search(name) or HALF.search(name):
        raise NotSafetensors(f"a control character or half a character in the name {shown}")
    if type(entry) is not dict or entry.keys() != FIELDS:
        raise NotSafetensors(f"{shown} hasn't exactly the fields dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if type(dtype) is not str or dtype not in BITS:
        raise NotSafetensors(f"{shown} has no known dtype")
    if not _are_integers(shape) or len(shape) > MAX_DIMENSIONS:
        raise NotSafetensors(f"the shape of {shown} isn't at most {MAX_DIMENSIONS} whole numbers")
    if not _are_integers(offsets) or len(offsets) != 2:
        raise NotSafetensors(f"the data_offsets of {shown} aren't two whole numbers")
    begin, end = offsets
    if (end - begin) * 8 != _count(shape, shown) * BITS[dtype]:
        raise NotSafetensors(f"the data_offsets of {shown} don't fit its shape and dtype")
    return Tensor(name, dtype, tuple(shape), begin, end)


def _count(shape: list[int], shown: str) -> int:
    """How many values; every product on the way is bounded, also where a later dimension is 0."""
    count = 1
    for dimension in shape:
        count *= dimension
        if count > MAX_INTEGER:
            raise NotSafetensors(f"the shape of {shown} is too large")
    return count


def _check_cover(tensors: list[Tensor], data_bytes: int) -> None:
    """Raise unless the tensors, in this order, fill the data region without a gap and without an overlap."""
    covered = 0
    for tensor in tensors:
        if tensor.begin != covered:
            raise NotSafetensors(f"a gap or an overlap before {tensor.name[:40]!a}")
        covered = tensor.end
    if covered != data_bytes:
        raise NotSafetensors(f"the tensors fill {covered} bytes, and there are {data_bytes}")


def _are_integers(values: Any) -> bool:
    return type(values) is list and all(type(value) is int for value in values)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise NotSafetensors("a key stands twice in one object of the header")
    return entries


def _integer(digits: str) -> int:
    # The length first: Python's own conversion takes the square of it.
    if digits.startswith("-") or len(digits) > MAX_DIGITS or int(digits) > MAX_INTEGER:
        raise NotSafetensors("a number of the header is negative or too large")
    return int(digits)


# A fraction, NaN or a truth value is no whole number wherever one is asked for, so they need no rule of their own.
_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_int=_integer)
