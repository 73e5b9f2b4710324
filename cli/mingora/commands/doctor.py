"""doctor: checks the way from here to a job, each finding with what mends it."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from mingora.api_texts import login_hint, people_text
from mingora.commands.context import Command, Context
from mingora.errors import ApiError, MingoraError, TlsError
from mingora.i18n import _
from mingora.output import harmless, size_text, time_text

if TYPE_CHECKING:
    from mingora.transport import Answer

MAX_SKEW_SECONDS = 120
ALMOST_FULL = 0.9
SOON_SECONDS = 3600


class Finding(NamedTuple):
    """`fix` is None when there is nothing to mend."""

    check: str
    ok: bool
    text: str
    fix: str | None = None


def _doctor(_args: argparse.Namespace, context: Context) -> int:
    import platform

    from mingora import __version__

    findings = [Finding("client", True, f"mingora {__version__}, Python {platform.python_version()}, {sys.platform}")]
    findings += _on_the_way(context)
    good = all(finding.ok for finding in findings)
    lines = []
    for finding in findings:
        mark = context.out.colour("✓", "ok") if finding.ok else context.out.colour("✗", "error")
        lines.append((mark, f"{finding.check}: {finding.text}", finding.fix))
    if context.out.as_json:
        context.out.emit({"ok": good, "findings": [finding._asdict() for finding in findings]}, "")
    else:
        for mark, text, fix in lines:
            print(mark, harmless(text), file=context.out.stdout)
            if fix:
                print("    →", harmless(fix), file=context.out.stdout)
    return 0 if good else 1


def _on_the_way(context: Context) -> list[Finding]:
    """The checks that need the one before; the first that fails ends them."""
    findings: list[Finding] = []
    try:
        transport = context.client.transport
    except MingoraError as error:
        return [Finding("login", False, error.message, error.hint)]
    origin = transport.server.origin
    try:
        answer = transport.request_json("GET", "/account", attempts=1)
    except ApiError as error:
        reached = error.status < 500
        findings.append(_reached(origin) if reached else Finding("server", False, people_text(error), _ask_operator()))
        if reached:
            findings.append(Finding("token", False, people_text(error), login_hint()))
        return findings
    except TlsError as error:
        return [Finding("tls", False, error.message, error.hint)]
    except MingoraError as error:
        return [Finding("server", False, error.message, error.hint or _ask_operator())]
    findings.append(_reached(origin))
    findings.append(_clock(answer, time.time()))
    findings.append(_token(answer.data["token"], answer))
    findings.append(_checked("quota", lambda: _quota(context.client.usage())))
    findings.append(_checked("nodes", lambda: _nodes(context.client.nodes())))
    return findings


def _reached(origin: str) -> Finding:
    secure = _("encrypted, certificate verified") if origin.startswith("https:") else _("this machine, not encrypted")
    return Finding("server", True, f"{origin} ({secure})")


def _ask_operator() -> str:
    return _("Ask the platform's operator.")


def _clock(answer: Answer, now: float) -> Finding:
    """Compares with the answer's Date header (RFC 9110, 6.6.1)."""
    skew = _server_time(answer.headers)
    if skew is None:
        return Finding("clock", True, _("the server states no time"))
    skew = now - skew
    text = _("{seconds} s off the server's").format(seconds=round(skew))
    if abs(skew) <= MAX_SKEW_SECONDS:
        return Finding("clock", True, text)
    return Finding("clock", False, text, _("Set this machine's clock, best by NTP."))


def _server_time(headers: Mapping[str, str]) -> float | None:
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(headers["date"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return None


def _token(token: dict[str, Any], answer: Answer) -> Finding:
    """How long the token lives, by the server's clock."""
    from datetime import datetime

    text = _("valid until {time}").format(time=time_text(token["expiresAt"]))
    expires = datetime.fromisoformat(token["expiresAt"].replace("Z", "+00:00")).timestamp()
    if expires - (_server_time(answer.headers) or time.time()) > SOON_SECONDS:
        return Finding("token", True, text)
    return Finding("token", False, text, _("It ends soon. Log in again: mingora login"))


def _quota(usage: dict[str, Any]) -> Finding:
    text = _("{used} of {allowed}, {files} of {most} files").format(
        used=size_text(usage["bytes"]),
        allowed=size_text(usage["maxBytes"]),
        files=usage["files"],
        most=usage["maxFiles"],
    )
    full = usage["bytes"] > ALMOST_FULL * usage["maxBytes"] or usage["files"] > ALMOST_FULL * usage["maxFiles"]
    return Finding("quota", not full, text, _("Delete old jobs: mingora rm JOB") if full else None)


def _nodes(nodes: list[dict[str, Any]]) -> Finding:
    ready = sum(node["state"] in {"idle", "busy"} for node in nodes)
    text = _("{ready} of {all} machines are there").format(ready=ready, all=len(nodes))
    if ready:
        return Finding("nodes", True, text)
    fix = _("Start a worker, or no job runs: mingora-worker --root DIR --allow-own-code")
    return Finding("nodes", False, text, fix)


def _checked(name: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except MingoraError as error:
        return Finding(name, False, people_text(error), error.hint or _ask_operator())


COMMANDS = (Command("doctor", lambda: _("check the way from here to a job"), _doctor),)
