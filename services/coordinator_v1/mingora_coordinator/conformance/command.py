"""`mingora-coordinator conformance`: ask for every rule of the protocol, print what was found, end with its verdict."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from mingora_coordinator.conformance import cycle, errors, questions, reads, refusals
from mingora_coordinator.conformance.client import BadAddress, Client, NoAnswer, printable
from mingora_coordinator.conformance.report import Report, line
from mingora_coordinator.conformance.rules import Finding
from mingora_coordinator.conformance.session import Session

CONFORMANT, NOT_CONFORMANT, NOT_ASKED = 0, 1, 2
# As `serve` reads it: what stands on a command line is seen by every user of the machine.
KEY = "MINGORA_COORDINATOR_KEY"
SAFE = """\
Safe: reads, and sends what every coordinator has to refuse. It shows among the workers as one uyum-..., which may hold
one slice of the data until the round closes. (--full plays whole rounds.)"""
FULL = """\
Full: takes part with results of its own, damaged ones too, closes rounds, and asks 6 questions at /soru.
For a coordinator that was started to be tested: not for a training that matters."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The words of the command."""
    parser.add_argument("--url", required=True, help="the coordinator's address; it may have a path")
    parser.add_argument("--key", help=f"the shared key that it asks for (X-Anahtar; better: the variable {KEY})")
    parser.add_argument(
        "--ca-file", metavar="FILE", help="the authority (PEM) that signed the coordinator's certificate"
    )
    parser.add_argument(
        "--full", action="store_true", help=f"play whole rounds, of at most {cycle.MOST_RESULTS} results"
    )
    parser.add_argument("--json", metavar="FILE", help="write the report as JSON; - is the standard output")


def run(options: argparse.Namespace) -> int:
    """Returns 0 if the coordinator is conformant, 1 if not, 2 if it couldn't be asked."""
    shown = sys.stderr if options.json == "-" else sys.stdout
    try:
        client = Client(options.url, options.key or os.environ.get(KEY) or None, options.ca_file)
        session = Session(client, secrets.token_hex(4))
        _let_in(session)
    except (BadAddress, NoAnswer) as reason:
        print(f"mingora-coordinator: {printable(options.url)}: {reason}", file=sys.stderr)
        return NOT_ASKED
    _say(f"{printable(options.url)}\n{FULL if options.full else SAFE}", shown)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    findings = _printed(_findings(session, options.full), shown)
    report = Report(options.url, options.full, started, findings)
    _say(report.summary(), shown)
    if options.json is not None and not _write(json.dumps(report.document(), indent=2), options.json):
        return NOT_ASKED
    return CONFORMANT if report.conformant else NOT_CONFORMANT


def _let_in(session: Session) -> None:
    """Raises BadAddress where the key doesn't open the coordinator for the tester's own nicknames."""
    client = session.client
    if client.get("/durum").status == 401:
        raise BadAddress("the coordinator refuses the key" if client.has_key else f"it wants a key: {KEY} or --key")
    with suppress(NoAnswer):  # a check finds that
        if client.has_key and client.get("/gorev", {"isci": session.observer}).status == 401:
            raise BadAddress("the key belongs to a nickname: give the shared key")


def _findings(session: Session, full: bool) -> Iterable[Finding]:
    yield from reads.check.run(session)
    yield from refusals.check.run(session)
    yield from questions.refused.run(session)
    if full:
        yield from cycle.check.run(session)
        yield from questions.asked.run(session)
    yield from errors.check.run(session)


def _printed(findings: Iterable[Finding], shown: TextIO) -> list[Finding]:
    """The findings, each printed as soon as it is there."""
    colours = shown.isatty() and not os.environ.get("NO_COLOR")
    kept = []
    for finding in findings:
        _say(line(finding, colours), shown)
        kept.append(finding)
    return kept


def _say(text: str, shown: TextIO) -> None:
    """Print what the terminal's encoding has, and the rest by its number: the texts of others are Turkish."""
    encoding = shown.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), file=shown, flush=True)


def _write(text: str, target: str) -> bool:
    if target == "-":
        print(text)
        return True
    try:
        Path(target).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        print(f"mingora-coordinator: {printable(target)}: {error.strerror}", file=sys.stderr)
        return False
    return True
