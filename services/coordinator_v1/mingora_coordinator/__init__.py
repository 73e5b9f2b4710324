"""Coordinator of protocol v1: volunteers fine-tune one LoRA adapter in rounds. It stands alone, on files."""

__version__ = "0.1.0"
