"""Bodies for POST /sonuc made of a well-formed adapter: those that are refused, with the status, and those accepted.

The adapter needs a matrix that isn't square and has more than one row and one column; it is the first such tensor that
is damaged. The longest bodies have twice its bytes, or 45 kB more: a coordinator's limit has to be above both.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
import pickle
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save

Adapter = dict[str, npt.NDArray[np.float32]]
Body = tuple[str, bytes, int]


def refused(adapter: Adapter) -> list[Body]:
    """Name, body and status (413, 400 or 422) of what no coordinator may take for a result."""
    bodies = [*_other_formats(adapter), *_cut(adapter), *_texts(adapter), *_headers(adapter), *_mismatches(adapter)]
    bodies += _not_finite(adapter)
    assert len({name for name, _, _ in bodies}) == len(bodies)
    return bodies


def accepted(adapter: Adapter) -> list[tuple[str, bytes]]:
    """Name and body of results that look odd and are as good as any."""
    file = save(adapter)
    text, data = _parts(file)
    name = min(adapter)
    order = sorted(adapter, reverse=True)
    return [
        ("subnormal values", save(_with_value(adapter, 0, 1e-42))),
        ("negative zero", save(_with_value(adapter, 0, -0.0))),
        ("metadata", save(adapter, {"format": "pt", "\u0130": "../../etc"})),
        ("a header with white space", _file(json.dumps(json.loads(text), indent=1), data)),
        ("a header that isn't padded", _file(text.rstrip(b" ") + b" " * (1 - len(text.rstrip()) % 2), data)),
        ("a name with escapes", _file(text.replace(name[0].encode(), b"\\u%04x" % ord(name[0]), 1), data)),
        ("another order of the data", _file(_layout({key: adapter[key] for key in order}), _data(adapter, order))),
    ]


def _file(header: str | bytes | dict[str, Any], data: bytes) -> bytes:
    raw = json.dumps(header) if isinstance(header, dict) else header
    raw = raw.encode() if isinstance(raw, str) else raw
    return len(raw).to_bytes(8, "little") + raw + data


def _parts(file: bytes) -> tuple[bytes, bytes]:
    """A file's header as it stands, and its data."""
    start = 8 + int.from_bytes(file[:8], "little")
    return file[8:start], file[start:]


