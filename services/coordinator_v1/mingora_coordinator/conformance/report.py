"""The findings for people and for programs: a table, a summary line, and a JSON document of a stable form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mingora_coordinator.conformance.rules import Finding, Level, Outcome

SCHEMA_VERSION = 1
MARKS = {Outcome.PASSED: "ok", Outcome.FAILED: "FAILED", Outcome.NOT_OFFERED: "not offered", Outcome.SKIPPED: "skipped"}
COLOURS = {Outcome.PASSED: 32, Outcome.FAILED: 31, Outcome.NOT_OFFERED: 36, Outcome.SKIPPED: 33}


@dataclass(frozen=True, slots=True)
class Report:
    """What one run found. ``started`` is its beginning in UTC, as ISO 8601."""

    url: str
    full: bool
    started: str
    findings: Sequence[Finding]

    @property
    def conformant(self) -> bool:
        """Whether no mandatory rule is broken."""
        return not any(
            finding.outcome is Outcome.FAILED and finding.rule.level is Level.MANDATORY for finding in self.findings
        )

    def document(self) -> dict[str, Any]:
        """The report as JSON has it; a change that a reader could trip over raises SCHEMA_VERSION."""
        return {
            "schemaVersion": SCHEMA_VERSION,
            "protocol": "1",
            "url": self.url,
            "mode": "full" if self.full else "safe",
            "startedAt": self.started,
            "conformant": self.conformant,
            "summary": {
                level.value: {outcome.value: self._count(level, outcome) for outcome in Outcome} for level in Level
            },
            "checks": [
                {
                    "id": finding.rule.id,
                    "level": finding.rule.level.value,
                    "section": finding.rule.section,
                    "rule": finding.rule.text,
                    "outcome": finding.outcome.value,
                    "expected": finding.expected,
                    "seen": finding.seen,
                }
                for finding in self.findings
            ],
        }

    def summary(self) -> str:
        """One line: the verdict, and the counts of each level."""
        counts = [
            f"{level.value}: {', '.join(f'{number} {mark}' for mark, number in self._marks(level) if number) or 'none'}"
            for level in Level
        ]
        return f"{'CONFORMANT' if self.conformant else 'NOT CONFORMANT'} ({'; '.join(counts)})"

    def _marks(self, level: Level) -> list[tuple[str, int]]:
        return [(mark, self._count(level, outcome)) for outcome, mark in MARKS.items()]

    def _count(self, level: Level, outcome: Outcome) -> int:
        return sum(finding.rule.level is level and finding.outcome is outcome for finding in self.findings)


def line(finding: Finding, colours: bool) -> str:
    """A finding as the table has it; what was expected and seen stands below it where the rule isn't kept."""
    mark = f"{MARKS[finding.outcome]:<11}"
    if colours:
        mark = f"\033[{COLOURS[finding.outcome]}m{mark}\033[0m"
    rule = finding.rule
    text = f"{mark} {rule.level.value:<11} {rule.id:<34} {rule.section}: {rule.text}"
    if finding.outcome is Outcome.FAILED:
        return f"{text}\n{'':<12}expected: {finding.expected}\n{'':<12}seen:     {finding.seen}"
    return f"{text} ({finding.seen})" if finding.seen else text
