"""The volunteer's own message catalogue. Turkish comes first: whoever's locale isn't English or Chinese reads it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from mingora.i18n import choose_language, translate_argparse, translator

DOMAIN = "mingora_volunteer"
LOCALE_DIR = Path(__file__).parent / "locale"
_LOCALE_NAMES = ("MINGORA_LANG", "LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG")

_ = translator(DOMAIN, LOCALE_DIR)


def volunteer_language(environ: Mapping[str, str], platform: str = sys.platform) -> str:
    """`en`, `zh_CN` or `tr`, as the locale says; `tr` where it names none of them."""
    language = choose_language(environ)
    if language != "en":
        return language
    named = next((environ[name] for name in _LOCALE_NAMES if environ.get(name)), "")
    told = named.lower().startswith("en") if named else platform == "win32"  # Windows names a language by itself
    return "en" if told else "tr"


def settle_language() -> None:
    """Makes this program's messages, and those of the libraries it shares with the command line, one language."""
    os.environ["MINGORA_LANG"] = volunteer_language(os.environ)
    translate_argparse()
