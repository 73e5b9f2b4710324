"""The worker's own message catalogue; the language is chosen as the command line does it."""

from __future__ import annotations

from pathlib import Path

from mingora.i18n import translator

DOMAIN = "mingora_worker"
LOCALE_DIR = Path(__file__).parent / "locale"

_ = translator(DOMAIN, LOCALE_DIR)
