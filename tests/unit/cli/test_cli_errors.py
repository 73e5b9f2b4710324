"""The one rule for sending again, and the exit codes that errors carry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mingora.errors import (
    MAX_ATTEMPTS,
    MAX_RATE_ATTEMPTS,
    ApiError,
    InsecureServer,
    LostAnswer,
    MingoraError,
    NotLoggedIn,
    NotSent,
    OutcomeUnknown,
    RateLimited,
    TlsError,
    UsageProblem,
    WaitTimeout,
    outcome_unknown,
    retry_delay,
)


def api(status: int, retry_after: float | None = None, code: str = "x") -> ApiError:
    kind = RateLimited if status == 429 else ApiError
    return kind(code, status, "text", retry_after=retry_after)


@pytest.mark.req("CLI-10")
@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize(
    ("retry_after", "waits"), [(0, 0.05), (1, 1), (60, 60), (60.1, None), (86400, None), (float("inf"), None)]
)
def test_explicit_retry_after(idempotent: bool, retry_after: float, waits: float | None) -> None:
    assert retry_delay(api(429, retry_after), attempt=1, idempotent=idempotent) == waits


@pytest.mark.req("CLI-10")
def test_rate_limits_end_some_time() -> None:
    assert retry_delay(api(429, 1), attempt=MAX_RATE_ATTEMPTS, idempotent=True) is None
    assert retry_delay(api(429), attempt=1, idempotent=False) is not None
    assert retry_delay(api(429), attempt=MAX_ATTEMPTS, idempotent=False) is None


@pytest.mark.req("CLI-10")
@given(st.integers(1, 10), st.sampled_from([LostAnswer("x"), *(api(status) for status in (500, 502, 503, 504))]))
def test_a_write_that_may_have_happened_is_never_sent_again(attempt: int, error: MingoraError) -> None:
    assert outcome_unknown(error)
    assert retry_delay(error, attempt=attempt, idempotent=False) is None


@pytest.mark.req("CLI-10")
@pytest.mark.parametrize(
    ("error", "again"),
    [
        (NotSent("x"), True),
        (LostAnswer("x"), True),
        (api(502), True),
        (api(503, 5), True),
        (api(504), True),
        (api(503, 61), False),
        (api(500), False),
        (api(404), False),
        (api(409), False),
        (TlsError("x"), False),
        (InsecureServer("x"), False),
        (OutcomeUnknown("x", LostAnswer("x")), False),
    ],
)
def test_what_a_repeatable_request_is_sent_again_for(error: MingoraError, again: bool) -> None:
    assert (retry_delay(error, attempt=1, idempotent=True) is not None) is again
    assert retry_delay(error, attempt=MAX_ATTEMPTS, idempotent=True) is None


@pytest.mark.req("CLI-10")
def test_a_request_that_never_arrived_is_sent_again_even_if_it_is_a_write() -> None:
    delay = retry_delay(NotSent("x"), attempt=1, idempotent=False)
    assert delay is not None and 0 < delay < 1
    assert not outcome_unknown(NotSent("x"))
    assert not outcome_unknown(api(429))


@pytest.mark.req("CLI-12")
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MingoraError("x"), 1),
        (UsageProblem("x"), 2),
        (InsecureServer("x"), 2),
        (NotLoggedIn("x"), 3),
        (WaitTimeout("x"), 124),
        (OutcomeUnknown("x", LostAnswer("x")), 7),
        (NotSent("x"), 1),
        (api(401, code="invalid_token"), 3),
        (api(401, code="http_401"), 3),
        (api(403, code="insufficient_scope"), 3),
        (api(403, code="quota_exceeded"), 6),
        (api(413, code="file_too_large"), 6),
        (api(429, code="rate_limited"), 6),
        (api(404, code="not_found"), 4),
        (api(409, code="key_conflict"), 5),
        (api(409, code="job_not_finished"), 101),
        (api(409, code="object_in_use"), 1),
        (api(500, code="internal"), 1),
    ],
)
def test_exit_code(error: MingoraError, code: int) -> None:
    assert error.exit_code == code
