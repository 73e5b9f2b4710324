"""Reads a rank's log as bytes, to its present end or following it over attempts until the job is over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mingora.jobs import TERMINAL
from mingora.patience import Patience
from mingora.transport import Answer, Transport

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
        finished: int | None = None
        while True:
            chunk: LogChunk | None = None
            over = False
            with self._patience.turn():
                answer = self._ask(wait=self._patience.read_seconds())
                if finished is None or int(answer.headers["x-log-attempt"]) != finished:
                    finished = None
                    chunk = self._take(answer)
                    if answer.headers.get("x-log-complete") == "true":
                        over = self._wanted is not None or self._job_over(chunk.attempt)
                        finished = None if over else self._next_attempt()
                self._patience.answered(changed=bool(chunk and chunk.data), headers=answer.headers)
            if chunk is not None and (chunk.data or chunk.truncated):
                yield chunk
            if over:
                return

    def _next_attempt(self) -> int | None:
        """Lets the next look take whichever attempt is the latest, from its start; returns the one that is done."""
        done, self._attempt, self._offset, self._tail = self._attempt, None, 0, None
        return done

    def _job_over(self, attempt: int) -> bool:
        job = self._transport.request_json("GET", self._job).data
        return job["state"] in TERMINAL and (job["attempt"] or 0) <= attempt

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
