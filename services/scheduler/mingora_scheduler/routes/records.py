"""What a worker says of itself at registration, parsed; and a node as the list shows it."""

from __future__ import annotations

import re
from typing import Any

from mingora_common.clock import rfc3339
from mingora_scheduler.domain.placement import Node
from mingora_scheduler.routes import fields
from mingora_scheduler.store.nodes import Record
from mingora_scheduler.store.rows import Row

FIELDS = (
    "nodeKey", "name", "version", "platform", "machineId", "cpu", "memoryMiB", "gpu", "runtimes", "imageDigest",
    "fingerprint", "networkGroup", "allowClusterNetwork", "labels", "data", "isolation",
)  # fmt: skip
RUNTIMES = ("native", "docker")
MAX_LABELS, MAX_DATA = 64, 100


def record(body: fields.Body) -> Record:
    """The record of a registration; raises ``invalid_request`` naming the field."""
    gpu = _gpu(body)
    runtimes = fields.texts(body, "runtimes", len(RUNTIMES), 10)
    if not runtimes or not set(runtimes) <= set(RUNTIMES):
        fields.refuse("runtimes", "a list of native, docker or both")
    return Record(
        node_key=fields.text(body, "nodeKey", 128, shortest=32, pattern=r"[0-9A-Fa-f]+").lower(),
        name=fields.text(body, "name", 100),
        version=fields.text(body, "version", 40),
        platform=fields.text(body, "platform", 100),
        machine_id=fields.text(body, "machineId", 128),
        cpu=fields.number(body, "cpu", 1, 65_536),
        memory_mib=fields.number(body, "memoryMiB", 1, 2**40),
        gpu=gpu,
        gpu_uuid=None if gpu is None else gpu["uuid"],
        runtimes=sorted(runtimes),
        image_digest=fields.optional_text(body, "imageDigest", 80, pattern=fields.DIGEST),
        fingerprint=fields.optional_text(body, "fingerprint", 80, pattern=fields.DIGEST),
        network_group=fields.optional_text(body, "networkGroup", 100),
        allow_cluster_network=int(fields.flag(body, "allowClusterNetwork", default=False)),
        labels=_labels(body),
        data=sorted(fields.texts(body, "data", MAX_DATA, 64, pattern=r"[A-Z][A-Z0-9_]*")),
        isolation=fields.profile(body, "isolation"),
    )


def _gpu(body: fields.Body) -> dict[str, Any] | None:
    if body.get("gpu") is None:
        return None
    gpu = fields.members(body, "gpu", ("index", "uuid", "name", "memoryMiB"))
    with fields.within("gpu"):
        return {
            "index": fields.number(gpu, "index", 0, 1023),
            "uuid": fields.text(gpu, "uuid", 128),
            "name": fields.text(gpu, "name", 200),
            "memoryMiB": fields.number(gpu, "memoryMiB", 0, 2**40),
        }


def _labels(body: fields.Body) -> dict[str, str]:
    labels = body.get("labels", {})
    fits = isinstance(labels, dict) and len(labels) <= MAX_LABELS
    if not fits or not all(re.fullmatch(r"[A-Za-z0-9._/-]{1,63}", key) for key in labels):
        fields.refuse("labels", f"an object of at most {MAX_LABELS} members with names of letters, digits and ._/-")
    with fields.within("labels"):
        return {key: fields.text(labels, key, 200, shortest=0) for key in labels}


def rendered(row: Row, node: Node, lease: Row | None) -> dict[str, Any]:
    """A node in ``GET /nodes``."""
    state = "busy" if node.busy else "paused" if node.pause_reason is not None else "idle" if node.waiting else "away"
    return {
        "id": row.id,
        "name": row.name,
        "state": state,
        "pauseReason": row.pause_reason,
        "platform": row.platform,
        "cpu": row.cpu,
        "memoryMiB": row.memory_mib,
        "gpu": row.gpu,
        "runtimes": row.runtimes,
        "networkGroup": row.network_group,
        "allowClusterNetwork": bool(row.allow_cluster_network),
        "labels": row.labels,
        "data": row.data,
        "fingerprint": row.fingerprint,
        "imageDigest": row.image_digest,
        "isolation": row.isolation,
        "registeredAt": rfc3339(row.registered_at),
        "lastSeenAt": rfc3339(row.last_seen_at),
        "lease": lease and {"jobId": lease.job_id, "attempt": lease.attempt, "rank": lease.rank, "state": lease.state},
    }
