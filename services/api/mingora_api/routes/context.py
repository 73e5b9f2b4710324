"""What the routes work with, put together by ``app.create_app``, and who is acting in this request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from flask import current_app, request

from mingora_api.domain.passwords import Passwords
from mingora_api.store.audit import Actor
from mingora_api.store.signins import SignIns
from mingora_common.blobs import Pins
from mingora_common.clock import Clock
from mingora_common.db.engine import Database
from mingora_common.hints import Hints
from mingora_common.http import principal
from mingora_common.wake import Waiters, Waker


@dataclass(frozen=True, slots=True)
class Context:
    """The service's parts."""

    database: Database
    clock: Clock
    hints: Hints
    pins: Pins
    waker: Waker
    waiters: Waiters
    passwords: Passwords
    sign_ins: SignIns


def context() -> Context:
    """The parts of the app that answers this request."""
    return cast(Context, current_app.extensions["mingora_api"])


def actor() -> Actor:
    """The caller of this request, for the audit log; only after ``needs``."""
    caller = principal()
    return Actor(f"token:{caller.token_id}", caller.account_id, address())


def address() -> str:
    """The caller's address."""
    return (request.remote_addr or "unknown")[:64]
