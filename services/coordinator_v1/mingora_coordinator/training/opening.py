"""Beginning a training in an empty data folder, and taking one up where a stopped or killed process left it."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from mingora_coordinator.domain.header import Header
from mingora_coordinator.domain.rounds import Accepted
from mingora_coordinator.domain.settings import Lora
from mingora_coordinator.store.adapter_file import Layout, Unusable, digest_of, first_header
from mingora_coordinator.store.durable import read_lines, sync_file
from mingora_coordinator.store.folder import DataFolder, FolderError, RoundFolder
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
    """

    published: Published
    layout: Layout
    accepted: list[Accepted]
    tasks: dict[str, int]
    must_ask: bool


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
    prepared.write_about({"number": 0, "digest": digest_of(prepared.adapter), "opened": now, "closed": None})
    folder.publish(prepared, 0)


def resume(folder: DataFolder) -> Opened:
    """Read the newest round of a locked folder.

    Raises:
        FolderError: it is damaged.
    """
    numbers = folder.numbers()
    found = folder.round(numbers[-1])
    about = found.about()
    digest, opened = str(about["digest"]), int(about["opened"])
    try:
        layout = Layout.of(first_header(found.adapter))
        intact = digest_of(found.adapter) == digest
    except (Unusable, OSError):
        intact = False
    if not intact:
        raise FolderError(
            f"{found.adapter} is damaged: restore a back-up, or go back with `mingora-coordinator rollback ROUND`"
        )
    accepted, reopened = _recorded(found)
    missing = [result.file for result in accepted if not found.result(result.file).is_file()]
    if missing:
        raise FolderError(f"{found.results}/{missing[0]} is missing, which the journal names: restore a back-up")
    named = {result.file for result in accepted}
    for path in found.results.iterdir():
        if path.name not in named:
            path.unlink()  # a process was killed before its line was in the journal: it wasn't acknowledged
    published = Published(numbers[-1], digest, found.adapter.stat().st_size, found, reopened or opened)
    tasks = {str(line["worker"]): int(line["shard"]) for line in read_lines(found.tasks)}
    must_ask = reopened is not None or numbers[-1] <= folder.highest_undone()
    return Opened(published, layout, accepted, tasks, must_ask)


def layout_of(round_folder: RoundFolder) -> Layout:
    """The layout of a published adapter."""
    return Layout.of(first_header(round_folder.adapter))


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


def _recorded(found: RoundFolder) -> tuple[list[Accepted], int | None]:
    """The results of the journal, and when the round was opened again, if it was."""
    accepted: list[Accepted] = []
    reopened: int | None = None
    for line in read_lines(found.journal):
        if line["event"] == "reopened":
            accepted, reopened = [], int(line["at"])
        elif line["event"] == "accepted":
            accepted.append(Accepted(**line["result"]))
    return accepted, reopened
