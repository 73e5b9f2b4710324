"""Whether a failed attempt is tried again, and when (job.json's ``retry``; none unless the job asks for it)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mingora_common.clock import MINUTE, SECOND
from mingora_scheduler.domain.attempt import ENGINE_LOST, LEASE_LOST, NOT_CLAIMED, WORKER_STOPPED, Attempt, State

FIRST_DELAY = 5 * SECOND
LONGEST_DELAY = 5 * MINUTE
# Not the job's fault: another worker, or the same one once it is back, may take it at once.
WORKERS_FAULT = frozenset({LEASE_LOST, WORKER_STOPPED, ENGINE_LOST})
# A job that was to be cancelled and ends in one of these ways is cancelled, not failed.
NOT_THE_JOBS_FAULT = WORKERS_FAULT | {NOT_CLAIMED}


@dataclass(frozen=True, slots=True)
class Policy:
    """At most ``maximum`` retries. With codes or patterns, one of them must match; a pattern is a plain substring."""

    maximum: int = 0
    exit_codes: frozenset[int] = frozenset()
    log_patterns: tuple[str, ...] = ()

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> Policy:
        """The policy of a job's spec."""
        retry = spec.get("retry") or {}
        return cls(
            retry.get("max", 0), frozenset(retry.get("onExitCodes") or ()), tuple(retry.get("onLogPatterns") or ())
        )


def retry_at(policy: Policy, attempt: Attempt, failures: int, tails: Sequence[bytes], now: int) -> int | None:
    """When the job may be tried again (milliseconds since the epoch), or None when this attempt was its last.

    Args:
        failures: earlier attempts of the job that failed and count.
        tails: the ends of the ranks' logs (at most 64 KiB each); only read when the policy has patterns.
    """
    if attempt.state is not State.FAILED:
        return None
    if attempt.cause is not None and attempt.cause.code == NOT_CLAIMED:
        return now
    if failures >= policy.maximum or not _matches(policy, attempt, tails):
        return None
    if attempt.cause is not None and attempt.cause.code in WORKERS_FAULT:
        return now
    return now + min(FIRST_DELAY << failures, LONGEST_DELAY)


def _matches(policy: Policy, attempt: Attempt, tails: Sequence[bytes]) -> bool:
    if not policy.exit_codes and not policy.log_patterns:
        return True
    codes = {rank.report.exit_code for rank in attempt.ranks if rank.report is not None}
    patterns = [pattern.encode("utf-8", "surrogatepass") for pattern in policy.log_patterns]
    return bool(policy.exit_codes & codes) or any(pattern in tail for tail in tails for pattern in patterns)
