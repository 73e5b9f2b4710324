"""Coordinator of protocol v1: volunteers fine-tune one LoRA adapter in rounds. It stands alone, on files."""

import os

__version__ = "0.1.0"

# Read when NumPy is first imported. A rule's own threads share its work (domain/blocks.py); those of OpenBLAS wait by
# spinning and only get in their way: on a busy machine Krum takes a hundred times as long with them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
