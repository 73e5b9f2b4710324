"""Coordinators that break one rule each: the minimal coordinator with a part of it replaced, served by a thread.

Each is a function that changes a freshly loaded module of the minimal coordinator.
"""

from __future__ import annotations

import array
import importlib.util
import json
import math
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from types import ModuleType
from typing import Any

from safetensors.numpy import save
from service.coordinator.minimal_process import EXAMPLE, adapter

Mutate = Callable[[Any], None]


@dataclass(frozen=True)
class Mutant:
    """What is wrong, and the check that has to find it; ``full`` where only a whole round shows it.

    ``results`` close a round: many where it takes so much that is wrong that the training would end first.
    """

    mutate: Mutate
    check: str
    full: bool = False
    results: int = 3


MUTANTS: dict[str, Mutant] = {}


def _breaks(check: str, *, full: bool = False, results: int = 3) -> Callable[[Mutate], Mutate]:
    def add(mutate: Mutate) -> Mutate:
        MUTANTS[mutate.__name__] = Mutant(mutate, check, full, results)
        return mutate

    return add


def _loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("minimal_coordinator_mutant", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def served(*mutations: Mutate, rounds: int = 2, results: int = 3, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """The address of a minimal coordinator with these changes."""
    module: Any = _loaded()
    module.Istek.log_message = lambda *_: None
    module.Istek.disable_nagle_algorithm = True  # over TLS every answer would wait 40 ms for an acknowledgement
    for mutate in mutations:
        mutate(module)
    module.Istek.koordinator = module.Koordinator(save(adapter()), rounds, results)
    server = ThreadingHTTPServer(("127.0.0.1", 0), module.Istek)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _around(owner: Any, name: str, change: Callable[..., Any]) -> None:
    """Replace the method by ``change(original, self, *arguments)``."""
    original = getattr(owner, name)
    setattr(owner, name, lambda self, *arguments: change(original, self, *arguments))


def _answers(module: Any, change: Callable[[Any, int, Any], tuple[int, Any]]) -> None:
    """Change status and value of every answer; ``change`` has the request, the status and the value."""

    def answer(original: Any, self: Any, act: Callable[..., Any]) -> None:
        def changed(*asked: Any) -> Any:
            try:
                status, value = 200, act(*asked)
            except module.Hata as error:
                status, value = error.args[0], {"hata": error.args[1]}
            status, value = change(self, status, value)
            if status == 200:
                return value
            raise module.Hata(status, value["hata"])

        original(self, changed)

    _around(module.Istek, "_yanitla", answer)


def _told(module: Any, name: str, **fields: Any) -> None:
    """Fields of a JSON answer of the coordinator, changed; Ellipsis takes one away."""

    def change(original: Any, self: Any, *arguments: Any) -> Any:
        told = original(self, *arguments)
        if "bitti" in told or "bekle" in told:
            return told
        return {field: value for field, value in (told | fields).items() if value is not ...}

    _around(module.Koordinator, name, change)


def _header(module: Any, name: str, value: str | None) -> None:
    def change(original: Any, self: Any, keyword: str, own: str) -> None:
        if keyword.lower() != name:
            original(self, keyword, own)
        elif value is not None:
            original(self, keyword, value)

    _around(module.Istek, "send_header", change)


@_breaks("agirlik.x-sha256")
def wrong_x_sha256(module: Any) -> None:
    _header(module, "x-sha256", "0" * 64)


@_breaks("agirlik.x-tur")
def no_x_tur(module: Any) -> None:
    _header(module, "x-tur", None)


@_breaks("agirlik.answer")
def weights_as_text(module: Any) -> None:
    _header(module, "content-type", "text/plain")


@_breaks("agirlik.answer")
def weights_elsewhere(module: Any) -> None:
    _answers(
        module,
        lambda self, status, value: (302, {"hata": "başka yerde"}) if isinstance(value, tuple) else (status, value),
    )


@_breaks("agirlik.agrees")
def task_of_other_weights(module: Any) -> None:
    _told(module, "gorev", agirlik_sha256="0" * 64)


@_breaks("agirlik.safetensors")
def weights_not_safetensors(module: Any) -> None:
    _around(module.Koordinator, "agirlik", lambda original, self: (*original(self)[:2], b"PK\x03\x04"))


@_breaks("gorev.isci-missing")
def task_without_isci(module: Any) -> None:
    _around(module.Istek, "_isci", lambda original, self, query: original(self, query) if "isci" in query else "anonim")


@_breaks("gorev.parca-stable")
def parca_changes(module: Any) -> None:
    turn = iter(range(10**9))
    _around(module.Koordinator, "gorev", lambda original, self, name: original(self, name) | {"parca": next(turn) % 3})


@_breaks("gorev.fields")
def no_seed_in_the_task(module: Any) -> None:
    _told(module, "gorev", tohum=...)


@_breaks("gorev.fields")
def parca_beyond_n_parca(module: Any) -> None:
    _told(module, "gorev", parca=3, n_parca=3)


@_breaks("gorev.task")
def always_told_to_wait(module: Any) -> None:
    _around(module.Koordinator, "gorev", lambda original, self, name: {"bekle": True, "tur": self.tur})


@_breaks("durum.fields")
def no_traffic(module: Any) -> None:
    _told(module, "durum", trafik=...)


@_breaks("durum.isciler")
def forgets_workers(module: Any) -> None:
    _told(module, "durum", isciler={})


@_breaks("durum.agrees")
def state_of_another_round(module: Any) -> None:
    _told(module, "durum", tur=1)


@_breaks("bilgi.protokol")
def protocol_2(module: Any) -> None:
    _told(module, "bilgi", protokol="2")


@_breaks("bilgi.protokol")
def protocol_as_number(module: Any) -> None:
    _told(module, "bilgi", protokol=1)


@_breaks("sonuc.empty")
def empty_is_400(module: Any) -> None:
    _answers(module, lambda self, status, value: (400 if status == 413 else status, value))


@_breaks("sonuc.too-large")
def reads_what_is_too_large(module: Any) -> None:
    def change(original: Any, self: Any, *asked: Any) -> Any:
        if int(self.headers["Content-Length"]) > 1 << 30:
            self.close_connection = True
            raise module.Hata(400, "gövde eksik")
        return original(self, *asked)

    _around(module.Istek, "_post", change)


@_breaks("sonuc.unreadable")
def unreadable_is_422(module: Any) -> None:
    _answers(
        module,
        lambda self, status, value: (422 if status == 400 and "safetensors" in value["hata"] else status, value),
    )


@_breaks("sonuc.pickle")
def takes_pickles(module: Any) -> None:
    original = module.safetensors_oku
    module.safetensors_oku = lambda body: {} if body.startswith(b"\x80\x02") else original(body)


@_breaks("sonuc.stale")
def content_before_the_round(module: Any) -> None:
    def change(original: Any, self: Any, name: str, number: int, body: bytes) -> Any:
        tensors = _readable(module, body)
        if tensors is not None:
            self._dogrula(tensors)
        return original(self, name, number, body)

    _around(module.Koordinator, "sonuc", change)


@_breaks("sonuc.order-400")
def round_before_the_format(module: Any) -> None:
    def change(original: Any, self: Any, name: str, number: int, body: bytes) -> Any:
        if number != self.tur:
            raise module.Hata(409, "tur uyuşmuyor")
        return original(self, name, number, body)

    _around(module.Koordinator, "sonuc", change)


@_breaks("sonuc.order-413")
def parameters_before_the_size(module: Any) -> None:
    def change(original: Any, self: Any, path: str, query: Any) -> Any:
        self._isci(query)
        return original(self, path, query)

    _around(module.Istek, "_post", change)


@_breaks("sonuc.isci-missing")
def result_of_nobody(module: Any) -> None:
    def change(original: Any, self: Any, query: Any) -> Any:
        return original(self, query) if "isci" in query or self.command == "GET" else "anonim"

    _around(module.Istek, "_isci", change)


@_breaks("general.error-body")
def errors_in_html(module: Any) -> None:
    dumps = module.json.dumps

    class Html:
        @staticmethod
        def dumps(value: Any, **options: Any) -> str:
            return "<h1>Error</h1>" if "hata" in value else str(dumps(value, **options))

        loads = staticmethod(json.loads)

    module.json = Html


@_breaks("general.no-5xx")
def breaks_on_garbage(module: Any) -> None:
    _answers(module, lambda self, status, value: (500 if status == 400 else status, value))


def _readable(module: Any, body: bytes) -> Any:
    try:
        return module.safetensors_oku(body)
    except module.Hata:
        return None


def _accepts_if(module: Any, like: Callable[[Any, str, Any], bool]) -> None:
    """Takes a wrong tensor where ``like(coordinator, name, tensor)``, as if it were the global's own."""

    def change(original: Any, self: Any, tensors: Any) -> Any:
        fits = {name: t for name, t in tensors.items() if not (name in self.glob and like(self, name, t))}
        own = {
            name: ("F32", self.sekiller[name], self.glob[name].tobytes())
            for name in set(tensors) - set(fits)
        }  # fmt: skip
        return original(self, fits | own)

    _around(module.Koordinator, "_dogrula", change)


def _not_finite(tensor: Any) -> bool:
    dtype, _, data = tensor
    return dtype == "F32" and not math.isfinite(sum(array.array("f", data)))


@_breaks("sonuc.mismatch.nan", full=True)
def takes_nan(module: Any) -> None:
    _accepts_if(module, lambda self, name, t: _not_finite(t))


@_breaks("sonuc.mismatch.minus-inf", full=True)
def takes_infinities_that_the_mean_hides(module: Any) -> None:
    _accepts_if(module, lambda self, name, t: t[0] == "F32" and -math.inf in array.array("f", t[2]))


@_breaks("sonuc.mismatch.shape-transposed", full=True)
def looks_at_the_length_alone(module: Any) -> None:
    _accepts_if(
        module, lambda self, name, t: t[0] == "F32" and not _not_finite(t) and len(t[2]) == 4 * len(self.glob[name])
    )


@_breaks("sonuc.mismatch.shape-scalar", full=True)
def broadcasts_scalars(module: Any) -> None:
    _accepts_if(module, lambda self, name, t: t[:2] == ("F32", []))


@_breaks("sonuc.mismatch.dtype-i32", full=True)
def ignores_the_dtype(module: Any) -> None:
    _accepts_if(module, lambda self, name, t: t[0] == "I32")


@_breaks("sonuc.mismatch.key-more", full=True)
def ignores_more_keys(module: Any) -> None:
    _around(
        module.Koordinator,
        "_dogrula",
        lambda original, self, t: original(self, {k: v for k, v in t.items() if k in self.glob}),
    )


@_breaks("sonuc.unreadable.trailing", full=True)
def ignores_trailing_bytes(module: Any) -> None:
    original = module.safetensors_oku

    def read(body: bytes) -> Any:
        try:
            return original(body)
        except module.Hata:
            return original(body.removesuffix(b"\0"))

    module.safetensors_oku = read


@_breaks("sonuc.refused-no-trace", full=True)
def keeps_what_it_refuses(module: Any) -> None:
    def change(original: Any, self: Any, name: str, number: int, body: bytes) -> Any:
        try:
            return original(self, name, number, body)
        except module.Hata as error:
            if error.args[0] == 422:
                self.kalinti = [*getattr(self, "kalinti", []), name]
            raise

    _around(module.Koordinator, "sonuc", change)
    _around(
        module.Koordinator,
        "durum",
        lambda original, self: original(self) | {"bekleyen_sonuc": [*self.sonuclar, *getattr(self, "kalinti", [])]},
    )


@_breaks("sonuc.accepted", full=True)
def says_ok_instead_of_tamam(module: Any) -> None:
    _told(module, "sonuc", tamam=..., ok=True)


@_breaks("gorev.bekle", full=True)
def never_told_to_wait(module: Any) -> None:
    def change(original: Any, self: Any, name: str) -> Any:
        told = original(self, name)
        return original(self, name + "x") if "bekle" in told else told

    _around(module.Koordinator, "gorev", change)


@_breaks("durum.bekleyen", full=True)
def hides_who_has_sent(module: Any) -> None:
    _told(module, "durum", bekleyen_sonuc=[])


@_breaks("sonuc.repeated", full=True)
def takes_two_results_of_a_worker(module: Any) -> None:
    def change(original: Any, self: Any, name: str, number: int, body: bytes) -> Any:
        return original(self, name + "-2" if name in self.sonuclar else name, number, body)

    _around(module.Koordinator, "sonuc", change)


@_breaks("sonuc.order-409", full=True)
def content_before_the_repetition(module: Any) -> None:
    def change(original: Any, self: Any, name: str, number: int, body: bytes) -> Any:
        tensors = _readable(module, body)
        if tensors is not None and number == self.tur:
            self._dogrula(tensors)
        return original(self, name, number, body)

    _around(module.Koordinator, "sonuc", change)


@_breaks("tur.closes", full=True)
def never_closes(module: Any) -> None:
    """Enough is enough, and nothing comes of it."""

    def change(original: Any, self: Any, name: str, number: int, body: bytes) -> Any:
        if len(self.sonuclar) >= self.en_az:
            raise module.Hata(409, "tur dolu")
        return original(self, name, number, body)

    _around(module.Koordinator, "sonuc", change)
    module.Koordinator._tur_kapat = lambda self: None


@_breaks("tur.published", full=True)
def publishes_the_old_weights(module: Any) -> None:
    def change(original: Any, self: Any) -> None:
        before = {name: values[:] for name, values in self.glob.items()}
        original(self)
        self.glob = before
        self._yayinla()

    _around(module.Koordinator, "_tur_kapat", change)


@_breaks("tur.published", full=True)
def forgets_the_new_digest(module: Any) -> None:
    def change(original: Any, self: Any) -> None:
        before = self.ozet
        original(self)
        self.ozet = before

    _around(module.Koordinator, "_tur_kapat", change)


@_breaks("tur.layout", full=True)
def loses_a_tensor(module: Any) -> None:
    def change(original: Any, self: Any) -> None:
        original(self)
        del self.glob[max(self.glob)], self.sekiller[max(self.sekiller)]
        self._yayinla()

    _around(module.Koordinator, "_tur_kapat", change)


@_breaks("tur.stale", full=True)
def takes_the_round_before(module: Any) -> None:
    def change(original: Any, self: Any, name: str, number: int, body: bytes) -> Any:
        return original(self, name, self.tur if number == self.tur - 1 else number, body)

    _around(module.Koordinator, "sonuc", change)


@_breaks("tur.end", full=True)
def never_ends(module: Any) -> None:
    def change(original: Any, self: Any, name: str) -> Any:
        told = original(self, name)
        return {"bekle": True, "tur": self.tur} if "bitti" in told else told

    _around(module.Koordinator, "gorev", change)


@_breaks("tur.end-result", full=True)
def takes_results_after_the_end(module: Any) -> None:
    def change(original: Any, self: Any, name: str, number: int, body: bytes) -> Any:
        over = self.tur >= self.toplam_tur and number == self.tur
        return {"tamam": True, "tur": number} if over else original(self, name, number, body)

    _around(module.Koordinator, "sonuc", change)


@_breaks("tur.x-tur", full=True)
def says_round_0_for_ever(module: Any) -> None:
    _around(module.Koordinator, "agirlik", lambda original, self: (0, *original(self)[1:]))


@_breaks("tur.x-sha256", full=True)
def says_the_first_digest_for_ever(module: Any) -> None:
    first: list[str] = []

    def change(original: Any, self: Any) -> Any:
        number, digest, body = original(self)
        first.append(digest)
        return number, first[0], body

    _around(module.Koordinator, "agirlik", change)


@_breaks("tur.pending", full=True)
def names_the_results_of_all_rounds(module: Any) -> None:
    def change(original: Any, self: Any) -> Any:
        before = [name for line in self.gunluk for name in line["sonuclar"]]
        return original(self) | {"bekleyen_sonuc": [*before, *self.sonuclar]}

    _around(module.Koordinator, "durum", change)


def _looks_only_at(module: Any, is_seen: Callable[[list[str], str], bool]) -> None:
    """Shape and values are checked in some tensors alone."""
    _accepts_if(
        module,
        lambda self, name, t: (
            not is_seen(list(self.glob), name) and (_not_finite(t) or t[:2] != ("F32", self.sekiller[name]))
        ),
    )


@_breaks("sonuc.mismatch.nan-last", full=True, results=30)
def looks_at_the_first_tensor(module: Any) -> None:
    _looks_only_at(module, lambda names, name: name == names[0])


@_breaks("sonuc.mismatch.shape-lora-b", full=True, results=30)
def looks_at_lora_a(module: Any) -> None:
    _looks_only_at(module, lambda names, name: "lora_B" not in name)


@_breaks("sonuc.mismatch.nan-first", full=True, results=30)
def looks_at_lora_b(module: Any) -> None:
    _looks_only_at(module, lambda names, name: "lora_B" in name)


@_breaks("sonuc.mismatch.shape-middle", full=True, results=30)
def looks_at_both_ends(module: Any) -> None:
    _looks_only_at(module, lambda names, name: name in (names[0], names[-1]))


@_breaks("sonuc.future", full=True)
def takes_the_round_after(module: Any) -> None:
    def change(original: Any, self: Any, name: str, number: int, body: bytes) -> Any:
        return original(self, name, self.tur if number == self.tur + 1 else number, body)

    _around(module.Koordinator, "sonuc", change)


@_breaks("sonuc.tur-negative", full=True)
def reads_minus_1_as_the_current_round(module: Any) -> None:
    def change(original: Any, self: Any, path: str, query: Any) -> Any:
        return original(self, path, query | {"tur": str(self.koordinator.tur)} if query.get("tur") == "-1" else query)

    _around(module.Istek, "_post", change)


@_breaks("sonuc.refused-again", full=True)
def remembers_who_was_refused(module: Any) -> None:
    refused: set[tuple[str, int]] = set()

    def result(original: Any, self: Any, name: str, number: int, body: bytes) -> Any:
        if (name, number) in refused and number == self.tur:
            raise module.Hata(409, "bu tur için gönderdiniz")
        try:
            return original(self, name, number, body)
        except module.Hata as error:
            if error.args[0] == 422:
                refused.add((name, number))
            raise

    _around(module.Koordinator, "sonuc", result)


@_breaks("sonuc.accepted-all", full=True)
def answers_the_closing_result_with_the_next_round(module: Any) -> None:
    _around(module.Koordinator, "sonuc", lambda original, self, *sent: original(self, *sent) | {"tur": self.tur})


@_breaks("gorev.parca-kept", full=True)
def slices_move_when_others_come(module: Any) -> None:
    def change(original: Any, self: Any, name: str) -> Any:
        told = original(self, name)
        return told | {"parca": len(self.isciler) % self.en_az} if "parca" in told else told

    _around(module.Koordinator, "gorev", change)


def _damage(coordinator: Any) -> None:
    next(iter(coordinator.glob.values()))[0] = math.nan
    coordinator._yayinla()


@_breaks("tur.finite", full=True)
def publishes_nan(module: Any) -> None:
    def change(original: Any, self: Any) -> None:
        original(self)
        _damage(self)

    _around(module.Koordinator, "_tur_kapat", change)


@_breaks("agirlik.finite")
def begins_with_nan(module: Any) -> None:
    def change(original: Any, self: Any, *asked: Any) -> None:
        original(self, *asked)
        _damage(self)

    _around(module.Koordinator, "__init__", change)


def ozet_of_the_first_round(module: Any) -> None:
    """Of the recommended tur.ozet."""
    first: list[str] = []

    def change(original: Any, self: Any) -> Any:
        told = original(self)
        first.append(told["ozet"])
        return told | {"ozet": first[0]}

    _around(module.Koordinator, "durum", change)


def describes_other_weights(module: Any) -> None:
    """Of the recommended bilgi.weights."""
    _told(module, "bilgi", agirlik_sha256="0" * 64)


def describes_another_size(module: Any) -> None:
    """Of the recommended bilgi.weights."""
    _told(module, "bilgi", agirlik_boyutu=1)


def describes_the_first_weights(module: Any) -> None:
    """Of the recommended tur.bilgi."""
    first: list[str] = []

    def change(original: Any, self: Any) -> Any:
        told = original(self)
        first.append(told["agirlik_sha256"])
        return told | {"agirlik_sha256": first[0]}

    _around(module.Koordinator, "bilgi", change)


def takes_everything(module: Any) -> None:
    """What must not get into a round does."""
    _around(module.Koordinator, "sonuc", lambda original, self, name, number, body: {"tamam": True, "tur": self.tur})


def more_in_the_task(module: Any) -> None:
    """Legitimate: a field of its own, which changes."""
    turn = iter(range(10**9))
    _around(
        module.Koordinator, "gorev", lambda original, self, name: original(self, name) | {"kalan_saniye": next(turn)}
    )


def rate_of_zero(module: Any) -> None:
    """Legitimate: the protocol has no bounds of lr."""
    _told(module, "gorev", lr=0)


def closes_later(module: Any, meanwhile: str = "task") -> None:
    """Legitimate: the round is published some time after its last result.

    ``meanwhile``: whoever asks gets a task whose result is answered 409, "bekle", or 503.
    """

    def close(original: Any, self: Any) -> None:
        def publish() -> None:
            with self.kilit:
                original(self)
                self.kapaniyor = False

        self.kapaniyor = True
        timer = threading.Timer(0.3, publish)
        timer.daemon = True
        timer.start()

    def result(original: Any, self: Any, name: str, number: int, body: bytes) -> Any:
        if self.kapaniyor and _readable(module, body) is not None:
            raise module.Hata(503 if meanwhile == "503" else 409, "tur kapanıyor")
        return original(self, name, number, body)

    def task(original: Any, self: Any, name: str) -> Any:
        if self.kapaniyor and meanwhile == "503":
            raise module.Hata(503, "tur kapanıyor")
        if self.kapaniyor and meanwhile == "bekle":
            return {"bekle": True, "tur": self.tur}
        return original(self, name)

    module.Koordinator.kapaniyor = False
    for name, change in (("_tur_kapat", close), ("sonuc", result), ("gorev", task)):
        _around(module.Koordinator, name, change)


def of_one_nickname(module: Any) -> None:
    """A coordinator whose key "gizli" belongs to "ali"."""
    keyed(module)

    def change(original: Any, self: Any, query: Any) -> Any:
        if query.get("isci", "ali") != "ali":
            raise module.Hata(401, "yetkisiz")
        return original(self, query)

    _around(module.Istek, "_isci", change)


def keyed(module: Any, open_paths: tuple[str, ...] = ("/bilgi",), text: str = "yetkisiz") -> None:
    """A coordinator that asks for the key "gizli"; ``open_paths`` are answered without one."""

    def refuse(*_asked: Any) -> Any:
        raise module.Hata(401, text)

    def change(original: Any, self: Any, act: Callable[..., Any]) -> None:
        if self.path.split("?")[0] not in open_paths and self.headers.get("X-Anahtar") != "gizli":
            self.close_connection = True
            act = refuse
        original(self, act)

    _around(module.Istek, "_yanitla", change)
    _told(module, "bilgi", anahtar_gerekli=True)


def without_information(module: Any) -> None:
    """No /bilgi: nobody has to have it."""

    def change(original: Any, self: Any, path: str, query: Any) -> Any:
        if path == "/bilgi":
            raise module.Hata(404, "böyle bir yol yok")
        return original(self, path, query)

    _around(module.Istek, "_get", change)


def http_1_0(module: Any) -> None:
    """The protocol's transport is HTTP/1.1; one who speaks 1.0 is advised, not failed."""
    module.Istek.protocol_version = "HTTP/1.0"
