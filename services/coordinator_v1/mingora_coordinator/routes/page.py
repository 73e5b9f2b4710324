"""``GET /``: the live page."""

from __future__ import annotations

from flask import Blueprint

from mingora_coordinator.training.training import Training


def blueprint(training: Training) -> Blueprint:
    return Blueprint("page", __name__)
