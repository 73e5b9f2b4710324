"""The volunteer's loop: ask for a task, fetch the adapter, train, send the result, begin again.

Source: coordinator protocol v1, "İşçi ne yapar?". A coordinator that is away is waited for, for ever; a result whose
arrival is unclear is kept until the next task shows whether it is still wanted.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mingora.errors import ApiError, InsecureServer, MingoraError, TlsError, TransportError
from mingora_volunteer.messages import BadAnswer, Done, Info, Task, Wait
from mingora_volunteer.texts import _
from mingora_worker.backoff import Backoff

FIRST_POLL_SECONDS = 2.0
LONGEST_POLL_SECONDS = 10.0
TICK_SECONDS = 0.2
_PASSING = frozenset({408, 429})


class Diverged(MingoraError):
    """The training came to numbers that aren't finite: there is no result."""


class CoordinatorPort(Protocol):
    """The coordinator as `protocol.Coordinator` reaches it."""

    def info(self) -> Info: ...
    def task(self) -> Task | Wait | Done: ...
    def adapter(self, digest: str, progress: Callable[[int, int], None]) -> Path: ...
    def send(self, number: int, result: Path, progress: Callable[[int, int], None]) -> None: ...


class TrainerPort(Protocol):
    """Trains one round from the adapter's file and gives the result's. Raises `Diverged`, or `MingoraError` for what
    only the volunteer can put right."""

    def train(self, task: Task, info: Info, adapter: Path, on_step: Callable[[int, int, float], None]) -> Path: ...


class DisplayPort(Protocol):
    """What the loop tells people; see `display.Display`."""

    def note(self, text: str) -> None: ...
    def trouble(self, error: MingoraError) -> None: ...
    def relief(self) -> None: ...
    def downloading(self, done: int, total: int) -> None: ...
    def uploading(self, done: int, total: int) -> None: ...
    def training(self, done: int, total: int, loss: float) -> None: ...


class StopPort(Protocol):
    """See `stop.Stop`."""

    requested: bool
    finishing: str | None


@dataclass(frozen=True)
class _Result:
    task: Task
    file: Path


