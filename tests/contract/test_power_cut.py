"""After a power cut at any moment, what was acknowledged is there: the worker's records, a login, an authority."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from power_cut import Disk

from mingora import credentials
from mingora.credentials import Credentials
from mingora_stack.folder import DataFolder
from mingora_stack.tls import Authority
from mingora_worker.state import LeaseRecord, NodeRecord, Root

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks descriptors up in /proc")


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    (tmp_path / "disk").mkdir()
    return Disk(tmp_path / "disk", monkeypatch)


@pytest.mark.req("AUTH-9", "JOB-9", "WORK-1")
def test_the_worker_forgets_no_node_no_claim_and_no_lease(disk: Disk) -> None:
    known: list[Callable[[Root], bool]] = []

    def check(after: Path) -> None:
        root = Root(after / "work" / "root")
        assert all(holds(root) for holds in known)

    disk.expect(check)
    root = Root(disk.top / "work" / "root")
    root.open()
    node = NodeRecord("https://platform", "k" * 64, "node_1", "mgn_secret")
    root.save_node(node)
    known.append(lambda root: root.node() == node)  # the platform gives no second token for the asking
    root.save_claim("c" * 24)
    # From here on the platform may have granted: the claim is asked again, or the lease is known.
    known.append(lambda root: root.pending_claim() == "c" * 24 or has_lease(root, "c" * 24))
    folder = root.job("lease_1")
    folder.create()
    folder.save(LeaseRecord("lease_1", 1, "job_1", "c" * 24, "mgl_secret", 60.0, 1000, "mark"))
    root.forget_claim()
    known.append(lambda root: has_lease(root, "c" * 24))
    disk.expect(check)
    root.close()
    assert disk.cuts > 20


def has_lease(root: Root, claim_id: str) -> bool:
    folder = root.job("lease_1")
    record = folder.record()
    return record is not None and record.claim_id == claim_id


@pytest.mark.req("AUTH-3")
def test_a_login_is_whole_and_the_new_one_stays(disk: Disk) -> None:
    old = Credentials("https://platform", "mgu_old", None, "ada", "tok_1", "2026-01-31T10:00:00.000Z")
    new = Credentials("https://platform", "mgu_new", None, "ada", "tok_2", "2026-02-01T10:00:00.000Z")
    path = disk.top / "login.json"
    allowed: list[Credentials | None] = [None, old]

    def check(after: Path) -> None:
        assert credentials.stored(after / "login.json") in allowed

    disk.expect(check)
    credentials.save(old, path)
    allowed[:] = [old]
    disk.expect(check)
    allowed.append(new)
    credentials.save(new, path)
    allowed[:] = [new]
    disk.expect(check)
    allowed.append(None)
    credentials.forget(path)
    allowed[:] = [None]  # who logs out on a borrowed machine leaves no token behind
    disk.expect(check)


@pytest.mark.req("AUTH-5", "OPS-2")
def test_an_authority_that_clients_trust_stays(disk: Disk) -> None:
    data = DataFolder(disk.top / "new" / "data")
    data.prepare()
    folder = data.tls
    Authority(folder).certify("localhost")
    trusted = Authority(folder).certificate_file.read_bytes()

    def check(after: Path) -> None:
        tls = after / "new" / "data" / "tls"
        Authority(tls).certify("localhost")
        assert Authority(tls).certificate_file.read_bytes() == trusted

    disk.expect(check)
