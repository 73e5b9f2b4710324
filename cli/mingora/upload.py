"""Sends files as objects: asks what the account has, then sends the missing parts over several connections (CLI-9)."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from mingora.errors import ApiError, FileChanged
from mingora.i18n import _
from mingora.manifest import LocalFile, Progress, hash_file
from mingora.pool import run_all
from mingora.transport import Transport

BATCH = 1000
THREADS = 8
# Answers after which an object is opened anew, once, if the file is still what was hashed: an earlier upload left
# other bytes in a part, the bytes broke on the way, or another upload of the same content was faster.
_STARTS_ANEW = frozenset({"part_conflict", "digest_mismatch", "object_frozen", "object_corrupt", "not_found"})


def upload_files(
    transport: Transport,
    entries: Sequence[LocalFile],
    *,
    kind: Literal["input", "result"],
    progress: Progress | None = None,
    threads: int = THREADS,
    refused: Callable[[LocalFile, ApiError], None] | None = None,
) -> list[dict[str, Any]]:
    """Makes every file a complete object of the account and returns docs/protocol.md's file entries, in order.

    Equal files are sent once; parts that a former, broken-off upload left are kept. `progress` counts the bytes of
    different contents. Raises `FileChanged` naming a file that isn't what was hashed, `ApiError` for a refusal. With
    `refused` a file for which there is no room is told to it and left out, and the others are sent.
    """
    contents = list({item.sha256: item for item in entries}.values())
    upload = _Upload(transport, kind, progress, threads, sum(item.size for item in contents), refused)
    again = upload.send(contents)
    if again:
        upload.send([upload.restart(item, error) for item, error in again], final=True)
    return [
        {
            "path": item.path,
            "objectId": upload.ids[item.sha256],
            "size": item.size,
            "sha256": item.sha256,
            "executable": item.executable,
        }
        for item in entries
        if item.sha256 in upload.ids
    ]


@dataclass
class _Open:
    """An open object while its missing parts are on their way. `left` counts those not yet acknowledged."""

    id: str
    file: LocalFile
    part_size: int
    missing: deque[int]
    left: int
    complete: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class _Upload:
    def __init__(
        self,
        transport: Transport,
        kind: str,
        progress: Progress | None,
        threads: int,
        total: int,
        refused: Callable[[LocalFile, ApiError], None] | None,
    ) -> None:
        self._refused = refused
        self.ids: dict[str, str] = {}
        self._transport = transport
        self._kind = kind
        self._progress = progress
        self._threads = threads
        self._total = total
        self._sent: dict[str, int] = {}
        self._lock = threading.Lock()

    def send(self, files: list[LocalFile], *, final: bool = False) -> list[tuple[LocalFile, ApiError]]:
        """Sends what is missing; returns the files to start anew (with `final` that is an error)."""
        objects = [item for start in range(0, len(files), BATCH) for item in self._open(files[start : start + BATCH])]
        again: dict[str, tuple[LocalFile, ApiError]] = {}
        tasks = [item for item in objects for _part in item.missing or [None]]

        def one(item: _Open) -> None:
            try:
                self._send_next(item)
            except ApiError as error:
                if final or error.code not in _STARTS_ANEW:
                    raise
                again[item.file.sha256] = (item.file, error)

        run_all(tasks, one, self._threads)
        return list(again.values())

    def restart(self, file: LocalFile, error: ApiError) -> LocalFile:
        """Readies a file for another try, or finds that it has changed."""
        if hash_file(file.source) != (file.sha256, file.size):
            raise _changed(file) from error
        if error.code == "part_conflict":
            with contextlib.suppress(ApiError):
                self._transport.request_json("DELETE", f"/objects/{self.ids[file.sha256]}", idempotent=True)
        self._count(file, -self._sent.get(file.sha256, 0))
        return file

    def _open(self, files: list[LocalFile]) -> list[_Open]:
        wanted = [{"size": file.size, "sha256": file.sha256, "kind": self._kind} for file in files]
        answer = self._transport.request_json("POST", "/objects/batch", body={"objects": wanted}, idempotent=True)
        still: list[_Open] = []
        for file, found in zip(files, answer.data["objects"], strict=True):
            if "error" in found:
                error = _refused(file, found["error"])
                if self._refused is None:
                    self._release(answer.data["objects"])
                    raise error
                self._refused(file, error)
                continue
            self.ids[file.sha256] = found["id"]
            if found["state"] == "complete":
                self._count(file, file.size)
                continue
            present, size = set(found["present"]), int(found["partSize"])
            missing = deque(index for index in range(found["parts"]) if index not in present)
            still.append(_Open(found["id"], file, size, missing, len(missing)))
            self._count(file, sum(min(size, file.size - index * size) for index in present))
        return still

    def _release(self, objects: list[dict[str, Any]]) -> None:
        """Gives back the space that objects without a single part have reserved for an upload that can't be."""

        def delete(found: dict[str, Any]) -> None:
            with contextlib.suppress(ApiError):
                self._transport.request_json("DELETE", f"/objects/{found['id']}", idempotent=True)

        empty = [found for found in objects if found.get("state") == "open" and not found["present"]]
        run_all(empty, delete, self._threads)

    def _send_next(self, item: _Open) -> None:
        """Sends the object's next missing part; the last one asks for completion in the same request."""
        with item.lock:
            index = item.missing.popleft() if item.missing else None
            last = not item.missing
        if index is not None:
            data = _read_part(item, index)
            answer = self._transport.request_json(
                "PUT",
                f"/objects/{item.id}/parts/{index}",
                body=data,
                query={"complete": 1 if last else None},
                headers={"X-Content-SHA256": hashlib.sha256(data).hexdigest()},
            )
            self._count(item.file, len(data))
            with item.lock:
                item.left -= 1
                item.complete = item.complete or answer.data["state"] == "complete"
                if item.left or item.complete:
                    return
        self._transport.request_json("POST", f"/objects/{item.id}/complete", body={}, idempotent=True)

    def _count(self, file: LocalFile, size: int) -> None:
        with self._lock:
            self._sent[file.sha256] = self._sent.get(file.sha256, 0) + size
            if self._progress is not None:
                self._progress(sum(self._sent.values()), self._total)


def _read_part(item: _Open, index: int) -> bytes:
    file, start = item.file, index * item.part_size
    length = min(item.part_size, file.size - start)
    try:
        with file.source.open("rb") as source:
            info = os.fstat(source.fileno())
            if (info.st_size, info.st_mtime_ns) != (file.size, file.mtime_ns):
                raise _changed(file)
            source.seek(start)
            data = source.read(length)
    except OSError as error:
        raise _changed(file) from error
    if len(data) != length:
        raise _changed(file)
    return data


def _changed(file: LocalFile) -> FileChanged:
    text = _("changed while it was being sent")
    return FileChanged(f"{file.path}: {text}", problems=[(file.path, text)], hint=_("Submit again when it is at rest."))


def _refused(file: LocalFile, raw: dict[str, Any]) -> ApiError:
    """An object's error inside a batch answer, as the error of the whole upload."""
    fields = {name: value for name, value in raw.items() if name not in {"code", "message", "retryable"}}
    fields["path"] = file.path
    statuses = {"quota_exceeded": 403, "file_too_large": 413, "insufficient_scope": 403, "rate_limited": 429}
    code = str(raw.get("code", "internal"))
    return ApiError(code, statuses.get(code, 400), f"{file.path}: {raw.get('message', code)}", fields=fields)
