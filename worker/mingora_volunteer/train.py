"""Trains one round: the adapter on the local base model, `ic_adim` steps on the volunteer's own text.

Source: coordinator protocol v1, "İşçi ne yapar?", steps 3 and 4: AdamW with β (0.9, 0.95) and PyTorch's other values,
a cosine rate from `lr` towards 0 over the steps, gradients clipped to the norm 1.0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from mingora.errors import MingoraError, UsageProblem
from mingora_volunteer.data import batches, read_tokens
from mingora_volunteer.loop import Diverged
from mingora_volunteer.messages import Info, Task
from mingora_volunteer.model import (
    MAX_REASON,
    Lora,
    adapt,
    adapter_of,
    check_sequence,
    check_tokens,
    load_base,
    load_tokenizer,
    lora_of,
    place_adapter,
    precision,
    read_adapter,
)
from mingora_volunteer.plan import cosine
from mingora_volunteer.texts import _

BETAS = (0.9, 0.95)
LARGEST_NORM = 1.0


class Trainer:
    """`name` is the volunteer's (it seeds the sampling), `folder` takes the result's file.

    Text and model are read here, before a coordinator counts on them, and stay from round to round; the optimiser
    begins each round anew. Raises `UsageProblem` for a text or a model that can't be used.
    """

    def __init__(self, base_model: Path, data: Path, device: torch.device, name: str, folder: Path) -> None:
        self._base_model = base_model
        self._device = device
        self._name = name
        self._result = folder / "result.safetensors"
        self._tokens = read_tokens(data, load_tokenizer(base_model))
        with self._failures():
            self._base: Any = load_base(base_model, device)
        check_tokens(self._base, self._tokens)
        self._built: tuple[Lora, int] | None = None
        self._model: Any = None

    def train(self, task: Task, info: Info, adapter: Path, on_step: Callable[[int, int, float], None]) -> Path:
        """The trained adapter's file. `on_step(done, of, loss)` is called after each step.

        Raises `BadAnswer`, `Diverged`, `Unfit` when the adapter isn't for this base model, `UsageProblem` for too
        little data.
        """
        with self._failures():
            self._prepare(task, info, adapter)
            self._run(task, on_step)
        tensors = {name: tensor.cpu().contiguous() for name, tensor in adapter_of(self._model).items()}
        if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values()):
            raise _diverged()
        save_file(tensors, self._result)
        return self._result

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """What a device fails at, as `MingoraError`."""
        try:
            yield
        except torch.OutOfMemoryError as error:
            raise MingoraError(
                _("The memory of {device} isn't enough for this training.").format(device=self._device),
                hint=_("Close what else uses it, or choose another --device."),
            ) from error
        except RuntimeError as error:  # what PyTorch says of a device that fails
            text = _("The training on {device} failed: {reason}")
            raise MingoraError(text.format(device=self._device, reason=str(error)[:MAX_REASON])) from error

    def _prepare(self, task: Task, info: Info, adapter: Path) -> None:
        tensors = read_adapter(adapter)
        lora = lora_of(info, tensors)
        if self._built != (lora, task.seed):
            if self._model is not None:
                self._base, self._built, self._model = self._model.unload(), None, None
            self._model = adapt(self._base, lora, task.seed, self._base_model)
            self._built = (lora, task.seed)
        check_sequence(self._model, task.sequence)
        place_adapter(self._model, tensors, self._base_model)

    def _run(self, task: Task, on_step: Callable[[int, int, float], None]) -> None:
        torch.manual_seed(task.seed)  # a round's chances don't depend on the rounds before
        parameters = [parameter for parameter in self._model.parameters() if parameter.requires_grad]
        optimiser = torch.optim.AdamW(parameters, lr=task.rate, betas=BETAS)
        number = precision(self._device)
        for step, batch in enumerate(batches(self._tokens, task, self._name)):
            windows = batch.to(self._device)
            with torch.autocast(self._device.type, dtype=number, enabled=number != torch.float32):
                loss = self._model(input_ids=windows, labels=windows).loss
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, LARGEST_NORM)
            for group in optimiser.param_groups:
                group["lr"] = cosine(task.rate, step, task.steps)
            optimiser.step()
            now = float(loss.detach())
            if not math.isfinite(now):
                raise _diverged()
            on_step(step + 1, task.steps, now)


def choose_device(name: str | None) -> torch.device:
    """The named device, or a CUDA GPU where there is one, else the CPU. Raises `UsageProblem`."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UsageProblem(_("--device {name} can't be used on this machine.").format(name=name)) from error
    return device


def _diverged() -> Diverged:
    return Diverged(_("The training came to numbers that aren't finite; there is no result to send."))
