"""Everything at once on one account: no deadlock, no fault of ours, and the usage adds up in the end."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from blob_support import Caller, Service, sha
from support import Seed

from mingora_blobstore.store.sweep import SweepTimer
from mingora_common.db.schema import objects

CONTENTS = [bytes([number]) * (number + 1) for number in range(12)]
OWNERS = ["job_11111111", "att_22222222"]


@pytest.mark.req("BLOB-1", "BLOB-2", "BLOB-7")
def test_all_calls_at_once(user: Caller, service: Service, account: str) -> None:
    def store(chance: random.Random) -> set[int]:
        data = chance.choice(CONTENTS)
        item = user.open(data)
        object_id = item.json["id"]
        sent = user.put(object_id, 0, data, query_string={"complete": "1"})
        return {item.status_code, sent.status_code, user.complete(object_id).status_code}

    def batch(chance: random.Random) -> set[int]:
        items = [{"size": len(data), "sha256": sha(data), "kind": "input"} for data in chance.sample(CONTENTS, 8)]
        return {user.call("POST", "/objects/batch", json={"objects": items}).status_code}

    def pin(chance: random.Random) -> set[int]:
        shown = user.call("GET", "/objects").json["objects"]
        chance.shuffle(shown)
        by_digest = {sha(data): data for data in CONTENTS}
        refs = [(item["id"], by_digest[item["sha256"]]) for item in shown[:5] if item["state"] == "complete"]
        return {service.pin(chance.choice(OWNERS), account, *refs).status_code}

    def release(chance: random.Random) -> set[int]:
        return {service.release(chance.choice(OWNERS)).status_code}

    def delete(chance: random.Random) -> set[int]:
        shown = user.call("GET", "/objects").json["objects"]
        return {user.call("DELETE", f"/objects/{chance.choice(shown)['id']}").status_code} if shown else set()

    def read(chance: random.Random) -> set[int]:
        shown = user.call("GET", "/objects").json["objects"]
        return {user.call("GET", f"/objects/{chance.choice(shown)['id']}/content").status_code} if shown else set()

    def sweep(_chance: random.Random) -> set[int]:
        service.sweep()
        return set()

    calls = [store, store, store, batch, pin, release, delete, read, sweep]

    def one(number: int) -> set[int]:
        chance = random.Random(number)
        return chance.choice(calls)(chance)

    with ThreadPoolExecutor(8) as pool:
        statuses = set().union(*pool.map(one, range(160)))
    assert statuses <= {200, 201, 204, 404, 409}
    shown = user.call("GET", "/objects").json["objects"]
    held = [item["size"] for item in shown if item["state"] != "corrupt"]
    assert user.usage() == (sum(held), len(held))
    stored = sum(len(item["present"]) * item["size"] for item in shown)
    assert service.stored_bytes() == stored
    for item in shown:
        if item["state"] == "complete":
            assert sha(user.call("GET", f"/objects/{item['id']}/content").data) == item["sha256"]


@pytest.mark.req("BLOB-7")
def test_the_timer_sweeps_again_after_a_failure() -> None:
    ran, twice = [], threading.Event()

    def sweep() -> None:
        ran.append(1)
        if len(ran) == 1:
            raise OSError("the first one fails")
        twice.set()

    timer = SweepTimer(sweep, seconds=0.001)
    timer.start()
    assert twice.wait(30)
    timer.stop()
    timer.join(30)
    assert not timer.is_alive()


@pytest.mark.req("BLOB-1")
@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)  # on SQLite, writers take turns
def test_a_part_that_waits_for_its_row_holds_up_no_other(user: Caller, seed: Seed) -> None:
    held, free = (user.open(data).json["id"] for data in (b"held", b"free"))
    with ThreadPoolExecutor(1) as pool:
        with seed.engine.begin() as connection:
            connection.execute(sa.select(objects.c.id).where(objects.c.id == held).with_for_update())
            waiting = pool.submit(user.put, held, 0, b"held")
            time.sleep(0.3)
            assert user.put(free, 0, b"free").status_code == 200
            assert not waiting.done()
        assert waiting.result(20).status_code == 200
