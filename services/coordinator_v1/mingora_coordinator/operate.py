"""The commands that look at a training's folder or change it: status, history, ledger, export, rollback, key."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mingora_common.clock import SystemClock, rfc3339
from mingora_coordinator.domain.settings import MAX_NAME
from mingora_coordinator.store.counters import Counter, Counters
from mingora_coordinator.store.durable import make_folder, read_lines, sync_file
from mingora_coordinator.store.folder import DataFolder, FolderError, RoundFolder
from mingora_coordinator.store.keys import Keys
from mingora_coordinator.training.ledger import closed_rounds, entries
from mingora_coordinator.training.opening import intact
from mingora_coordinator.training.rollback import rollback

_WEIGHTS, _CONFIG = "adapter_model.safetensors", "adapter_config.json"


def add_commands(commands: Any, data_option: Callable[[argparse.ArgumentParser], None]) -> None:
    """Add the commands to ``argparse``'s subparsers."""

    def add(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text.capitalize() + ".")
        data_option(parser)
        parser.set_defaults(run=run)
        return parser

    add("status", _status, "the open round, its results and the traffic").add_argument("--json", action="store_true")
    add("history", _history, "every closed round: results, distances, cosines, time").add_argument(
        "--json", action="store_true"
    )
    add("ledger", _ledger, "every accepted and refused result, one JSON object a line")
    parser = add("rollback", _rollback, "go back to the adapter of an earlier round (the coordinator is stopped)")
    parser.add_argument("round", metavar="ROUND", type=int)
    parser = add("export", _export, "write an adapter as a folder that PEFT loads")
    parser.add_argument("folder", metavar="FOLDER", type=Path)
    parser.add_argument("--round", metavar="ROUND", type=int, help="default: the newest")
    parser = commands.add_parser("key", help="keys that belong to one nickname each")
    keys = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, run, text in (
        ("add", _key_add, "make a key for a nickname, which from now on needs it; it is shown once"),
        ("remove", _key_remove, "take a nickname's key away"),
        ("list", _key_list, "nicknames that have a key"),
    ):
        parser = keys.add_parser(name, help=text)
        data_option(parser)
        parser.set_defaults(run=run)
        if name != "list":
            parser.add_argument("name", metavar="NAME", type=_nickname)


def _status(options: argparse.Namespace) -> int:
    folder, newest = _newest(options)
    about = newest.about()
    accepted: list[str] = []
    for line in read_lines(newest.journal):
        if line["event"] == "reopened":
            accepted = []
        elif line["event"] == "accepted":
            accepted.append(line["result"]["worker"])
    counters = Counters.read(folder.counters)
    status = {
        "round": about["number"],
        "digest": about["digest"],
        "opened": rfc3339(about["opened"]),
        "pending": accepted,
        "sentBytes": counters[Counter.SENT],
        "receivedBytes": counters[Counter.RECEIVED],
        "acceptedResults": counters[Counter.ACCEPTED],
        "refusedResults": counters[Counter.REFUSED],
        "baseModel": folder.lora().base_model,
    }
    if options.json:
        print(json.dumps(status, indent=2))
        return 0
    print(f"Round {status['round']}, open since {status['opened']}")
    print(f"Adapter  sha256 {status['digest']}")
    print(f"Results  {len(accepted)} of this round" + (f": {', '.join(map(_shown, accepted))}" if accepted else ""))
    print(f"In all   {status['acceptedResults']} accepted, {status['refusedResults']} refused")
    print(f"Traffic  {_mebibytes(status['sentBytes'])} sent, {_mebibytes(status['receivedBytes'])} received")
    return 0


def _history(options: argparse.Namespace) -> int:
    folder, _ = _newest(options)
    rounds = closed_rounds(folder)
    if options.json:
        print(json.dumps(rounds, indent=2))
        return 0
    if not rounds:
        print("No round has been closed yet.")
    for closed in rounds:
        used = sum(result["used"] for result in closed["results"])
        made = f"{closed['outer']} of {used} of {len(closed['results'])} results in {closed['seconds']:.3f} s"
        print(f"Round {closed['round']}: closed {rfc3339(closed['closed'])} by {closed['by']}, {made}")
        for result in closed["results"]:
            cosine = result.get("cosine")
            print(
                f"  {_shown(result['worker']):<24} distance {result['distance']:<12.6g} cosine "
                f"{'-' if cosine is None else format(cosine, '.4f'):<8} {'used' if result['used'] else 'outlier'}"
            )
    return 0


