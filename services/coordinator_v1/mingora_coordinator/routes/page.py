"""``GET /``: the live page, its fixed files, and the figures that it asks for every half minute."""

from __future__ import annotations

import heapq
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flask import Blueprint, Response, render_template, request
from werkzeug.exceptions import NotFound

from mingora_coordinator.routes.wire import answer
from mingora_coordinator.store.counters import Counter
from mingora_coordinator.training.training import Training

MAX_WORKERS = 100
MAX_ROUNDS = 50
# Of one round, as marks of a chart; a round with more of them is shown by as many, evenly spread over their ranks.
MAX_MARKS = 60

ASSETS = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_FOLDER = Path(__file__).parent / "assets"

# The first is for whoever's browser names none of them. {n} and the like are filled in on the page.
LANGUAGES = ("tr", "en", "zh")
TEXTS = {
    "title": ("Topluluk eğitimi", "Community training", "社区训练"),
    "base": ("Taban model", "Base model", "基础模型"),
    "loading": ("Yükleniyor…", "Loading…", "正在加载……"),
    "noscript": (
        "Bu sayfa JavaScript ister; aynı sayılar /durum adresindedir.",
        "This page needs JavaScript; /durum tells the same figures.",
        "本页面需要 JavaScript；/durum 提供相同的数据。",
    ),
    "round": ("Tur", "Round", "轮次"),
    "of": ("{n} / {all}", "{n} of {all}", "{n} / {all}"),
    "finished": ("Eğitim bitti", "Finished", "训练已完成"),
    "results": ("Bu turun sonuçları", "Results of this round", "本轮结果"),
    "opened": ("Tur açılalı", "Round open for", "本轮已开始"),
    "workers": ("İşçiler", "Workers", "参与者"),
    "sent": ("İndirilen", "Sent", "已发送"),
    "received": ("Yüklenen", "Received", "已接收"),
    "digest": ("Adaptör özeti", "Adapter digest", "适配器摘要"),
    "worker": ("İşçi", "Worker", "参与者"),
    "contact": ("Son temas", "Last contact", "最后联系"),
    "result": ("Sonuç", "Result", "结果"),
    "in": ("geldi", "in", "已收到"),
    "awaited": ("bekleniyor", "awaited", "等待中"),
    "unknown": ("yeniden başlatmadan önce", "before the restart", "重启之前"),
    "more": ("ve {n} işçi daha", "and {n} more", "以及另外 {n} 个"),
    "noWorkers": (
        "Henüz hiçbir işçi görev istemedi.",
        "No worker has asked for a task yet.",
        "还没有参与者领取任务。",
    ),
    "history": ("Kapanan turlar", "Closed rounds", "已结束的轮次"),
    "noHistory": ("Henüz kapanan tur yok.", "No round has been closed yet.", "还没有轮次结束。"),
    "distances": (
        "Sonuçların adaptöre uzaklığı",
        "Distance of each result from the adapter",
        "各结果与适配器的距离",
    ),
    "cosines": (
        "Ortalama adımla kosinüs",
        "Cosine to the mean step",
        "与平均步的余弦",
    ),
    "seconds": ("Birleştirme süresi (sn)", "Time of making the adapter (s)", "合并用时（秒）"),
    "counts": ("Tur başına sonuç", "Results per round", "每轮结果数"),
    "used": ("alınan", "used", "采用"),
    "outlier": ("aykırı", "outlier", "离群"),
    "outliers": ("Aykırı", "Outliers", "离群"),
    "range": (
        "{title}: tur {first}–{last}, en az {least}, en çok {most}. Sayılar aşağıdaki çizelgededir.",
        "{title}: rounds {first}–{last}, least {least}, most {most}. The numbers are in the table below.",
        "{title}：第 {first}–{last} 轮，最小 {least}，最大 {most}。数值见下表。",
    ),
    "logarithmic": ("logaritmik", "logarithmic", "对数"),
    "table": ("Sayılar çizelge olarak", "The numbers as a table", "以表格显示数值"),
    "closed": ("Kapandı", "Closed", "结束时间"),
    "byTime": ("süre doldu", "time limit", "超时"),
    "median": ("Uzaklık (ortanca)", "Distance (median)", "距离（中位数）"),
    "least": ("Kosinüs (en az)", "Cosine (least)", "余弦（最小）"),
    "making": ("Birleştirme", "Making", "合并"),
    "refreshed": ("Yenilendi: {time}", "Refreshed: {time}", "更新于 {time}"),
    "failed": (
        "Son yenileme başarısız ({reason}); gösterilenler eski olabilir.",
        "The last refresh failed ({reason}); what is shown may be old.",
        "上一次刷新失败（{reason}）；所显示的内容可能已过时。",
    ),
}


