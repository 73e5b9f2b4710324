"""The volunteer of coordinator protocol v1: trains a LoRA adapter on one's own text and sends each round's result."""

__version__ = "0.1.0"
