"""The node's calls of docs/protocol.md, each sent once, with answers checked and typed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mingora.errors import ApiError, InsecureServer, MingoraError, OutcomeUnknown, TransportError
from mingora.transport import Transport
from mingora_worker.console import plain
from mingora_worker.texts import _

WAIT_SECONDS = 15.0
# How much longer than its wait a waiting read may take before the connection counts as dead.
SLACK_SECONDS = 10.0
# A heartbeat's is shorter: a dead connection has to be noticed well within the lease.
BEAT_SLACK_SECONDS = 5.0
CALL_SECONDS = 20.0
MAX_CHUNK = 1024 * 1024
MAX_MESSAGE = 1000
MAX_PAUSE_REASON = 500
_ID = re.compile(r"[a-z]{2,6}_[A-Za-z0-9_-]{1,100}")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")
_GONE_CODES = frozenset({"lease_lost", "invalid_token", "not_found"})


class BadAnswer(MingoraError):
    """The platform's answer isn't what the protocol says."""


@dataclass(frozen=True)
class Grant:
    """A claimed lease. `ttl` is seconds from when the claim was answered; `request_id` what the attempt came from."""

    lease_id: str
    attempt: int
    job_id: str
    rank: int
    ranks: int
    token: str
    ttl: float
    log_cap: int
    spec: dict[str, Any]
    inputs: list[dict[str, Any]]
    inputs_digest: str
    request_id: str = ""


@dataclass(frozen=True)
class Stop:
    """The platform wants the rank to end. `grace`: seconds between TERM and KILL."""

    reason: str
    grace: float


@dataclass(frozen=True)
class Beat:
    """The answer to `ready` and to a heartbeat."""

    ttl: float
    start: bool
    stop: Stop | None


def transient(error: MingoraError) -> bool:
    """The one rule for what the worker tries again: its calls are idempotent, so all but a clear refusal."""
    if isinstance(error, OutcomeUnknown):
        return True
    if isinstance(error, ApiError):
        return error.status in {408, 429} or error.status >= 500
    return isinstance(error, TransportError) and not isinstance(error, InsecureServer)


def lease_gone(error: MingoraError) -> bool:
    """Whether a call with a lease token says that the lease has ended."""
    return isinstance(error, ApiError) and (error.code in _GONE_CODES or error.status == 401)


class NodeApi:
    """Calls of one node, or of one lease of it, by the token that `transport` carries."""

    def __init__(self, transport: Transport, node_id: str) -> None:
        self.transport = transport
        self._node = f"/nodes/{node_id}"

    def claim(self, claim_id: str, wait: float) -> Grant | None:
        """A lease, or None after `wait` seconds. The same `claim_id` gets the same lease again."""
        data = self._post("claim", {"claimId": claim_id, "wait": wait}, wait + SLACK_SECONDS)
        return None if data is None else _grant(data)

    def pause(self, reason: str | None) -> None:
        """Says why no job is claimed for now, or with None that jobs are claimed again."""
        text = None if reason is None else wire_text(reason)[:MAX_PAUSE_REASON]
        self._post("pause", {"paused": reason is not None, "reason": text}, CALL_SECONDS)

    def ready(
        self,
        lease_id: str,
        attempt: int,
        digest: str,
        *,
        isolation: Mapping[str, Any] | None = None,
        warnings: Sequence[str] = (),
    ) -> Beat:
        """The inputs are there. `isolation` is the profile the rank will run under, None for a native one."""
        body = _lease(lease_id, attempt, inputsDigest=digest)
        if isolation is not None:
            body["isolation"] = dict(isolation)
        if warnings:
            body["warnings"] = [wire_text(text) for text in warnings]
        return _beat(self._post("ready", body, CALL_SECONDS))

    def heartbeat(
        self, lease_id: str, attempt: int, *, wait: float, started: bool, usage: dict[str, Any] | None
    ) -> Beat:
        body = _lease(lease_id, attempt, wait=wait, started=started)
        if usage is not None:
            body["usage"] = usage
        return _beat(self._post("heartbeat", body, wait + BEAT_SLACK_SECONDS))

    def put_log(self, lease_id: str, attempt: int, offset: int, data: bytes, *, truncated: bool) -> int:
        """Sends log bytes; returns how many from the start the platform has stored."""
        query: dict[str, str | int | None] = {
            "leaseId": lease_id,
            "attempt": attempt,
            "offset": offset,
            "truncated": 1 if truncated else None,
        }
        answer = self.transport.request_bytes(
            "PUT",
            f"{self._node}/logs",
            body=data,
            query=query,
            timeout=CALL_SECONDS,
            attempts=1,
            headers={"Content-Type": "application/octet-stream"},
        )
        try:
            return int(json.loads(answer.data)["acked"])
        except (ValueError, KeyError, TypeError) as error:
            raise bad_answer() from error

    def report(self, body: dict[str, Any]) -> None:
        self._post("report", body, CALL_SECONDS)

    def _post(self, action: str, body: dict[str, Any], timeout: float) -> Any:
        return self.transport.request_json(
            "POST", f"{self._node}/{action}", body=body, timeout=timeout, idempotent=True, attempts=1
        ).data


def wire_text(text: str) -> str:
    """A message as the platform takes it: names of files that aren't UTF-8 are escaped, control characters blanks."""
    return plain(text.encode("utf-8", "backslashreplace").decode())[:MAX_MESSAGE]


def _lease(lease_id: str, attempt: int, **more: Any) -> dict[str, Any]:
    return {"leaseId": lease_id, "attempt": attempt, **more}


def _grant(data: Any) -> Grant:
    try:
        grant = Grant(
            lease_id=_plain_id(data["leaseId"]),
            attempt=int(data["attempt"]),
            job_id=_plain_id(data["jobId"]),
            rank=int(data["rank"]),
            ranks=int(data["ranks"]),
            token=str(data["token"]),
            ttl=float(data["ttlSeconds"]),
            log_cap=int(data["logCapBytes"]),
            spec=dict(data["spec"]),
            inputs=[dict(entry) for entry in data["inputs"]],
            inputs_digest=str(data["inputsDigest"]),
            request_id=request_id(data.get("requestId")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise bad_answer() from error
    return grant


def _beat(data: Any) -> Beat:
    try:
        stop = data["stop"]
        if stop is not None:
            stop = Stop(str(stop["reason"]), min(300.0, max(0.0, float(stop["graceSeconds"]))))
        return Beat(float(data["ttlSeconds"]), data["start"] is True, stop)
    except (KeyError, TypeError, ValueError) as error:
        raise bad_answer() from error


def request_id(value: Any) -> str:
    """An id that may go out in a header; empty for anything else."""
    return value if isinstance(value, str) and _REQUEST_ID.fullmatch(value) else ""


def _plain_id(value: Any) -> str:
    """An id that may name a folder."""
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise ValueError(value)
    return value


def bad_answer() -> BadAnswer:
    return BadAnswer(_("The platform's answer can't be understood. Do the versions of worker and platform match?"))
