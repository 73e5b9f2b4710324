"""Sends files as objects: asks what the account has, then sends the missing parts over several connections."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from mingora.errors import ApiError, FileChanged, IntegrityError, MingoraError, RateLimited
from mingora.i18n import _
from mingora.manifest import LocalFile, Progress, hash_file
from mingora.transport import Transport

BATCH = 1000
THREADS = 8


def upload_files(
    transport: Transport,
    files: Sequence[LocalFile],
    *,
    kind: Literal["input", "result"],
    progress: Progress | None = None,
    threads: int = THREADS,
) -> list[dict[str, Any]]:
    """Makes every file a complete object of the account and returns the file entries of docs/protocol.md, in order.

    Equal files are sent once; parts that a former, broken-off upload left are kept. `progress` counts the bytes of
    different contents. Raises `FileChanged` naming a file that isn't what was hashed, `ApiError` for refusals.
    """
    contents = {(item.sha256, item.size): item for item in files}
    upload = _Upload(transport, list(contents.values()), kind, progress)
    upload.run(threads)
    return [
        {
            "path": item.path,
            "objectId": upload.ids[item.sha256],
            "size": item.size,
            "sha256": item.sha256,
            "executable": item.executable,
        }
        for item in files
    ]


@dataclass
class _Object:
    """An open object while its missing parts are on their way."""

    id: str
    file: LocalFile
    part_size: int
    queue: deque[int]
    left: int
    complete: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class _Upload:
    def __init__(
        self, transport: Transport, files: list[LocalFile], kind: str, progress: Progress | None
    ) -> None:
        self.transport = transport
        self.files = files
        self.kind = kind
        self.progress = progress
        self.ids: dict[str, str] = {}
        self.total = sum(item.size for item in files)
        self.done = 0
        self.lock = threading.Lock()
        self.failure: BaseException | None = None

    def run(self, threads: int) -> None:
        objects = list(self._open())
        tasks = deque((item, index) for item in objects for index in (item.queue or [-1]))
        self._in_threads(tasks, threads)
        if self.failure is not None:
            raise self.failure

    def _open(self) -> Iterator[_Object]:
        for start in range(0, len(self.files), BATCH):
            batch = self.files[start : start + BATCH]
            body = {"objects": [{"size": f.size, "sha256": f.sha256, "kind": self.kind} for f in batch]}
            answer = self.transport.request_json("POST", "/objects/batch", body=body, idempotent=True)
            for file, found in zip(batch, answer.data["objects"], strict=True):
                if "error" in found:
                    raise _refused(file, found["error"])
                self.ids[file.sha256] = found["id"]
                if found["state"] == "complete":
                    self._advance(file.size)
                else:
                    yield self._opened(file, found)

    def _opened(self, file: LocalFile, found: dict[str, Any]) -> _Object:
        present = set(found["present"])
        missing = deque(index for index in range(found["parts"]) if index not in present)
        size = int(found["partSize"])
        self._advance(sum(_part_length(file.size, size, index) for index in present))
        return _Object(found["id"], file, size, missing, len(missing))

    def _in_threads(self, tasks: deque[tuple[_Object, int]], threads: int) -> None:
        def work() -> None:
            while self.failure is None:
                try:
                    item, index = tasks.popleft()
                except IndexError:
                    return
                try:
                    self._send(item, index)
                except BaseException as error:
                    self.failure = self.failure or error

        count = min(threads, len(tasks))
        pool = [threading.Thread(target=work, name=f"upload-{n}", daemon=True) for n in range(count)]
        for thread in pool:
            thread.start()
        try:
            for thread in pool:
                thread.join()
        except KeyboardInterrupt as error:
            self.failure = error
            raise

    def _send(self, item: _Object, index: int) -> None:
        """Sends one part; -1 stands for an object that lacks nothing but its completion."""
        if index < 0:
            self._complete(item)
            return
        data = _read_part(item, index)
        with item.lock:
            item.queue.remove(index)
            last = not item.queue
        try:
            answer = self.transport.request_json_part(
                f"/objects/{item.id}/parts/{index}", data, hashlib.sha256(data).hexdigest(), complete=last
            )
            completed = answer.data["state"] == "complete"
        except ApiError as error:
            if error.code not in {"part_conflict", "digest_mismatch", "object_frozen"}:
                raise
            completed = self._settle(item, error)
        self._advance(len(data))
        with item.lock:
            item.left -= 1
            item.complete = item.complete or completed
            finish = item.left == 0 and not item.complete
        if finish:
            self._complete(item)
