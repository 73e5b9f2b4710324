"""The worker's command line, checked, as one frozen value."""

from __future__ import annotations

import argparse
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mingora.errors import UsageProblem
from mingora_worker import __version__
from mingora_worker.runtimes.docker.reference import Reference, parse_reference
from mingora_worker.texts import _

_DATA_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_LABEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}")
_SIZE = re.compile(r"(\d{1,15})([KMGT]?)(?:iB|B)?", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
MAX_PAIRS = 50
MAX_TEXT = 100


@dataclass(frozen=True)
class Config:
    """`max_disk` in bytes, None without a limit. `server` and `ca_file` are None unless given."""

    root: Path
    allow_own_code: bool
    name: str
    network_group: str | None = None
    allow_cluster_network: bool = False
    gpu_index: int | None = None
    docker_image: Reference | None = None
    server: str | None = None
    ca_file: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    data: dict[str, Path] = field(default_factory=dict)
    max_disk: int | None = None
    once: bool = False
    check: bool = False
    json_logs: bool = False


def parse(arguments: Sequence[str]) -> Config:
    """Raises `UsageProblem`; ends the process with 2 for what argparse itself finds wrong."""
    given = _parser().parse_args(arguments)
    name = given.name or socket.gethostname() or "worker"
    return Config(
        root=Path(given.root).expanduser().absolute(),
        allow_own_code=given.allow_own_code,
        name=_text("--name", name[:MAX_TEXT] if given.name is None else name),
        network_group=None if given.network_group is None else _text("--network-group", given.network_group),
        allow_cluster_network=given.allow_cluster_network,
        gpu_index=given.gpu_index,
        docker_image=None if given.docker_image is None else parse_reference(given.docker_image),
        server=given.server,
        ca_file=None if given.ca_file is None else str(Path(given.ca_file).expanduser().absolute()),
        labels=_labels(given.label),
        data=_data(given.data),
        max_disk=None if given.max_disk is None else _size(given.max_disk),
        once=given.once,
        check=given.check,
        json_logs=given.json_logs,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mingora-worker",
        description=_("Claims jobs of your own account, runs them on this machine, and reports verified results."),
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--root", required=True, metavar="DIR", help=_("folder of this worker; one worker a folder"))
    add("--allow-own-code", action="store_true", help=_("run native jobs of your own account with your own rights"))
    add("--name", metavar="NAME", help=_("how the node is called in lists (default: this machine's name)"))
    add("--network-group", metavar="GROUP", help=_("label of machines that reach each other"))
    add("--allow-cluster-network", action="store_true", help=_("accept jobs that talk to other nodes"))
    add("--gpu-index", type=_index, metavar="N", help=_("offer this NVIDIA GPU, counted as nvidia-smi does"))
    add("--docker-image", metavar="IMAGE", help=_("run Docker jobs in this image: repository@sha256:…"))
    add("--server", metavar="URL", help=_("address of the platform (default: that of your login)"))
    add("--ca-file", metavar="FILE", help=_("certificate of the platform's own authority"))
    add("--label", action="append", default=[], metavar="NAME=VALUE", help=_("a label shown with the node"))
    add("--data", action="append", default=[], metavar="NAME=PATH", help=_("offer local data to jobs, read-only"))
    add("--max-disk", metavar="SIZE", help=_("the most that the folder may hold, such as 20G"))
    add("--once", action="store_true", help=_("run one job, then end"))
    add("--check", action="store_true", help=_("show what this machine offers and what is missing, then end"))
    add("--json-logs", action="store_true", help=_("print events as JSON, one a line"))
    add("--version", action="version", version=f"mingora-worker {__version__}", help=_("show the version and exit"))
    return parser


def _index(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 3:
        raise argparse.ArgumentTypeError(_("{text} is no index: 0, 1, 2 …").format(text=repr(text)))
    return int(text)


def _text(option: str, value: str) -> str:
    if not 1 <= len(value) <= MAX_TEXT or not value.isprintable():
        raise UsageProblem(_("{option} takes 1 to {most} printable characters.").format(option=option, most=MAX_TEXT))
    return value


def _pairs(option: str, items: Sequence[str], name: re.Pattern[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not value or not name.fullmatch(key):
            raise UsageProblem(
                _("{option} takes NAME=VALUE with a NAME like {example}, not {item}.").format(
                    option=option, example="TRAIN_SET" if option == "--data" else "rack", item=repr(item)
                )
            )
        if key in pairs:
            raise UsageProblem(_("{option} names {name} twice.").format(option=option, name=key))
        pairs[key] = value
    if len(pairs) > MAX_PAIRS:
        raise UsageProblem(_("{option} may be given {most} times.").format(option=option, most=MAX_PAIRS))
    return pairs


def _labels(items: Sequence[str]) -> dict[str, str]:
    pairs = _pairs("--label", items, _LABEL_NAME)
    return {key: _text("--label", value) for key, value in pairs.items()}


def _data(items: Sequence[str]) -> dict[str, Path]:
    paths = {key: Path(value).expanduser().absolute() for key, value in _pairs("--data", items, _DATA_NAME).items()}
    for key, path in paths.items():
        if not path.exists():
            raise UsageProblem(_("--data {name}: {path} does not exist.").format(name=key, path=path))
    return paths


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageProblem(_("--max-disk takes a size such as 20G, not {text}.").format(text=repr(text)))
    return int(match[1]) * _UNITS[match[2].upper()]
