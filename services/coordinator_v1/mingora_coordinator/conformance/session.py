"""What the checks share: the coordinator, the tester's nicknames, and the questions that many of them ask."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mingora_coordinator.conformance.client import Answer, Client, NoAnswer, NotJson, printable
from mingora_coordinator.conformance.results import Adapter
from mingora_coordinator.conformance.rules import Skipped, expect
from mingora_coordinator.conformance.shapes import TASK, wrong_fields

# The routes whose errors have the protocol's form. What a coordinator answers where it has no route is its own affair.
ROUTES = ("/durum", "/gorev", "/agirlik", "/sonuc")
PATIENCE = 60.0  # seconds for the coordinator to publish what it has
PAUSE = 0.2  # seconds until a coordinator that closes a round is asked again
TRIES = 5  # where a round of a live coordinator may close between two requests
# A file without tensors: as small as a well-formed one can be, and no coordinator's adapter.
NO_TENSORS = (8).to_bytes(8, "little") + b"{}      "


@dataclass(frozen=True, slots=True)
class Task:
    """What /gorev asks for."""

    round: int
    total: int
    digest: str
    answer: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sent:
    """A result that was accepted: by whom, and for which round."""

    name: str
    round: int


@dataclass(frozen=True, slots=True)
class Download:
    """An answer of /agirlik, and what /durum said the round was, before it and after; None where that's unknown."""

    weights: Answer
    round: object

    @property
    def digest(self) -> str:
        """The SHA-256 of the body, whatever X-Sha256 says."""
        return hashlib.sha256(self.weights.body).hexdigest()


@dataclass(frozen=True, slots=True)
class Published:
    """What is kept of the weights that a closed round left: ``damaged`` names a tensor that isn't finite."""

    round: object
    x_tur: str
    x_sha256: str
    digest: str
    damaged: str | None


