"""The volunteer's own text as tokens, the slice of it that a round is about, and the windows sampled from that.

Source: coordinator protocol v1, "İşçi ne yapar?", step 4.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from mingora.errors import UsageProblem
from mingora_volunteer.messages import Task
from mingora_volunteer.texts import _

# Characters, about, that are turned into tokens at once; a longer text is cut at the ends of lines.
CHUNK = 1 << 20


def read_tokens(path: Path, tokenizer: Any) -> torch.Tensor:
    """The tokens of a UTF-8 text, without special ones: int32, shape (n,). Raises `UsageProblem`."""
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
    return torch.cat(pieces) if pieces else torch.empty(0, dtype=torch.int32)


def slice_of(tokens: torch.Tensor, part: int, parts: int) -> torch.Tensor:
    """Slice `part` of `parts` equal ones of n = len // parts tokens; what is left over at the end is in none."""
    n = len(tokens) // parts
    return tokens[part * n : (part + 1) * n]


def batches(tokens: torch.Tensor, task: Task, name: str) -> Iterator[torch.Tensor]:
    """`task.steps` batches of windows at random places of the task's slice: int64, shape (batch, sequence).

    The places depend on the volunteer's name and the round alone. Raises `UsageProblem` when the slice has no window.
    """
    own = slice_of(tokens, task.part, task.parts)
    places = len(own) - task.sequence + 1
    if places < 1:
        raise UsageProblem(
            _("The data has {have} tokens; a round of this training needs at least {need}.").format(
                have=len(tokens), need=task.sequence * task.parts
            ),
            hint=_("Give a longer text with --data."),
        )
    chance = random.Random(f"{name}-{task.round}")  # noqa: S311 - the protocol's sampling seed, no secret
    for _step in range(task.steps):
        starts = [chance.randrange(places) for _row in range(task.batch)]
        yield torch.stack([own[start : start + task.sequence] for start in starts]).long()
