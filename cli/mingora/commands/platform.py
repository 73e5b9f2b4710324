"""nodes, policy: the account's machines or one of them, and the platform's limits."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from mingora.api_texts import profile_text, state_text
from mingora.commands.context import Command, Context
from mingora.errors import ApiError
from mingora.i18n import _
from mingora.output import pairs, size_text, table, time_text


def _nodes_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "id", metavar=_("NODE"), nargs="?", help=_("a machine's id or name; without it all machines are listed")
    )


def _nodes(args: argparse.Namespace, context: Context) -> int:
    nodes = context.client.nodes()
    if args.id is not None:
        nodes = [node for node in nodes if args.id in (node["id"], node["name"])]
        if not nodes:
            raise ApiError("not_found", 404, f"No machine has the id or name {args.id}.")
        context.out.emit({"nodes": nodes}, "\n\n".join(pairs(_whole(node)) for node in nodes))
        return 0
    head = [_("ID"), _("Name"), _("State"), _("CPU"), _("Memory"), "GPU", _("Runtimes"), _("Last seen"), _("Job")]
    rows = [
        [
            node["id"],
            node["name"],
            _state(node),
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


def _state(node: Mapping[str, Any]) -> str:
    return state_text(node["state"]) + (f" ({node['pauseReason']})" if node.get("pauseReason") else "")


def _whole(node: Mapping[str, Any]) -> list[tuple[str, str]]:
    """All that a job can ask of a machine, in the form in which job.json asks for it."""
    rows: list[tuple[str, str | None]] = [
        (_("ID"), node["id"]),
        (_("Name"), node["name"]),
        (_("State"), _state(node)),
        (_("Platform"), node["platform"]),
        (_("CPU"), str(node["cpu"])),
        (_("Memory"), size_text(node["memoryMiB"] * 1024 * 1024)),
        ("GPU", node["gpu"] and node["gpu"]["name"]),
        (_("Runtimes"), " ".join(node["runtimes"])),
        ("imageDigest", node["imageDigest"]),
        ("fingerprint", node["fingerprint"]),
        ("networkGroup", node["networkGroup"]),
        (_("Data"), " ".join(node["data"])),
        (_("Isolation"), node.get("isolation") and profile_text(node["isolation"])),
        (_("Last seen"), time_text(node["lastSeenAt"])),
        (_("Job"), node["lease"] and node["lease"]["jobId"]),
    ]
    return [(label, value) for label, value in rows if value]


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
    Command("nodes", lambda: _("list the account's machines, or show one"), _nodes, _nodes_arguments),
    Command("policy", lambda: _("show the platform's limits and intervals"), _policy),
)
