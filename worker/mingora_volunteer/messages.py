"""What the coordinator says in JSON, checked by type and range; the protocol's Turkish names stop here.

The coordinator isn't trusted: a task may cost this machine no more than the limits below.
Source: coordinator protocol v1, `GET /bilgi` and `GET /gorev`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mingora.errors import MingoraError
from mingora_volunteer.texts import _

PROTOCOL = "1"
MAX_ROUNDS = 10_000_000
MAX_PARTS = 1_000_000
MAX_STEPS = 100_000
MAX_BATCH = 1024
MAX_SEQUENCE = 131_072
MAX_BATCH_TOKENS = 1 << 20
MAX_SEED = (1 << 63) - 1
MAX_RANK = 1024
MAX_ALPHA = 65_536.0
MAX_MODULES = 64
MAX_NAME = 200
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MODULE = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*")


class BadAnswer(MingoraError):
    """The coordinator's answer isn't one of the protocol, or asks for more than the limits."""


@dataclass(frozen=True)
class Task:
    """One round's work. `part` of `parts` slices of the data, `steps` of `batch` × `sequence` tokens, `rate` the
    highest learning rate, `digest` the SHA-256 of the adapter to start from."""

    round: int
    rounds: int
    part: int
    parts: int
    steps: int
    batch: int
    sequence: int
    rate: float
    seed: int
    digest: str


@dataclass(frozen=True)
class Wait:
    """This round has the volunteer's result already."""

    round: int


@dataclass(frozen=True)
class Done:
    """The training is over."""


@dataclass(frozen=True)
class Info:
    """`base_model` names the model that the coordinator trains on; `rank`, `alpha` and `modules` say how the LoRA
    adapter sits on it. None is what the coordinator doesn't tell."""

    base_model: str | None = None
    rank: int | None = None
    alpha: float | None = None
    modules: tuple[str, ...] | None = None


def task_of(data: Any) -> Task | Wait | Done:
    """The answer of `GET /gorev`. Raises `BadAnswer`."""
    fields = _object(data, "/gorev")
    if fields.get("bitti") is True:
        return Done()
    if fields.get("bekle") is True:
        return Wait(_whole(fields, "tur", 0, MAX_ROUNDS))
    parts = _whole(fields, "n_parca", 1, MAX_PARTS)
    task = Task(
        round=_whole(fields, "tur", 0, MAX_ROUNDS),
        rounds=_whole(fields, "toplam_tur", 0, MAX_ROUNDS),
        part=_whole(fields, "parca", 0, parts - 1),
        parts=parts,
        steps=_whole(fields, "ic_adim", 1, MAX_STEPS),
        batch=_whole(fields, "bs", 1, MAX_BATCH),
        sequence=_whole(fields, "seq", 2, MAX_SEQUENCE),
        rate=_number(fields, "lr", 1.0),
        seed=_whole(fields, "tohum", 0, MAX_SEED),
        digest=str(fields.get("agirlik_sha256")),
    )
    if not _DIGEST.fullmatch(task.digest):
        raise _bad("agirlik_sha256")
    if task.batch * task.sequence > MAX_BATCH_TOKENS:
        raise _bad("bs × seq")
    return task


def info_of(data: Any) -> Info:
    """The answer of `GET /bilgi`. Everything but `protokol` may be missing. Raises `BadAnswer`."""
    fields = _object(data, "/bilgi")
    if fields.get("protokol") != PROTOCOL:
        raise BadAnswer(_("The coordinator doesn't speak version {version} of the protocol.").format(version=PROTOCOL))
    name = fields.get("taban_model")
    base_model = name[:MAX_NAME] if isinstance(name, str) and name else None
    adapter = _object(fields.get("adaptor", {}), "adaptor")
    if adapter.get("yontem", "lora") != "lora":
        raise BadAnswer(_("The coordinator's adapter isn't a LoRA."))
    if adapter.get("dtype", "float32") != "float32":
        raise BadAnswer(_("The coordinator's adapter isn't of float32 numbers."))
    return Info(
        base_model,
        rank=_whole(adapter, "r", 1, MAX_RANK) if "r" in adapter else None,
        alpha=_number(adapter, "alfa", MAX_ALPHA) if "alfa" in adapter else None,
        modules=_modules(adapter["hedef_moduller"]) if "hedef_moduller" in adapter else None,
    )


def _modules(names: Any) -> tuple[str, ...]:
    if not isinstance(names, list) or not 1 <= len(names) <= MAX_MODULES or not all(map(_is_module, names)):
        raise _bad("hedef_moduller")
    return tuple(names)


def _is_module(name: Any) -> bool:
    return isinstance(name, str) and len(name) <= MAX_NAME and _MODULE.fullmatch(name) is not None


def _object(data: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(data, dict):
        raise _bad(what)
    return data


def _whole(fields: Mapping[str, Any], name: str, least: int, most: int) -> int:
    value = fields.get(name)
    if type(value) is not int or not least <= value <= most:  # True is no number here
        raise _bad(name)
    return value


def _number(fields: Mapping[str, Any], name: str, most: float) -> float:
    value: Any = fields.get(name)
    if type(value) not in {int, float} or not 0 < value <= most:  # NaN isn't, either
        raise _bad(name)
    return float(value)


def _bad(name: str) -> BadAnswer:
    return BadAnswer(_("The coordinator's answer can't be used: {field}.").format(field=name))
