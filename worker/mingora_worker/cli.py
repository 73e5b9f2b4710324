"""The entry of `mingora-worker`: reads the command line, gets hold of what the worker needs, and runs it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence

from mingora.errors import MingoraError
from mingora.i18n import translate_argparse

from mingora_worker.check import check
from mingora_worker.config import Config, parse
from mingora_worker.console import Console, plain
from mingora_worker.interrupt import Interrupt
from mingora_worker.loop import Worker
from mingora_worker.machine import describe, lock_gpu
from mingora_worker.register import Registrar
from mingora_worker.runtimes.native import NativeRuntime
from mingora_worker.state import Root
from mingora_worker.texts import _


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs the worker and returns its exit code: 0 after an orderly end, 2 usage, 3 login, 1 otherwise."""
    translate_argparse()
    try:
        config = parse(sys.argv[1:] if arguments is None else arguments)
        if config.check:
            return check(config)
        if not config.allow_own_code:
            return _refuse_native()
        return _work(config)
    except MingoraError as error:
        _complain(error)
        return error.exit_code


def _refuse_native() -> int:
    _complain(
        MingoraError(
            _("A native job runs with all your rights on this machine, so it has to be allowed."),
            hint=_("Only jobs of your own account are run. Add --allow-own-code if you agree."),
        )
    )
    return 2


def _work(config: Config) -> int:
    interrupt = Interrupt()
    interrupt.install()
    console = Console(as_json=config.json_logs)
    machine = describe(config.gpu_index)
    root = Root(config.root)
    with contextlib.ExitStack() as held:
        if machine.gpu is not None:
            held.enter_context(lock_gpu(machine.gpu))
        root.open()
        held.callback(root.close)
        registrar = Registrar(root, config, machine, console, lambda seconds: worker.pause(seconds))
        worker = Worker(root, config, registrar, NativeRuntime(), console, interrupt)
        worker.run()
    return 0


def _complain(error: MingoraError) -> None:
    print(f"mingora-worker: {plain(error.message)}", file=sys.stderr)
    if error.hint:
        print(f"  {plain(error.hint)}", file=sys.stderr)
