"""Ten deliberate faults, each of which some test must notice. A mutant whose text is gone from the code fails too."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SERVICES = ("common", "api", "blobstore", "scheduler", "stack", "coordinator_v1")


@dataclass(frozen=True)
class Mutant:
    """Replaces ``old`` by ``new`` in a file below services/; ``tests`` must then fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


MUTANTS = (
    Mutant(
        "no attempt guard",
        "scheduler/mingora_scheduler/store/leases.py",
        "        leases.c.attempt == holder.attempt,\n",
        "",
        ("tests/service/scheduler/test_scheduler_identity.py", "-k", "stale and sqlite"),
    ),
    Mutant(
        "acknowledge before fsync",
        "common/mingora_common/db/engine.py",
        '"synchronous=FULL"',
        '"synchronous=OFF"',
        ("tests/contract/test_durability.py",),
    ),
    Mutant(
        "no pin of a job's inputs",
        "api/mingora_api/routes/jobs.py",
        "    _pin_inputs(submission)\n    try:",
        "    try:",
        ("tests/service/api/test_api_submit.py",),
    ),
    Mutant(
        "no pin of results",
        "scheduler/mingora_scheduler/store/leases.py",
        "self._pins.pin(lease.attempt_id, holder.account_id, objects)",
        "pass",
        ("tests/service/scheduler/test_scheduler_flow.py",),
    ),
    Mutant(
        "a wait looks only before it registers",
        "common/mingora_common/wake.py",
        "        while True:\n            found = look()\n",
        "        while True:\n",
        ("tests/unit/common/test_common_wake.py", "-k", "between_the_first_look"),
    ),
    Mutant(
        "terminal states change",
        "scheduler/mingora_scheduler/domain/attempt.py",
        "    if attempt.terminal:\n        return Step(attempt)\n    return _HANDLERS",
        "    return _HANDLERS",
        ("tests/unit/scheduler/test_attempt_machine.py",),
    ),
    Mutant(
        "a second claim takes the lease of the first",
        "scheduler/mingora_scheduler/store/leases.py",
        "node.claimed_at != claim.stamp or ",
        "",
        ("tests/service/scheduler/test_scheduler_superseded.py",),
    ),
    Mutant(
        "a part's digest isn't compared",
        "blobstore/mingora_blobstore/routes/parts.py",
        "if digest.hexdigest() != sha256:",
        "if False:",
        ("tests/service/blobstore/test_blob_uploads.py", "-k", "parts_body and sqlite"),
    ),
    Mutant(
        "complete without computing the whole digest",
        "blobstore/mingora_blobstore/store/uploads.py",
        "self._reader.digest(item) != item.sha256",
        "False",
        ("tests/service/blobstore/test_blob_uploads.py", "-k", "whole_digest and sqlite"),
    ),
    Mutant(
        "log bytes may leave a gap",
        "scheduler/mingora_scheduler/store/logs.py",
        "            if offset > acked:\n                raise ServiceError(LOG_GAP, acked=acked)\n",
        "",
        ("tests/service/scheduler/test_scheduler_logs.py",),
    ),
    Mutant(
        "revoked tokens live on",
        "common/mingora_common/db/migrations/versions/v0001_first.py",
        "WHERE t.revoked_at IS NULL AND",
        "WHERE",
        ("tests/contract/test_schema.py",),
    ),
    Mutant(
        "a job's limit isn't kept under a race",
        "api/mingora_api/store/jobs.py",
        "    check_room(connection, submission.account_id, max_jobs)\n    connection.execute(",
        "    connection.execute(",
        ("tests/service/api/test_api_submit.py",),
    ),
    Mutant(
        "a result is recorded before its bytes are durable",
        "coordinator_v1/mingora_coordinator/training/receiving.py",
        "        sync_file(self._path)\n",
        "",
        ("tests/contract/test_coordinator_power_cut.py", "-k", "median"),
    ),
    Mutant(
        "an outlier stays in the sum",
        "coordinator_v1/mingora_coordinator/training/running_sum.py",
        "                self._sum.take_out(self._open(result))\n",
        "",
        ("tests/service/coordinator/test_coordinator_protocol.py", "-k", "trace and mean"),
    ),
)


@pytest.mark.req("OPS-2", "JOB-4", "BLOB-1", "BLOB-2", "AUTH-4", "COORD-3", "COORD-6")
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_a_mutant_is_caught(mutant: Mutant, tmp_path: Path) -> None:
    for service in SERVICES:
        shutil.copytree(ROOT / "services" / service, tmp_path / service, ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / mutant.file
    text = path.read_text(encoding="utf-8")
    assert text.count(mutant.old) == 1, "the mutant doesn't fit the code any more"
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    mutated = os.pathsep.join(str(tmp_path / service) for service in SERVICES)
    env = {name: value for name, value in os.environ.items() if name not in ("MINGORA_TEST_POSTGRES", "CI")}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *mutant.tests]
    done = subprocess.run(
        command, cwd=ROOT, env=env | {"PYTHONPATH": mutated}, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 1, f"nobody noticed: {mutant.name}\n{done.stdout[-2000:]}"
    assert "1 failed" in done.stdout
