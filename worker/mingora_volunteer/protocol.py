"""The coordinator's calls of protocol v1, and the adapter file that a broken download goes on with."""

from __future__ import annotations

import hashlib
import http.client
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mingora.answers import headers_of, read_all, steps
from mingora.errors import ApiError, LostAnswer
from mingora_volunteer import __version__
from mingora_volunteer.exchange import Exchanger, Sender
from mingora_volunteer.messages import BadAnswer, Done, Info, Task, Wait, info_of, task_of
from mingora_volunteer.pace import Pace
from mingora_volunteer.texts import _

MAX_JSON_BYTES = 256 * 1024
MAX_ADAPTER_BYTES = 4 << 30
MAX_QUESTION = 2000
BINARY = "application/octet-stream"
# What may become another answer by and by, or says that the key is wrong.
_ABOUT_THE_REQUEST = frozenset({401, 408, 429})

Progress = Callable[[int, int], None]


class Coordinator:
    """One coordinator, as seen by the volunteer `name`. `folder` holds the adapter; `max_upload` is in bytes a second.

    Every call raises `TransportError` when no whole answer came, `ApiError` for an error answer and `BadAnswer` for
    one that isn't the protocol's.
    """

    def __init__(
        self,
        exchanger: Exchanger,
        name: str,
        folder: Path,
        *,
        max_upload: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._exchanger = exchanger
        self._name = name
        self._max_upload = max_upload
        self._clock = clock
        self._sleep = sleep
        self._adapter = _AdapterFile(folder / "adapter.safetensors")

    def info(self) -> Info:
        """`GET /bilgi`, which a coordinator need not have."""
        try:
            return info_of(self._json("GET", "/bilgi"))
        except ApiError as error:
            there_is_none = 400 <= error.status < 500 and error.status not in _ABOUT_THE_REQUEST
            if there_is_none or error.status == 501:
                return Info()
            raise

    def task(self) -> Task | Wait | Done:
        """`GET /gorev`."""
        return task_of(self._json("GET", "/gorev", query={"isci": self._name}))

    def adapter(self, digest: str, progress: Progress) -> Path:
        """The adapter with that SHA-256, by `GET /agirlik`; `BadAnswer` when the coordinator sends another.

        What a broken download left is gone on with when the same digest is asked for again.
        """
        file = self._adapter
        file.turn_to(digest)
        if not file.whole:
            try:
                headers = file.range_headers()
                with self._exchanger.exchange("GET", "/agirlik", headers=headers, streamed=True) as response:
                    file.receive(response, progress)
            except ApiError as error:
                if error.status == 416:  # what is here is no beginning of what is there
                    file.forget()
                raise
        return file.checked()

    def send(self, number: int, result: Path, progress: Progress) -> None:
        """`POST /sonuc` of round `number`, no faster than `max_upload`."""
        size = result.stat().st_size

        def send(connection: http.client.HTTPConnection) -> None:
            pace = Pace(self._max_upload, clock=self._clock, sleep=self._sleep)
            done = 0
            with result.open("rb") as file:
                while block := file.read(pace.block):
                    connection.send(block)
                    done += len(block)
                    progress(done, size)
                    pace.sent(len(block))

        query = {"isci": self._name, "tur": str(number)}
        answer = self._json("POST", "/sonuc", query=query, size=size, content_type=BINARY, send=send)
        if not isinstance(answer, dict) or answer.get("tamam") is not True:
            raise LostAnswer(_("The coordinator doesn't say whether it took the result."))

    def ask(self, question: str) -> int | None:
        """`POST /soru`. The question's number, where the coordinator tells one."""
        body = json.dumps(
            {"soru": question, "isci": self._name, "surum": __version__, "baglam": ""}, ensure_ascii=False
        ).encode()
        answer = self._json(
            "POST", "/soru", size=len(body), content_type="application/json", send=lambda to: to.send(body)
        )
        if not isinstance(answer, dict) or answer.get("tamam") is not True:
            raise LostAnswer(_("The coordinator doesn't say whether it took the question."))
        number = answer.get("no")
        return number if type(number) is int else None

    def _json(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        size: int = 0,
        content_type: str | None = None,
        send: Sender | None = None,
    ) -> Any:
        headers = {} if content_type is None else {"Content-Type": content_type, "Content-Length": str(size)}
        with self._exchanger.exchange(method, path, query=query, headers=headers, send=send) as response:
            body = read_all(response, MAX_JSON_BYTES)
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise BadAnswer(
                _("The answer to {path} isn't JSON.").format(path=path),
                hint=_("Is this the coordinator's address?"),
            ) from error


class _AdapterFile:
    """The file of one digest: received in one go or several, and checked once it is whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._digest = ""
        self._etag: str | None = None
        self.whole = False

    def turn_to(self, digest: str) -> None:
        """From now on the file is the one of `digest`; what there was of another is forgotten."""
        if digest != self._digest:
            self.forget()
            self._digest = digest

    def range_headers(self) -> dict[str, str]:
        """Asks for what is missing, if the coordinator's adapter is still the one that was begun."""
        have = self._path.stat().st_size if self._path.exists() else 0
        if not have or self._etag is None:
            return {}
        return {"Range": f"bytes={have}-", "If-Range": self._etag}

    def receive(self, response: http.client.HTTPResponse, progress: Progress) -> None:
        """Writes an answer's body. Raises `LostAnswer` when it breaks off or is too long."""
        headers = headers_of(response)
        have = 0
        if response.status == 206:
            have = self._path.stat().st_size if self._path.exists() else 0
            if not headers.get("content-range", "").startswith(f"bytes {have}-"):
                self.forget()
                raise LostAnswer(_("The coordinator sent another part of the adapter than was asked for."))
        self._etag = _strong(headers.get("etag"))
        total = have + (response.length or 0)
        with self._path.open("ab" if have else "wb") as file:
            for block in steps(response):
                have += len(block)
                if max(have, total) > MAX_ADAPTER_BYTES:
                    self.forget()
                    raise LostAnswer(_("The coordinator's adapter is too large."))
                file.write(block)
                progress(have, max(total, have))
        self.whole = True

    def checked(self) -> Path:
        """The file if its SHA-256 is the digest; else it is forgotten, and `BadAnswer` raised."""
        with self._path.open("rb") as file:
            found = hashlib.sha256()
            while block := file.read(1 << 20):
                found.update(block)
        if found.hexdigest() == self._digest:
            return self._path
        self.forget()
        raise BadAnswer(_("The adapter isn't the one of the task: the round may have ended."))

    def forget(self) -> None:
        self._path.unlink(missing_ok=True)
        self._digest, self._etag, self.whole = "", None, False


def _strong(etag: str | None) -> str | None:
    """A validator that If-Range may carry (RFC 9110, 13.1.5): not a weak one."""
    if etag is None or not 3 <= len(etag) <= 256 or not etag.isascii() or not etag.isprintable():
        return None
    return etag if etag.startswith('"') and etag.endswith('"') else None
