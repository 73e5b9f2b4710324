"""Bodies for POST /sonuc made of the coordinator's own adapter: valid results, unreadable files, other adapters."""

from __future__ import annotations

import array
import copy
import gzip
import io
import math
import struct
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace

from mingora_coordinator.conformance.client import LARGEST_HEADER
from mingora_coordinator.domain.header import Tensor, parse, render

CHANGED_VALUES = 1000  # of a valid result: enough to be another adapter, few enough for plain Python
ZIPPED = 1 << 16  # bytes of the file inside of a zip or gzip: the rest would only take time

# Of a number that is NaN or Inf all bits of the exponent are ones: the array type of its bits, and the exponent's.
EXPONENTS = {"F16": ("H", 0x7C00), "BF16": ("H", 0x7F80), "F32": ("I", 0x7F800000), "F64": ("Q", 0x7FF0 << 48)}

Make = Callable[["Adapter"], bytes]


class Adapter:
    """The coordinator's adapter, of which at least one tensor is float32 and has values."""

    def __init__(self, file: bytes) -> None:
        """Raises ValueError where the file isn't such an adapter."""
        header = parse(file, len(file), LARGEST_HEADER)
        self.file, self.tensors, self.data = file, header.tensors, file[header.data_start :]
        self._fit = [tensor for tensor in self.tensors if tensor.dtype == "F32" and tensor.end > tensor.begin]
        if not self._fit:
            raise ValueError("no float32 tensor")
        # What most can be wrong with: a tensor that isn't square if possible, or else the largest.
        self.matrix = max(self._fit, key=lambda tensor: (len(set(tensor.shape) - {1}) > 1, tensor.end - tensor.begin))

    def at(self, place: float) -> Adapter:
        """The same adapter, of which another tensor is changed: 0 the first, 1 the last."""
        return self._with(self._fit[round(place * (len(self._fit) - 1))])

    def at_lora_b(self) -> Adapter:
        """The same adapter, of which a lora_B is changed; where there is none, the last tensor."""
        return self._with(next((tensor for tensor in self._fit if "lora_B" in tensor.name), self._fit[-1]))

    def _with(self, matrix: Tensor) -> Adapter:
        other = copy.copy(self)
        other.matrix = matrix
        return other

    def damaged(self) -> str | None:
        """The first tensor that has NaN or Inf."""
        for tensor in self.tensors:
            if tensor.dtype not in EXPONENTS:
                continue
            kind, mask = EXPONENTS[tensor.dtype]
            bits = array.array(kind, self.data[tensor.begin : tensor.end])
            if sys.byteorder == "big":
                bits.byteswap()
            if any(number & mask == mask for number in bits):
                return tensor.name
        return None

    def valid(self, step: int) -> bytes:
        """A result: some values moved by about ``step`` thousandths."""
        data, tensor = bytearray(self.data), self.matrix
        end = min(tensor.end, tensor.begin + 4 * CHANGED_VALUES)
        for at in range(tensor.begin, end, 4):
            (value,) = struct.unpack_from("<f", data, at)
            moved = value + 1e-3 * step if abs(value) < 1 else value * (1 - 1e-3 * step)  # the largest stay finite
            struct.pack_into("<f", data, at, moved)
        return self._file(self.tensors, data)

    def with_value(self, place: float, value: float) -> bytes:
        """One float32 value changed, at ``place`` (0 the first, 1 the last)."""
        data = bytearray(self.data)
        last = (self.matrix.end - self.matrix.begin) // 4 - 1
        struct.pack_into("<f", data, self.matrix.begin + 4 * round(place * last), value)
        return self._file(self.tensors, data)

    def with_matrix(self, changed: Tensor, matrix_data: bytes | None = None) -> bytes:
        """The matrix described as ``changed``, with ``matrix_data`` instead of its own bytes."""
        own = self.matrix
        values = self.data[own.begin : own.end] if matrix_data is None else matrix_data
        data = self.data[: own.begin] + values + self.data[own.end :]
        moved = len(values) - (own.end - own.begin)
        tensors = [
            replace(tensor, begin=tensor.begin + moved, end=tensor.end + moved) if tensor.begin >= own.end else tensor
            for tensor in self.tensors
            if tensor.name != own.name
        ]
        return self._file([*tensors, replace(changed, begin=own.begin, end=own.begin + len(values))], data)

    def with_header(self, change: Callable[[bytes], bytes]) -> bytes:
        """The header's text changed, and the length with it."""
        text = change(render(self.tensors)[8:].rstrip(b" "))
        return len(text).to_bytes(8, "little") + text + self.data

    def with_length(self, length: int) -> bytes:
        """Another length of the header than it has."""
        return length.to_bytes(8, "little") + self.file[8:]

    def without_matrix(self) -> bytes:
        """One tensor less."""
        own = self.matrix
        size = own.end - own.begin
        tensors = [
            replace(tensor, begin=tensor.begin - size, end=tensor.end - size) if tensor.begin >= own.end else tensor
            for tensor in self.tensors
            if tensor.name != own.name
        ]
        return self._file(tensors, self.data[: own.begin] + self.data[own.end :])

    def with_more(self) -> bytes:
        """One tensor more."""
        more = Tensor("uyum.testi", "F32", (1,), len(self.data), len(self.data) + 4)
        return self._file([*self.tensors, more], self.data + bytes(4))

    def _file(self, tensors: tuple[Tensor, ...] | list[Tensor], data: bytes | bytearray) -> bytes:
        return render(tensors) + data


