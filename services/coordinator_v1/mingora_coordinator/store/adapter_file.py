"""Adapters as files: opened as memory maps, and written anew in the global adapter's layout."""

from __future__ import annotations

import hashlib
import mmap
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mingora_coordinator.domain.blocks import Vector
from mingora_coordinator.domain.header import Header, NotSafetensors, cap_for, parse, render
from mingora_coordinator.domain.measure import BYTES_A_VALUE
from mingora_coordinator.store.durable import allocate

HASH_STEP = 1 << 20
_OWN_HEADER_CAP = 64 * 1024 * 1024


class Unusable(ValueError):
    """A file can't be the training's adapter; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The global adapter's header, and what follows from it.

    Attributes:
        header: of every published adapter but the first, which stays as it was given: its bytes before the numbers may
            be others.
        values: how many numbers an adapter has.
        prefix: the first bytes of a published adapter.
        header_cap: the largest header of a result that is read, in bytes.
        body_cap: the largest body of a result that is taken, in bytes: one with other keys is read as well, so that its
            sender hears which one is wrong.
    """

    header: Header
    values: int
    prefix: bytes
    header_cap: int
    body_cap: int

    @classmethod
    def of(cls, header: Header) -> Layout:
        """Of a global adapter whose header that is."""
        size, prefix = header.tensors[-1].end, render(header.tensors)
        cap = cap_for(max(len(prefix), header.data_start))
        return cls(Header(header.tensors, len(prefix)), size // BYTES_A_VALUE, prefix, cap, 2 * size + cap)


def read_header(path: Path) -> Header:
    """The header of a file of this machine's own.

    Raises:
        Unusable: it can't be read, or isn't a well-formed safetensors file.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            return parse(file.read(8 + min(size, _OWN_HEADER_CAP)), size, _OWN_HEADER_CAP)
    except OSError as error:
        raise Unusable(f"{path} can't be read: {error.strerror}") from error
    except NotSafetensors as error:
        raise Unusable(f"{path} isn't a safetensors file: {error}") from error


def first_header(path: Path) -> Header:
    """The header of a file that is to start a training.

    Raises:
        Unusable: it isn't a well-formed safetensors file of finite F32 tensors.
    """
    header = read_header(path)
    wrong = next((tensor for tensor in header.tensors if tensor.dtype != "F32"), None)
    if wrong is not None:
        raise Unusable(f"{path}: the tensor {wrong.name} is {wrong.dtype}, and only F32 can be averaged: convert it")
    if not header.tensors or not header.tensors[-1].end:
        raise Unusable(f"{path} has no values")
    vector = open_vector(path, header.data_start, header.tensors[-1].end // BYTES_A_VALUE)
    if not (np.isfinite(vector.min()) and np.isfinite(vector.max())):
        raise Unusable(f"{path} has values that are NaN or infinite")
    return header


def open_adapter(path: Path) -> Vector:
    """The numbers of a published adapter."""
    header = read_header(path)
    return open_vector(path, header.data_start, header.tensors[-1].end // BYTES_A_VALUE)


def open_vector(path: Path, data_start: int, values: int) -> Vector:
    """The numbers of a file, read where they lie."""
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return np.frombuffer(mapped, "<f4", values, data_start)


def new_vector(path: Path, prefix: bytes, values: int) -> Vector:
    """A new file with ``prefix`` and room for as many numbers, which are written where they lie."""
    size = len(prefix) + BYTES_A_VALUE * values
    with path.open("x+b") as file:
        allocate(file, size)
        file.write(prefix)
        file.flush()
        mapped = mmap.mmap(file.fileno(), size)
    return np.frombuffer(mapped, "<f4", values, len(prefix))


def rewrite(path: Path, found: Header, layout: Layout) -> None:
    """Put the tensors of a result into the global adapter's order, aligned, and without what else its header has.

    ``found`` has the same tensors as the layout, at other places.
    """
    size = layout.header.tensors[-1].end
    beside = path.with_name(path.name + ".new")
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    places = {tensor.name: found.data_start + tensor.begin for tensor in found.tensors}
    with mapped, beside.open("xb") as out:
        allocate(out, len(layout.prefix) + size)
        out.write(layout.prefix)
        for tensor in layout.header.tensors:
            start = places[tensor.name]
            out.write(mapped[start : start + tensor.end - tensor.begin])
    beside.replace(path)


def digest_of(path: Path) -> str:
    """SHA-256 of a file, hex."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        while piece := file.read(HASH_STEP):
            digest.update(piece)
    return digest.hexdigest()
