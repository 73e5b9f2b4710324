#!/usr/bin/env python3
"""Koordinatör protokolü v1'i uygulayan en küçük örnek: tek dosya, yalnızca Python standart kütüphanesi.

    python minimal_coordinator.py --baslangic tur-0.safetensors --tur 5 --en-az 2 --port 8750

Durum bellekte durur, birleştirme düz ortalamadır, tensörler float32'dir; saf Python olduğundan 10 milyon parametrede
yavaştır. Yalnızca 127.0.0.1'i dinler: genel ağda önüne HTTPS konuşan bir vekil sunucu koyun.

The smallest coordinator of protocol v1, to read and to start your own from: state in memory, plain mean, float32.
"""

import argparse
import array
import hashlib
import json
import math
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

DTYPE = {4: "F4", 6: "F6_E2M3 F6_E3M2", 16: "I16 U16 F16 BF16", 32: "I32 U32 F32", 64: "I64 U64 F64 C64",
         8: "BOOL U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ"}  # fmt: skip
BIT = {dtype: bit for bit, dtypelar in DTYPE.items() for dtype in dtypelar.split()}
EN_UZUN_AD, EN_COK_ISCI = 200, 10_000

Tensor = tuple[str, list[int], bytes]  # dtype, şekil, baytlar
Degerler = dict[str, "array.array[float]"]


class Hata(Exception):
    """İşçiye verilecek hata: HTTP durum kodu ve açıklama."""


def sart(kosul: bool, kod: int, aciklama: str) -> None:
    """Koşul tutmuyorsa Hata verir."""
    if not kosul:
        raise Hata(kod, aciklama)


def safetensors_oku(govde: bytes) -> dict[str, Tensor]:
    """Gövdeyi çözer; biçime harfi harfine uymayan gövde (pickle, zip, eksik, fazla...) 400'dür."""
    uzunluk = int.from_bytes(govde[:8], "little")
    baslik, veri = govde[8 : 8 + uzunluk], govde[8 + uzunluk :]
    sart(len(baslik) == uzunluk and baslik[:1] == b"{" and baslik.rstrip(b" ")[-1:] == b"}", 400, "safetensors değil")
    try:
        girdiler = json.loads(baslik.decode("utf-8"), object_pairs_hook=_tekil, parse_int=_tamsayi,
                              parse_float=_tamsayi, parse_constant=_tamsayi)  # fmt: skip
    except (ValueError, RecursionError):
        raise Hata(400, "başlık safetensors'un JSON'u değil") from None
    ust_veri = girdiler.pop("__metadata__", {})  # yalnızca denetlenir, yeniden yayınlanmaz
    tamam = type(ust_veri) is dict and all(type(metin) is str for metin in ust_veri.values())
    sart(tamam, 400, "__metadata__ metin sözlüğü değil")
    sirali = []
    for ad, girdi in girdiler.items():
        match girdi:
            case {"dtype": str(dtype), "shape": [*sekil], "data_offsets": [bas, son]}:
                tamam = len(girdi) == 3 and ad.isprintable() and dtype in BIT and len(sekil) <= 64
                sart(tamam and {type(sayi) for sayi in (*sekil, bas, son)} == {int}, 400, "tensör girdisi bozuk")
                sirali.append((bas, son, ad, dtype, sekil))
            case _:
                raise Hata(400, "tensör girdisi bozuk")
    tensorler, konum = {}, 0
    for bas, son, ad, dtype, sekil in sorted(sirali):
        dolu = bas == konum and 8 * (son - bas) == math.prod(sekil) * BIT[dtype]
        sart(dolu, 400, "tensörler veriyi boşluksuz doldurmuyor")
        tensorler[ad], konum = (dtype, sekil, veri[bas:son]), son
    sart(konum == len(veri), 400, "veri eksik ya da fazla")
    return tensorler


def _tekil(ciftler: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(ciftler)) != len(ciftler):
        raise ValueError("aynı anahtar iki kez")
    return dict(ciftler)


