"""Beginning a training in an empty data folder, and taking one up where a stopped or killed process left it."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mingora_coordinator.domain.header import Header
from mingora_coordinator.domain.measure import BYTES_A_VALUE
from mingora_coordinator.domain.rounds import Accepted
from mingora_coordinator.domain.settings import Lora
from mingora_coordinator.store.adapter_file import Layout, Unusable, digest_of, first_header
from mingora_coordinator.store.durable import make_folder, read_lines, sync_file
from mingora_coordinator.store.folder import MENDS, DataFolder, FolderError, RoundFolder
from mingora_coordinator.training.closing import Published

_LORA_KEY = re.compile(r"(?:^|\.)([A-Za-z0-9_]+)\.lora_A(?:\.[A-Za-z0-9_]+)?\.weight$")
_CONFIG = "adapter_config.json"
_MAX_CONFIG = 1 << 20


@dataclass(frozen=True, slots=True)
class Opened:
    """The open round as it is on the disk.

    Attributes:
        accepted: the recorded results.
        tasks: the slices that were given out, by nickname.
        must_ask: see :class:`~mingora_coordinator.domain.rounds.Round`.
        accepted_ever: results since the training began; None when the folder doesn't tell.
    """

    published: Published
    layout: Layout
    accepted: list[Accepted]
    tasks: dict[str, int]
    must_ask: bool
    accepted_ever: int | None


def begin(folder: DataFolder, initial: Path, base_model: str, now: int) -> None:
    """Make ``initial`` the adapter of round 0, byte for byte. The folder is locked and has no round.

    Raises:
        Unusable: ``initial`` can't be a training's adapter.
        OSError: the disk.
    """
    header = first_header(initial)
    folder.write_lora(lora_of(header, initial, base_model))
    prepared = folder.prepare()
    shutil.copyfile(initial, prepared.adapter)
    sync_file(prepared.adapter)
    about = {"number": 0, "digest": digest_of(prepared.adapter), "momentum": None, "opened": now, "closed": None}
    prepared.write_about({**about, "acceptedBefore": 0})
    folder.publish(prepared, 0)


def resume(folder: DataFolder) -> Opened:
    """Read the newest round of a locked folder.

    Raises:
        FolderError: it is damaged.
    """
    numbers = folder.numbers()
    found = folder.round(numbers[-1])
    about = found.about()
    layout = intact(found, about)
    try:
        accepted, reopened, ever = _recorded(found)
    except (ValueError, KeyError, TypeError) as error:
        raise FolderError(f"{found.journal} is damaged: {MENDS}") from error
    _check_results(found, layout, accepted)
    opened = int(about["opened"]) if reopened is None else reopened
    published = Published(numbers[-1], str(about["digest"]), found.adapter.stat().st_size, found, opened)
    before = about.get("acceptedBefore")
    return Opened(
        published,
        layout,
        accepted,
        _tasks(found),
        must_ask=reopened is not None or numbers[-1] <= folder.highest_undone(),
        accepted_ever=None if before is None else before + ever,
    )


def intact(found: RoundFolder, about: Mapping[str, Any]) -> Layout:
    """The layout of a round's adapter, which is as it was published, and so is its momentum.

    Raises:
        FolderError: it isn't.
    """
    try:
        layout = Layout.of(first_header(found.adapter))
        whole = digest_of(found.adapter) == about["digest"]
        momentum = about.get("momentum")
        whole = whole and (momentum is None or digest_of(found.momentum) == momentum)
    except (Unusable, OSError):
        whole = False
    if not whole:
        raise FolderError(f"The adapter or the momentum in {found.path} is damaged: {MENDS}")
    return layout


def _check_results(found: RoundFolder, layout: Layout, accepted: Sequence[Accepted]) -> None:
    """Raise FolderError unless every recorded result is there; remove what isn't recorded: a process was killed before
    its line was in the journal, so it wasn't acknowledged."""
    make_folder(found.results)  # a back-up may have left an empty one out
    for result in accepted:
        path, size = found.result(result.file), result.data_start + BYTES_A_VALUE * layout.values
        if not path.is_file() or path.stat().st_size != size:
            raise FolderError(f"{path}, which the journal names, is missing or damaged: restore a back-up")
    named = {result.file for result in accepted}
    for path in found.results.iterdir():
        if path.name not in named:
            path.unlink()


def _tasks(found: RoundFolder) -> dict[str, int]:
    """The slices that were given out; those that can't be read are given out anew."""
    tasks: dict[str, int] = {}
    with contextlib.suppress(ValueError, KeyError, TypeError):
        for line in read_lines(found.tasks):
            tasks[str(line["worker"])] = int(line["shard"])
    return tasks


def lora_of(header: Header, initial: Path, base_model: str) -> Lora:
    """What the adapter's keys tell, and an ``adapter_config.json`` that lies beside it, as PEFT leaves one.

    Without one, alpha is twice the rank, which is the protocol's example.
    """
    matches = [(match[1], tensor.shape) for tensor in header.tensors if (match := _LORA_KEY.search(tensor.name))]
    ranks = {shape[0] for _name, shape in matches if len(shape) == 2}
    rank = min(ranks) if ranks else 0
    config = _config_beside(initial)
    alpha = config.get("lora_alpha")
    known = isinstance(alpha, int | float) and not isinstance(alpha, bool) and 0 < alpha < 1e6
    base = config.get("base_model_name_or_path")
    return Lora(
        base_model or (base if isinstance(base, str) else ""),
        rank,
        float(alpha) if known and isinstance(alpha, int | float) else 2.0 * rank,
        tuple(dict.fromkeys(name for name, _shape in matches)),
    )


def _config_beside(initial: Path) -> dict[str, object]:
    path = initial.with_name(_CONFIG)
    try:
        if path.stat().st_size > _MAX_CONFIG:
            raise Unusable(f"{path} is larger than any such file")
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise Unusable(f"{path} can't be read: {error}") from error
    return found if isinstance(found, dict) else {}


def _recorded(found: RoundFolder) -> tuple[list[Accepted], int | None, int]:
    """The results of the journal, when the round was opened again, if it was, and how many it ever accepted."""
    accepted: dict[str, Accepted] = {}
    reopened, ever = None, 0
    for line in read_lines(found.journal):
        if line["event"] == "reopened":
            accepted, reopened = {}, int(line["at"])
        elif line["event"] == "accepted":
            result = Accepted(**line["result"])
            accepted[result.worker], ever = result, ever + 1
    return list(accepted.values()), reopened, ever