def _ledger(options: argparse.Namespace) -> int:
    folder, _ = _newest(options)
    for entry in entries(folder):
        print(json.dumps(entry))
    return 0


def _rollback(options: argparse.Namespace) -> int:
    folder = DataFolder(options.data_dir)
    _newest(options)
    folder.lock()
    try:
        if options.round in folder.numbers():
            intact(folder.round(options.round), folder.round(options.round).about())
        taken = rollback(folder, options.round, SystemClock().now())
    finally:
        folder.unlock()
    if taken:
        gone = f"rounds {taken[-1]} to {taken[0]} were moved to {folder.path}/undone"
        print(f"Round {options.round} is open again; {gone}.")
    else:
        print(f"Round {options.round} is the newest: it is open again, without the results it had.")
    print("Start the coordinator again to go on.")
    return 0


def _export(options: argparse.Namespace) -> int:
    folder, newest = _newest(options)
    chosen = newest if options.round is None else folder.round(options.round)
    if not chosen.adapter.is_file():
        numbers = folder.numbers()
        raise FolderError(f"There is no round {options.round}: {folder.path} has rounds {numbers[0]} to {numbers[-1]}")
    intact(chosen, chosen.about())
    lora = folder.lora()
    if not lora.rank:
        raise FolderError("The adapter's keys aren't those of LoRA (….lora_A.weight): PEFT couldn't load it")
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": lora.base_model or None,
        "r": lora.rank,
        "lora_alpha": lora.whole_alpha,
        "target_modules": list(lora.targets),
        "lora_dropout": 0.0,
        "bias": "none",
        "inference_mode": True,
    }
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
        for name in (_WEIGHTS, _CONFIG):
            if (options.folder / name).exists():
                raise FolderError(f"{options.folder / name} exists already: name another folder")
        shutil.copyfile(chosen.adapter, options.folder / _WEIGHTS)
        (options.folder / _CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        sync_file(options.folder / _WEIGHTS)
    except OSError as error:
        raise FolderError(f"{options.folder} can't be written: {error.strerror}") from error
    about = chosen.about()
    print(f"Round {about['number']} (sha256 {about['digest']}) is in {options.folder}.")
    return 0


def _key_add(options: argparse.Namespace) -> int:
    keys = _keys(options)
    if not DataFolder(options.data_dir).numbers():
        print(f"No training was begun in {options.data_dir} yet.", file=sys.stderr)
    try:
        key = keys.add(options.name)
    except OSError as error:
        raise FolderError(f"{keys.path} can't be written: {error.strerror}") from error
    print(f"Give {_shown(options.name)} this key; it isn't stored and can't be shown again:", file=sys.stderr)
    print(key)
    return 0


def _key_remove(options: argparse.Namespace) -> int:
    if not _keys(options).remove(options.name):
        print(f"{_shown(options.name)} has no key.", file=sys.stderr)
        return 1
    print(f"The key of {_shown(options.name)} is gone.")
    keys = _keys(options)
    if not keys.names():
        print(
            f"No nickname has a key now. Unless all share one, nobody gets in: to let everybody in, remove {keys.path}."
        )
    return 0


def _key_list(options: argparse.Namespace) -> int:
    for name in _keys(options).names():
        print(_shown(name))
    return 0


def _keys(options: argparse.Namespace) -> Keys:
    folder = DataFolder(options.data_dir)
    try:
        make_folder(folder.path)
    except OSError as error:
        raise FolderError(f"{folder.path} can't be used as data folder: {error.strerror}") from error
    return Keys(folder.keys)


def _newest(options: argparse.Namespace) -> tuple[DataFolder, RoundFolder]:
    folder = DataFolder(options.data_dir)
    numbers = folder.numbers()
    if not numbers:
        raise FolderError(f"No training was begun in {folder.path}: name the folder by --data-dir")
    return folder, folder.round(numbers[-1])


def _nickname(text: str) -> str:
    if not text.strip() or len(text) > MAX_NAME or not text.isprintable():
        raise argparse.ArgumentTypeError(f"a nickname has 1 to {MAX_NAME} printable characters")
    return text


def _shown(name: str) -> str:
    """A nickname, which anybody chose, as a terminal may show it."""
    return "".join(character if character.isprintable() else "?" for character in name)


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"