class Volunteer:
    """`courtesy` is called before each step and may wait, for whoever else uses the machine. `spread(low, high)` gives
    the jitter, `clock` seconds."""

    def __init__(
        self,
        coordinator: CoordinatorPort,
        trainer: TrainerPort,
        display: DisplayPort,
        stop: StopPort,
        *,
        courtesy: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
        spread: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._coordinator = coordinator
        self._trainer = trainer
        self._display = display
        self._stop = stop
        self._courtesy = courtesy
        self._clock = clock
        self._sleep = sleep
        self._spread = spread
        self._backoff = Backoff(spread)
        self._polls = 0
        self._answered = False
        self._base_model: str | None = None
        self._result: _Result | None = None
        # The round last accepted, as number and digest, and whether its being asked for again was waited out.
        self._accepted: tuple[int, str] | None = None
        self._asked_again = False

    def run(self) -> None:
        """Works until the training is over or a stop is asked for; a result in hand is sent first.

        Raises `ApiError` for a key that isn't taken, and, before the coordinator's first good answer, whatever waiting
        wouldn't cure; later that is waited out as well.
        """
        while self._result is not None or not self._stop.requested:
            try:
                if self._turn():
                    return
            except (TransportError, ApiError, BadAnswer, Diverged) as error:
                if _unauthorised(error) or not (self._answered or _passes(error)):
                    raise
                self._display.trouble(error)
                self._pause(self._backoff.failed(error))

    def _turn(self) -> bool:
        """One task asked for and dealt with; True when the training is over."""
        answer = self._coordinator.task()
        self._answered = True
        if isinstance(answer, Done):
            self._display.note(_("The training is over. Thank you."))
            return True
        if isinstance(answer, Wait):
            self._wait(answer)
        elif self._result is not None and _round(self._result.task) == _round(answer):
            self._deliver(self._result)  # also when the coordinator gives another slice by now
        elif self._result is not None:
            text = _("The result of round {round} came too late.")
            self._display.note(text.format(round=self._result.task.round))
            self._drop()
        else:
            self._polls = 0
            self._heed_repetition(answer)
            self._work(answer)
        return False

    def _heed_repetition(self, task: Task) -> None:
        """A round whose result was accepted may be asked for again, as after a rollback, but ever less often."""
        if _round(task) == self._accepted and not self._asked_again:
            self._asked_again = True
            raise BadAnswer(_("The coordinator asks again for a result that it accepted."))
        self._asked_again = False

    def _wait(self, answer: Wait) -> None:
        if self._result is not None:
            if self._result.task.round == answer.round:
                self._display.note(_("The result of round {round} has arrived.").format(round=answer.round))
            self._drop()
        self._backoff.succeeded()
        self._display.relief()
        if self._polls == 0:
            self._display.note(_("Waiting for the others' results."))
        longest = min(LONGEST_POLL_SECONDS, FIRST_POLL_SECONDS * 1.5 ** min(self._polls, 10))
        self._polls += 1
        self._pause(self._spread(longest / 2, longest))

    def _work(self, task: Task) -> None:
        info = self._coordinator.info()
        if info.base_model is not None and info.base_model != self._base_model:
            self._base_model = info.base_model
            self._display.note(_("The coordinator's base model: {name}").format(name=info.base_model))
        adapter = self._coordinator.adapter(task.digest, self._display.downloading)
        self._display.relief()
        if self._stop.requested:
            return
        text = _("Round {round} (of {rounds}): slice {part} (of {parts}) of the data, {steps} steps.")
        self._display.note(
            text.format(round=task.round, rounds=task.rounds, part=task.part, parts=task.parts, steps=task.steps)
        )
        self._courtesy()
        self._stop.finishing = _("Stopping after this round. Ctrl-C once more abandons it.")
        try:
            self._result = _Result(task, self._trainer.train(task, info, adapter, self._on_step))
        except BaseException:
            self._stop.finishing = None
            raise
        self._stop.finishing = _("Stopping once the result is delivered. Ctrl-C once more abandons it.")
        self._deliver(self._result)

    def _on_step(self, done: int, total: int, loss: float) -> None:
        self._display.training(done, total, loss)
        if done < total:
            self._courtesy()

    def _deliver(self, result: _Result) -> None:
        try:
            self._coordinator.send(result.task.round, result.file, self._display.uploading)
        except ApiError as error:
            if _unauthorised(error) or not 400 <= error.status < 500:
                raise
            # Without its result the round begins anew: at once when another has begun, else after a while.
            self._drop()
            text = _("The result of round {round} wasn't taken: {reason}")
            self._display.note(text.format(round=result.task.round, reason=error.message))
            if error.status != 409:
                self._pause(self._backoff.failed(error))
            return
        self._drop()
        if self._accepted != _round(result.task):
            self._backoff.succeeded()
        self._accepted = _round(result.task)
        self._display.relief()
        self._display.note(_("The result of round {round} was accepted.").format(round=result.task.round))

    def _drop(self) -> None:
        """There is no result in hand any more."""
        self._result = None
        self._stop.finishing = None

    def _pause(self, seconds: float) -> None:
        """Sleeps, unless a stop is asked for and no result waits to be sent."""
        end = self._clock() + seconds
        while (self._result is not None or not self._stop.requested) and (left := end - self._clock()) > 0:
            self._sleep(min(left, TICK_SECONDS))


def _round(task: Task) -> tuple[int, str]:
    """What makes two tasks one round, for which one result is wanted."""
    return task.round, task.digest


def _unauthorised(error: MingoraError) -> bool:
    return isinstance(error, ApiError) and error.status == 401


def _passes(error: MingoraError) -> bool:
    """Whether waiting may cure it at a coordinator that has never answered well."""
    if isinstance(error, ApiError):
        return error.status >= 500 or error.status in _PASSING
    return isinstance(error, TransportError) and not isinstance(error, InsecureServer | TlsError)
