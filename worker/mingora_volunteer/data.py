"""The volunteer's own text as tokens, and the batches of a round."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from mingora.errors import UsageProblem
from mingora_volunteer.messages import Task
from mingora_volunteer.plan import slice_bounds, window_starts
from mingora_volunteer.texts import _

# Characters, about, that are turned into tokens at once; a longer text is cut at the ends of lines.
CHUNK = 1 << 20


def read_tokens(path: Path, tokenizer: Any) -> torch.Tensor:
    """The tokens of a UTF-8 text, without special ones: int32, shape (n,), n > 0. Raises `UsageProblem`."""
    pieces: list[torch.Tensor] = []
    try:
        with path.open(encoding="utf-8", newline="") as file:
            while lines := file.readlines(CHUNK):
                ids = tokenizer("".join(lines), add_special_tokens=False, verbose=False)["input_ids"]
                pieces.append(torch.tensor(ids, dtype=torch.int32))
    except UnicodeDecodeError as error:
        raise UsageProblem(_("--data {path}: this isn't UTF-8 text.").format(path=path)) from error
    except OSError as error:
        raise UsageProblem(
            _("--data {path} can't be read: {reason}").format(path=path, reason=error.strerror)
        ) from error
    tokens = torch.cat([torch.empty(0, dtype=torch.int32), *pieces])
    if not len(tokens):
        raise UsageProblem(_("--data {path}: there is no text in it.").format(path=path))
    return tokens


def batches(tokens: torch.Tensor, task: Task, name: str) -> Iterator[torch.Tensor]:
    """`task.steps` batches of windows at random places of the task's slice: int64, shape (batch, sequence).

    Raises `UsageProblem` when the slice is shorter than a window.
    """
    begin, end = slice_bounds(len(tokens), task.part, task.parts)
    places = end - begin - task.sequence + 1
    if places < 1:
        raise UsageProblem(
            _("The data has {have} tokens; a round of this training needs at least {need}.").format(
                have=len(tokens), need=task.sequence * task.parts
            ),
            hint=_("Give a longer text with --data."),
        )
    own = tokens[begin:end]
    for starts in window_starts(name, task.round, task.steps, task.batch, places):
        yield torch.stack([own[start : start + task.sequence] for start in starts]).long()
