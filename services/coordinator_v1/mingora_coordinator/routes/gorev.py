"""``GET /gorev``: a worker's task of the open round."""

from __future__ import annotations

from flask import Blueprint, Response

from mingora_coordinator.routes.wire import answer, worker_name
from mingora_coordinator.training.training import Over, Training, Wait


def blueprint(training: Training) -> Blueprint:
    """The route."""
    routes = Blueprint("gorev", __name__)

    @routes.get("/gorev")
    def gorev() -> Response:
        worker = worker_name()
        training.heard_of(worker)
        try:
            task = training.task(worker)
        except Over:
            return answer({"bitti": True})
        except Wait as wait:
            return answer({"bekle": True, "tur": wait.number})
        settings = training.settings
        return answer(
            {
                "tur": task.published.number,
                "toplam_tur": settings.rounds,
                "parca": task.shard,
                "n_parca": settings.shards,
                "ic_adim": settings.inner_steps,
                "bs": settings.batch_size,
                "seq": settings.sequence,
                "lr": settings.rate,
                "tohum": settings.seed,
                "agirlik_sha256": task.published.digest,
            }
        )

    return routes
