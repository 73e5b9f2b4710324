"""The entry of `mingora-volunteer`: reads the command line, loads the model, and works, or sends a question.

Exit codes: 0 the training is over or was stopped, 1 error, 2 usage, 3 the coordinator doesn't take the key.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mingora.errors import ApiError, MingoraError, UsageProblem
from mingora_volunteer.config import Question, Training, parse
from mingora_volunteer.display import Display, one_line
from mingora_volunteer.exchange import Exchanger
from mingora_volunteer.gpu import Courtesy, NoFigures, gpu_percent
from mingora_volunteer.loop import Volunteer
from mingora_volunteer.protocol import Coordinator
from mingora_volunteer.stop import Abandoned, Stop
from mingora_volunteer.texts import _, settle_language

if TYPE_CHECKING:
    import torch


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs the volunteer and returns its exit code."""
    settle_language()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    display = Display()
    try:
        given = parse(sys.argv[1:] if arguments is None else arguments, os.environ)
        if isinstance(given, Question):
            return _ask(given)
        _train(given, display)
    except Abandoned:
        display.note(_("Stopped."))
    except ApiError as error:
        if error.status == 401:
            error.hint = _key_hint()
        display.complain(error)
        return error.exit_code if error.status == 401 else 1
    except MingoraError as error:
        display.complain(error)
        return error.exit_code
    except OSError as error:  # a full disk, say
        where = f"{error.filename}: " if error.filename else ""
        display.complain(MingoraError(f"{where}{error.strerror or error}"))
        return 1
    return 0


def _key_hint() -> str:
    return _("The coordinator asks for a key, or for another one: see --key-file.")


def _ask(given: Question) -> int:
    link = given.link
    coordinator = Coordinator(Exchanger(link.address, key=link.key, ca_file=link.ca_file), link.name, Path())
    try:
        number = coordinator.ask(given.text)
    except MingoraError as error:
        print(one_line(_("iletilemedi (not delivered): {reason}").format(reason=error.message)), file=sys.stderr)
        if isinstance(error, ApiError) and error.status == 401:
            print(f"  {_key_hint()}", file=sys.stderr)
            return error.exit_code
        return 1
    print(
        _("Your question was delivered.") if number is None else _("Your question has number {no}.").format(no=number)
    )
    return 0


def _train(given: Training, display: Display) -> None:
    stop = Stop(at_once=given.abandon)
    stop.install()
    try:
        _work(given, display, stop)
    finally:
        stop.over()
    if stop.requested:
        display.note(_("Stopped."))


def _work(given: Training, display: Display, stop: Stop) -> None:
    link = given.link
    exchanger = Exchanger(link.address, key=link.key, ca_file=link.ca_file)
    display.note(
        _("Loading the model in {model} and the text in {data} …").format(model=given.base_model, data=given.data)
    )
    if not sys.warnoptions:  # what libraries warn each other of is nothing a volunteer could change
        warnings.simplefilter("ignore")
    try:
        with stop.loading(_("Stopped.")):
            from mingora_volunteer.model import check_folder
            from mingora_volunteer.train import Trainer, choose_device
    except ImportError as error:
        raise UsageProblem(
            _("Training needs more libraries: {reason}").format(reason=error),
            hint=_("Install them: pip install 'mingora-worker[volunteer]'"),
        ) from error
    check_folder(given.base_model)
    device = choose_device(given.device)
    with tempfile.TemporaryDirectory(prefix="mingora-volunteer-") as name:
        folder = Path(name)
        coordinator = Coordinator(exchanger, link.name, folder, max_upload=given.max_upload)
        trainer = Trainer(given.base_model, given.data, device, link.name, folder)
        courtesy = _courtesy(device, display) if given.pause_while_gpu_busy else lambda: None
        display.note(
            _("{name} trains on {device}. Ctrl-C stops after the round.").format(name=link.name, device=device)
        )
        Volunteer(coordinator, trainer, display, stop, courtesy=courtesy).run()


def _courtesy(device: torch.device, display: Display) -> Callable[[], None]:
    """Waits for other users of the GPU; where there is no GPU to watch, says so and never waits."""
    if device.type != "cuda":
        display.note(_("--pause-while-gpu-busy: the training uses no NVIDIA GPU; there is nothing to wait for."))
        return lambda: None
    import torch

    uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
    try:
        gpu_percent(uuid)
    except NoFigures as error:
        display.note(error.message)
        return lambda: None
    return Courtesy(lambda: gpu_percent(uuid), display.note)
