"""What a check is: a named rule of the protocol, the function that asks for it, and what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from mingora_coordinator.conformance.client import NoAnswer

if TYPE_CHECKING:
    from mingora_coordinator.conformance.session import Session


class Level(Enum):
    """How binding a rule is. Only a broken mandatory one makes a coordinator not conformant."""

    MANDATORY = "mandatory"
    RECOMMENDED = "recommended"
    OPTIONAL = "optional"


class Outcome(Enum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_OFFERED = "notOffered"
    SKIPPED = "skipped"


class Violation(Exception):
    """The rule is broken."""

    def __init__(self, expected: str, seen: str) -> None:
        super().__init__(expected, seen)
        self.expected, self.seen = expected, seen


class NotOffered(Exception):
    """The part of the protocol that the rule is about isn't there, and needn't be."""


class Skipped(Exception):
    """The rule couldn't be asked for; the text says why."""


@dataclass(frozen=True, slots=True)
class Rule:
    """``id`` never changes its meaning; ``section`` is the heading of the protocol page or of the guide."""

    id: str
    level: Level
    section: str
    text: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule and how the coordinator did; ``expected`` and ``seen`` are empty where it passed."""

    rule: Rule
    outcome: Outcome
    expected: str = ""
    seen: str = ""


Question = Callable[["Session"], None]


class Checks:
    """Checks in the order of their definition; used as the decorator that adds one."""

    def __init__(self) -> None:
        self._checks: list[tuple[Rule, Question]] = []

    def __call__(self, id: str, level: Level, section: str, text: str) -> Callable[[Question], Question]:
        """Add the decorated function: it returns when the rule is kept, and else raises one of the exceptions here."""

        def add(question: Question) -> Question:
            self._checks.append((Rule(id, level, section, text), question))
            return question

        return add

    def run(self, session: Session) -> Iterable[Finding]:
        """Ask for one rule after the other, and for no more once something may have got into a live round."""
        for rule, question in self._checks:
            if session.taken:
                return
            yield _find(rule, question, session)


def _find(rule: Rule, question: Question, session: Session) -> Finding:
    try:
        question(session)
    except Violation as violation:
        return Finding(rule, Outcome.FAILED, violation.expected, violation.seen)
    except NoAnswer as failure:
        return Finding(rule, Outcome.FAILED, "an answer", str(failure))
    except NotOffered as reason:
        return Finding(rule, Outcome.NOT_OFFERED, seen=str(reason))
    except Skipped as reason:
        return Finding(rule, Outcome.SKIPPED, seen=str(reason))
    return Finding(rule, Outcome.PASSED)


def expect(kept: bool, expected: str, seen: str) -> None:
    """Raise the violation of a rule that isn't ``kept``."""
    if not kept:
        raise Violation(expected, seen)
