"""How long things last in scheduling, in milliseconds unless the name says otherwise, and how much is taken."""

from __future__ import annotations

from mingora_common.clock import DAY, MINUTE, SECOND

LEASE_TTL = 60 * SECOND
# The lease's token outlives it a little, so that a heartbeat that is late is answered `lease_lost` and not 401.
LEASE_TOKEN_SLACK = 60 * SECOND
# A reservation that no claim has picked up by then goes to another node.
CLAIM_DEADLINE = 30 * SECOND
# A claim counts as waiting this long after it was heard: 15 s of waiting and the way back and forth.
WAITING = 20 * SECOND
READY_DEADLINE = 600 * SECOND
# TERM, grace and KILL take seconds; what is left is for a long log over a slow line.
STOP_DEADLINE = 600 * SECOND
STOP_GRACE_SECONDS = 10
# How long the answer to a report can be asked for again after the lease has ended.
REPLAY = 10 * MINUTE
# A lease's ended tokens are kept that long.
TOKEN_KEPT = DAY

LOG_CAP_BYTES = 100 * 1024 * 1024
LOG_CHUNK_BYTES = 1024 * 1024
LOG_TAIL_BYTES = 64 * 1024
MAX_RESULTS = 10_000
