"""Mingora's worker: claims jobs of its own account, runs them on this machine, and reports verified results."""

__version__ = "0.1.0"
