"""Which objects a lease token may read. A user's token reads all of the account's objects.

A lease learns an id only from its job's inputs, or by opening content whose digest and size it states itself: ids are
128 random bits. So it may send to and complete what it has an id of (that shows and changes no content: parts are
never overwritten and completing re-computes the digest), but content and state are read only of its job's inputs and
of results. What remains: a lease can learn that its own account holds content whose digest it already knows, and can
spoil an upload of that very content with a wrong first part, which the user mends by deleting the open object.
"""

from __future__ import annotations

from mingora_blobstore.domain.objects import RESULT, StoredObject


def lease_may_read(stored: StoredObject, pinned_by_job: bool) -> bool:
    """Whether a lease may read ``stored``, an object of its own account."""
    return pinned_by_job or stored.kind == RESULT
