"""A result on its way in: from the bytes of its body to a recorded result, or the reason why it isn't one."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from enum import Enum
from types import TracebackType
from typing import Self

from mingora_coordinator.domain.header import Difference, Header, NotSafetensors, difference, parse, same_layout
from mingora_coordinator.domain.measure import BYTES_A_VALUE, NotFinite, measure
from mingora_coordinator.domain.rounds import Accepted
from mingora_coordinator.store.adapter_file import digest_of, open_vector, rewrite
from mingora_coordinator.store.counters import Counter
from mingora_coordinator.store.durable import sync_file
from mingora_coordinator.training.training import Training

READ_STEP = 1 << 20
# Bodies that arrive, of whomever, leave room for the next rounds.
KEPT_ADAPTERS = 2


class Wrong(Enum):
    """What is wrong with a body, whoever sends it and whenever."""

    EMPTY = "empty"
    TOO_LARGE = "too_large"
    UNREADABLE = "unreadable"
    KEYS = "keys"
    SHAPE = "shape"
    DTYPE = "dtype"
    NOT_FINITE = "not_finite"


class Malformed(Exception):
    """The body isn't a result. ``detail``: a tensor's name, or what a log may say of an unreadable file."""

    def __init__(self, wrong: Wrong, detail: str = "") -> None:
        super().__init__(detail)
        self.wrong = wrong
        self.detail = detail


class Body:
    """A body that arrives into a file of its own; used in a ``with``, which removes the file unless it was recorded."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self._path = training.folder.new_incoming()
        self._began = time.monotonic()
        self._digest = hashlib.sha256()
        self.size = 0
        self.seconds = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        self._path.unlink(missing_ok=True)

    def take(self, read: Callable[[int], bytes], promised: int | None) -> None:
        """Write all that ``read`` gives, hashing it on the way. ``promised``: bytes, by the request's headers.

        Raises:
            Malformed: EMPTY, TOO_LARGE as soon as it is, or UNREADABLE when the body breaks off.
            OSError: the disk fails, or would soon be full.
        """
        most = self._training.layout.body_cap
        with self._path.open("xb", buffering=0) as file:
            while piece := _read(read):
                self.size += len(piece)
                if self.size > most:
                    raise Malformed(Wrong.TOO_LARGE)
                self._digest.update(piece)
                self._training.folder.keep_room(KEPT_ADAPTERS * most)
                _write(file.fileno(), piece)
        self.seconds = time.monotonic() - self._began
        self._training.counters.add(Counter.RECEIVED, self.size)
        if promised is not None and self.size < promised:
            raise Malformed(Wrong.UNREADABLE, "the body broke off")
        if not self.size:
            raise Malformed(Wrong.EMPTY)

    def record(self, worker: str, number: int) -> None:
        """Check the body in the order that the protocol gives, and make it the worker's result of the open round.

        Raises:
            Malformed: it is no well-formed file; or, of a round that takes it, it doesn't fit the global adapter.
            Refused: the open round doesn't take it.
            OSError: the disk.
        """
        training, layout = self._training, self._training.layout
        found = self._header()
        training.check(worker, number)
        other = difference(layout.header, found)
        if other is not None:
            raise Malformed(_DIFFERENCES[other[0]], other[1])
        digest, data_start = self._digest.hexdigest(), found.data_start
        if not same_layout(layout.header, found) or data_start % BYTES_A_VALUE:
            rewrite(self._path, found, layout)
            digest, data_start = digest_of(self._path), layout.header.data_start
        # What the result is measured against belongs to its round, or recording it is refused.
        globe, grid = training.standing()
        stored = open_vector(self._path, data_start, layout.values)
        try:
            measured = measure(layout.header, training.pieces, globe, stored, grid)
        except NotFinite as error:
            raise Malformed(Wrong.NOT_FINITE, str(error)) from None
        sync_file(self._path)
        accepted = Accepted(
            worker=worker,
            file=f"{self._path.name}.safetensors",
            digest=digest,
            size=self.size,
            data_start=data_start,
            distance=measured.distance,
            fits=measured.fits,
            seconds=round(self.seconds, 3),
        )
        training.record(accepted, number, self._path)

    def _header(self) -> Header:
        cap = self._training.layout.header_cap
        with self._path.open("rb") as file:
            head = file.read(8 + cap)
        try:
            return parse(head, self.size, cap)
        except NotSafetensors as error:
            raise Malformed(Wrong.UNREADABLE, str(error)) from None


_DIFFERENCES = {Difference.KEYS: Wrong.KEYS, Difference.SHAPE: Wrong.SHAPE, Difference.DTYPE: Wrong.DTYPE}


def _read(read: Callable[[int], bytes]) -> bytes:
    try:
        return read(READ_STEP)
    except OSError as error:  # the client's connection, or its chunks; not the disk
        raise Malformed(Wrong.UNREADABLE, "the body broke off") from error


def _write(number: int, piece: bytes) -> None:
    left = memoryview(piece)
    while left:
        left = left[os.write(number, left) :]