def zipped(adapter: Adapter) -> bytes:
    """As torch.save and numpy.savez write: a zip archive."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
        archive.writestr("archive/data/0", adapter.file[:ZIPPED])
    return made.getvalue()


def gzipped(adapter: Adapter) -> bytes:
    """A compressed file."""
    return gzip.compress(adapter.file[:ZIPPED], 1, mtime=0)


def _twice(text: bytes) -> bytes:
    """The first tensor's entry stands twice."""
    first = text[1 : text.index(b"]}") + 2]
    return b"{" + first + b"," + text[1:]


def _shifted(text: bytes) -> bytes:
    """The first tensor is said to begin one value later."""
    start = text.index(b'"data_offsets":[') + len(b'"data_offsets":[')
    begin, end = text[start : text.index(b"]", start)].split(b",")
    return text[:start] + b"%d,%d" % (int(begin) + 4, int(end) + 4) + text[text.index(b"]", start) :]


def _transposed(adapter: Adapter) -> bytes:
    """The same values in another shape; with one dimension more where the reverse is the same."""
    shape = adapter.matrix.shape
    other = shape[::-1] if shape != shape[::-1] else (1, *shape)
    return adapter.with_matrix(replace(adapter.matrix, shape=other))


def _flat(adapter: Adapter) -> bytes:
    shape = adapter.matrix.shape
    other = (math.prod(shape),) if len(shape) != 1 else (*shape, 1)
    return adapter.with_matrix(replace(adapter.matrix, shape=other))


def _scalar(adapter: Adapter) -> bytes:
    shape = () if adapter.matrix.shape else (1,)
    return adapter.with_matrix(replace(adapter.matrix, shape=shape), adapter.data[:4])


def _half(adapter: Adapter) -> bytes:
    size = adapter.matrix.end - adapter.matrix.begin
    return adapter.with_matrix(replace(adapter.matrix, dtype="F16"), bytes(size // 2))


# Name of the check, what is wrong, the body.
UNREADABLE: list[tuple[str, str, Make]] = [
    ("zip", "a zip archive (torch.save, numpy.savez)", zipped),
    ("gzip", "a compressed file", gzipped),
    ("cut-header", "a file that ends in its header", lambda adapter: adapter.file[:12]),
    ("cut-data", "a file that ends one byte early", lambda adapter: adapter.file[:-1]),
    ("trailing", "a file with a byte after its data", lambda adapter: adapter.file + b"\0"),
    ("length-zero", "a header of length 0", lambda adapter: adapter.with_length(0)),
    ("length-huge", "a header of length 2**63", lambda adapter: adapter.with_length(2**63)),
    ("not-json", "a header that isn't JSON", lambda adapter: adapter.with_header(lambda text: text[:-1] + b"]")),
    ("not-utf-8", "a header that isn't UTF-8", lambda adapter: adapter.with_header(lambda text: b'{"\xff' + text[2:])),
    (
        "offsets",
        "a tensor that overlaps the next or the end",
        lambda adapter: adapter.with_header(_shifted),
    ),
]
# The safetensors library reads these, against the format's own rules: to refuse them is advice.
UNREADABLE_BY_THE_STRICT: list[tuple[str, str, Make]] = [
    ("duplicate-key", "a tensor that stands twice", lambda adapter: adapter.with_header(_twice)),
    ("leading-space", "a space before the header", lambda adapter: adapter.with_header(lambda text: b" " + text)),
]
PLACES: list[tuple[str, Callable[[Adapter], Adapter]]] = [
    ("first", lambda adapter: adapter.at(0)),
    ("middle", lambda adapter: adapter.at(0.5)),
    ("last", lambda adapter: adapter.at(1)),
    ("lora-b", Adapter.at_lora_b),
]


def _elsewhere(name: str, at: Callable[[Adapter], Adapter]) -> list[tuple[str, str, Make]]:
    """The same mistakes in another tensor: some look at one alone."""
    where = "a lora_B tensor" if name == "lora-b" else f"the {name} tensor"
    return [
        (f"shape-{name}", f"{where} in another shape", lambda adapter: _transposed(at(adapter))),
        (f"nan-{name}", f"NaN in {where}", lambda adapter: at(adapter).with_value(0, math.nan)),
    ]


OTHERS: list[tuple[str, str, Make]] = [
    ("key-missing", "a tensor missing", Adapter.without_matrix),
    ("key-more", "a tensor more", Adapter.with_more),
    ("key-renamed", "a tensor of another name", lambda a: a.with_matrix(replace(a.matrix, name="uyum.testi"))),
    ("shape-transposed", "a tensor of another shape with as many values", _transposed),
    ("shape-flat", "a tensor of another number of dimensions", _flat),
    ("shape-scalar", "a scalar in the place of a tensor", _scalar),
    ("dtype-f16", "a tensor in float16", _half),
    ("dtype-i32", "a tensor in int32", lambda a: a.with_matrix(replace(a.matrix, dtype="I32"))),
    ("nan", "NaN as the first value", lambda adapter: adapter.with_value(0, math.nan)),
    ("inf", "Inf as the last value", lambda adapter: adapter.with_value(1, math.inf)),
    ("minus-inf", "-Inf in the middle", lambda adapter: adapter.with_value(0.5, -math.inf)),
    *(wrong for place in PLACES for wrong in _elsewhere(*place)),
]
