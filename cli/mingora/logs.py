"""Reads a rank's log as bytes, to its present end or following it over attempts until the job is over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mingora.jobs import TERMINAL
from mingora.patience import Patience
from mingora.transport import Answer, Query, Transport

LIMIT = 1024 * 1024


@dataclass(frozen=True)
class LogChunk:
    """Bytes of an attempt's log from `offset` on. `truncated`: the log reached its cap and lacks an end."""

    attempt: int
    rank: int
    offset: int
    data: bytes
    truncated: bool


class LogReader:
    def __init__(
        self,
        transport: Transport,
        job_path: str,
        *,
        rank: int,
        attempt: int | None,
        tail: int | None,
        patience: Patience,
    ) -> None:
        self._transport = transport
        self._job = job_path
        self._rank = rank
        self._wanted = attempt
        self._attempt = attempt
        self._offset = 0
        self._tail = tail
        self._patience = patience

    def chunks(self) -> Iterator[LogChunk]:
        """What is there now."""
        while True:
            answer = self._ask(wait=None)
            chunk = self._take(answer)
            if chunk.data:
                yield chunk
            if not chunk.data or self._offset >= int(answer.headers["x-log-size"]):
                return

    def follow(self) -> Iterator[LogChunk]:
        """What is there and what comes, until the log is complete; without a fixed attempt, until the job is over."""
        while True:
            yield from self._follow_attempt()
            if self._wanted is not None or not self._next_attempt():
                return

    def _follow_attempt(self) -> Iterator[LogChunk]:
        complete = False
        while not complete:
            chunk: LogChunk | None = None
            with self._patience.turn():
                before = self._attempt
                answer = self._ask(wait=self._patience.read_seconds())
                chunk = self._take(answer)
                complete = answer.headers.get("x-log-complete") == "true"
                changed = bool(chunk.data) or complete or self._attempt != before  # an attempt's begin is news too
                self._patience.answered(changed=changed, headers=answer.headers)
            if chunk is not None and (chunk.data or chunk.truncated):
                yield chunk

    def _next_attempt(self) -> bool:
        """Waits until the job is over (False) or has an attempt after the one that was read (True)."""
        done, state = self._attempt or 0, None
        while True:
            with self._patience.turn():
                query: Query = {"wait": self._patience.read_seconds(), "knownState": state} if state else {}
                answer = self._transport.request_json("GET", self._job, query=query)
                if (answer.data["attempt"] or 0) > done:
                    self._attempt, self._offset, self._tail = None, 0, None
                    return True
                if answer.data["state"] in TERMINAL:
                    return False
                changed, state = answer.data["state"] != state, answer.data["state"]
                self._patience.answered(changed=changed, headers=answer.headers)

    def _ask(self, wait: float | None) -> Answer:
        query = {
            "rank": self._rank,
            "attempt": self._attempt,
            "limit": LIMIT,
            "wait": wait,
            "tail": self._tail,
            "offset": None if self._tail is not None else self._offset,
        }
        return self._transport.request_bytes("GET", f"{self._job}/logs", query=query, limit=2 * LIMIT)

    def _take(self, answer: Answer) -> LogChunk:
        headers = answer.headers
        attempt = int(headers["x-log-attempt"])
        self._attempt = attempt or self._wanted
        self._offset = int(headers["x-log-next-offset"])
        self._tail = None if attempt else self._tail
        truncated = headers.get("x-log-truncated") == "true"
        return LogChunk(attempt, self._rank, int(headers["x-log-offset"]), answer.data or b"", truncated)