def blueprint(training: Training) -> Blueprint:
    """The three routes."""
    routes = Blueprint("page", __name__, template_folder="assets")
    assets = {name: (_FOLDER / name).read_bytes() for name in ASSETS}

    @routes.get("/")
    def page() -> Response:
        language = _language()
        texts = {name: words[LANGUAGES.index(language)] for name, words in TEXTS.items()}
        body = render_template(
            "page.html",
            language=language,
            texts=texts,
            packed=json.dumps(texts, ensure_ascii=False),
            base=training.lora.base_model,
        )
        return Response(body, content_type="text/html; charset=utf-8", headers={"Vary": "Accept-Language"})

    @routes.get("/sayfa/<name>")
    def asset(name: str) -> Response:
        if name not in assets:
            raise NotFound
        return Response(assets[name], content_type=f"{ASSETS[name]}; charset=utf-8")

    @routes.get("/sayfa/durum.json")
    def state() -> Response:
        return answer(_state(training))

    @routes.after_request
    def guard(response: Response) -> Response:
        response.headers["Content-Security-Policy"] = POLICY
        response.headers["Referrer-Policy"] = "no-referrer"
        return response

    return routes


def _language() -> str:
    """The most wanted language that there is, whatever its region."""
    for wanted, quality in request.accept_languages:
        language = wanted.partition("-")[0].lower()
        if language in LANGUAGES and quality > 0:
            return language
    return LANGUAGES[0]


def _state(training: Training) -> dict[str, Any]:
    """What the page shows: bounded, however many workers and results there are."""
    published, settings, counters = training.published, training.settings, training.counters
    pending, contacts = training.pending(), training.contacts()
    done = set(pending)
    # Of those whose result outlived a restart nothing else is known.
    seen: dict[str, float | None] = {**dict.fromkeys(pending), **contacts}
    latest = heapq.nsmallest(MAX_WORKERS, seen, key=lambda worker: contacts.get(worker, float("inf")))
    return {
        "tur": published.number,
        "toplam_tur": settings.rounds,
        "en_az": settings.min_results,
        "bitti": training.over,
        "ozet": published.digest,
        "acilis_ms": published.opened,
        "bekleyen_sonuc": len(pending),
        "isci_sayisi": len(seen),
        "isciler": [{"isci": worker, "saniye": _rounded(seen[worker]), "sonuc": worker in done} for worker in latest],
        "trafik": {"indirilen_bayt": counters[Counter.SENT], "yuklenen_bayt": counters[Counter.RECEIVED]},
        "gecmis": [_round(closed) for closed in training.ledger.rounds()[-MAX_ROUNDS:]],
    }


def _round(closed: dict[str, Any]) -> dict[str, Any]:
    results = sorted(closed["results"], key=lambda result: float(result["distance"]))
    cosines = [result["cosine"] for result in results if result.get("cosine") is not None]
    return {
        "tur": closed["round"],
        "kapanis_ms": closed["closed"],
        "sure_sn": closed["seconds"],
        "zaman_asimi": closed["by"] == "time",
        "alinan": closed["used"],
        "elenen": closed["count"] - closed["used"],
        "uzaklik_ortanca": results[len(results) // 2]["distance"],
        "kosinus_en_az": min(cosines, default=None),
        "sonuclar": [
            {
                "isci": result["worker"],
                "uzaklik": result["distance"],
                "kosinus": result.get("cosine"),
                "alindi": result["used"],
            }
            for result in _spread(results)
        ],
    }


def _spread(results: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """At most :data:`MAX_MARKS` of them, the nearest and the farthest among these."""
    if len(results) <= MAX_MARKS:
        return results
    return [results[place * (len(results) - 1) // (MAX_MARKS - 1)] for place in range(MAX_MARKS)]


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