class Session:
    """One run of the conformance test."""

    def __init__(self, client: Client, token: str) -> None:
        """``token`` makes the nicknames of this run its own."""
        self.client, self._token = client, token
        self.errors: list[Answer] = []
        self.sent: Sent | None = None
        # Answers to results that were accepted, each with the round that the result was for.
        self.accepted: list[tuple[Answer, int]] = []
        self.published: list[Published] = []
        # Something that mustn't be was accepted: the round may contain it.
        self.taken = False
        self._names = 0
        self._down = False  # it answered 503 for as long as that is waited for
        self._stuck: object = None  # the round in which a worker without a result waited in vain
        # Who reads: one for all checks, because each new worker may be given a slice of the data.
        self.observer = self.name("okur")

    def name(self, label: str) -> str:
        """A nickname that nobody has; all of the same label begin alike."""
        self._names += 1
        return f"{self.names_of(label)}{self._names}"

    def names_of(self, label: str) -> str:
        """How the nicknames of this label begin."""
        return f"uyum-{self._token}-{label}-"

    def get(self, path: str, **parameters: object) -> Answer:
        """GET with the key; 503 is waited for: a round may be closing."""
        return self._patient(lambda: self.client.get(path, parameters))

    def post(self, body: bytes, **parameters: object) -> Answer:
        """POST /sonuc with the key; 503 is waited for."""
        return self._patient(lambda: self.client.post("/sonuc", parameters, body))

    def offer(self, body: bytes, name: str, number: int) -> Answer | None:
        """A new worker's result for round ``number``; None where it isn't asked for one, or not now."""
        asked = self._seen(self.client.get("/gorev", {"isci": name}))
        if asked.status == 503:
            return None
        expect(asked.status == 200, "200 to GET /gorev", asked.shown)
        told = object_of(asked)
        if told.get("tur") != number or told.get("bekle") is True:
            return None
        answer = self._seen(self.client.post("/sonuc", {"isci": name, "tur": number}, body))
        return None if answer.status in (409, 503) else answer

    def weights(self) -> Answer:
        """GET /agirlik with the key; 503 is waited for."""
        return self._patient(self.client.weights)

    def told(self, path: str, **parameters: object) -> dict[str, Any]:
        """The object of a GET; it is a violation if there is none."""
        answer = self.get(path, **parameters)
        expect(answer.status == 200, f"200 to GET {path}", answer.shown)
        return object_of(answer)

    def asked(self, name: str) -> dict[str, Any]:
        """What /gorev tells a worker without a result; bekle is waited for: a round may be closing."""
        deadline = time.monotonic() + PATIENCE
        while True:
            told = self.told("/gorev", isci=name)
            if told.get("bekle") is not True or told.get("tur", 0) == self._stuck:
                return told
            if time.monotonic() > deadline:
                self._stuck = told.get("tur", 0)
                return told
            time.sleep(PAUSE)

    def task(self, name: str) -> Task:
        """The worker's task; skips where there is none, and is a violation where /gorev answers something else."""
        told = self.asked(name)
        if told.get("bitti") is True:
            raise Skipped("the training is over: there are no tasks")
        if told.get("bekle") is True:
            raise Skipped("the worker is told to wait, and gets no task")
        wrong = wrong_fields(told, TASK)
        expect(not wrong, "a task with all of its fields", f"missing or of another form: {', '.join(wrong)}")
        return Task(told["tur"], told["toplam_tur"], told["agirlik_sha256"], told)

    def agree(self, body: bytes) -> None:
        """A violation unless /gorev names ``body``, which /agirlik sent, or what it sends after a round's closing."""
        for _ in range(TRIES):
            task, digest = self.task(self.observer), hashlib.sha256(body).hexdigest()
            if digest == task.digest:
                return
            weights = self.weights()
            expect(weights.status == 200, "200 to GET /agirlik", weights.shown)
            expect(weights.body != body, f"a body of {task.digest}, as /gorev says", digest)
            body = weights.body
        raise Skipped(f"a round closed during each of {TRIES} downloads")

    def submit(self, body: bytes, name: str) -> tuple[Answer, Task]:
        """Send a result for the current round, again if the round closes meanwhile."""
        for _ in range(TRIES):
            task = self.task(name)
            answer = self.post(body, isci=name, tur=task.round)
            if answer.status != 409 or self.told("/durum").get("tur") == task.round:
                return answer, task
        raise Skipped(f"a round closed during each of {TRIES} uploads")

    def not_taken(self, answer: Answer, expected: str) -> None:
        """What had to be refused was accepted: that ends the test, before it does more harm."""
        self.taken = answer.status == 200
        seen = f"{answer.shown}: it was accepted, and the round may contain it now; nothing more is asked"
        expect(not self.taken, expected, seen)

    @cached_property
    def stale(self) -> int:
        """A round that isn't, and will not be, the current one."""
        total = self.told("/durum").get("toplam_tur")
        return (total if type(total) is int and 0 < total < 10**6 else 10**6) + 1000

    @cached_property
    def key_required(self) -> bool:
        """Whether a request without a key is refused."""
        client = self.client.bearing(None)
        return any(client.get(path, {"isci": self.observer}).status == 401 for path in ("/durum", "/gorev"))

    @cached_property
    def download(self) -> Download:
        """/agirlik, once for all who look at it."""
        return self.fetch()

    def fetch(self) -> Download:
        """/agirlik as it is now."""
        for _ in range(TRIES):
            before, weights, after = self._round(), self.weights(), self._round()
            if before == after:
                break
        return Download(weights, after if before == after else None)

    @cached_property
    def adapter(self) -> Adapter:
        """What results are made of."""
        try:
            return Adapter(self.download.weights.body)
        except ValueError as error:
            raise Skipped(f"results can't be made of what /agirlik sends: {printable(str(error))}") from None

    def _round(self) -> object:
        try:
            told = self.get("/durum").json()
        except (NoAnswer, NotJson):
            return None
        return told.get("tur") if isinstance(told, dict) else None

    def _patient(self, ask: Callable[[], Answer]) -> Answer:
        deadline = time.monotonic() + PATIENCE
        while (answer := self._seen(ask())).status == 503 and not self._down:
            self._down = time.monotonic() > deadline
            time.sleep(PAUSE)
        return answer

    def _seen(self, answer: Answer) -> Answer:
        if answer.status >= 400 and answer.path in ROUTES:
            self.errors.append(answer)
        return answer


def object_of(answer: Answer) -> dict[str, Any]:
    """The answer's JSON object; it is a violation if there is none."""
    try:
        told = answer.json()
    except NotJson:
        told = None
    expect(isinstance(told, dict), "a JSON object in UTF-8", answer.shown)
    assert isinstance(told, dict)
    return told
