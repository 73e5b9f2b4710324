"""nodes, policy: the account's machines, and the platform's limits."""

from __future__ import annotations

import argparse

from mingora.api_texts import state_text
from mingora.commands.context import Command, Context
from mingora.i18n import _
from mingora.output import pairs, size_text, table, time_text


def _nodes(_args: argparse.Namespace, context: Context) -> int:
    nodes = context.client.nodes()
    head = [_("ID"), _("Name"), _("State"), _("CPU"), _("Memory"), "GPU", _("Runtimes"), _("Last seen"), _("Job")]
    rows = [
        [
            node["id"],
            node["name"],
            state_text(node["state"]) + (f" ({node['pauseReason']})" if node.get("pauseReason") else ""),
            node["cpu"],
            size_text(node["memoryMiB"] * 1024 * 1024),
            node["gpu"]["name"] if node["gpu"] else "-",
            " ".join(node["runtimes"]),
            time_text(node["lastSeenAt"]),
            node["lease"]["jobId"] if node["lease"] else "-",
        ]
        for node in nodes
    ]
    none = _("No machine is registered. Start one with: mingora-worker --root DIR --allow-own-code")
    context.out.emit({"nodes": nodes}, table(head, rows) if rows else none)
    return 0


def _policy(_args: argparse.Namespace, context: Context) -> int:
    policy = context.client.policy()
    limits, intervals = policy["limits"], policy["intervals"]
    sizes = {"maxFileBytes", "maxBytes", "maxLogBytes", "maxPathBytes"}
    rows: list[tuple[str, object]] = [(_("Server"), policy["server"])]
    rows += [(name, size_text(value) if name in sizes else value) for name, value in limits.items()]
    rows.append(("partSizeBytes", size_text(policy["partSizeBytes"])))
    rows += [(name, f"{value} s") for name, value in intervals.items()]
    context.out.emit({"policy": policy}, pairs(rows))
    if not context.out.as_json:
        context.out.note(_("The schema of job.json: mingora policy --json"))
    return 0


COMMANDS = (
    Command("nodes", lambda: _("list the account's machines"), _nodes),
    Command("policy", lambda: _("show the platform's limits and intervals"), _policy),
)
