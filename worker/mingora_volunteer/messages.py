"""What the coordinator says in JSON, checked by type and range; the protocol's Turkish names stop here.

The coordinator isn't trusted: a task may cost this machine no more than the limits below.
Source: coordinator protocol v1, `GET /bilgi` and `GET /gorev`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

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
MAX_RATE = 1.0
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
    adapter sits on it. None is what the coordinator doesn't tell in a way that can be used."""

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
        rate=_number(fields, "lr", MAX_RATE),
        seed=_whole(fields, "tohum", 0, MAX_SEED),
        digest=str(fields.get("agirlik_sha256")),
    )
    if not _DIGEST.fullmatch(task.digest):
        raise _bad("agirlik_sha256")
    if task.batch * task.sequence > MAX_BATCH_TOKENS:
        raise _bad("bs × seq")
    return task


def info_of(data: Any) -> Info:
    """The answer of `GET /bilgi`. Everything but `protokol` is informational. Raises `BadAnswer`."""
    fields = _object(data, "/bilgi")
    if fields.get("protokol") != PROTOCOL:
        raise BadAnswer(_("The coordinator doesn't speak version {version} of the protocol.").format(version=PROTOCOL))
    name = fields.get("taban_model")
    base_model = name[:MAX_NAME] if isinstance(name, str) and name else None
    told = fields.get("adaptor")
    adapter = told if isinstance(told, dict) else {}
    rank, alpha, modules = (adapter.get(name) for name in ("r", "alfa", "hedef_moduller"))
    return Info(
        base_model,
        rank=rank if _is_whole(rank, 1, MAX_RANK) else None,
        alpha=float(alpha) if _is_number(alpha, MAX_ALPHA) else None,
        modules=tuple(modules) if _are_modules(modules) else None,
    )


def _are_modules(names: Any) -> TypeGuard[list[str]]:
    return isinstance(names, list) and 1 <= len(names) <= MAX_MODULES and all(map(_is_module, names))


def _is_module(name: Any) -> bool:
    return isinstance(name, str) and len(name) <= MAX_NAME and _MODULE.fullmatch(name) is not None


def _object(data: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(data, dict):
        raise _bad(what)
    return data


def _whole(fields: Mapping[str, Any], name: str, least: int, most: int) -> int:
    value = fields.get(name)
    if not _is_whole(value, least, most):
        raise _bad(name)
    return value


def _is_whole(value: Any, least: int, most: int) -> TypeGuard[int]:
    return type(value) is int and least <= value <= most  # True is no number here


def _number(fields: Mapping[str, Any], name: str, most: float) -> float:
    value: Any = fields.get(name)
    if not _is_number(value, most):
        raise _bad(name)
    return float(value)


def _is_number(value: Any, most: float) -> TypeGuard[float]:
    return type(value) in {int, float} and 0 < value <= most  # NaN isn't, either


def _bad(name: str) -> BadAnswer:
    return BadAnswer(_("The coordinator's answer can't be used: {field}.").format(field=name))
