"""A Docker Engine of the tests' own, that they may kill, stop and start again.

It has a network of its own: a second engine in the machine's would change the first one's bridge and filters.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
from docker_support import Registry, require
from e2e_support import until

START_SECONDS = 60.0
_PROGRAMS = ("dockerd", "containerd", "unshare", "nsenter", "setpriv", "ip")


def require_second_engine() -> None:
    """Skip the test where this machine can't run one; in CI it fails instead."""
    require(os.geteuid() == 0, "root, for an engine of its own")
    for program in _PROGRAMS:
        require(shutil.which(program) is not None, f"an engine of its own: {program}")


class SecondEngine:
    """`start` it. `env` of a client reaches it; `programs` are first on the engine's PATH."""

    def __init__(self, folder: Path, programs: Path | None = None) -> None:
        self._folder = folder
        self._env = {"PATH": first_on_path(programs), "HOME": str(folder)}
        self._network = subprocess.Popen(
            ["setpriv", "--pdeathsig=KILL", "unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec cat"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self._network.stdout is not None and self._network.stdout.readline() == b"up\n"
        self._containerd: subprocess.Popen[bytes] | None = None
        self._daemon: subprocess.Popen[bytes] | None = None

    @property
    def env(self) -> Mapping[str, str]:
        return {"DOCKER_HOST": f"unix://{self._folder}/docker.sock"}

    @property
    def inside(self) -> list[str]:
        """What puts a command into the engine's network."""
        return ["nsenter", f"--net=/proc/{self._network.pid}/ns/net"]

    def start(self, *more: str) -> None:
        """Returns when it answers. `more` options are for this time only."""
        folder, containerd = self._folder, self._folder / "containerd.sock"
        if self._containerd is None:  # as a service of its own, as distributions have it
            (folder / "containerd.toml").write_text('disabled_plugins = ["io.containerd.grpc.v1.cri"]\n')
            self._containerd = self._run(
                "containerd", f"--config={folder}/containerd.toml", f"--root={folder}/containerd",
                f"--state={folder}/tasks", f"--address={containerd}",
            )  # fmt: skip
            until(containerd.exists, START_SECONDS, "the second engine's containerd listens")
        (folder / "daemon.json").write_text("{}")
        # What a killed one left: the number may be another process's by now.
        (folder / "pid").unlink(missing_ok=True)
        self._daemon = self._run(
            "dockerd", f"--data-root={folder}/data", f"--exec-root={folder}/exec", f"--containerd={containerd}",
            f"--host=unix://{folder}/docker.sock", f"--pidfile={folder}/pid", f"--config-file={folder}/daemon.json",
            "--bridge=none", "--iptables=false", *more,
        )  # fmt: skip
        until(self._answers, START_SECONDS, "the second engine answers")

    def _run(self, *command: str) -> subprocess.Popen[bytes]:
        """A program of the engine; it ends with the test's process."""
        whole = ["setpriv", "--pdeathsig=KILL", *self.inside, *command]
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(whole, env=self._env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self) -> None:
        """As a crash: its containers' processes stay."""
        assert self._daemon is not None
        self._daemon.kill()
        self._daemon.wait(10)
        self._daemon = None

    def stop(self) -> None:
        """In order: its containers end first."""
        assert self._daemon is not None
        self._daemon.terminate()
        self._daemon.wait(60)
        self._daemon = None

    def freeze(self) -> None:
        assert self._daemon is not None
        self._daemon.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._daemon is not None
        self._daemon.send_signal(signal.SIGCONT)

    def docker(self, *words: str) -> str:
        """What the command line's client says, which must succeed."""
        done = subprocess.run(
            ["docker", *words], env={**self._env, **self.env}, capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout.strip()

    def close(self) -> None:
        """Ends it and everything that it started, and removes its folder."""
        for started in (self._daemon, self._containerd):
            if started is not None:
                started.kill()
                started.wait(10)
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        until(lambda: not self._processes(), 10, "the second engine's processes end")
        self._network.kill()
        self._network.communicate()
        for point in self._mounts():
            subprocess.run(["umount", "-l", point], check=True, timeout=20)
        shutil.rmtree(self._folder)

    def _answers(self) -> bool:
        assert self._daemon is not None and self._daemon.poll() is None, (self._folder / "log").read_text()
        asked = subprocess.run(
            ["docker", "version"], env={**self._env, **self.env}, capture_output=True, timeout=20, check=False
        )
        return asked.returncode == 0

    def _processes(self) -> list[psutil.Process]:
        """Shims and what they run, and a containerd: all were started with a path in the engine's folder."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if any(str(self._folder) in word for word in process.cmdline()):
                    found += [process, *process.children(recursive=True)]
        return [process for process in found if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]

    def _mounts(self) -> list[str]:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        points = [line.split(" ")[4] for line in lines]
        return [point for point in reversed(points) if point.startswith(f"{self._folder}/")]


def first_on_path(programs: Path | None) -> str:
    """A PATH on which these programs come first."""
    path = os.environ["PATH"]
    return path if programs is None else f"{programs}:{path}"


@contextlib.contextmanager
def second_engine(programs: Path | None = None) -> Iterator[SecondEngine]:
    """A running engine. Skips, or fails in CI, where there can't be one."""
    require_second_engine()
    # Sockets have short paths only.
    engine = SecondEngine(Path(tempfile.mkdtemp(prefix="mingora-engine-", dir="/tmp")), programs)
    try:
        engine.start()
        yield engine
    finally:
        engine.close()


@contextlib.contextmanager
def image_inside(engine: SecondEngine, registry: Registry, reference: str) -> Iterator[str]:
    """The registry's image as the second engine knows it, which holds it: in its network there is a registry, too."""
    with registry.beside(engine.inside) as address:
        repository = reference.partition("/")[2]
        engine.docker("pull", "--quiet", f"{address}/{repository}")
        yield f"{address}/{repository}"
