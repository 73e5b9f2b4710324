"""The entry of `mingora-worker`: reads the command line, gets hold of what the worker needs, and runs it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence

from mingora import faults
from mingora.errors import MingoraError, NotLoggedIn
from mingora.i18n import translate_argparse
from mingora_worker.check import check
from mingora_worker.config import Config, parse
from mingora_worker.console import Console
from mingora_worker.interrupt import Interrupt
from mingora_worker.loop import Worker
from mingora_worker.machine import describe, lock_gpu
from mingora_worker.offering import Offering, refuse_nothing
from mingora_worker.register import Registrar, login_hint
from mingora_worker.state import Root


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs the worker and returns its exit code: 0 after an orderly end, 2 usage, 3 login, 1 otherwise."""
    translate_argparse()
    faults.program = "worker"
    console = Console()
    try:
        config = parse(sys.argv[1:] if arguments is None else arguments)
        if config.check:
            return check(config)
        refuse_nothing(config)
        console = Console(as_json=config.json_logs)
        _work(config, console)
    except MingoraError as error:
        hint = error.hint or (login_hint() if error.exit_code == NotLoggedIn.exit_code else None)
        console.complain(error.message, hint)
        return error.exit_code
    except OSError as error:  # a working folder that is gone, say
        where = f"{error.filename}: " if error.filename else ""
        console.complain(f"{where}{error.strerror or error}", None)
        return 1
    return 0


def _work(config: Config, console: Console) -> None:
    interrupt = Interrupt()
    interrupt.install()
    machine = describe(config.gpu_index)
    root = Root(config.root)
    with contextlib.ExitStack() as held:
        if machine.gpu is not None:
            held.enter_context(lock_gpu(machine.gpu))
        root.open()
        held.callback(root.close)
        offering = Offering(root, config, machine, console)
        held.callback(offering.close)
        registrar = Registrar(root, config, machine, offering.offer, console, lambda seconds: worker.pause(seconds))
        worker = Worker(root, config, registrar, offering.prepare, console, interrupt)
        worker.run()
