"""The command ``mingora-coordinator``: serve a training of protocol v1, and operate it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from mingora_common import proxies
from mingora_common.config import ConfigError, Env
from mingora_coordinator import __version__, operate
from mingora_coordinator.conformance import command as conformance
from mingora_coordinator.domain.exact import MAX_RESULTS
from mingora_coordinator.domain.robust import MOST_FOR_KRUM, RULES
from mingora_coordinator.domain.settings import (
    MAX_BATCH,
    MAX_ROUNDS,
    MAX_SEQUENCE,
    MAX_SHARDS,
    MAX_STEP_TOKENS,
    MAX_STEPS,
    MEAN,
    NESTEROV,
    Settings,
)
from mingora_coordinator.server import LOOPBACK, Serve, prepare
from mingora_coordinator.server import run as serve_run
from mingora_coordinator.store.adapter_file import Unusable
from mingora_coordinator.store.folder import FolderError
from mingora_coordinator.store.keys import KeysError

DATA = "coordinator-data"
KEY = "MINGORA_COORDINATOR_KEY"
LEAST_KEY = 16
FAILED = 1
_DEFAULT = Settings(rounds=1, min_results=1)


def main(arguments: Sequence[str]) -> int:
    """0 when done; 1 with the reason on stderr; 2 for wrong usage."""
    os.umask(0o077)
    options = _parser().parse_args(arguments)
    try:
        code: int = options.run(options)
    except (FolderError, Unusable, KeysError, ConfigError) as error:
        print(f"mingora-coordinator: {error}", file=sys.stderr)
        return FAILED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return FAILED
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mingora-coordinator",
        description="Coordinates volunteers who fine-tune one LoRA adapter together (protocol v1).",
    )
    parser.add_argument("--version", action="version", version=f"mingora-coordinator {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_serve(commands.add_parser("serve", help="give out tasks, take results, make adapters, until SIGTERM"))
    operate.add_commands(commands, _data_option)
    conformance_parser = commands.add_parser("conformance", help="test any coordinator against the protocol")
    conformance.add_arguments(conformance_parser)
    conformance_parser.set_defaults(run=conformance.run)
    return parser


def _data_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data-dir", metavar="DIR", type=Path, default=Path(DATA), help="the training's folder (default: %(default)s)"
    )


def _add_serve(parser: argparse.ArgumentParser) -> None:
    _data_option(parser)
    training = parser.add_argument_group("the training")
    training.add_argument(
        "--initial", "--baslangic", metavar="FILE",
        help="safetensors file (F32) to start with, needed the first time; `example` makes a small one",
    )  # fmt: skip
    training.add_argument("--base-model", metavar="NAME", default="", help="the model that the adapter is for")
    _number(training, "--rounds", "--tur", int, None, 1, MAX_ROUNDS, "rounds in all", required=True)
    _number(
        training, "--min-results", "--en-az", int, None, 1, MAX_RESULTS, "results that close a round", required=True
    )
    _number(
        training, "--timeout", "--zaman-asimi", float, _DEFAULT.timeout, 0, 1e9,
        "seconds after which a round closes with fewer results, once there is one; 0 waits for all",
    )  # fmt: skip
    rules = parser.add_argument_group("making one adapter of the results")
    rules.add_argument("--outer", choices=[NESTEROV, MEAN, *RULES], default=NESTEROV, help="default: %(default)s")
    _number(rules, "--outer-lr", "--dis-lr", float, _DEFAULT.outer_rate, 0, 100, "rate of the nesterov step")
    _number(rules, "--outer-momentum", "--dis-mom", float, _DEFAULT.outer_decay, 0, 1, "momentum of the nesterov step")
    rules.add_argument(
        "--outlier-factor", "--aykiri-kat", metavar="N", type=_factor, default=_DEFAULT.outlier_factor,
        help="from 3 results on, one that is farther than this many medians isn't used; 0 uses all (default: 5)",
    )  # fmt: skip
    tasks = parser.add_argument_group("what the volunteers do")
    _number(tasks, "--shards", "--n-parca", int, None, 1, MAX_SHARDS, "slices of the data (default: min-results)")
    _number(tasks, "--inner-steps", "--ic-adim", int, _DEFAULT.inner_steps, 1, MAX_STEPS, "steps between two results")
    _number(tasks, "--batch-size", "--bs", int, _DEFAULT.batch_size, 1, MAX_BATCH, "sequences a step")
    _number(tasks, "--seq", None, int, _DEFAULT.sequence, 2, MAX_SEQUENCE, "tokens a sequence")
    _number(tasks, "--lr", None, float, _DEFAULT.rate, 1e-12, 1, "learning rate")
    _number(tasks, "--seed", "--tohum", int, _DEFAULT.seed, 0, 2**53, "seed of the volunteers' model")
    network = parser.add_argument_group("where it listens")
    network.add_argument("--host", default=LOOPBACK, help="address (default: %(default)s)")
    _number(network, "--port", None, int, 8750, 0, 65535, "port")
    network.add_argument("--tls-cert", metavar="FILE", help="PEM certificate; any address but 127.0.0.1 needs TLS")
    network.add_argument("--tls-key", metavar="FILE", help="PEM key of the certificate, if it isn't in the same file")
    network.add_argument(
        "--behind-proxy", metavar="ADDRESSES", type=_networks, default=(),
        help="a proxy does TLS: only these addresses (with commas) may connect, and by plain HTTP",
    )  # fmt: skip
    network.add_argument(
        "--key", "--anahtar", metavar="KEY",
        help=f"a key that every volunteer has to send (better: the variable {KEY}, or {KEY}_FILE)",
    )  # fmt: skip
    parser.set_defaults(run=lambda options: _serve(parser, options))


def _serve(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    host = LOOPBACK if options.host == "localhost" else options.host
    if options.tls_key and not options.tls_cert:
        parser.error("--tls-key needs --tls-cert")
    if host != LOOPBACK and not options.tls_cert and not options.behind_proxy:
        parser.error(f"plain HTTP is for {LOOPBACK} only: name --tls-cert, or --behind-proxy with the proxy's address")
    if options.batch_size * options.seq > MAX_STEP_TOKENS:
        parser.error(f"--batch-size times --seq is more than {MAX_STEP_TOKENS} tokens a step, which volunteers refuse")
    if "krum" in options.outer and options.min_results > MOST_FOR_KRUM:
        parser.error(
            f"--outer {options.outer} compares every result with every other: --min-results {MOST_FOR_KRUM} at most"
        )
    for path in (options.tls_cert, options.tls_key):
        if path is not None and not os.access(path, os.R_OK):
            parser.error(f"{path} can't be read")
    serve = Serve(
        data=options.data_dir,
        settings=Settings(
            rounds=options.rounds,
            min_results=options.min_results,
            timeout=options.timeout,
            outer=options.outer,
            outer_rate=options.outer_lr,
            outer_decay=options.outer_momentum,
            outlier_factor=options.outlier_factor,
            shards=options.shards or options.min_results,
            inner_steps=options.inner_steps,
            batch_size=options.batch_size,
            sequence=options.seq,
            rate=options.lr,
            seed=options.seed,
        ),
        initial=options.initial,
        base_model=options.base_model,
        host=host,
        port=options.port,
        key=_key(parser, options.key, os.environ),
        certificate=options.tls_cert,
        certificate_key=options.tls_key,
        proxies=options.behind_proxy,
    )
    prepare(serve)
    serve_run(serve)
    return 0


def _key(parser: argparse.ArgumentParser, given: str | None, environ: Mapping[str, str]) -> str | None:
    env = Env(environ)
    key = given if given is not None else env.optional(KEY)
    env.check()
    if key is not None and (not key or not key.isascii() or not key.isprintable() or " " in key):
        parser.error("a key is printable ASCII without spaces: `openssl rand -hex 16` makes one")
    if key is not None and len(key) < LEAST_KEY:
        print("mingora-coordinator: the key is short enough to be guessed: `openssl rand -hex 16` makes a better one",
              file=sys.stderr)  # fmt: skip
    return key


def _factor(text: str) -> float:
    """Below 1 a rule could be left without any result: the nearest may be just as far as the median."""
    factor = float(text)
    if factor != 0 and not 1 <= factor <= 1e9:
        raise argparse.ArgumentTypeError("must be 0 or at least 1")
    return factor


def _networks(text: str) -> proxies.Networks:
    try:
        return proxies.networks(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _number(
    group: argparse._ArgumentGroup,
    name: str,
    turkish: str | None,
    kind: type[int] | type[float],
    default: float | None,
    least: float,
    most: float,
    text: str,
    *,
    required: bool = False,
) -> None:
    """An option that is a number within bounds, also by the protocol's own name."""

    def read(value: str) -> float:
        number = kind(value)
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"must be between {least} and {most}")
        return number

    read.__name__ = "number"
    names = [name] if turkish is None else [name, turkish]
    shown = text if default is None else f"{text} (default: {default:g})"
    group.add_argument(*names, metavar="N", type=read, default=default, required=required, help=shown)
