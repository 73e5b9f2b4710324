"""How long a server asks to wait."""

from __future__ import annotations

import pytest

from mingora.answers import api_error

NOON, LATER = "Mon, 30 Nov 2026 12:00:00 GMT", "Mon, 30 Nov 2026 12:00:07 GMT"


@pytest.mark.req("CLI-10")
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3),
        ({"retry-after": "-3"}, 0),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": LATER, "date": NOON}, 7),
        ({"retry-after": NOON, "date": LATER}, 0),
    ],
)
def test_what_is_asked_for(headers: dict[str, str], seconds: float | None) -> None:
    assert api_error(503, headers, b"").retry_after == seconds


@pytest.mark.req("CLI-10")
@pytest.mark.parametrize("ours", [86_400, -86_400])
def test_a_date_is_held_against_the_servers_own_clock(monkeypatch: pytest.MonkeyPatch, ours: float) -> None:
    monkeypatch.setattr("time.time", lambda: 1_796_040_000.0 + ours)  # NOON, and a day off
    assert api_error(503, {"retry-after": LATER, "date": NOON}, b"").retry_after == 7
