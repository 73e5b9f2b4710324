"""What a caller may open and read: the account's user everything, a lease what domain/access.py allows it."""

from __future__ import annotations

from mingora_blobstore.domain.access import lease_may_read
from mingora_blobstore.domain.objects import KINDS, RESULT, StoredObject
from mingora_blobstore.store.objects import Objects
from mingora_common.auth import LEASE
from mingora_common.errors import NOT_FOUND, ServiceError
from mingora_common.http import principal


def kinds_to_open() -> tuple[str, ...]:
    """The kinds of object that the caller may open."""
    return (RESULT,) if principal().kind == LEASE else KINDS


def readable(objects: Objects, object_id: str) -> StoredObject:
    """An object that the caller may read; raises ``not_found``."""
    caller = principal()
    item = objects.find(caller.account_id, object_id)
    if caller.kind == LEASE and not lease_may_read(item, objects.pinned_by(caller.job_id, item.id)):
        raise ServiceError(NOT_FOUND)
    return item
