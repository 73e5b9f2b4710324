"""The volunteer's command lines, checked, as frozen values."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mingora.errors import UsageProblem
from mingora_volunteer import __version__
from mingora_volunteer.address import Address, parse_address
from mingora_volunteer.pace import rate_of
from mingora_volunteer.protocol import MAX_QUESTION
from mingora_volunteer.texts import _

KEY_VARIABLE = "MINGORA_COORDINATOR_KEY"
MAX_KEY = 1024
MAX_NAME = 60
_KEY = re.compile(r"[!-~]+")
_DEVICE = re.compile(r"[a-z]{2,10}(:[0-9]{1,2})?")


@dataclass(frozen=True)
class Link:
    """How the coordinator is reached, and as whom. `key` is a secret."""

    address: Address
    name: str
    key: str | None
    ca_file: str | None

    def __repr__(self) -> str:
        return f"Link(address={self.address.origin!r}, name={self.name!r})"


@dataclass(frozen=True)
class Training:
    """`max_upload` in bytes a second; `device` None chooses one."""

    link: Link
    base_model: Path
    data: Path
    device: str | None
    max_upload: int | None
    pause_while_gpu_busy: bool
    abandon: bool


@dataclass(frozen=True)
class Question:
    link: Link
    text: str


def parse(arguments: Sequence[str], environ: Mapping[str, str]) -> Training | Question:
    """Raises `UsageProblem`; ends the process with 2 for what argparse itself finds wrong."""
    if arguments[:1] == ["ask"]:
        given = _ask_parser().parse_args(arguments[1:])
        if not 1 <= len(given.question) <= MAX_QUESTION:
            raise UsageProblem(_("A question has 1 to {most} characters.").format(most=MAX_QUESTION))
        return Question(_link(given, environ), given.question)
    given = _train_parser().parse_args(arguments)
    if given.device is not None and not _DEVICE.fullmatch(given.device):
        raise UsageProblem(_("--device takes cpu, cuda, cuda:1 …, not {text}.").format(text=repr(given.device)))
    return Training(
        link=_link(given, environ),
        base_model=_there("--base-model", given.base_model),
        data=_there("--data", given.data),
        device=given.device,
        max_upload=None if given.max_upload is None else rate_of(given.max_upload),
        pause_while_gpu_busy=given.pause_while_gpu_busy,
        abandon=given.on_stop == "abandon",
    )


def _train_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mingora-volunteer",
        description=_("Trains an adapter together with others, on your own text, and sends each round's result."),
        epilog=_('A question for the community: mingora-volunteer ask "…" --url URL --isci NAME'),
        allow_abbrev=False,
    )
    add = parser.add_argument
    _add_link(parser)
    add(
        "--base-model",
        required=True,
        metavar="DIR",
        help=_("folder of the Hugging Face model the coordinator names: config.json, tokenizer, *.safetensors"),
    )
    add(
        "--data",
        required=True,
        metavar="FILE",
        help=_("the text to train on: one plain text file in UTF-8; only the adapter trained on it is sent"),
    )
    add("--device", metavar="DEVICE", help=_("cpu, cuda, cuda:1 … (default: a GPU where there is one)"))
    add(
        "--max-upload",
        metavar="RATE",
        help=_("the highest upload rate, in bytes a second: 500K, 2M … (default: no limit)"),
    )
    add(
        "--pause-while-gpu-busy",
        action="store_true",
        help=_("wait while another process uses the NVIDIA GPU (asks nvidia-smi every half minute)"),
    )
    add(
        "--on-stop",
        choices=("finish", "abandon"),
        default="finish",
        help=_("what Ctrl-C or SIGTERM does to the round at hand (default: finish); the second always abandons it"),
    )
    return parser


def _ask_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mingora-volunteer ask", description=_("Sends a question to the coordinator's people."), allow_abbrev=False
    )
    parser.add_argument("question", metavar=_("QUESTION"), help=_("1 to 2000 characters"))
    _add_link(parser)
    return parser


def _add_link(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--url", required=True, metavar="URL", help=_("address of the coordinator: https://…, or http://127.0.0.1:PORT")
    )
    add(
        "--isci",
        required=True,
        metavar="NAME",
        help=_("your nickname, 1 to 60 characters; others see it, so let it say nothing about you"),
    )
    add(
        "--key-file",
        "--anahtar-dosyasi",
        metavar="FILE",
        help=_("file with the coordinator's key; without it {variable} is read").format(variable=KEY_VARIABLE),
    )
    add("--key", "--anahtar", action=_RefusedKey, nargs="?", help=argparse.SUPPRESS)
    add("--ca-file", metavar="FILE", help=_("trust this authority's certificate (PEM) and no other"))
    add(
        "--version",
        action="version",
        version=f"mingora-volunteer {__version__}",
        help=_("show the version and exit"),
    )


class _RefusedKey(argparse.Action):
    """`--key VALUE`, as a coordinator takes it: refused in a sentence that doesn't repeat the value."""

    def __call__(self, *_words: Any) -> None:
        raise UsageProblem(
            _("A key isn't taken from the command line, where every program on this machine can read it."),
            hint=_("Use --key-file, or the variable {variable}.").format(variable=KEY_VARIABLE),
        )


def _link(given: argparse.Namespace, environ: Mapping[str, str]) -> Link:
    address = parse_address(given.url)
    if not 1 <= len(given.isci) <= MAX_NAME or not given.isci.isprintable() or given.isci != given.isci.strip():
        raise UsageProblem(_("--isci takes a nickname of 1 to {most} printable characters.").format(most=MAX_NAME))
    ca_file = None if given.ca_file is None else str(_there("--ca-file", given.ca_file))
    return Link(address, given.isci, _key(given.key_file, environ), ca_file)


def _key(file: str | None, environ: Mapping[str, str]) -> str | None:
    """The key, from the file or the environment: on a command line every program on the machine could read it."""
    key = environ.get(KEY_VARIABLE, "")
    if file is not None:
        path = _there("--key-file", file)
        try:
            with path.open(encoding="ascii") as stream:
                key = stream.read(MAX_KEY + 2).strip()
                _warn_if_open(path, stream.fileno())
        except UnicodeDecodeError:
            key = " "  # no key, as below
        except OSError as error:
            raise UsageProblem(_("{path} can't be read: {reason}").format(path=path, reason=error.strerror)) from error
    elif not key:
        return None
    if not _KEY.fullmatch(key) or len(key) > MAX_KEY:
        raise UsageProblem(_("The key has to be one line of visible ASCII characters."))
    return key


def _warn_if_open(path: Path, handle: int) -> None:
    if os.name != "nt" and os.fstat(handle).st_mode & 0o077:
        print(_("Others can read {path}: chmod 600 makes it private.").format(path=path), file=sys.stderr)


def _there(option: str, text: str) -> Path:
    path = Path(text).expanduser().absolute()
    if not path.exists():
        raise UsageProblem(_("{option} {path}: there is nothing of this name.").format(option=option, path=path))
    return path
