"""What every route of the protocol shares: its errors, its parameters, and the words for what is refused."""

from __future__ import annotations

import re
from typing import Any

from flask import Response, jsonify, request

from mingora_coordinator.domain.rounds import Refusal
from mingora_coordinator.domain.settings import MAX_NAME
from mingora_coordinator.training.receiving import Wrong

KEY_HEADER = "X-Anahtar"
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_NUMBER = re.compile("-?[0-9]{1,100}", re.ASCII)

UNAUTHORIZED = "yetkisiz"
NO_NAME = "isci parametresi gerekli"
BAD_NAME = f"isci geçersiz: en çok {MAX_NAME} karakter, denetim karakteri yok"
BAD_ROUND = "tur parametresi geçersiz: bir tam sayı olmalı"
NO_SPACE = "sonuç saklanamadı: koordinatörün diski dolu ya da bozuk; daha sonra yeniden deneyin"

WRONG = {
    Wrong.EMPTY: (413, "gövde boş"),
    Wrong.TOO_LARGE: (413, "gövde çok büyük"),
    Wrong.UNREADABLE: (400, "safetensors okunamadı"),
    Wrong.KEYS: (422, "anahtar kümesi uyuşmuyor"),
    Wrong.SHAPE: (422, "şekil uyuşmuyor"),
    Wrong.DTYPE: (422, "dtype uyuşmuyor"),
    Wrong.NOT_FINITE: (422, "sonlu olmayan değer"),
}
REFUSED = {
    Refusal.OVER: "eğitim bitti",
    Refusal.OTHER_ROUND: "tur uyuşmuyor",
    Refusal.REPEATED: "bu tur için sonucunuz zaten var",
    Refusal.FULL: "tur kapanıyor",
    Refusal.NOT_ASKED: "bu tur yeniden açıldı: önce görev isteyin",
}
STATUSES = {
    404: "bulunamadı",
    405: "bu yönteme izin yok",
    413: "gövde çok büyük",
    415: "içerik türü geçersiz",
}


class WireError(Exception):
    """An answer other than 2xx: ``{"hata": text}``."""

    def __init__(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.headers = headers or {}


def answer(body: dict[str, Any], status: int = 200) -> Response:
    """A JSON answer."""
    response = jsonify(body)
    response.status_code = status
    return response


def refusal(error: WireError) -> Response:
    """What a client gets of a WireError."""
    response = answer({"hata": error.text}, error.status)
    response.headers.extend(error.headers)
    return response


def worker_name() -> str:
    """The parameter ``isci``; 400 when it is missing or can't be a nickname."""
    name = request.args.get("isci", "")
    if not name.strip():
        raise WireError(400, NO_NAME)
    if len(name) > MAX_NAME or _CONTROL.search(name):
        raise WireError(400, BAD_NAME)
    return name


def round_number() -> int:
    """The parameter ``tur``; 400 when it is missing or no whole number."""
    text = request.args.get("tur", "")
    if not _NUMBER.fullmatch(text):
        raise WireError(400, BAD_ROUND)
    return int(text)
