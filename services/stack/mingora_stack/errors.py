"""What the person at the terminal is told when the stack can't run."""

from __future__ import annotations


class StackError(Exception):
    """The stack can't start or go on; the message says why and what to do."""
