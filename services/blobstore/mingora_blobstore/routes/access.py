"""Who may call a route: the account's user, or a lease within what domain/access.py allows it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import structlog
from flask import current_app, g, request

from mingora_blobstore.domain.access import lease_may_read
from mingora_blobstore.domain.objects import KINDS, RESULT, StoredObject
from mingora_blobstore.store.objects import Objects
from mingora_common.auth import LEASE, USER, WORK, TokenReader
from mingora_common.errors import NOT_FOUND, ServiceError
from mingora_common.http import principal

F = TypeVar("F", bound=Callable[..., Any])


def user_or_lease(scope: str) -> Callable[[F], F]:
    """Decorate a view: a user's token with ``scope`` is needed, or a lease's token, whose one scope is for work."""

    def decorate(view: F) -> F:
        @functools.wraps(view)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            tokens: TokenReader = current_app.extensions["mingora_tokens"]
            caller = tokens.verify(request.headers.get("Authorization"))
            caller.require(WORK if caller.kind == LEASE else scope, (USER, LEASE))
            g.principal = caller
            structlog.contextvars.bind_contextvars(account=caller.account_id)
            return view(*args, **kwargs)

        guarded.mingora_scope = scope  # type: ignore[attr-defined]
        guarded.mingora_kinds = (USER, LEASE)  # type: ignore[attr-defined]
        return cast(F, guarded)

    return decorate


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
