"""A small adapter to try the protocol with: LoRA of rank 4 on a model of two layers that nobody has to download."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mingora_coordinator.domain.header import Tensor, render

LAYERS, WIDTH, RANK = 2, 32, 4
MODULES = ("q_proj", "k_proj", "v_proj", "o_proj")


def write(path: Path) -> None:
    """Write the example, always the same bytes: A random as PEFT begins it, B zeros."""
    random = np.random.Generator(np.random.PCG64(0))
    arrays = {}
    for layer in range(LAYERS):
        for module in MODULES:
            name = f"base_model.model.model.layers.{layer}.self_attn.{module}"
            arrays[f"{name}.lora_A.weight"] = random.uniform(-1, 1, (RANK, WIDTH)).astype("<f4") / WIDTH**0.5
            arrays[f"{name}.lora_B.weight"] = np.zeros((WIDTH, RANK), "<f4")
    tensors, begin = [], 0
    for name, array in sorted(arrays.items()):
        tensors.append(Tensor(name, "F32", array.shape, begin, begin + array.nbytes))
        begin += array.nbytes
    data = b"".join(array.astype("<f4").tobytes() for _name, array in sorted(arrays.items()))
    path.write_bytes(render(tensors) + data)
