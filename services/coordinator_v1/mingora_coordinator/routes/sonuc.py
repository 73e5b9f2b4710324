"""``POST /sonuc``: a worker's result. What is wrong with it is told in the protocol's order: 413, 400, 409, 422."""

from __future__ import annotations

from flask import Blueprint, Response, request

from mingora_coordinator.routes.slots import Slots
from mingora_coordinator.routes.wire import NO_SPACE, REFUSED, WRONG, WireError, answer, round_number, worker_name
from mingora_coordinator.training.receiving import Body, Malformed, Wrong
from mingora_coordinator.training.training import Refused, Training

MAX_DETAIL = 200


def blueprint(training: Training, slots: Slots) -> Blueprint:
    """The route."""
    routes = Blueprint("sonuc", __name__)

    @routes.post("/sonuc")
    def sonuc() -> Response:
        try:
            _check_length(training.layout.body_cap)
        except Malformed as error:
            training.refused(request.args.get("isci", "")[:60], error.wrong.value, status=413)
            raise _told(error) from None
        worker, number = worker_name(), round_number()
        training.heard_of(worker)
        slots.take()
        try:
            _receive(training, worker, number)
        finally:
            slots.free()
        return answer({"tamam": True, "tur": number})

    return routes


def _receive(training: Training, worker: str, number: int) -> None:
    with Body(training) as body:
        try:
            body.take(request.environ["wsgi.input"].read, request.content_length)
            body.record(worker, number)
        except Malformed as error:
            told = _told(error)
            _refused(training, body, worker, error.wrong.value, told.status)
            raise told from None
        except Refused as error:
            _refused(training, body, worker, error.refusal.value, 409)
            raise WireError(409, REFUSED[error.refusal]) from None
        except OSError as error:
            raise WireError(503, NO_SPACE, {"Retry-After": "60"}) from error


def _check_length(most: int) -> None:
    """Refuse by the headers alone what is empty or too large; a chunked body tells its length only when it ends."""
    if request.headers.get("Transfer-Encoding") is None and not request.content_length:
        raise Malformed(Wrong.EMPTY)
    if request.content_length is not None and request.content_length > most:
        raise Malformed(Wrong.TOO_LARGE)


def _told(error: Malformed) -> WireError:
    status, text = WRONG[error.wrong]
    return WireError(status, f"{text}: {error.detail[:MAX_DETAIL]}" if error.detail else text)


def _refused(training: Training, body: Body, worker: str, reason: str, status: int) -> None:
    training.refused(worker, reason, status=status, bytes=body.size, seconds=round(body.seconds, 3))
