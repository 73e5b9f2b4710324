"""Adapters of the real LoRA shapes: rank 16 on all seven modules of Qwen3-0.6B's 28 layers, 40.4 MB of float32.

Needs NumPy only: also Flower's environment reads them.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt

RANK, LAYERS, HIDDEN = 16, 28, 1024
# Of each module: what goes in, what comes out.
MODULES = {
    "mlp.down_proj": (3072, HIDDEN),
    "mlp.gate_proj": (HIDDEN, 3072),
    "mlp.up_proj": (HIDDEN, 3072),
    "self_attn.k_proj": (HIDDEN, 1024),
    "self_attn.o_proj": (2048, HIDDEN),
    "self_attn.q_proj": (HIDDEN, 2048),
    "self_attn.v_proj": (HIDDEN, 1024),
}
# A step's length beside the adapter's own.
STEP = 0.01

Tensors = list[npt.NDArray[np.float32]]


def shapes() -> dict[str, tuple[int, int]]:
    """The 392 tensors, in the order of their names."""
    found: dict[str, tuple[int, int]] = {}
    for layer in range(LAYERS):
        for module, (into, out) in MODULES.items():
            name = f"base_model.model.model.layers.{layer}.{module}"
            found |= {f"{name}.lora_A.weight": (RANK, into), f"{name}.lora_B.weight": (out, RANK)}
    return dict(sorted(found.items()))


def write(folder: Path, count: int) -> None:
    """``globe.safetensors`` and as many results, ``0.safetensors`` and so on, each a step away from it."""
    header: dict[str, object] = {}
    at = 0
    for name, shape in shapes().items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * shape[0] * shape[1]]}
        at += 4 * shape[0] * shape[1]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    head = len(text).to_bytes(8, "little") + text
    numbers = np.random.default_rng(0)
    globe = numbers.standard_normal(at // 4, np.float32)
    (folder / "globe.safetensors").write_bytes(head + globe.tobytes())
    for number in range(count):
        step = numbers.standard_normal(globe.size, np.float32) * np.float32(STEP)
        (folder / f"{number}.safetensors").write_bytes(head + (globe + step).tobytes())


def read(path: Path) -> Tensors:
    """A file's tensors, loaded."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    values = np.frombuffer(data, np.float32, offset=start)
    found = []
    for about in json.loads(data[8:start]).values():
        begin, end = (place // 4 for place in about["data_offsets"])
        found.append(values[begin:end].reshape(about["shape"]).copy())
    return found
