"""The engines that tests need besides Python packages: found, installed where we may, started, and stopped again."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from devtools import compose

DOCKER_START_SECONDS = 60.0


def install() -> None:
    """As root on Debian or Ubuntu: install the engines that aren't there yet."""
    if os.name == "nt" or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    missing = []
    if _postgres_bin() is None:
        missing.append("postgresql")
    if shutil.which("dockerd") is None and not _docker("info"):
        missing += ["docker.io", "iptables"]
    if shutil.which("debootstrap") is None:
        missing.append("debootstrap")
    if shutil.which("docker-registry") is None:  # images by digest, for the Docker runtime
        missing.append("docker-registry")
    if shutil.which("rootlesskit") is None or shutil.which("newuidmap") is None:  # an engine that isn't root
        missing += ["rootlesskit", "uidmap"]
    if shutil.which("cc") is None:  # for a test's wrong clock
        missing += ["gcc", "libc6-dev"]
    if missing:
        print(f"Installing {', '.join(missing)} for the tests …", file=sys.stderr, flush=True)
        _apt("update")
        _apt("install", "-y", "--no-install-recommends", *missing)
    if not _docker("compose", "version"):
        print("Installing Docker's compose plugin for the tests …", file=sys.stderr, flush=True)
        compose.install()


@contextmanager
def docker() -> Iterator[bool]:
    """Whether a Docker Engine with compose answers while the block runs: the machine's own, or one of ours.

    As root, an engine that is installed and doesn't run is started, and stopped again at the end.
    """
    if _docker("info") or os.name == "nt" or os.geteuid() != 0 or shutil.which("dockerd") is None:
        yield _docker("info") and _docker("compose", "version")
        return
    with tempfile.TemporaryFile() as log:
        engine = subprocess.Popen(["dockerd"], stdout=log, stderr=log, start_new_session=True)
        try:
            deadline = time.monotonic() + DOCKER_START_SECONDS
            while not _docker("info") and engine.poll() is None and time.monotonic() < deadline:
                time.sleep(0.2)
            if not _docker("info"):
                log.seek(0)
                print(f"dockerd doesn't start:\n{log.read()[-2000:].decode(errors='replace')}", file=sys.stderr)
            yield _docker("info") and _docker("compose", "version")
        finally:
            engine.terminate()
            try:
                engine.wait(30)
            except subprocess.TimeoutExpired:
                engine.kill()
                engine.wait()


@contextmanager
def postgres() -> Iterator[str | None]:
    """A PostgreSQL server of our own on 127.0.0.1 while the block runs: its URL, or None where there is none."""
    binaries = _postgres_bin()
    if binaries is None:
        yield None
        return
    folder = Path(tempfile.mkdtemp(prefix="mingora-postgres-"))
    owner = _other_user()
    if owner is not None:
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    data, port = folder / "data", _free_port()

    def server(*command: str) -> None:
        # PostgreSQL refuses to run as root.
        done = subprocess.run(
            command, user=owner.pw_name if owner else None, cwd=folder, capture_output=True, text=True, check=False,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
        )  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"{command[0]} failed: {done.stdout}{done.stderr}")

    try:
        server(f"{binaries}/initdb", "-D", str(data), "-A", "trust", "-U", "postgres", "-E", "UTF8")
        settings = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off -c max_connections=300"
        server(f"{binaries}/pg_ctl", "-D", str(data), "-w", "-o", settings, "-l", str(folder / "log"), "start")
        try:
            yield f"postgresql+psycopg://postgres@127.0.0.1:{port}/postgres"
        finally:
            server(f"{binaries}/pg_ctl", "-D", str(data), "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _docker(*words: str) -> bool:
    """Whether ``docker WORDS`` can be run and succeeds."""
    try:
        done = subprocess.run(["docker", *words], capture_output=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _apt(*words: str) -> None:
    subprocess.run(
        ["apt-get", "-qq", *words],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        check=False,
        stdout=subprocess.DEVNULL,
    )


def _postgres_bin() -> str | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return str(found[-1].parent)
    on_path = shutil.which("initdb")
    return str(Path(on_path).resolve().parent) if on_path else None


def _other_user() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
