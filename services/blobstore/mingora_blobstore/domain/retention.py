"""How long what nobody holds is kept. Milliseconds, but for the timer's seconds."""

from __future__ import annotations

from mingora_common.clock import DAY, HOUR

# An upload that nobody opens or sends to, and a complete object that no job ever pinned.
UNTOUCHED = DAY
# A corrupt object's row, which tells its readers why there is no content.
CORRUPT_ROW = DAY
# A pin whose job or attempt isn't there: api pins before it commits the job, scheduler before it commits the report.
UNKNOWN_OWNER = HOUR
# Bytes without a row: a part is written first and recorded after.
ORPHAN_CONTENT = HOUR

SWEEP_EVERY_SECONDS = 600.0
