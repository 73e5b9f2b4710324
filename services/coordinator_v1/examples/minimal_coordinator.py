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


def safetensors_oku(govde: bytes) -> dict[str, Tensor]:
    """Gövdeyi çözer; biçime harfi harfine uymayan gövde (pickle, zip, eksik, fazla...) ValueError verir."""
    uzunluk = int.from_bytes(govde[:8], "little")
    baslik, veri = govde[8 : 8 + uzunluk], govde[8 + uzunluk :]
    if len(baslik) != uzunluk or not baslik.startswith(b"{") or not baslik.rstrip(b" ").endswith(b"}"):
        raise ValueError("başlık eksik ya da JSON nesnesi değil")
    girdiler = json.loads(baslik.decode("utf-8"), object_pairs_hook=_tekil, parse_int=_tamsayi, parse_float=_tamsayi,
                          parse_constant=_tamsayi)  # fmt: skip
    ust_veri = girdiler.pop("__metadata__", {})  # yalnızca denetlenir, yeniden yayınlanmaz
    if type(ust_veri) is not dict or any(type(deger) is not str for deger in ust_veri.values()):
        raise ValueError("__metadata__ metin sözlüğü değil")
    for ad, girdi in girdiler.items():
        if not ad.isprintable() or type(girdi) is not dict or set(girdi) != {"dtype", "shape", "data_offsets"}:
            raise ValueError("tensör girdisi bozuk")
        if type(girdi["dtype"]) is not str or girdi["dtype"] not in BIT:
            raise ValueError("dtype tanınmıyor")
        for liste, en_cok in ((girdi["shape"], 64), (girdi["data_offsets"], 2)):
            if type(liste) is not list or len(liste) > en_cok or any(type(sayi) is not int for sayi in liste):
                raise ValueError("şekil ya da konum tam sayı listesi değil")
    tensorler, konum = {}, 0
    for ad, girdi in sorted(girdiler.items(), key=lambda cift: cift[1]["data_offsets"]):
        bayt, kalan = divmod(math.prod(girdi["shape"]) * BIT[girdi["dtype"]], 8)
        if kalan or girdi["data_offsets"] != [konum, konum + bayt]:
            raise ValueError("tensörler veriyi boşluksuz doldurmuyor")
        tensorler[ad] = (girdi["dtype"], girdi["shape"], veri[konum : konum + bayt])
        konum += bayt
    if konum != len(veri):
        raise ValueError("veri eksik ya da fazla")
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
        if any(dtype != "F32" for dtype, _, _ in tensorler.values()):
            raise ValueError("başlangıç adaptörü float32 olmalı")
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
        try:
            tensorler = safetensors_oku(govde)
        except (ValueError, RecursionError):
            raise Hata(400, "gövde safetensors değil") from None
        with self.kilit:
            if self.tur >= self.toplam_tur:
                raise Hata(409, "eğitim bitti")
            if tur != self.tur:
                raise Hata(409, "tur uyuşmuyor")
            if isci in self.sonuclar:
                raise Hata(409, "bu tur için sonucunuz var")
            self.sonuclar[isci] = self._dogrula(tensorler)
            self.yuklenen += len(govde)
            if len(self.sonuclar) >= self.en_az:
                self._tur_kapat()
            return {"tamam": True, "tur": tur}

    def _dogrula(self, tensorler: dict[str, Tensor]) -> Degerler:
        if set(tensorler) != set(self.glob):
            raise Hata(422, "anahtar kümesi uyuşmuyor")
        for ad, (dtype, sekil, _) in tensorler.items():
            if (dtype, sekil) != ("F32", self.sekiller[ad]):
                raise Hata(422, f"şekil ya da dtype uyuşmuyor: {ad}")
        degerler = {ad: array.array("f", baytlar) for ad, (_, _, baytlar) in tensorler.items()}
        for ad, dizi in degerler.items():
            if not math.isfinite(sum(dizi)):  # çift duyarlıklı toplam taşmaz: sonlu değilse içinde NaN ya da Inf var
                raise Hata(422, f"sonlu olmayan değer: {ad}")
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

    def _get(self, yol: str, sorgu: dict[str, str]) -> Any:
        koordinator = self.koordinator
        if yol == "/gorev":
            return koordinator.gorev(self._isci(sorgu))
        yollar = {"/bilgi": koordinator.bilgi, "/durum": koordinator.durum, "/agirlik": koordinator.agirlik}
        if yol not in yollar:
            raise Hata(404, "böyle bir yol yok")
        return yollar[yol]()

    def _post(self, yol: str, sorgu: dict[str, str]) -> Any:
        uzunluk = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not (uzunluk.isascii() and uzunluk.isdigit()):
            self.close_connection = True
            raise Hata(400, "Content-Length gerekli")
        if len(uzunluk) > 15 or not 0 < int(uzunluk) <= 2 * len(self.koordinator.baytlar) + (1 << 20):
            self.close_connection = True
            raise Hata(413, "gövde boş ya da çok büyük")  # karar başlıktan verilir: gövde belleğe alınmaz
        govde, tur = self.rfile.read(int(uzunluk)), sorgu.get("tur", "")
        if yol != "/sonuc":
            raise Hata(404, "böyle bir yol yok")
        if not (tur.isascii() and tur.isdigit() and len(tur) <= 9):
            raise Hata(400, "tur parametresi gerekli: 0 ya da büyük bir tam sayı")
        return self.koordinator.sonuc(self._isci(sorgu), int(tur), govde)

    def _isci(self, sorgu: dict[str, str]) -> str:
        isci = sorgu.get("isci", "")
        if not 0 < len(isci) <= EN_UZUN_AD or not isci.isprintable():
            raise Hata(400, f"isci parametresi gerekli: en çok {EN_UZUN_AD} karakter")
        return isci

    def _yanitla(self, islem: Callable[[str, dict[str, str]], Any]) -> None:
        kod, basliklar = 200, {"Content-Type": "application/json; charset=utf-8"}
        yol, _, sorgu = self.path.partition("?")
        try:
            yanit = islem(yol, dict(parse_qsl(sorgu)))
        except Hata as hata:
            kod, yanit = hata.args[0], {"hata": hata.args[1]}
        if isinstance(yanit, tuple):
            tur, ozet, govde = yanit
            basliklar = {"Content-Type": "application/octet-stream", "X-Tur": str(tur), "X-Sha256": ozet}
        else:
            govde = json.dumps(yanit, ensure_ascii=False).encode()
        if self.close_connection:
            basliklar["Connection"] = "close"
        self.send_response(kod)
        for ad, deger in (basliklar | {"Content-Length": str(len(govde))}).items():
            self.send_header(ad, deger)
        self.end_headers()
        self.wfile.write(govde)
        if kod == 413:  # gövdenin 16 MB'a kadarı okunup atılır: okunmadan kapanan bağlantıda işçi yanıtı göremeyebilir
            self.connection.settimeout(2)
            for _ in range(256):
                if not self.rfile.read1(65536):
                    break


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
