"""A rootless Docker Engine of the tests' own, run by an account that exists for it alone.

The account is in lists that only the engine's processes see, mounted over the system's in a namespace of their own.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from docker_support import require
from e2e_support import until

ACCOUNT = 61_500
FIRST_SUBORDINATE = 1_000_000_000
START_SECONDS = 60.0
_PLACES = ("/usr/share/docker.io/contrib", "/usr/bin", "/usr/local/bin")
# Networks of its own need a device that not every machine has; containers here have none anyway.
_OPTIONS = "--storage-driver overlay2 --bridge none --iptables=false --ip6tables=false --insecure-registry 127.0.0.0/8"


def _script() -> str | None:
    found = [place for place in _PLACES if Path(place, "dockerd-rootless.sh").exists()]
    return f"{found[0]}/dockerd-rootless.sh" if found else None


def require_rootless() -> None:
    """Skip the test where this machine can't run one; in CI it fails instead."""
    require(os.geteuid() == 0, "root, to start an engine as somebody else")
    for program in ("rootlesskit", "newuidmap", "dockerd", "unshare", "setpriv"):
        require(shutil.which(program) is not None, f"a rootless engine: {program}")
    require(_script() is not None, "a rootless engine: dockerd-rootless.sh")


@contextmanager
def rootless_engine(folder: Path) -> Iterator[str]:
    """The engine's DOCKER_HOST. ``folder`` can be reached by everybody; the engine's files come below it."""
    lists = folder / "lists"
    lists.mkdir()
    line = f"mingora-rootless:x:{ACCOUNT}:{ACCOUNT}::{folder}/engine:/bin/sh\n"
    (lists / "passwd").write_text(Path("/etc/passwd").read_text() + line)
    for name in ("subuid", "subgid"):
        (lists / name).write_text(f"mingora-rootless:{FIRST_SUBORDINATE}:65536\n")
        Path("/etc", name).touch()
    for name in ("engine", "run"):
        (folder / name).mkdir(mode=0o700)
        os.chown(folder / name, ACCOUNT, ACCOUNT)
    mounts = " && ".join(f"mount --bind {lists}/{name} /etc/{name}" for name in ("passwd", "subuid", "subgid"))
    account = f"exec setpriv --reuid={ACCOUNT} --regid={ACCOUNT} --clear-groups {_script()} {_OPTIONS}"
    env = {
        "HOME": f"{folder}/engine", "XDG_RUNTIME_DIR": f"{folder}/run", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "DOCKERD_ROOTLESS_ROOTLESSKIT_NET": "host", "DOCKERD_ROOTLESS_ROOTLESSKIT_PORT_DRIVER": "none",
    }  # fmt: skip
    with (folder / "engine.log").open("wb") as log:
        engine = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", f"{mounts} && {account}"],
            env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        socket = folder / "run" / "docker.sock"
        until(lambda: socket.exists() or engine.poll() is not None, START_SECONDS, "a rootless engine")
        assert engine.poll() is None, (folder / "engine.log").read_text()
        yield f"unix://{socket}"
    finally:
        _end(engine)


def _end(engine: subprocess.Popen[bytes]) -> None:
    """In order, for the engine unmounts what it mounted; then whatever of the account is left."""
    with_engine = psutil.Process(engine.pid).children(recursive=True)
    for process in with_engine:
        if process.name() == "dockerd":
            process.terminate()
    try:
        engine.wait(20)
    except subprocess.TimeoutExpired:
        engine.kill()
        engine.wait()
    for process in with_engine:
        if process.is_running() and process.uids().real == ACCOUNT:
            process.send_signal(signal.SIGKILL)
