"""The platform for programs and notebooks: `Client()` uses the stored login (CLI-11). The commands stand on it too."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from mingora import credentials, jobfile
from mingora.api_texts import state_text
from mingora.errors import (
    ApiError,
    JobUnfinished,
    MingoraError,
    OutcomeUnknown,
    ProjectError,
    TransportError,
    UsageProblem,
    WaitTimeout,
)
from mingora.i18n import _
from mingora.ignore import Rules
from mingora.jobs import Job
from mingora.logs import LogReader
from mingora.manifest import LocalFile, build
from mingora.patience import Patience
from mingora.transfer import download_files, upload_files
from mingora.transport import Transport

T = TypeVar("T")
Stages = Callable[[str, int, int], None]
"""Called with a stage (`hash`, `upload`, `download`), the bytes done, and the bytes in all."""

# How often a write with an unknown outcome is sent again, each time after asking for the state.
RESENDS = 4
_KEY = re.compile(r"[\x20-\x7e]{1,200}")


class Client:
    """One account on one server. Every method raises errors of mingora.errors."""

    def __init__(
        self,
        server: str | None = None,
        token: str | None = None,
        ca_file: str | None = None,
        *,
        transport: Transport | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        if transport is None:
            if server is None or token is None:
                login = credentials.load()
                server, token, ca_file = server or login.server, token or login.token, ca_file or login.ca_file
            transport = Transport(server, ca_file=ca_file, token=token, sleep=sleep)
        self.transport = transport
        self._clock = clock
        self._sleep = sleep
        self._policy: dict[str, Any] | None = None
        self.on_outage: Callable[[MingoraError], object] | None = None
        """Called when the platform can't be reached while something is waited for; the waiting goes on."""

    # -- submitting -------------------------------------------------------------------------------------------

    def submit(
        self,
        folder: str | Path,
        spec: Mapping[str, Any] | None = None,
        key: str | None = None,
        *,
        progress: Stages | None = None,
    ) -> Job:
        """Sends the folder's files and makes a job of them; `spec` stands in for the folder's job.json.

        The same key with the same content is the same job (CLI-8); with other content it is `ApiError`
        `key_conflict`. Everything is checked before anything is uploaded.
        """
        root = Path(folder)
        key = new_key() if key is None else key
        if not _KEY.fullmatch(key):
            raise UsageProblem(_("A key has 1 to 200 printable ASCII characters."))
        wanted = jobfile.read(root) if spec is None else _plain(spec)
        policy = self.policy()
        jobfile.check(wanted, policy["jobSchema"])
        files = build(
            root, rules=Rules.of(root), limits=policy["limits"], progress=progress and _stage(progress, "hash")
        )
        for again in (False, True):
            inputs = self._upload(files, progress)
            try:
                return self._create(key, wanted, inputs)
            except ApiError as error:
                if error.code != "input_missing" or again:
                    raise
        raise AssertionError("unreachable")

    def _upload(self, files: list[LocalFile], progress: Stages | None) -> list[dict[str, Any]]:
        report = progress and _stage(progress, "upload")
        return upload_files(self.transport, files, kind="input", progress=report)

    def _create(self, key: str, spec: Mapping[str, Any], inputs: list[dict[str, Any]]) -> Job:
        def send() -> Job:
            body = {"spec": spec, "inputs": inputs}
            return self._job("POST", "/jobs", body=body, headers={"Idempotency-Key": key}, idempotent=False)

        def settled() -> None:
            # Whether the job is there or not, sending again is right once the platform answers: it returns the
            # job of that key, or makes it, or says that the key's job has other content.
            self.jobs(key=key)

        hint = _("Submit again with the same key: --key {key}").format(key=key)
        return self._write(send, settled, hint)

    # -- jobs -------------------------------------------------------------------------------------------------

    def jobs(self, *, state: str | None = None, key: str | None = None, limit: int = 50) -> list[Job]:
        """The newest jobs, without spec, inputs and results; at most `limit`."""
        found: list[Job] = []
        before: str | None = None
        while len(found) < limit:
            query = {"limit": min(limit - len(found), 100), "before": before, "state": state, "key": key}
            data = self.transport.request_json("GET", "/jobs", query=query).data
            found += [Job(item) for item in data["jobs"]]
            before = data.get("next")
            if not before or not data["jobs"]:
                break
        return found[:limit]

    def status(self, job_id: str) -> Job:
        """The job now, with spec, inputs and results."""
        return self._job("GET", _path("jobs", job_id))

    def wait(self, job_id: str, timeout: float | None = None, *, on_change: Callable[[Job], None] | None = None) -> Job:
        """The job once it has ended, however it ended. `WaitTimeout` after `timeout` seconds.

        Waiting reads where the server has them, else a look every 10 s; an outage of up to ten minutes is waited out.
        """
        patience = self._patience(timeout)
        job: Job | None = None
        while True:
            query = {} if job is None else {"wait": patience.read_seconds(), "knownState": job["state"]}
            with patience.turn():
                answer = self.transport.request_json("GET", _path("jobs", job_id), query=query)
                changed = job is None or answer.data["state"] != job["state"]
                job = Job(answer.data)
                patience.answered(changed=changed, headers=answer.headers)
                if changed and on_change is not None:
                    on_change(job)
                if job.finished:
                    return job
            if patience.over():
                raise WaitTimeout(_("{job} has not finished in time; it goes on.").format(job=job_id))

    def cancel(self, job_id: str) -> Job:
        """Asks for the job to be stopped; `cancelRequested` or a terminal state in the answer says it is noted."""

        def settled() -> Job | None:
            job = self.status(job_id)
            return job if job.finished or job.get("cancelRequested") else None

        path = _path("jobs", job_id, "cancel")
        return self._write(lambda: self._job("POST", path, body={}, idempotent=False), settled)

    def delete(self, job_id: str) -> None:
        """Deletes an ended job and releases its files."""
        self._delete(_path("jobs", job_id))

    def logs(self, job_id: str, *, rank: int = 0, attempt: int | None = None, tail: int | None = None) -> str:
        """The log so far as text; bytes that aren't UTF-8 are replaced. `tail`: only the last so many bytes."""
        reader = self.log_reader(job_id, rank=rank, attempt=attempt, tail=tail)
        return b"".join(chunk.data for chunk in reader.chunks()).decode("utf-8", "replace")

    def log_reader(
        self, job_id: str, *, rank: int = 0, attempt: int | None = None, tail: int | None = None
    ) -> LogReader:
        """Reads a log in steps, or follows it (see logs.py)."""
        return LogReader(
            self.transport,
            _path("jobs", job_id),
            rank=rank,
            attempt=attempt,
            tail=tail,
            patience=self._patience(None),
        )

    def event_stream(self, job_id: str, *, after: int = 0, follow: bool = False) -> Iterator[dict[str, Any]]:
        """The job's events after number `after`; with `follow` also those to come, until the job is over."""
        patience = self._patience(None)
        while True:
            data: dict[str, Any] = {"events": [], "final": False}
            with patience.turn():
                query = {"after": after, "wait": patience.read_seconds() if follow else None}
                answer = self.transport.request_json("GET", _path("jobs", job_id, "events"), query=query)
                data = answer.data
                if follow and not data["final"]:
                    patience.answered(changed=bool(data["events"]), headers=answer.headers)
            yield from data["events"]
            after = max([after, *(event["seq"] for event in data["events"])])
            if not data["events"] and (data["final"] or not follow):
                return

    def results(
        self, job_id: str, destination: str | Path, *, overwrite: bool = False, progress: Stages | None = None
    ) -> list[Path]:
        """Downloads an ended job's results and returns their paths.

        With results of more than one rank each rank's lie under `rank-N/`. Files that are there and identical are
        kept; others are `ResultConflict` unless `overwrite`. `JobUnfinished` while the job goes on.
        """
        job = self.status(job_id)
        if not job.finished:
            raise JobUnfinished(
                _("{job} has not finished: it is {state}.").format(job=job_id, state=state_text(job["state"])),
                hint=_("Wait for it: mingora wait {job}").format(job=job_id),
            )
        entries = [dict(entry) for entry in job["results"]]
        if len({entry["rank"] for entry in entries}) > 1:
            for entry in entries:
                entry["path"] = f"rank-{int(entry['rank'])}/{entry['path']}"
        report = progress and _stage(progress, "download")
        return download_files(
            self.transport, entries, Path(destination), progress=report, overwrite=overwrite, sleep=self._sleep
        )

    # -- the rest ---------------------------------------------------------------------------------------------

    def policy(self) -> dict[str, Any]:
        """Limits, intervals and job.json's schema, asked once."""
        if self._policy is None:
            self._policy = self.transport.request_json("GET", "/policy").data
        return self._policy

    def account(self) -> dict[str, Any]:
        return dict(self.transport.request_json("GET", "/account").data)

    def nodes(self) -> list[dict[str, Any]]:
        return list(self.transport.request_json("GET", "/nodes").data["nodes"])

    def remove_node(self, node_id: str) -> None:
        """Removes a machine from the account: its tokens are revoked, and a job that it runs is lost."""

        def settled() -> bool | None:
            return None if any(node["id"] == node_id for node in self.nodes()) else True

        self._write(lambda: self._send_delete(_path("nodes", node_id)), settled)

    def explain(self, job_id: str) -> dict[str, Any]:
        return dict(self.transport.request_json("GET", _path("explain", job_id)).data)

    def usage(self) -> dict[str, Any]:
        """`{"bytes", "files", "maxBytes", "maxFiles"}` of the account's objects."""
        return dict(self.transport.request_json("GET", "/objects", query={"limit": 1}).data["usage"])

    def tokens(self) -> list[dict[str, Any]]:
        return list(self.transport.request_json("GET", "/tokens").data["tokens"])

    def revoke_token(self, token_id: str) -> None:
        """Revokes a token. Revoking this client's own ends the client."""

        def settled() -> bool | None:
            try:
                return None if any(token["id"] == token_id for token in self.tokens()) else True
            except ApiError as error:
                return True if error.code == "invalid_token" else None

        self._write(lambda: self._send_delete(_path("tokens", token_id)), settled)

    def _delete(self, path: str) -> None:
        def settled() -> bool | None:
            try:
                self.transport.request_json("GET", path)
            except ApiError as error:
                if error.code == "not_found":
                    return True
                raise
            return None

        self._write(lambda: self._send_delete(path), settled)

    def _send_delete(self, path: str) -> bool:
        self.transport.request_json("DELETE", path, idempotent=False)
        return True

    def _job(self, method: str, path: str, **request: Any) -> Job:
        return Job(self.transport.request_json(method, path, **request).data)

    def _patience(self, timeout: float | None) -> Patience:
        intervals = self.policy()["intervals"]
        return Patience(intervals, timeout, clock=self._clock, sleep=self._sleep, on_outage=self.on_outage)

    def _write(self, send: Callable[[], T], settled: Callable[[], T | None], hint: str | None = None) -> T:
        """Sends a write; when its outcome is unknown, asks for the state before anything is sent again (CLI-10).

        `settled` returns what the write would have returned, if it has happened, else None.
        """
        attempt = 0
        while True:
            attempt += 1
            try:
                return send()
            except OutcomeUnknown as error:
                try:
                    done = settled()
                except (TransportError, ApiError) as second:
                    raise OutcomeUnknown(error.message, error.cause, hint=hint) from second
                if done is not None:
                    return done
                if attempt > RESENDS:
                    raise OutcomeUnknown(error.message, error.cause, hint=hint) from error
                self._sleep(min(8.0, 0.2 * 2.0**attempt))


def new_key() -> str:
    """A submission key that nobody else makes."""
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(6)


def _plain(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec as pure JSON: tuples become lists, and what JSON can't say is refused."""
    try:
        return jobfile.parse(json.dumps(dict(spec), allow_nan=False, ensure_ascii=False).encode())
    except (TypeError, ValueError) as error:
        raise ProjectError(_("The spec is not JSON: {reason}").format(reason=error)) from error


def _path(collection: str, identifier: str, *rest: str) -> str:
    """A URL path with an id in it; what can't be an id never reaches the server."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,100}", identifier):
        raise UsageProblem(_("{id} is not an id.").format(id=repr(identifier)))
    return "/" + "/".join([collection, identifier, *rest])


def _stage(report: Stages, name: str) -> Callable[[int, int], None]:
    return lambda done, total: report(name, done, total)
