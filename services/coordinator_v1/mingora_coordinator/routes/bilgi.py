"""``GET /bilgi`` and ``GET /durum``: what this coordinator is, and how its training stands."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response

from mingora_coordinator import __version__
from mingora_coordinator.routes.wire import answer
from mingora_coordinator.store.counters import Counter
from mingora_coordinator.store.keys import Keys
from mingora_coordinator.training.training import Training

PROTOCOL = "1"
SHORT_DIGEST = 16
SHOWN_ROUNDS = 50
SHOWN_NAMES = 100  # of a round
SHOWN_WORKERS = 1000  # those heard of last


def blueprint(training: Training, keys: Keys) -> Blueprint:
    """Both routes; ``/bilgi`` is open to everybody."""
    routes = Blueprint("bilgi", __name__)

    @routes.get("/bilgi")
    def bilgi() -> Response:
        published, settings, lora = training.published, training.settings, training.lora
        return answer(
            {
                "protokol": PROTOCOL,
                "uygulama": "mingora-coordinator",
                "surum": __version__,
                "tur": published.number,
                "toplam_tur": settings.rounds,
                "taban_model": lora.base_model,
                "adaptor": {
                    "yontem": "lora",
                    "r": lora.rank,
                    "alfa": lora.whole_alpha,
                    "hedef_moduller": list(lora.targets),
                    "dtype": "float32",
                    "tensor_sayisi": len(training.layout.header.tensors),
                },
                "agirlik_boyutu": published.size,
                "agirlik_sha256": published.digest,
                "anahtar_gerekli": keys.needed,
            }
        )

    @routes.get("/durum")
    def durum() -> Response:
        published, counters = training.published, training.counters
        return answer(
            {
                "tur": published.number,
                "toplam_tur": training.settings.rounds,
                "bekleyen_sonuc": training.pending(),
                "ozet": published.digest[:SHORT_DIGEST],
                "isciler": {worker: round(seconds, 1) for worker, seconds in training.contacts(SHOWN_WORKERS).items()},
                "trafik": {
                    "indirilen_bayt": counters[Counter.SENT],
                    "yuklenen_bayt": counters[Counter.RECEIVED],
                },
                "gunluk": [_round(closed) for closed in training.ledger.rounds()[-SHOWN_ROUNDS:]],
            }
        )

    return routes


def _round(closed: dict[str, Any]) -> dict[str, Any]:
    """A closed round as an entry of ``gunluk``, whose form the protocol leaves open."""
    results = closed["results"]
    return {
        "tur": closed["round"],
        "kapanis_ms": closed["closed"],
        "neden": {"count": "yeterli sonuç", "time": "zaman aşımı"}[closed["by"]],
        "sure_sn": closed["seconds"],
        "sonuc_sayisi": closed["count"],
        "sonuclar": [result["worker"] for result in results if result["used"]][:SHOWN_NAMES],
        "elenen": [result["worker"] for result in results if not result["used"]][:SHOWN_NAMES],
    }
