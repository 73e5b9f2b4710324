"""What the operator chose for the training, and what an adapter is."""

from __future__ import annotations

from dataclasses import dataclass

NESTEROV, MEAN = "nesterov", "mean"
MAX_ROUNDS = 1_000_000
# Of a nickname. The protocol recommends 60; a longer one is no reason to lose somebody's work.
MAX_NAME = 200
MAX_SHARDS = 100_000
# What a volunteer's machine is asked for at most: `mingora-volunteer` refuses more.
MAX_STEPS = 100_000
MAX_BATCH = 1024
MAX_SEQUENCE = 131_072
MAX_STEP_TOKENS = 1 << 20


@dataclass(frozen=True, slots=True)
class Settings:
    """Of the training as a whole.

    Attributes:
        rounds: how many adapters are made; then the training is over.
        min_results: results that close a round at once.
        timeout: seconds after which a round closes with fewer results, once there is one; 0 is never.
        outer: the rule that makes one adapter of the results (``--outer``).
        outer_rate, outer_decay: of the reference outer step (lr_dis, m).
        outlier_factor: of the median distance, beyond which a result isn't used; at least 1, or 0, which uses all.
        shards: into how many slices the volunteers cut their data (n_parca).
        inner_steps, batch_size, sequence, rate, seed: of the volunteers' own training (ic_adim, bs, seq, lr, tohum).
    """

    rounds: int
    min_results: int
    timeout: float = 3600.0
    outer: str = NESTEROV
    outer_rate: float = 1.0
    outer_decay: float = 0.5
    outlier_factor: float = 5.0
    shards: int = 4
    inner_steps: int = 20
    batch_size: int = 4
    sequence: int = 512
    rate: float = 2e-4
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Lora:
    """What PEFT needs to know of an adapter besides its numbers.

    Attributes:
        base_model: name of the model that it adapts, or empty.
        rank, alpha: r and lora_alpha; 0 where the adapter's keys aren't those of LoRA.
        targets: names of the adapted modules.
    """

    base_model: str
    rank: int
    alpha: float
    targets: tuple[str, ...]

    @property
    def whole_alpha(self) -> float:
        """Alpha as people write it: a whole number without a point."""
        return int(self.alpha) if self.alpha == int(self.alpha) else self.alpha
