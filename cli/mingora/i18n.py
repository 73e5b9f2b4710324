"""Which language people read, and the messages in it.

`MINGORA_LANG` decides, else the locale. English is the language of the message ids, so it needs no catalogue.
"""

from __future__ import annotations

import gettext
import os
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

LANGUAGES = ("en", "zh_CN", "tr")
LOCALE_DIR = Path(__file__).parent / "locale"
DOMAIN = "mingora"


def choose_language(environ: Mapping[str, str] | None = None) -> str:
    """One of `LANGUAGES`: from MINGORA_LANG, LANGUAGE, LC_ALL, LC_MESSAGES, LANG, or Windows' user interface."""
    env = os.environ if environ is None else environ
    for name in ("MINGORA_LANG", "LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG"):
        value = env.get(name, "")
        if value:
            return _known(value)
    return _known(_windows_language())


def _known(value: str) -> str:
    tag = value.split(":")[0].split(".")[0].split("@")[0].replace("-", "_").lower()
    if tag.startswith("zh"):
        return "zh_CN"
    return "tr" if tag.split("_")[0] == "tr" else "en"


def _windows_language() -> str:
    if sys.platform != "win32":
        return "en"
    import ctypes
    import locale

    return locale.windows_locale.get(ctypes.windll.kernel32.GetUserDefaultUILanguage(), "en")


def catalogue(domain: str, locale_dir: Path, language: str) -> gettext.NullTranslations:
    """The messages of `domain` in `language`; English, or a missing catalogue, leaves texts as they are."""
    return gettext.translation(domain, str(locale_dir), languages=[language], fallback=True)


def translator(domain: str, locale_dir: Path) -> Callable[[str], str]:
    """A `_` function that looks its language up at the first message and keeps it."""

    @lru_cache(maxsize=1)
    def messages() -> gettext.NullTranslations:
        return catalogue(domain, locale_dir, choose_language())

    return lambda text: messages().gettext(text)


_ = translator(DOMAIN, LOCALE_DIR)


def translate_argparse() -> None:
    """Makes argparse's own texts (usage errors, headings) come from this catalogue. For programs, not libraries.

    argparse asks the global text domain, which reads its language from LANGUAGE.
    """
    os.environ["LANGUAGE"] = choose_language()
    gettext.bindtextdomain(DOMAIN, str(LOCALE_DIR))
    gettext.textdomain(DOMAIN)
