"""status, wait, cancel, rm, explain: one job or the list of them."""

from __future__ import annotations

import argparse

from mingora.api_texts import problem_text, state_text, waiting_text
from mingora.commands.context import Command, Context
from mingora.commands.waiting import wait_and_show
from mingora.i18n import _
from mingora.output import pairs, table, time_text

LISTED = 50


def job_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar=_("JOB"), help=_("the job's id"))


def _status_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "id", metavar=_("JOB"), nargs="?", help=_("the job's id; without it the newest jobs are listed")
    )
    parser.add_argument(
        "--exit-code", action="store_true", help=_("exit with 0 succeeded, 100 failed, 101 unfinished, 103 cancelled")
    )


def _status(args: argparse.Namespace, context: Context) -> int:
    if args.id is None:
        jobs = context.client.jobs(limit=LISTED)
        rows = [
            [job["id"], state_text(job["state"]), job["name"], time_text(job["createdAt"]), job["key"]] for job in jobs
        ]
        head = [_("ID"), _("State"), _("Name"), _("Created"), _("Key")]
        context.out.emit({"jobs": jobs}, table(head, rows) if rows else _("There are no jobs."))
        return 0
    job = context.client.status(args.id)
    context.out.emit({"job": dict(job)}, pairs(job.rows()))
    return job.exit_code if args.exit_code else 0


def _wait_arguments(parser: argparse.ArgumentParser) -> None:
    job_argument(parser)
    parser.add_argument(
        "--timeout", type=seconds, metavar=_("SECONDS"), help=_("give up after so long (exit code 124)")
    )


def seconds(text: str) -> float:
    """A duration of an argument: a number that isn't negative."""
    value = float(text)
    if not 0 <= value < 1e9:
        raise ValueError
    return value


def _wait(args: argparse.Namespace, context: Context) -> int:
    return wait_and_show(context, args.id, args.timeout)


def _cancel(args: argparse.Namespace, context: Context) -> int:
    job = context.client.cancel(args.id)
    text = _("{job} is {state}.") if job.finished else _("{job} will be stopped; it is {state}.")
    context.out.emit({"job": dict(job)}, text.format(job=job["id"], state=state_text(job["state"])))
    return 0


def _rm_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar=_("ID"), help=_("a job's id, or a machine's as `nodes` shows it"))


def _rm(args: argparse.Namespace, context: Context) -> int:
    if args.id.startswith("node_"):
        context.client.remove_node(args.id)
    else:
        context.client.delete(args.id)
    context.out.emit({"deleted": args.id}, _("Deleted {job}.").format(job=args.id))
    return 0


def _explain(args: argparse.Namespace, context: Context) -> int:
    found = context.client.explain(args.id)
    lines = [waiting_text(found)]
    for node in found["nodes"]:
        lines += [f"{node['name']}:", *(f"  {problem_text(problem)}" for problem in node["problems"])]
    context.out.emit({"explanation": found}, "\n".join(lines))
    return 0


COMMANDS = (
    Command("status", lambda: _("show a job, or list the newest"), _status, _status_arguments),
    Command("wait", lambda: _("wait for a job's end; the exit code says how it ended"), _wait, _wait_arguments),
    Command("cancel", lambda: _("stop a job"), _cancel, job_argument),
    Command("rm", lambda: _("delete an ended job and its files, or a machine"), _rm, _rm_arguments),
    Command("explain", lambda: _("say what a waiting job is waiting for"), _explain, job_argument),
)
