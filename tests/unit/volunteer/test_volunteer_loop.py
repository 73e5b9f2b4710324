"""The loop of the protocol page, against a coordinator that answers by a script and a clock that is set by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mingora.errors import ApiError, LostAnswer, MingoraError, NotSent, TlsError
from mingora_volunteer.loop import Diverged, Volunteer
from mingora_volunteer.messages import BadAnswer, Done, Info, Task, Wait
from mingora_volunteer.stop import Abandoned, Stop

TASK = Task(0, 2, 1, 3, 20, 4, 64, 1e-3, 0, "a" * 64)
NEXT = replace(TASK, round=1, digest="b" * 64)


@dataclass
class World:
    """A coordinator, a trainer, a display and a clock; `said` is everything that happened, in order."""

    tasks: list[Any]
    sends: list[Any] = field(default_factory=list)
    adapters: list[Any] = field(default_factory=list)
    trainings: list[Any] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    slept: float = 0.0
    on_sleep: Callable[[], None] = lambda: None

    def _next(self, script: list[Any], otherwise: Any) -> Any:
        answer = script.pop(0) if script else otherwise
        if isinstance(answer, Exception):
            raise answer
        if callable(answer):
            answer = answer()
        return answer

    def info(self) -> Info:
        return Info("Tiny/Base")

    def task(self) -> Task | Wait | Done:
        self.said.append("ask")
        answer = self._next(self.tasks, Done())
        assert isinstance(answer, Task | Wait | Done)
        return answer

    def adapter(self, digest: str, progress: Callable[[int, int], None]) -> Path:
        self.said.append(f"fetch {digest[0]}")
        self._next(self.adapters, None)
        return Path(f"adapter-{digest[0]}")

    def send(self, number: int, result: Path, progress: Callable[[int, int], None]) -> None:
        self.said.append(f"send {number} {result}")
        self._next(self.sends, None)

    def train(self, task: Task, info: Info, adapter: Path, on_step: Callable[[int, int, float], None]) -> Path:
        self.said.append(f"train {task.round} on {adapter}")
        for step in range(task.steps):
            on_step(step + 1, task.steps, 1.0)
        self._next(self.trainings, None)
        return Path(f"result-{task.round}")

    def note(self, text: str) -> None:
        self.said.append(f"note: {text}")

    def trouble(self, error: MingoraError) -> None:
        self.said.append(f"trouble: {error.message}")

    def relief(self) -> None: ...

    def downloading(self, done: int, total: int) -> None: ...

    def uploading(self, done: int, total: int) -> None: ...

    def training(self, done: int, total: int, loss: float) -> None: ...

    def clock(self) -> float:
        return self.slept

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.slept += seconds
        self.on_sleep()

    def done(self, *words: str) -> list[str]:
        """What was done, without what was told."""
        return [line for line in self.said if line.startswith(words or ("ask", "fetch", "train", "send"))]


def work(world: World, stop: Stop | None = None, **more: Any) -> World:
    volunteer = Volunteer(
        world,
        world,
        world,
        stop or Stop(),
        clock=world.clock,
        sleep=world.sleep,
        spread=lambda _low, high: high,
        **more,
    )
    volunteer.run()
    return world


@pytest.mark.req("VOL-1")
def test_the_loop_of_the_protocol_page() -> None:
    world = work(World([TASK, Wait(0), NEXT, Done()]))
    assert world.done() == [
        *("ask", "fetch a", "train 0 on adapter-a", "send 0 result-0"),
        *("ask", "ask", "fetch b", "train 1 on adapter-b", "send 1 result-1"),
        "ask",
    ]
    assert 1.0 <= world.slept <= 10.0  # the one wait: a few seconds


@pytest.mark.req("VOL-1")
def test_waiting_grows_to_ten_seconds_and_begins_anew_with_a_task() -> None:
    world = work(World([Wait(0)] * 50))
    assert 300 < world.slept < 500
    before = work(World([Wait(0)] * 20)).slept
    assert work(World([*[Wait(0)] * 20, TASK, Wait(0)])).slept - before == pytest.approx(2.0)


@pytest.mark.req("VOL-1")
@pytest.mark.parametrize("status", [400, 404, 409, 413, 422, 429])
def test_a_4xx_result_is_dropped_and_the_loop_starts_over(status: int) -> None:
    world = work(World([TASK, TASK], sends=[ApiError("refused", status, "no")]))
    assert world.done() == [*("ask", "fetch a", "train 0 on adapter-a", "send 0 result-0") * 2, "ask"]
    assert (world.slept == 0) == (status == 409)


@pytest.mark.req("VOL-1")
def test_a_coordinator_that_refuses_for_ever_is_asked_ever_less() -> None:
    stop = Stop()
    world = World([TASK] * 100, sends=[ApiError("refused", 422, "no")] * 100)

    def look() -> None:
        stop.requested = world.slept > 600

    world.on_sleep = look
    work(world, stop)
    assert 15 < len(world.done("send")) < 40


@pytest.mark.req("VOL-1")
def test_401_ends_the_volunteer_whatever_was_asked() -> None:
    refused = ApiError("http_401", 401, "401 yetkisiz")
    for world in (World([refused]), World([TASK], sends=[refused]), World([TASK], adapters=[refused])):
        with pytest.raises(ApiError) as caught:
            work(world)
        assert caught.value is refused and caught.value.exit_code == 3


AWAY = [NotSent("away"), LostAnswer("cut"), ApiError("http_503", 503, "busy"), ApiError("http_429", 429, "slow down")]


@pytest.mark.req("VOL-1")
@pytest.mark.parametrize("error", AWAY, ids=lambda error: error.message)
def test_a_coordinator_that_is_away_is_waited_for(error: MingoraError) -> None:
    world = work(World([error] * 100 + [TASK]))
    assert world.done() == [*["ask"] * 101, "fetch a", "train 0 on adapter-a", "send 0 result-0", "ask"]
    assert world.slept > 100 * 20


@pytest.mark.req("VOL-1")
def test_a_retry_after_is_the_least_to_be_waited() -> None:
    world = work(World([ApiError("http_503", 503, "busy", retry_after=300.0), Done()]))
    assert world.slept >= 300


HOPELESS = [TlsError("no trust"), ApiError("http_404", 404, "no"), ApiError("http_301", 301, "moved"), BadAnswer("?")]


@pytest.mark.req("VOL-1")
@pytest.mark.parametrize("error", HOPELESS, ids=lambda error: error.message)
def test_what_waiting_would_not_cure_ends_the_start_but_not_the_training(error: MingoraError) -> None:
    with pytest.raises(type(error)):
        work(World([error]))
    with pytest.raises(type(error)):
        work(World([NotSent("away"), error]))
    world = work(World([Wait(0), error, TASK]))
    assert world.done("send") == ["send 0 result-0"]


@pytest.mark.req("VOL-1")
def test_an_adapter_of_another_round_leads_back_to_the_task() -> None:
    world = work(World([TASK, NEXT], adapters=[BadAnswer("another digest")]))
    assert world.done() == ["ask", "fetch a", "ask", "fetch b", "train 1 on adapter-b", "send 1 result-1", "ask"]


@pytest.mark.req("VOL-1")
def test_a_broken_download_asks_for_the_task_before_it_goes_on() -> None:
    world = work(World([TASK, TASK], adapters=[LostAnswer("cut")]))
    assert world.done() == ["ask", "fetch a", "ask", "fetch a", "train 0 on adapter-a", "send 0 result-0", "ask"]


@pytest.mark.req("VOL-1")
def test_a_result_whose_arrival_is_unclear_is_sent_again_only_when_it_is_still_wanted() -> None:
    wanted = work(World([TASK, TASK], sends=[LostAnswer("cut")]))
    assert wanted.done() == [
        *("ask", "fetch a", "train 0 on adapter-a", "send 0 result-0"),
        *("ask", "send 0 result-0", "ask"),
    ]
    arrived = work(World([TASK, Wait(0)], sends=[ApiError("http_500", 500, "oops")]))
    assert arrived.done("train", "send") == ["train 0 on adapter-a", "send 0 result-0"]
    assert "note: The result of round 0 has arrived." in arrived.said
    late = work(World([TASK, NEXT, NEXT], sends=[LostAnswer("cut")]))
    assert late.done("send") == ["send 0 result-0", "send 1 result-1"]


@pytest.mark.req("VOL-1")
def test_a_training_that_went_out_of_bounds_sends_nothing() -> None:
    world = work(World([TASK, NEXT], trainings=[Diverged("not finite")]))
    assert world.done("send") == ["send 1 result-1"]


@pytest.mark.req("VOL-1")
def test_what_only_the_volunteer_can_put_right_ends_the_loop() -> None:
    with pytest.raises(MingoraError, match="too little data"):
        work(World([TASK], trainings=[MingoraError("too little data")]))


@pytest.mark.req("VOL-1")
def test_a_clean_stop_finishes_the_round() -> None:
    stop = Stop()

    def ask_to_stop() -> None:
        stop.requested = True

    world = World([TASK, TASK, Wait(0), NEXT], trainings=[ask_to_stop], sends=[LostAnswer("cut")])
    work(world, stop)
    assert world.done() == ["ask", "fetch a", "train 0 on adapter-a", "send 0 result-0", "ask", "send 0 result-0"]


@pytest.mark.req("VOL-1")
def test_a_stop_while_a_coordinator_is_away_still_waits_for_it_with_a_result() -> None:
    stop = Stop()
    world = World([TASK, *[NotSent("away")] * 5, TASK, NEXT])
    world.trainings = [lambda: setattr(stop, "requested", True)]
    world.sends = [LostAnswer("cut")]
    work(world, stop)
    assert world.done("send") == ["send 0 result-0"] * 2
    assert world.slept > 10


@pytest.mark.req("VOL-1")
def test_a_stop_without_a_result_ends_the_waiting_and_begins_no_training() -> None:
    stop = Stop()
    world = World([Wait(0)] * 5)
    world.on_sleep = lambda: setattr(stop, "requested", True)
    assert work(world, stop).slept < 1
    assert world.done() == ["ask"]
    stop = Stop()
    world = World([TASK, TASK], adapters=[lambda: setattr(stop, "requested", True)])
    assert work(world, stop).done() == ["ask", "fetch a"]


@pytest.mark.req("VOL-1")
def test_the_second_signal_abandons_the_round_and_one_does_when_that_is_asked_for(
    capfd: pytest.CaptureFixture[str],
) -> None:
    stop = Stop()
    world = World([TASK], trainings=[stop.ask])
    assert work(world, stop).done("send") == ["send 0 result-0"]
    assert "after this round" in capfd.readouterr().err
    with pytest.raises(Abandoned):
        stop.ask()
    stop.over()
    stop.ask()  # an impatient third one, while the program ends
    stop = Stop(at_once=True)
    world = World([TASK], trainings=[stop.ask])
    with pytest.raises(Abandoned):
        work(world, stop)
    assert world.done("send") == []


@pytest.mark.req("VOL-1")
def test_a_stop_says_what_is_finished_and_ends_at_once_what_is_not(capfd: pytest.CaptureFixture[str]) -> None:
    stop = Stop()
    for world in (
        World([stop.ask]),
        World([TASK], adapters=[stop.ask]),
        World([Wait(0)], on_sleep=stop.ask),
        World([NotSent("away")], on_sleep=stop.ask),
        World([TASK, Wait(0)], on_sleep=stop.ask),
        World([TASK, NEXT], trainings=[Diverged("not finite")], on_sleep=stop.ask),
        World([TASK, TASK], sends=[ApiError("refused", 422, "no")], on_sleep=stop.ask),
    ):
        with pytest.raises(Abandoned):
            work(world, stop)
        assert capfd.readouterr().err == ""
    world = World([TASK, TASK], sends=[LostAnswer("cut")])

    def once() -> None:
        if not stop.requested:
            stop.ask()

    world.on_sleep = once
    assert work(world, stop).done("send") == ["send 0 result-0"] * 2
    assert "once the result is delivered" in capfd.readouterr().err


@pytest.mark.req("VOL-1")
def test_a_result_is_delivered_also_when_its_worker_has_another_slice_by_now() -> None:
    world = work(World([TASK, replace(TASK, part=2, parts=4)], sends=[LostAnswer("cut")]))
    assert world.done("train", "send") == ["train 0 on adapter-a", *["send 0 result-0"] * 2]
    rolled_back = replace(TASK, digest="c" * 64)
    world = work(World([TASK, rolled_back, rolled_back], sends=[LostAnswer("cut")]))
    assert world.done("train", "send") == ["train 0 on adapter-a", "send 0 result-0", "train 0 on adapter-c",
                                           "send 0 result-0"]  # fmt: skip


@pytest.mark.req("VOL-1")
def test_a_round_that_was_accepted_is_trained_again_ever_less_often() -> None:
    stop = Stop()
    world = World([TASK] * 1000)

    def look() -> None:
        stop.requested = world.slept > 600

    world.on_sleep = look
    work(world, stop)
    assert 15 < len(world.done("train")) < 40
    assert "trouble: The coordinator asks again for a result that it accepted." in world.said
    assert work(World([TASK, NEXT, Done()])).slept == 0


UNCLEAR: list[Any] = [LostAnswer("cut"), BadAnswer("no JSON"), NotSent("away"), ApiError("http_500", 500, "oops")]
REFUSED: list[Any] = [ApiError("refused", status, "no") for status in (400, 409, 422, 429)]
ANSWERS: list[Any] = [TASK, replace(TASK, part=2), NEXT, Wait(0), Wait(1), BadAnswer("?"), *UNCLEAR]


@pytest.mark.req("VOL-1")
@given(
    st.lists(st.sampled_from(ANSWERS), max_size=30),
    st.lists(st.sampled_from([None, *UNCLEAR, *REFUSED]), max_size=30),
    st.lists(st.sampled_from([None, BadAnswer("another digest"), *UNCLEAR]), max_size=30),
    st.lists(st.sampled_from([None, None, Diverged("not finite")]), max_size=30),
)
def test_whatever_happens_each_training_is_for_a_task_and_each_result_for_its_training(
    tasks: list[Any], sends: list[Any], adapters: list[Any], trainings: list[Any]
) -> None:
    outcomes = list(sends)
    world = work(World([Wait(0), *tasks], list(sends), adapters, trainings))
    sendable: str | None = None
    last = ""
    for line in world.done():
        what = line.split()[0]
        assert (last, what) not in {("fetch", "send"), ("train", "fetch"), ("send", "fetch"), ("send", "send")}
        if what == "train":
            sendable = f"send {line.split()[1]} result-{line.split()[1]}"
        elif what == "send":
            assert line == sendable
            outcome = outcomes.pop(0) if outcomes else None
            sendable = line if any(outcome is each for each in UNCLEAR) else None
        last = what
    assert world.done()[-1] == "ask"


@pytest.mark.req("VOL-1")
def test_courtesy_is_asked_before_each_step() -> None:
    asked: list[int] = []
    work(World([TASK]), courtesy=lambda: asked.append(1))
    assert len(asked) == TASK.steps


@pytest.mark.req("VOL-1")
def test_the_base_model_is_told_once() -> None:
    world = work(World([TASK, NEXT]))
    assert world.said.count("note: The coordinator's base model: Tiny/Base") == 1
