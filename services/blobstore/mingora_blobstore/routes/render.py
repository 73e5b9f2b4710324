"""An object as clients read it."""

from __future__ import annotations

from typing import Any

from mingora_blobstore.store.objects import View
from mingora_common.clock import rfc3339, rfc3339_or_none


def render(view: View) -> dict[str, Any]:
    """The JSON of an object (docs/protocol.md, "Objects")."""
    item = view.object
    return {
        "id": item.id,
        "kind": item.kind,
        "size": item.size,
        "sha256": item.sha256,
        "state": item.state,
        "partSize": item.part_size,
        "parts": item.parts,
        "present": list(view.present),
        "createdAt": rfc3339(item.created_at),
        "completedAt": rfc3339_or_none(item.completed_at),
        "pinned": view.pinned,
    }
