"""Crashes between the content file and the database: nothing acknowledged is lost, nothing is left for good."""

from __future__ import annotations

from typing import Any

import pytest
from blob_support import Caller, Service, random_bytes
from sqlalchemy.exc import OperationalError

from mingora_blobstore.domain import retention
from mingora_common.db.engine import Database
from mingora_common.errors import UNAVAILABLE, ServiceError

DATA = random_bytes(5000)


@pytest.mark.req("BLOB-2", "BLOB-7")
def test_bytes_without_a_row_can_be_sent_again_and_are_swept(user: Caller, service: Service) -> None:
    object_id = user.open(DATA).json["id"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "write", _away)
        answer = user.put(object_id, 0, DATA)
        assert (answer.status_code, answer.json["error"]["code"]) == (503, "unavailable")
    assert service.stored_bytes() == len(DATA)
    assert user.call("GET", f"/objects/{object_id}").json["present"] == []
    service.clock.advance(retention.ORPHAN_CONTENT / 1000)
    assert service.sweep()["orphans"] == 0
    service.clock.advance(1)
    assert user.put(object_id, 0, DATA).status_code == 200
    assert service.sweep()["orphans"] == 0
    assert user.complete(object_id).status_code == 200
    assert user.call("GET", f"/objects/{object_id}/content").data == DATA


@pytest.mark.req("BLOB-7")
def test_orphan_bytes_are_swept_after_an_hour(user: Caller, service: Service) -> None:
    kept = user.store(random_bytes(100, seed=3))
    object_id = user.open(DATA).json["id"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "write", _away)
        user.put(object_id, 0, DATA)
    service.clock.advance(retention.ORPHAN_CONTENT / 1000 + 1)
    assert service.sweep()["orphans"] == 1
    assert service.stored_bytes() == 100
    assert user.state(kept) == "complete"


@pytest.mark.req("BLOB-7")
def test_content_that_could_not_be_removed_is_swept(
    user: Caller, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    object_id = user.store(DATA)
    with monkeypatch.context() as patch:
        patch.setattr(type(service.content), "delete_object", _content_away)
        assert user.call("DELETE", f"/objects/{object_id}").status_code == 204
    assert (user.usage(), service.stored_bytes()) == ((0, 0), len(DATA))
    service.clock.advance(retention.ORPHAN_CONTENT / 1000 + 1)
    assert service.sweep()["orphans"] == 1
    assert service.stored_bytes() == 0


@pytest.mark.req("BLOB-1")
def test_an_earlier_uploads_bytes_are_not_the_new_ones(
    user: Caller, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Content of a corrupt object that outlives its removal neither serves the new upload nor takes it along."""
    object_id = user.store(DATA)
    [(_, key)] = service.content.older(service.clock.now() + 1, 0, 10)
    service.content.put(key, b"rotten", service.clock.now())
    with monkeypatch.context() as patch:
        patch.setattr(type(service.content), "delete_object", _content_away)
        assert user.call("GET", f"/objects/{object_id}/content").status_code == 409
    assert user.store(DATA) == object_id
    service.content.delete_object(object_id, key.generation)
    assert user.call("GET", f"/objects/{object_id}/content").data == DATA


def _away(_database: Database) -> Any:
    raise OperationalError("BEGIN", {}, Exception("the server has gone away"))


def _content_away(*_: object) -> None:
    raise ServiceError(UNAVAILABLE)
