"""Checks the message catalogues: every message of the sources is there, translated, and compiled.

Runs inside `.venv` (it needs Babel): ``python -m devtools.catalogues [--fix]``.
"""

from __future__ import annotations

import io
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from babel.messages.catalog import Catalog, Message
from babel.messages.extract import extract_from_dir
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

from devtools.venv import ROOT

LANGUAGES = ("zh_CN", "tr")
KEYWORDS = {"_": None, "gettext": None, "ngettext": (1, 2), "N_": None, "t": None}
_PLACEHOLDER = re.compile(r"%\([a-z_]+\)[sdr]|%[sdr]|\{[a-z_0-9.!:]*\}")


@dataclass(frozen=True)
class Domain:
    """A catalogue and the package whose messages it holds."""

    name: str
    package: Path

    def po(self, language: str) -> Path:
        return self.package / "locale" / language / "LC_MESSAGES" / f"{self.name}.po"


DOMAINS = (
    Domain("mingora", ROOT / "cli" / "mingora"),
    Domain("mingora_worker", ROOT / "worker" / "mingora_worker"),
    Domain("mingora_volunteer", ROOT / "worker" / "mingora_volunteer"),
)


def main(fix: bool) -> int:
    """Check every catalogue; with ``fix``, first add new messages, drop dead ones, and compile."""
    problems: list[str] = []
    for domain in DOMAINS:
        template = _template(domain)
        for language in LANGUAGES:
            path = domain.po(language)
            if fix:
                _update(path, template, language)
            problems += [f"{path.relative_to(ROOT)}: {text}" for text in _problems(path, template)]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def _template(domain: Domain) -> Catalog:
    catalog = Catalog(project=domain.name, charset="utf-8")
    found = extract_from_dir(
        domain.package,
        [("**.py", "python")],
        keywords=KEYWORDS,
        comment_tags=("Translators:",),
        strip_comment_tags=True,
    )
    for _name, _line, message, comments, context in found:
        catalog.add(message, auto_comments=comments, context=context)
    return catalog


def _read(path: Path) -> Catalog:
    with path.open("rb") as file:
        return read_po(file)


def _update(path: Path, template: Catalog, language: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    catalog = _read(path) if path.exists() else Catalog(locale=language, charset="utf-8")
    catalog.update(template, no_fuzzy_matching=True, update_creation_date=False)
    catalog.obsolete.clear()
    text = io.BytesIO()
    write_po(text, catalog, width=120, sort_output=True, no_location=True, ignore_obsolete=True)
    path.write_bytes(text.getvalue())
    path.with_suffix(".mo").write_bytes(_compiled(catalog))


def _compiled(catalog: Catalog) -> bytes:
    data = io.BytesIO()
    write_mo(data, catalog)
    return data.getvalue()


def _problems(path: Path, template: Catalog) -> list[str]:
    if not path.exists():
        return ["is missing"]
    catalog = _read(path)
    problems = []
    for message in template:
        translated = catalog.get(message.id, message.context) if message.id else None
        if message.id and (translated is None or not _complete(translated)):
            problems.append(f"not translated: {message.id!r}")
        elif message.id and translated is not None:
            problems += _wrong_placeholders(translated)
    known = {message.id for message in template}
    problems += [f"no longer used: {message.id!r}" for message in catalog if message.id and message.id not in known]
    compiled = path.with_suffix(".mo")
    if not compiled.exists() or compiled.read_bytes() != _compiled(catalog):
        problems.append("its .mo isn't in step")
    return problems


def _complete(message: Message) -> bool:
    texts = message.string if isinstance(message.string, (tuple, list)) else (message.string,)
    return not message.fuzzy and all(texts)


def _wrong_placeholders(message: Message) -> list[str]:
    ids = message.id if isinstance(message.id, (tuple, list)) else (message.id,)
    texts = message.string if isinstance(message.string, (tuple, list)) else (message.string,)
    wanted = set(_PLACEHOLDER.findall(ids[-1]))
    return [f"placeholders differ: {ids[0]!r}" for text in texts if set(_PLACEHOLDER.findall(text or "")) != wanted]


if __name__ == "__main__":
    sys.exit(main("--fix" in sys.argv[1:]))
