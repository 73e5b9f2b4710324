"""A job as a notebook sees it: the platform's object, still a dict, that shows itself as a small table (CLI-11)."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

from mingora.api_texts import job_profile_text, reason_text, state_text
from mingora.i18n import _
from mingora.output import time_text

TERMINAL = frozenset({"succeeded", "failed", "cancelled"})
_EXIT_CODES = {"succeeded": 0, "failed": 100, "cancelled": 103}


class Job(dict[str, Any]):
    """A job of docs/protocol.md. `job["id"]` and every other field stay subscriptable."""

    @property
    def finished(self) -> bool:
        return self["state"] in TERMINAL

    @property
    def exit_code(self) -> int:
        """0 succeeded, 100 failed, 103 cancelled, 101 unfinished (CLI-12)."""
        return _EXIT_CODES.get(self["state"], 101)

    @property
    def reason_text(self) -> str:
        """Why it ended, in one line; empty when there is nothing to say."""
        reason = self.get("reason")
        return reason_text(reason) if reason else ""

    def rows(self) -> list[tuple[str, str]]:
        """Label and value of what people want to see first."""
        rows = [(_("Job"), self["id"]), (_("Name"), self["name"]), (_("State"), state_text(self["state"]))]
        if self.get("cancelRequested") and not self.finished:
            rows.append((_("Cancelling"), _("requested")))
        if self.reason_text:
            rows.append((_("Reason"), self.reason_text))
        rows += [
            (label, show(self[field]))
            for label, field, show in (
                (_("Key"), "key", str),
                (_("Attempt"), "attempt", str),
                (_("Exit code"), "exitCode", str),
                (_("Created"), "createdAt", time_text),
                (_("Started"), "startedAt", time_text),
                (_("Finished"), "finishedAt", time_text),
            )
            if self.get(field) is not None
        ]
        nodes = [rank["nodeName"] for rank in self.get("ranks") or [] if rank.get("nodeName")]
        if nodes:
            rows.append((_("Nodes"), ", ".join(nodes)))
        rows += [(_("Isolation"), text) for text in self._isolation()]
        usage = self.get("usage")
        if usage:
            text = _("{cpu} s CPU, {memory} MiB at most (reported by nodes, not verified)")
            rows.append((_("Usage"), text.format(cpu=usage.get("cpuSeconds"), memory=usage.get("maxMemoryMiB"))))
        if self.get("results"):
            rows.append((_("Result files"), len(self["results"])))
        return rows

    def _isolation(self) -> list[str]:
        """Each profile that a rank of it runs under in a container, once; the ranks' are mostly alike."""
        profiles = [rank["isolation"] for rank in self.get("ranks") or [] if rank.get("isolation")]
        return list(dict.fromkeys(map(job_profile_text, profiles)))

    def _repr_html_(self) -> str:
        return _table([(html.escape(label), html.escape(str(value))) for label, value in self.rows()])


def _table(rows: Iterable[tuple[str, str]]) -> str:
    body = "".join(f"<tr><th style='text-align:left'>{label}</th><td>{value}</td></tr>" for label, value in rows)
    return f"<table>{body}</table>"
