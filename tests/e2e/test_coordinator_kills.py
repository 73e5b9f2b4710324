"""kill -9 of a busy coordinator, a hundred times: nothing acknowledged is lost, and no digest is another.

Eight volunteers upload at once. Their results follow from what they were given, so an undisturbed coordinator that
takes the same results makes the same adapters, to the bit.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import random
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from coordinator_support import Adapter, Served
from safetensors.numpy import load, save

VOLUNTEERS = 8
KILLS = 100 if os.environ.get("CI") else 25
# Of seconds between two kills: shorter than a round of eight takes, longer than a start.
LEAST, MOST = 0.02, 0.5


def initial() -> bytes:
    draw = np.random.default_rng(5)
    return save({f"layer{n}.lora_A.weight": draw.standard_normal((64, 400)).astype(np.float32) for n in range(4)})


def trained(start: Adapter, worker: str, number: int) -> Adapter:
    """What this volunteer makes of an adapter in this round; one of them is an attacker now and then."""
    draw = np.random.default_rng([number, int(worker[1:])])
    size = 1e20 if worker == "w3" and number % 2 else 1e-3
    return {
        name: (array + size * draw.standard_normal(array.shape)).astype(np.float32)
        for name, array in sorted(start.items())
    }


class Volunteer(threading.Thread):
    """Sends a result for every round, and remembers what was acknowledged."""

    def __init__(self, served: Served, name: str, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._served, self.name, self._over = served, name, stop
        self.acknowledged: set[int] = set()
        self.unexpected: list[object] = []

    def run(self) -> None:
        while not self._over.is_set():
            try:
                self._once()
            except (OSError, http.client.HTTPException):
                time.sleep(0.01)  # it was killed, or is starting
            except Exception as error:  # noqa: BLE001 - told by the test
                self.unexpected.append(error)
                return

    def _once(self) -> None:
        task = self._served.get("/gorev", isci=self.name)
        if "bekle" in task:
            time.sleep(0.005)
            return
        _status, headers, body = self._served.request("GET", "/agirlik")
        digest = hashlib.sha256(body).hexdigest()
        assert headers["X-Sha256"] == digest
        if digest != task["agirlik_sha256"]:
            assert int(headers["X-Tur"]) != task["tur"], "the task and the adapter of one round disagree"
            return
        number = task["tur"]
        assert number not in self.acknowledged, "an acknowledged result was lost"
        status = self._served.send(self.name, number, trained(load(body), self.name, number))
        if status == 200:
            self.acknowledged.add(number)
        else:
            assert status == 409


@pytest.mark.req("COORD-6", "COORD-2", "COORD-3")
@pytest.mark.timeout(600)
def test_a_hundred_kills_lose_nothing_and_change_nothing(tmp_path: Path) -> None:
    chance = random.Random(20)
    (tmp_path / "disturbed").mkdir()
    served = Served(tmp_path / "disturbed", rounds=100_000, results=VOLUNTEERS, initial=initial())
    stop = threading.Event()
    volunteers = [Volunteer(served, f"w{number}", stop) for number in range(VOLUNTEERS)]
    for volunteer in volunteers:
        volunteer.start()
    acknowledged: list[set[int]] = []
    with served:
        for _ in range(KILLS):
            time.sleep(chance.uniform(LEAST, MOST))
            served.kill()
            acknowledged.append(set.union(*(volunteer.acknowledged for volunteer in volunteers)))
            served.start()
        time.sleep(1)
        stop.set()
        for volunteer in volunteers:
            volunteer.join(60)
        assert [volunteer.unexpected for volunteer in volunteers] == [[]] * VOLUNTEERS
        state = served.get("/durum")
        assert served.stop() == 0
    last = state["tur"]
    assert last > KILLS // 10  # it did go on
    assert len({len(known) for known in acknowledged}) > KILLS // 10
    _check_results(served.data, volunteers, last, state["bekleyen_sonuc"])
    _check_digests(served.data, tmp_path / "undisturbed", min(last, 12))


def _check_results(data: Path, volunteers: list[Volunteer], last: int, pending: list[str]) -> None:
    """Every acknowledged result is in its round's ledger, and was closed with it or is pending."""
    for volunteer in volunteers:
        for number in volunteer.acknowledged:
            lines = (data / "rounds" / f"{number:06d}" / "journal.jsonl").read_text().splitlines()
            recorded = [json.loads(line) for line in lines]
            mine = [
                line for line in recorded if line["event"] == "accepted" and line["result"]["worker"] == volunteer.name
            ]
            assert len(mine) == 1
            if number < last:
                about = json.loads((data / "rounds" / f"{number + 1:06d}" / "round.json").read_text())
                told = {result["worker"]: result for result in about["closed"]["results"]}
                assert told[volunteer.name]["digest"] == mine[0]["result"]["digest"]
            else:
                assert volunteer.name in pending


def _check_digests(data: Path, folder: Path, rounds: int) -> None:
    """The same results, given to a coordinator that nobody kills, in another order, make the same adapters."""
    folder.mkdir()
    with Served(folder, rounds=100_000, results=VOLUNTEERS, initial=initial()) as undisturbed:
        for number in range(rounds):
            body = undisturbed.request("GET", "/agirlik")[2]
            about = json.loads((data / "rounds" / f"{number:06d}" / "round.json").read_text())
            assert hashlib.sha256(body).hexdigest() == about["digest"]
            for place in reversed(range(VOLUNTEERS)):
                assert undisturbed.send(f"w{place}", number, trained(load(body), f"w{place}", number)) == 200
