"""A claim whose client went away without a word must not take the job of the claim that came after it."""

from __future__ import annotations

import threading

import pytest
from scheduler_platform import Platform

OLD, NEW = "claim-of-a-client-that-left", "claim-of-its-next-start"


@pytest.mark.req("JOB-9", "JOB-2")
@pytest.mark.parametrize("newer", [NEW, OLD])
def test_the_newest_claim_of_a_node_gets_the_job(platform: Platform, newer: str) -> None:
    worker = platform.worker()
    answers: list[int] = []

    def wait_and_never_listen() -> None:
        url = f"/api/research/v1/nodes/{worker.id}/claim"
        with platform.app.test_client() as client:
            answer = client.post(
                url, json={"claimId": OLD, "wait": 15}, headers={"Authorization": f"Bearer {worker.token}"}
            )
            answers.append(answer.status_code)

    left = threading.Thread(target=wait_and_never_listen)
    left.start()
    while platform.waiters.waiting == 0:
        left.join(0.01)
    worker.claim(newer, status=204)
    job_id = platform.seed.job(platform.account)
    platform.place()  # wakes the claim that nobody listens to
    left.join(1)
    lease = worker.claim(newer)
    assert lease["jobId"] == job_id
    assert worker.ready().status_code == 200
    platform.waiters.close()
    left.join(10)
    assert answers == [204]
    assert worker.beat().status_code == 200  # its token is the one that works
