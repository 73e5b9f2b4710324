"""Makes docs/requirements.md: each requirement's id, and the tests that carry its mark.

Runs inside `.venv` (it needs pytest): ``python -m devtools.requirements [--fix]``.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections import defaultdict

import pytest

from devtools.venv import ROOT

IDS = ROOT / "docs" / "requirements.ids"
TARGET = ROOT / "docs" / "requirements.md"
HEAD = """# Requirements and the tests that prove them

Made by `python3 dev.py check --fix` from the `@pytest.mark.req` marks; don't edit by hand. The ids and short titles
are in `docs/requirements.ids`. A requirement without tests isn't built yet: nothing is claimed of it.

"""


class _Marks:
    """A pytest plugin that notes the marks of everything collected and runs nothing."""

    def __init__(self) -> None:
        self.tests: dict[str, set[str]] = defaultdict(set)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            for mark in item.iter_markers("req"):
                for requirement in mark.args:
                    self.tests[requirement].add(item.nodeid.partition("[")[0])
        items.clear()


def main(fix: bool) -> int:
    """Check that the document is in step, or write it."""
    titles = dict(line.split(" ", 1) for line in IDS.read_text(encoding="utf-8").splitlines() if line)
    marks, output = _Marks(), io.StringIO()
    with contextlib.redirect_stdout(output):
        code = pytest.main(["--collect-only", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", str(ROOT)], [marks])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        print(output.getvalue(), file=sys.stderr)
        return 1
    unknown = sorted(set(marks.tests) - set(titles))
    if unknown:
        print(f"Marks that name no requirement: {', '.join(unknown)}", file=sys.stderr)
        return 1
    text = HEAD + "\n".join(_section(key, title, marks.tests.get(key, set())) for key, title in titles.items())
    if fix:
        TARGET.write_text(text, encoding="utf-8")
    elif not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text:
        print("docs/requirements.md isn't in step with the tests.", file=sys.stderr)
        return 1
    return 0


def _section(key: str, title: str, tests: set[str]) -> str:
    lines = [f"## {key} {title}", ""]
    lines += [f"- `{test}`" for test in sorted(tests)] or ["No test yet."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main("--fix" in sys.argv[1:]))
