"""The fuzz target of the header parser, run in a process of its own: ``python header_fuzz.py CORPUS -runs=N``.

Whatever the bytes are, the parser raises nothing but NotSafetensors; what it accepts, the safetensors library accepts,
and rendering it and reading it again changes nothing. Any other end of an input ends the process with an error.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris  # type: ignore[import-untyped]
from header_support import library_reads

with atheris.instrument_imports(include=["mingora_coordinator.domain.header"]):
    from mingora_coordinator.domain import header

CAP = 4096
DICTIONARY = [
    '{"', '":', '"}', "[]", "]}", "},", '"dtype"', '"shape"', '"data_offsets"', '"__metadata__"', '"F32"', '"F4"',
    '"BOOL"', "9007199254740993", "-0", "1.0", "1e9", "NaN", "true", "null", "\\\\ud800", "\\\\u0000", "[0,0]", "[4,8]",
]  # fmt: skip


def one_input(data: bytes) -> None:
    """Reads ``data`` as a whole file, and as a header whose data region is as long as the first byte says."""
    check(data)
    rest = data[1:]
    check(len(rest).to_bytes(8, "little") + rest + bytes(data[0] if data else 0))


def check(body: bytes) -> None:
    try:
        found = header.parse(body, len(body), CAP)
    except header.NotSafetensors:
        return
    assert len(library_reads(body)) == len(found.tensors)
    again = header.render(found.tensors) + body[found.data_start :]
    assert header.parse(again, len(again), 4 * CAP).tensors == found.tensors


def seed(corpus: Path) -> Path:
    """Writes files to begin from, and the words of a header; gives the words' file."""
    tensors = [
        [header.Tensor("a", "F32", (2, 1), 0, 8), header.Tensor("b", "BF16", (), 8, 10)],
        [header.Tensor("n", "F4", (2, 3), 0, 3), header.Tensor("z", "I64", (0, 7), 3, 3)],
    ]
    for number, chosen in enumerate(tensors):
        file = header.render(chosen)
        size = chosen[-1].end
        (corpus / f"file{number}").write_bytes(file + bytes(size))
        (corpus / f"header{number}").write_bytes(bytes([size]) + file[8:])
    text = b'\x04{"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    (corpus / "metadata").write_bytes(text)
    words = corpus.with_name(corpus.name + ".dict")
    words.write_text("\n".join('"' + word.replace('"', '\\"') + '"' for word in DICTIONARY))
    return words


if __name__ == "__main__":
    arguments = [sys.argv[0], f"-dict={seed(Path(sys.argv[1]))}", f"-max_len={CAP}", *sys.argv[1:]]
    atheris.Setup(arguments, one_input)
    atheris.Fuzz()