def _layout(adapter: Adapter, dtype: str = "F32", bytes_each: int = 4) -> dict[str, Any]:
    """The header of these tensors in this order."""
    entries, begin = {}, 0
    for name, values in adapter.items():
        end = begin + values.size * bytes_each
        entries[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": [begin, end]}
        begin = end
    return entries


def _data(adapter: Adapter, order: list[str]) -> bytes:
    return b"".join(adapter[name].tobytes() for name in order)


def _matrix(adapter: Adapter) -> str:
    return next(name for name, v in adapter.items() if v.ndim == 2 and 1 not in v.shape and v.shape[0] != v.shape[1])


def _other_formats(adapter: Adapter) -> Iterator[Body]:
    file = save(adapter)
    zipped, arrays, array = io.BytesIO(), io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:  # as torch.save writes it
        archive.writestr("archive/data.pkl", pickle.dumps({"a": 1}, protocol=2))
        archive.writestr("archive/data/0", file)
    np.savez(
        arrays, allow_pickle=False, **{f"tensor{number}": values for number, values in enumerate(adapter.values())}
    )
    np.save(array, adapter[_matrix(adapter)])
    yield "empty", b"", 413
    yield "pickle, newest protocol", pickle.dumps({name: values.tolist() for name, values in adapter.items()}), 400
    yield "pickle, protocol 0", pickle.dumps(list(adapter), protocol=0), 400
    yield "pickle that runs a program", b"cposix\nsystem\n(S'false'\ntR.", 400
    yield "zip as torch writes it", zipped.getvalue(), 400
    yield "npz", arrays.getvalue(), 400
    yield "npy", array.getvalue(), 400
    yield "gzip of a good file", gzip.compress(file, 1, mtime=0), 400
    yield "xz of a good file", lzma.compress(file, preset=0), 400
    yield "a good file in a zip's comment", b"PK\x05\x06" + bytes(16) + b"\xff\xff" + file, 400
    yield "json", json.dumps(_layout(adapter)).encode(), 400
    yield "html", b"<!doctype html><title>502</title>" * 10, 400
    yield "zeros", bytes(4096), 400
    yield "ones", b"\xff" * 4096, 400
    yield "multipart form", b'--x\r\nContent-Disposition: form-data; name="f"\r\n\r\n' + file + b"\r\n--x--\r\n", 400


def _cut(adapter: Adapter) -> Iterator[Body]:
    file = save(adapter)
    text, data = _parts(file)
    length = len(text)

    def of_length(claimed: int) -> bytes:
        return claimed.to_bytes(8, "little") + text + data

    yield "one byte", file[:1], 400
    yield "seven bytes", file[:7], 400
    yield "the length alone", file[:8], 400
    yield "cut after the first brace", file[:9], 400
    yield "cut in the header", file[: 8 + length // 2], 400
    yield "cut after the header", file[: 8 + length], 400
    yield "cut in the data", file[: 8 + length + len(data) // 2], 400
    yield "cut by one byte", file[:-1], 400
    yield "one byte more", file + b"\0", 400
    yield "eight bytes more", file + bytes(8), 400
    yield "twice the file", file + file, 400
    yield "first byte missing", file[1:], 400
    yield "length 0", of_length(0), 400
    yield "length 1", of_length(1), 400
    yield "length one less", of_length(len(text.rstrip()) - 1), 400
    yield "length one more", of_length(length + 1), 400
    yield "length of the whole file", of_length(len(file)), 400
    yield "length 2**31", of_length(2**31), 400
    yield "length 2**63", of_length(2**63), 400
    yield "length -1", of_length(2**64 - 1), 400
    yield "length in big endian", length.to_bytes(8, "big") + text + data, 400
    yield "length as a text", b"%08d" % length + text + data, 400


def _texts(adapter: Adapter) -> Iterator[Body]:
    """Headers that aren't one JSON object by the format's rules."""
    text, data = _parts(save(adapter))
    text = text.rstrip(b" ")
    name = _matrix(adapter).encode()
    first = text[1 : text.index(b"}") + 1]

    def body(raw: str | bytes) -> tuple[bytes, int]:
        return _file(raw, data), 400

    yield "array as header", *body(b"[" + text + b"]")
    yield "null as header", *body("null")
    yield "text as header", *body('"tensors"')
    yield "number as header", *body("1")
    yield "spaces as header", *body(" " * 16)
    yield "two objects", *body(text + text)
    yield "object and more", *body(text + b"x")
    yield "open object", *body(text[:-1])
    yield "comma at the end", *body(text[:-1] + b",}")
    yield "single quotes", *body(text.replace(b'"', b"'"))
    yield "comment", *body(b"{/* hi */" + text[1:])
    yield "byte order mark", *body(b"\xef\xbb\xbf" + text)
    yield "leading space", *body(b" " + text)
    yield "leading new line", *body(b"\n" + text)
    yield "padded with CRLF", *body(text + b"\r\n")
    yield "padded with NUL", *body(text + bytes(8))
    yield "utf-16", *body(text.decode().encode("utf-16"))
    yield "latin-1 byte in a name", *body(text.replace(name, name + b"\xfd"))
    yield "surrogate as utf-8", *body(text.replace(name, name + b"\xed\xa0\x80"))
    yield "overlong utf-8", *body(text.replace(name, name + b"\xc0\xae"))
    yield "half a surrogate pair", *body(text.replace(name, name + rb"\ud800"))
    yield "NUL in a name", *body(text.replace(name, name + rb"\u0000"))
    yield "raw NUL in a name", *body(text.replace(name, name + b"\0"))
    yield "new line in a name", *body(text.replace(name, name + rb"\n"))
    yield "raw new line in a name", *body(text.replace(name, name + b"\n"))
    yield "the same tensor twice", *body(b"{" + first + b"," + text[1:])
    yield "a tensor twice, once escaped", *body(b'{"\\u%04x' % first[1] + first[2:] + b"," + text[1:])
    yield "deep arrays", *body(b'{"a":' + b"[" * 20_000 + b"]" * 20_000 + b"," + text[1:])
    yield "deep objects", *body(b'{"a":' * 5_000 + b"1" + b"}" * 5_000)


def _headers(adapter: Adapter) -> Iterator[Body]:
    """JSON objects that describe no tensors."""
    entries = _layout(adapter)
    data = _data(adapter, list(adapter))
    name = _matrix(adapter)
    rows, columns = adapter[name].shape
    begin, end = entries[name]["data_offsets"]

    def entry(**changed: Any) -> tuple[bytes, int]:
        kept = {key: value for key, value in (entries[name] | changed).items() if value is not Ellipsis}
        return _file(entries | {name: kept}, data), 400

    def written(old: str, new: str) -> tuple[bytes, int]:
        """The matrix's entry with a stretch of its text changed."""
        own = json.dumps(entries[name])
        assert old in own
        return _file(json.dumps(entries).replace(own, own.replace(old, new, 1)), data), 400

    yield "no dtype", *entry(dtype=...)
    yield "no shape", *entry(shape=...)
    yield "no data_offsets", *entry(data_offsets=...)
    yield "one field more", *entry(strides=[1, 1])
    yield "field twice", *written('"dtype": "F32"', '"dtype": "F32", "dtype": "F32"')
    yield "tensor as array", _file(entries | {name: ["F32", [rows, columns], [begin, end]]}, data), 400
    yield "tensor as null", _file(entries | {name: None}, data), 400
    yield "unknown dtype", *entry(dtype="F31")
    yield "dtype in lower case", *entry(dtype="f32")
    yield "dtype as number", *entry(dtype=32)
    yield "dtype as array", *entry(dtype=["F32"])
    yield "shape as number", *entry(shape=rows * columns)
    yield "shape as bool", *entry(shape=True)
    yield "dimension as bool", *entry(shape=[rows, columns, True])
    yield "dimension as float", *written(f"[{rows},", f"[{rows}.0,")
    yield "dimension with exponent", *written(f"[{rows},", f"[{rows}e0,")
    yield "dimension as text", *entry(shape=[str(rows), columns])
    yield "dimension null", *entry(shape=[rows, columns, None])
    yield "negative dimensions", *entry(shape=[-rows, -columns])
    yield "dimension -0", *written(f"[{rows},", "[-0,")
    yield "dimension NaN", *written(f"[{rows},", "[NaN,")
    yield "dimension Infinity", *written(f"[{rows},", "[Infinity,")
    yield "dimension 2**53 + 1", *entry(shape=[2**53 + 1, columns])
    yield "dimension of 5000 digits", *written(f"[{rows},", "[" + "9" * 5000 + ",")
    yield "product over 64 bits", *entry(shape=[2**33, 2**33])
    yield "product that wraps to the right size", *entry(shape=[rows + 2**62, columns])
    yield "shape larger than the data", *entry(shape=[rows + 1, columns])
    yield "shape smaller than the data", *entry(shape=[rows - 1, columns])
    yield "no values and yet bytes", *entry(shape=[0, columns])
    yield "offsets as floats", *written(f"[{begin}, {end}]", f"[{begin}.0, {end}.0]")
    yield "offsets as texts", *entry(data_offsets=[str(begin), str(end)])
    yield "offsets as bools", *entry(data_offsets=[False, True])
    yield "offsets null", *entry(data_offsets=None)
    yield "one offset", *entry(data_offsets=[begin])
    yield "three offsets", *entry(data_offsets=[begin, end, end])
    yield "swapped offsets", *entry(data_offsets=[end, begin])
    yield "negative offsets", *entry(data_offsets=[begin - end - 4, -4])
    yield "offsets beyond the file", *entry(data_offsets=[begin + len(data), end + len(data)])
    yield "offsets that overlap", *entry(data_offsets=[begin + 4, end + 4])
    yield "gap at the start", _file(_moved(entries, 4), bytes(4) + data), 400
    yield "two tensors on the same bytes", _file(entries | {"twin": entries[name]}, data), 400
    yield "bytes of no tensor", _file({key: value for key, value in entries.items() if key != name}, data), 400
    yield "metadata with a number", _file({"__metadata__": {"a": 1}} | entries, data), 400
    yield "metadata with an object", _file({"__metadata__": {"a": {"b": "c"}}} | entries, data), 400
    yield "metadata as array", _file({"__metadata__": ["a"]} | entries, data), 400
    yield "metadata as text", _file({"__metadata__": "a"} | entries, data), 400


def _moved(entries: dict[str, Any], by: int) -> dict[str, Any]:
    return {
        name: value | {"data_offsets": [offset + by for offset in value["data_offsets"]]}
        for name, value in entries.items()
    }


def _mismatches(adapter: Adapter) -> Iterator[Body]:
    """Well-formed files of other tensors."""
    name = _matrix(adapter)
    matrix = adapter[name]
    others = {key: values for key, values in adapter.items() if key != name}

    def renamed(new: str) -> tuple[bytes, int]:
        return save(others | {new: matrix}), 422

    def changed(values: npt.NDArray[Any]) -> tuple[bytes, int]:
        return save(others | {name: np.ascontiguousarray(values)}), 422

    def cast(dtype: str, bytes_each: int) -> tuple[bytes, int]:
        size = sum(values.size for values in adapter.values()) * bytes_each
        return _file(_layout(adapter, dtype, bytes_each), bytes(size)), 422

    yield "no tensors", _file("{}", b""), 422
    yield "metadata alone", _file({"__metadata__": {"format": "pt"}}, b""), 422
    yield "a tensor missing", save(others), 422
    yield "a tensor more", save(adapter | {"more": np.zeros(1, np.float32)}), 422
    yield "a tensor without values more", save(adapter | {"more": np.zeros(0, np.float32)}), 422
    yield "another name", *renamed(name + "x")
    yield "a name in upper case", *renamed(name.swapcase())
    yield "a path as name", *renamed("../../../etc/passwd")
    yield "an empty name", *renamed("")
    yield "a name of 5000 characters", *renamed("n" * 5000)
    yield "a name beyond ASCII", *renamed("ağırlık\U0001f600")
    yield "transposed", *changed(matrix.T)
    yield "flattened", *changed(matrix.ravel())
    yield "one dimension more", *changed(matrix[None])
    yield "a scalar", *changed(matrix[0, 0].reshape(()))
    yield "a single row", *changed(matrix[:1])
    yield "a single value", *changed(matrix[:1, :1])
    yield "a row more", *changed(np.vstack([matrix, matrix[:1]]))
    yield "no values", *changed(matrix[:0])
    yield "every tensor a scalar", save({key: np.zeros((), np.float32) for key in adapter}), 422
    yield "one tensor float64", *changed(matrix.astype(np.float64))
    yield "one tensor float16", *changed(matrix.astype(np.float16))
    yield "int32 of the same bytes", *changed(matrix.view(np.int32))
    yield "all float16", *cast("F16", 2)
    yield "all bfloat16", *cast("BF16", 2)
    yield "all float64", *cast("F64", 8)
    yield "all uint32", *cast("U32", 4)
    yield "all complex64", *cast("C64", 8)
    yield "all float8", *cast("F8_E4M3", 1)


def _with_value(adapter: Adapter, at: int, value: float) -> Adapter:
    """A copy in which value ``at`` of all values (in the order of the names) is another one."""
    changed = {name: adapter[name].copy() for name in sorted(adapter)}
    at %= sum(values.size for values in changed.values())
    for values in changed.values():
        if at < values.size:
            values.flat[at] = value
            break
        at -= values.size
    return changed


def _not_finite(adapter: Adapter) -> Iterator[Body]:
    middle = sum(values.size for values in adapter.values()) // 2
    for label, value in (("NaN", np.nan), ("+Inf", np.inf), ("-Inf", -np.inf)):
        for place, at in (("first", 0), ("middle", middle), ("last", -1)):
            yield f"{label} as {place} value", save(_with_value(adapter, at, value)), 422
    nowhere = {name: np.full(values.shape, np.nan, np.float32) for name, values in adapter.items()}
    yield "NaN everywhere", save(nowhere), 422
    signalling = {name: values.copy() for name, values in adapter.items()}
    signalling[min(signalling)].view(np.uint32).flat[0] = 0xFF800001
    yield "a signalling NaN", save(signalling), 422
    both = _with_value(_with_value(adapter, 0, np.inf), 1, -np.inf)
    yield "both infinities, whose sum is NaN", save(both), 422