def _tamsayi(metin: str) -> int:
    if not metin.isdigit() or len(metin) > 15:  # eksi, kesir, üs, NaN ve dev sayılar burada elenir
        raise ValueError("makul bir tam sayı değil")
    return int(metin)


def safetensors_yaz(sekiller: dict[str, list[int]], degerler: Degerler) -> bytes:
    """float32 tensörlerin safetensors dosyası; başlık 8'in katına boşlukla tamamlanır."""
    baslik, konum = {}, 0
    for ad, sekil in sekiller.items():
        son = konum + 4 * len(degerler[ad])
        baslik[ad], konum = {"dtype": "F32", "shape": sekil, "data_offsets": [konum, son]}, son
    metin = json.dumps(baslik, ensure_ascii=False, separators=(",", ":")).encode()
    metin += b" " * (-len(metin) % 8)
    return len(metin).to_bytes(8, "little") + metin + b"".join(degerler[ad].tobytes() for ad in sekiller)


class Koordinator:
    """Turların durumu. Her yöntem aynı kilidi tutar: /gorev ile /agirlik hep aynı turu anlatır."""

    def __init__(self, baslangic: bytes, toplam_tur: int, en_az: int) -> None:
        tensorler = safetensors_oku(baslangic)
        sart(all(dtype == "F32" for dtype, _, _ in tensorler.values()), 422, "başlangıç adaptörü float32 olmalı")
        self.sekiller = {ad: sekil for ad, (_, sekil, _) in tensorler.items()}
        self.glob = {ad: array.array("f", baytlar) for ad, (_, _, baytlar) in tensorler.items()}
        self.toplam_tur, self.en_az, self.tur, self.kilit = toplam_tur, en_az, 0, threading.Lock()
        self.sonuclar: dict[str, Degerler] = {}
        self.isciler: dict[str, tuple[int, float]] = {}  # bu turun işçileri: (parça, son görülme)
        self.indirilen = self.yuklenen = 0  # bayt
        self.gunluk: list[dict[str, Any]] = []
        self._yayinla()

    def _yayinla(self) -> None:
        self.baytlar = safetensors_yaz(self.sekiller, self.glob)
        self.ozet = hashlib.sha256(self.baytlar).hexdigest()

    def bilgi(self) -> dict[str, Any]:
        with self.kilit:
            return {"protokol": "1", "uygulama": "minimal-koordinator", "surum": "1", "anahtar_gerekli": False,
                    "tur": self.tur, "toplam_tur": self.toplam_tur, "agirlik_boyutu": len(self.baytlar),
                    "adaptor": {"dtype": "float32", "tensor_sayisi": len(self.glob)},
                    "agirlik_sha256": self.ozet}  # fmt: skip

    def durum(self) -> dict[str, Any]:
        with self.kilit:
            simdi = time.monotonic()
            return {"tur": self.tur, "toplam_tur": self.toplam_tur, "bekleyen_sonuc": sorted(self.sonuclar),
                    "ozet": self.ozet[:16], "gunluk": list(self.gunluk),
                    "isciler": {ad: round(simdi - gorulme, 1) for ad, (_, gorulme) in self.isciler.items()},
                    "trafik": {"indirilen_bayt": self.indirilen, "yuklenen_bayt": self.yuklenen}}  # fmt: skip

    def gorev(self, isci: str) -> dict[str, Any]:
        with self.kilit:
            # Yeni işçi sıradaki parçayı alır, tur boyunca onda kalır. Liste dolunca yeni gelenlerin parçası aynıdır.
            parca, _ = self.isciler.get(isci, (len(self.isciler) % self.en_az, 0.0))
            if isci in self.isciler or len(self.isciler) < EN_COK_ISCI:
                self.isciler[isci] = (parca, time.monotonic())
            if self.tur >= self.toplam_tur:
                return {"bitti": True}
            if isci in self.sonuclar:
                return {"bekle": True, "tur": self.tur}
            return {"tur": self.tur, "toplam_tur": self.toplam_tur, "agirlik_sha256": self.ozet, "parca": parca,
                    "n_parca": self.en_az, "ic_adim": 20, "bs": 4, "seq": 512, "lr": 2e-4, "tohum": 0}  # fmt: skip

    def agirlik(self) -> tuple[int, str, bytes]:
        with self.kilit:
            self.indirilen += len(self.baytlar)
            return self.tur, self.ozet, self.baytlar

    def sonuc(self, isci: str, tur: int, govde: bytes) -> dict[str, Any]:
        """Denetimlerin sırası bağlayıcıdır: 400 (okunamıyor), 409 (tur), 422 (içerik)."""
        tensorler = safetensors_oku(govde)
        with self.kilit:
            sart(self.tur < self.toplam_tur, 409, "eğitim bitti")
            sart(tur == self.tur, 409, "tur uyuşmuyor")
            sart(isci not in self.sonuclar, 409, "bu tur için sonucunuz var")
            self.sonuclar[isci] = self._dogrula(tensorler)
            self.yuklenen += len(govde)
            if len(self.sonuclar) >= self.en_az:
                self._tur_kapat()
            return {"tamam": True, "tur": tur}

    def _dogrula(self, tensorler: dict[str, Tensor]) -> Degerler:
        sart(set(tensorler) == set(self.glob), 422, "anahtar kümesi uyuşmuyor")
        for ad, (dtype, sekil, _) in tensorler.items():
            sart((dtype, sekil) == ("F32", self.sekiller[ad]), 422, f"şekil ya da dtype uyuşmuyor: {ad}")
        degerler = {ad: array.array("f", baytlar) for ad, (_, _, baytlar) in tensorler.items()}
        for ad, dizi in degerler.items():  # çift duyarlıklı toplam taşmaz: sonlu değilse içinde NaN ya da Inf var
            sart(math.isfinite(sum(dizi)), 422, f"sonlu olmayan değer: {ad}")
        return degerler

    def _tur_kapat(self) -> None:
        n = len(self.sonuclar)
        for ad in self.glob:
            siralar = zip(*(sonuc[ad] for sonuc in self.sonuclar.values()), strict=True)
            self.glob[ad] = array.array("f", (sum(sira) / n for sira in siralar))
        self.gunluk.append({"tur": self.tur, "sonuclar": sorted(self.sonuclar)})
        self.sonuclar, self.isciler, self.tur = {}, {}, self.tur + 1
        self._yayinla()


