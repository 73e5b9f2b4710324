"""The questions that volunteers ask, in ``sorular.jsonl``, whose words are the protocol's. No address is kept."""

from __future__ import annotations

import threading

from mingora_common.clock import Clock, rfc3339
from mingora_coordinator.store.durable import Lines, read_lines
from mingora_coordinator.store.folder import DataFolder


class Questions:
    """The file of questions."""

    def __init__(self, folder: DataFolder, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._lines = Lines(folder.questions)
        self._count = sum(1 for _line in read_lines(folder.questions))

    def add(self, question: str, worker: str, version: str, context: str) -> int:
        """Store a question; returns its number, from 1.

        Raises:
            OSError: the disk.
        """
        with self._lock:
            number = self._count + 1
            entry = {
                "no": number,
                "zaman": rfc3339(self._clock.now()),
                "soru": question,
                "isci": worker,
                "surum": version,
                "baglam": context,
            }
            self._lines.append(entry, durable=True)
            self._count = number
            return number
