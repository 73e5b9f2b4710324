"""The one call between services: blobstore pins objects for a job or an attempt, and lets them go again."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

from mingora_common import faults, logs
from mingora_common.errors import INPUT_MISSING, UNAVAILABLE, ServiceError

TIMEOUT_SECONDS = 20


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """An object as a job or a report names it: it must be complete, and of this digest and size."""

    id: str
    sha256: str
    size: int


class Pins(Protocol):
    """What api (inputs) and scheduler (results) ask of blobstore. Both calls are idempotent."""

    def pin(self, owner: str, account_id: str, objects: Sequence[ObjectRef]) -> None:
        """Hold all of ``objects`` for ``owner`` or none; raises ``input_missing`` or ``unavailable``."""

    def release(self, owner: str) -> None:
        """Let go of all that ``owner`` holds; raises ``unavailable``."""


class HttpPins:
    """Pins over HTTP, guarded by the shared internal key.

    Args:
        url: blobstore's base address as seen from this service.
        key: the shared secret (``X-Internal-Key``).
        ca_file: the authority to trust when the address is https with a certificate of one's own.
    """

    def __init__(self, url: str, key: str, ca_file: str | None = None) -> None:
        parts = urlsplit(url)
        self._https = parts.scheme == "https"
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port
        self._base = parts.path.rstrip("/")
        self._key = key
        self._context = ssl.create_default_context(cafile=ca_file) if self._https else None

    def pin(self, owner: str, account_id: str, objects: Sequence[ObjectRef]) -> None:
        body = {
            "owner": owner,
            "accountId": account_id,
            "objects": [{"id": ref.id, "sha256": ref.sha256, "size": ref.size} for ref in objects],
        }
        status, answer = self._call("POST", "/internal/pins", body)
        if status == 409:
            raise ServiceError(INPUT_MISSING, objectIds=answer.get("error", {}).get("objectIds", []))
        if status != 200:
            raise ServiceError(UNAVAILABLE, retry_after=2)

    def release(self, owner: str) -> None:
        status, _ = self._call("DELETE", f"/internal/pins/{quote(owner, safe='')}", None)
        if status != 204:
            raise ServiceError(UNAVAILABLE, retry_after=2)

    def _call(self, method: str, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        data = b"" if body is None else json.dumps(body).encode()
        headers = {"X-Internal-Key": self._key, "Content-Type": "application/json", "Content-Length": str(len(data))}
        request_id = logs.request_id()
        if request_id is not None:
            headers["X-Request-Id"] = request_id
        connection = self._connection()
        try:
            connection.request(method, self._base + path, data, headers)
            answer = connection.getresponse()
            content = answer.read()
            faults.point("blobstore.answered")
            return answer.status, json.loads(content) if content else {}
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ServiceError(UNAVAILABLE, retry_after=2) from error
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if self._context is not None:
            return http.client.HTTPSConnection(self._host, self._port, timeout=TIMEOUT_SECONDS, context=self._context)
        return http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_SECONDS)