class Istek(BaseHTTPRequestHandler):
    """HTTP katmanı: girdileri sınırlar, yolları koordinatörün yöntemlerine bağlar."""

    protocol_version, timeout = "HTTP/1.1", 60  # saniye: susan bağlantı kapanır
    koordinator: Koordinator

    def do_GET(self) -> None:
        if "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # GET'in gövdesi okunmaz; ardından gelen yeni istek sanılmasın
        self._yanitla(self._get)

    def do_POST(self) -> None:
        self._yanitla(self._post)

    def send_error(self, code: int, *_: Any, **__: Any) -> None:
        """Kütüphanenin HTML hatalarının yerine: başka yöntemler (PUT, HEAD...) ve okunamayan istekler."""
        self.close_connection = True
        if code == 501:
            return self._gonder(405, {"hata": "yalnızca GET ve POST"}, Allow="GET, POST")
        return self._gonder(code, {"hata": "istek okunamıyor"})

    def _get(self, yol: str, sorgu: dict[str, str]) -> Any:
        if yol == "/gorev":
            return self.koordinator.gorev(self._isci(sorgu))
        yollar = {"/bilgi": Koordinator.bilgi, "/durum": Koordinator.durum, "/agirlik": Koordinator.agirlik}
        sart(yol in yollar, 404, "böyle bir yol yok")
        return yollar[yol](self.koordinator)

    def _post(self, yol: str, sorgu: dict[str, str]) -> Any:
        uzunluk, tur = self.headers.get("Content-Length", "0"), sorgu.get("tur", "")
        kapali, self.close_connection = self.close_connection, True  # gövde okunana dek: hatada bağlantı kapanır
        sart("Transfer-Encoding" not in self.headers and _sayi(uzunluk), 400, "Content-Length gerekli")
        en_cok = 2 * len(self.koordinator.baytlar) + (1 << 20)  # karar başlıktan verilir: gövde belleğe alınmaz
        sart(len(uzunluk) <= 15 and 0 < int(uzunluk) <= en_cok, 413, "gövde boş ya da çok büyük")
        govde, self.close_connection = self.rfile.read(int(uzunluk)), kapali
        sart(yol == "/sonuc", 404, "böyle bir yol yok")
        sart(_sayi(tur) and len(tur) <= 9, 400, "tur parametresi gerekli: 0 ya da büyük bir tam sayı")
        return self.koordinator.sonuc(self._isci(sorgu), int(tur), govde)

    def _isci(self, sorgu: dict[str, str]) -> str:
        isci = sorgu.get("isci", "")
        gecerli = 0 < len(isci) <= EN_UZUN_AD and isci.isprintable()
        sart(gecerli, 400, f"isci parametresi gerekli: en çok {EN_UZUN_AD} karakter")
        return isci

    def _yanitla(self, islem: Callable[[str, dict[str, str]], Any]) -> None:
        yol, _, sorgu = self.path.partition("?")
        try:
            self._gonder(200, islem(yol, dict(parse_qsl(sorgu))))
        except Hata as hata:
            self._gonder(hata.args[0], {"hata": hata.args[1]})

    def _gonder(self, kod: int, yanit: Any, **basliklar: str) -> None:
        if isinstance(yanit, tuple):
            tur, ozet, govde = yanit
            basliklar |= {"Content-Type": "application/octet-stream", "X-Tur": str(tur), "X-Sha256": ozet}
        else:
            govde = json.dumps(yanit, ensure_ascii=False).encode()
            basliklar |= {"Content-Type": "application/json; charset=utf-8"}
        if self.close_connection:
            basliklar["Connection"] = "close"
        self.send_response(kod)
        for ad, deger in (basliklar | {"Content-Length": str(len(govde))}).items():
            self.send_header(ad, deger)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(govde)
        if kod in (405, 413):  # gövdenin 16 MB'a kadarı okunup atılır: okunmadan kapanırsa işçi yanıtı göremeyebilir
            self.connection.settimeout(2)
            for _ in range(256):
                if not self.rfile.read1(65536):
                    break


def _sayi(metin: str) -> bool:
    return metin.isascii() and metin.isdigit()


def main() -> None:
    okuyucu = argparse.ArgumentParser(description="Koordinatör protokolü v1'in en küçük örneği.")
    okuyucu.add_argument("--baslangic", type=Path, required=True, help="başlangıç adaptörü: float32 safetensors")
    okuyucu.add_argument("--tur", type=int, default=5, help="toplam tur sayısı")
    okuyucu.add_argument("--en-az", type=int, default=2, help="bir turu kapatan sonuç sayısı")
    okuyucu.add_argument("--port", type=int, default=8750, help="127.0.0.1'de dinlenecek kapı; 0: boş bir kapı")
    secim = okuyucu.parse_args()
    if secim.tur < 1 or secim.en_az < 1:
        okuyucu.error("--tur ve --en-az en az 1 olmalı")
    Istek.koordinator = Koordinator(secim.baslangic.read_bytes(), secim.tur, secim.en_az)
    sunucu = ThreadingHTTPServer(("127.0.0.1", secim.port), Istek)
    print(f"http://127.0.0.1:{sunucu.server_port} dinleniyor", flush=True)
    sunucu.serve_forever()


if __name__ == "__main__":
    main()
