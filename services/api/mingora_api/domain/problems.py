"""What is wrong with a submission: a bounded list, told all at once."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from mingora_common.errors import INVALID_JOB, ServiceError

MAX_PROBLEMS = 50


class Problem(NamedTuple):
    """Where (``resources.cpu``, ``inputs[3].path``) and what."""

    path: str
    message: str


class Problems:
    """Collects problems; the first ``MAX_PROBLEMS`` are kept."""

    def __init__(self) -> None:
        self._found: list[Problem] = []

    def __len__(self) -> int:
        return len(self._found)

    def add(self, path: str, message: str) -> None:
        self.extend((Problem(path, message),))

    def extend(self, found: Iterable[Problem]) -> None:
        self._found += islice(found, MAX_PROBLEMS - len(self._found))

    def check(self) -> None:
        """Raise ``invalid_job`` when there is any."""
        if self._found:
            first = self._found[0]
            raise ServiceError(
                INVALID_JOB,
                f"The job's description isn't valid: {first.path or 'job.json'} {first.message}.",
                problems=[problem._asdict() for problem in self._found],
            )
