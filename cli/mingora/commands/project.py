"""init, submit: from a template to a job (CLI-2, CLI-3, CLI-8)."""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

from mingora.commands.context import Command, Context
from mingora.commands.waiting import wait_and_show
from mingora.errors import ProjectError, UsageProblem
from mingora.i18n import _

TEMPLATES = Path(__file__).parent.parent / "templates"


def _template_names() -> list[str]:
    return sorted(item.name for item in TEMPLATES.iterdir() if (item / "job.json").is_file())


def _init_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", metavar=_("DIR"), help=_("a folder that does not exist or is empty"))
    parser.add_argument(
        "--template", choices=_template_names(), default="summary", help=_("what to start from (default: summary)")
    )


def _init(args: argparse.Namespace, context: Context) -> int:
    target = Path(args.dir)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ProjectError(_("{path} exists and is not empty.").format(path=target))
    source = TEMPLATES / args.template
    shutil.copytree(
        source, target, dirs_exist_ok=True, copy_function=shutil.copyfile, ignore=shutil.ignore_patterns("__pycache__")
    )
    files = sorted(path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file())
    text = _("Made {path} from the template {template}. Submit it with: mingora submit {path}")
    data = {"directory": os.fspath(target), "template": args.template, "files": files}
    context.out.emit(data, text.format(path=target, template=args.template))
    return 0


def _submit_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", metavar=_("DIR"), help=_("the project's folder, with its job.json"))
    parser.add_argument(
        "--key", help=_("names this submission: the same key and content is the same job (made up when left out)")
    )
    parser.add_argument("--wait", action="store_true", help=_("wait for the job's end and exit as `wait` does"))


def _submit(args: argparse.Namespace, context: Context) -> int:
    from mingora.client import new_key

    folder = Path(args.dir)
    if not folder.is_dir():
        raise UsageProblem(_("{path} is not a folder.").format(path=folder))
    key = args.key
    if key is None:
        key = new_key()
        context.out.note(_("Key: {key}").format(key=key))
    context.interrupted = _("Interrupted. Submit again with --key {key}: what was sent is kept.").format(key=key)
    job = context.client.submit(folder, key=key, progress=context.out.progress)
    context.out.clear_bar()
    if not args.wait:
        context.out.emit({"job": dict(job)}, job["id"])
        return 0
    context.out.note(_("Job {job} is submitted.").format(job=job["id"]))
    return wait_and_show(context, job["id"], None)


COMMANDS = (
    Command("init", lambda: _("make a project folder from a template"), _init, _init_arguments),
    Command("submit", lambda: _("send a project folder and run it as a job"), _submit, _submit_arguments),
)
