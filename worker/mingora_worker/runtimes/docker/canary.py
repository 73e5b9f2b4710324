"""Proves, before the first claim, that this engine really holds a container the way a job's has to be held.

Engines have been seen that take a limit and don't keep it. So a small container with the very settings of a job tries
to break out of each of them and says what came of it.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from docker.errors import APIError

from mingora_worker.results import TooManyFiles
from mingora_worker.runtimes.docker import outputs, settings
from mingora_worker.runtimes.docker.attached import READ_BYTES, Attached
from mingora_worker.runtimes.docker.create import create, share
from mingora_worker.runtimes.docker.engine import ENGINE_FAILURES, FAILURES, Engine, EngineProblem, explanation, lost
from mingora_worker.runtimes.docker.output import Output, OutputFailed, Place
from mingora_worker.runtimes.docker.output_watchdog import WatchdogOutput
from mingora_worker.runtimes.docker.outputs import KINDS, Kind
from mingora_worker.runtimes.docker.pipe import NAME as PIPE_NAME
from mingora_worker.runtimes.docker.pipe import PipeOutput, can_pipe
from mingora_worker.runtimes.docker.settings import Box
from mingora_worker.runtimes.docker.user import User
from mingora_worker.state import JobFolder
from mingora_worker.texts import _

SECONDS = 60.0
_KILLED = 128 + 9
ANSWER_SECONDS = 5.0
MEMORY_MIB = 48
# More than the memory, and less than twice as much: that would fit where as much swap may be used again.
FILL_MIB = 80
PIDS = 32
OUTPUT_BYTES = 16 << 20
# Each within the most that one file may have, both together more than the output may hold.
PART_BYTES = OUTPUT_BYTES * 3 // 4

# Complaints go nowhere: they come by a stream of their own, in pieces, between which lines of the other one may fall.
LOOK = f"""
exec 2>/dev/null
say() {{ printf '%s=%s\\n' "$1" "$2"; }}
for tool in cat head sleep; do command -v $tool >/dev/null || say missing $tool; done
say token "$(cat token)"
while read -r key value more; do
    case $key in Uid: | Cap*: | NoNewPrivs: | Seccomp:) say "${{key%:}}" "$value" ;; esac
done </proc/self/status
while read -r _ place _ options _; do [ "$place" = / ] && say root "${{options%%,*}}"; done </proc/mounts
for link in /sys/class/net/*; do
    read -r state <"$link/operstate" && [ "${{link##*/}}" = lo ] || [ "$state" = down ] || say network "${{link##*/}}"
done
read -r comm </proc/1/comm && say init "$comm" && say shell "$$"
umask 027 && say umask "$(umask)"
cat token >results/proof
[ -p {settings.PIPE} ] && (say piped "$(cat token)" >{settings.PIPE}) &
head -c {PART_BYTES} /dev/zero >results/one && head -c {PART_BYTES} /dev/zero >results/two && say output open
( i=0; while [ $i -lt {2 * PIDS} ]; do sleep 2 & i=$((i+1)); done; say pids "$i" )
exit 0
"""
GPU = """
for file in /dev/nvidia[0-9]*; do [ -e "$file" ] && found="${found-} $file"; done
echo "gpus=${found-}"
"""
FILL = f"""
for part in 1 2 3 4 5 6 7 8; do head -c {FILL_MIB // 8 << 20} /dev/zero >/tmp/$part || exit; done
echo filled
"""


@dataclass(frozen=True)
class Proof:
    """`make` makes a job's output of the kind `output`; `profile` is what the platform is told.

    `piped`: whether the engine's machine is this one, so that a pipe leads from there to here.
    """

    make: Callable[[Place], Output]
    output: str
    piped: bool
    profile: Mapping[str, Any]


@dataclass(frozen=True)
class Trial:
    """What is tried, and where: `root` is the worker's folder, `image` the image's id."""

    engine: Engine
    image: str
    root: Path
    user: User
    labels: Mapping[str, str]


def prove(trial: Trial, gpu_index: int | None, check: Callable[[], object]) -> Proof:
    """Raises `EngineProblem` with everything that doesn't hold, `Lost`, and what `check` raises.

    `gpu_index` is the GPU that jobs are offered, if any.
    """
    folder = JobFolder(trial.root / "jobs" / "canary")
    folder.remove()
    folder.create()
    try:
        return _Canary(trial, folder, check).proof(gpu_index)
    except APIError as error:
        raise EngineProblem(
            _("The engine can't run a container: {reason}").format(reason=explanation(error))
        ) from error
    except ENGINE_FAILURES as error:
        raise lost() from error
    except (OutputFailed, TooManyFiles, OSError) as error:
        raise EngineProblem(_("The output can't be made: {reason}").format(reason=error)) from error
    finally:
        outputs.clear(folder.path)
        folder.remove()


@dataclass(frozen=True)
class Said:
    """What came of one container: its lines, whether its end was for memory, what it left under results/.

    `piped`: what came by the pipe.
    """

    lines: Sequence[str]
    exit_code: int
    out_of_memory: bool
    results: Mapping[str, bytes]
    piped: bytes

    def value(self, name: str) -> str | None:
        """The last value that was said under that name."""
        return dict(line.split("=", 1) for line in self.lines if "=" in line).get(name)


def breaches(said: Said, user: User) -> list[str]:
    """Every hold that the looking container got out of, or that it couldn't be seen to keep."""
    wanted = {
        _("no capabilities"): all(
            set(said.value(name) or "-") == {"0"} for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
        ),
        _("no new privileges"): said.value("NoNewPrivs") == "1",
        _("the seccomp profile"): said.value("Seccomp") == "2" and said.value("umask") not in {"027", "0027", "0o027"},
        _("the user"): said.value("Uid") == str(user.uid),
        _("the read-only root"): said.value("root") == "ro",
        _("no network"): said.value("network") is None,
        _("the init process"): said.value("init") is not None and said.value("shell") not in {None, "1"},
        _("the limit of processes"): said.value("pids") is None,
    }
    return [name for name, holds in wanted.items() if not holds]


def _not_held(wrong: Sequence[str]) -> EngineProblem:
    return EngineProblem(
        _("Containers don't hold on this engine: {problems}.").format(problems=", ".join(wrong)),
        hint=_("No job is run in them. docs/security.md says which engines and settings do."),
    )


class _Canary:
    """The small containers and what they are made of."""

    def __init__(self, trial: Trial, folder: JobFolder, check: Callable[[], object]) -> None:
        self.engine = trial.engine
        self.folder = folder
        self.token = secrets.token_hex(16)
        self._image = trial.image
        self._user = trial.user
        self._labels = trial.labels
        self._check = check
        (folder.project / "results").mkdir()
        (folder.project / "token").write_text(self.token, encoding="ascii")
        share(folder.project, trial.user)

    def proof(self, gpu_index: int | None) -> Proof:
        """Tries the kinds of output from the best to the last, then everything else. Raises `EngineProblem`."""
        kind, said = self._output()
        wrong = breaches(said, self._user)
        filled = self._run("fill", FILL, kind(self._place()))
        # A busy engine has been seen to forget that it was for memory. Nothing else kills what fills.
        if "filled" in filled.lines or not (filled.out_of_memory or filled.exit_code == _KILLED):
            wrong.append(_("the memory limit"))
        if gpu_index is not None:
            self._try_gpu(kind, gpu_index)
        if wrong:
            raise _not_held(wrong)
        piped = self.token.encode() in said.piped
        return Proof(kind, kind.kind, piped, self._profile(kind.kind, piped))

    def _try_gpu(self, kind: Kind, index: int) -> None:
        """Raises `EngineProblem` where a container doesn't get the GPU, or gets more than one."""
        try:
            said = self._run("gpu", GPU, kind(self._place()), gpu_index=index)
        except APIError as error:
            raise EngineProblem(
                _("--gpu-index {index}: the engine gives no GPU to containers: {reason}").format(
                    index=index, reason=explanation(error)
                ),
                hint=_("Install the NVIDIA Container Toolkit for this engine, or leave --gpu-index out."),
            ) from error
        devices = (said.value("gpus") or "").split()
        if len(devices) > 1:
            text = _("--gpu-index {index}: a container sees {devices}, more than one GPU.")
            raise EngineProblem(text.format(index=index, devices=", ".join(devices)))

    def _output(self) -> tuple[Kind, Said]:
        """The first kind of output that both sides see and that keeps its limit."""
        passed_over = []
        for kind in KINDS:
            try:
                output = kind(self._place())
            except (OutputFailed, OSError) as error:
                passed_over.append(f"{kind.kind}: {error}")
                continue
            said = self._run("look", LOOK, output)
            self._check_tools(said)
            if said.value("token") != self.token:
                raise EngineProblem(
                    _("The engine doesn't see the worker's folder {path}.").format(path=self.folder.path),
                    hint=_("It has to be at the same path on the engine's machine: docs/security.md, remote engines."),
                )
            if _("the user") in breaches(said, self._user):  # another writes no output of any kind
                raise _not_held([_("the user")])
            if said.results.get("proof") != self.token.encode():
                passed_over.append(f"{kind.kind}: " + _("what a container writes doesn't arrive"))
            elif kind is not WatchdogOutput and said.value("output") is not None:
                passed_over.append(f"{kind.kind}: " + _("its limit isn't kept"))
            else:
                return kind, said
        raise EngineProblem(_("No output can be had: {reasons}").format(reasons="; ".join(passed_over)))

    def _run(self, name: str, script: str, output: Output, gpu_index: int | None = None) -> Said:
        try:
            with contextlib.ExitStack() as held:
                pipe = PipeOutput(self.folder.path, lambda: True) if can_pipe() else None
                if pipe is not None:
                    held.callback(pipe.close)
                lines, state = self._said(self._box(name, output, pipe, gpu_index), script)
                piped = b"" if pipe is None else pipe.read(READ_BYTES)
            found = output.collect(self._check)
            results = {file.path: file.source.read_bytes() for file in found.files if file.size <= 100}
            return Said(lines, int(state["ExitCode"]), bool(state.get("OOMKilled")), results, piped)
        finally:
            output.close()

    def _check_tools(self, said: Said) -> None:
        """Without a shell and these three tools nothing can be tried in the image."""
        missing = [line.partition("=")[2] for line in said.lines if line.startswith("missing=")]
        if said.exit_code in {126, 127}:
            missing.append("/bin/sh")
        if missing:
            text = _("The image has no {tools}, with which the engine is tried and jobs are started.")
            raise EngineProblem(text.format(tools=", ".join(missing)))

    def _profile(self, output: str, piped: bool) -> dict[str, Any]:
        info, options = self.engine.info, self.engine.options
        return {
            "engine": f"{self.engine.version}",
            "cgroup": str(info.get("CgroupVersion", "1")),
            "storage": str(info.get("Driver", "")),
            "rootless": "rootless" in options,
            "apparmor": "apparmor" in options,
            "seccomp": sha256(settings.seccomp_profile().encode()).hexdigest()[:16],
            "user": str(self._user),
            "quota": output,
            "log": "pipe" if piped else "attached",
            "network": "none",
            "capabilities": "none",
            "noNewPrivileges": True,
            "readOnlyRoot": True,
            "proved": "memory pids network root capabilities seccomp init",
        }

    def _place(self) -> Place:
        return Place(
            folder=self.folder.path,
            uid=self._user.uid,
            gid=self._user.gid,
            limit_bytes=OUTPUT_BYTES,
            limit_inodes=1_000,
            engine=self.engine.client,
            labels=self._labels,
            image=self._image,
            preset=self.folder.project / "results",
        )

    def _box(self, name: str, output: Output, pipe: PipeOutput | None, gpu_index: int | None) -> Box:
        return Box(
            name=f"mingora-canary-{name}-{self.token[:12]}",
            labels=self._labels,
            user=str(self._user),
            memory_mib=MEMORY_MIB,
            scratch_mib=2 * FILL_MIB,
            cpus=1,
            pids=PIDS,
            project=self.folder.project,
            output=output.mount(settings.RESULTS),
            output_bytes=OUTPUT_BYTES,
            pipe=None if pipe is None else self.folder.path / PIPE_NAME,
            env=settings.HOME_VARIABLES,
            gpu_index=gpu_index,
            user_namespaces="userns" in self.engine.options,
        )

    def _said(self, box: Box, script: str) -> tuple[list[str], dict[str, Any]]:
        """The lines and the last state of a container that runs `script`."""
        api = self.engine.client.api
        made = create(self.engine, self._image, ["/bin/sh", "-c", script], box, change=_without_umask)
        attached = Attached(self.engine, str(made.id))
        try:
            threading.Thread(target=attached.keep, name="canary", daemon=True).start()
            made.start()
            until = time.monotonic() + SECONDS
            while (state := api.inspect_container(str(made.id))["State"])["Running"]:
                self._check()
                if time.monotonic() > until:
                    raise EngineProblem(_("The container that tries the engine doesn't end."))
                time.sleep(0.02)
            return attached.wait(ANSWER_SECONDS).decode("utf-8", "replace").splitlines(), state
        finally:
            with contextlib.suppress(*FAILURES):
                made.remove(v=True, force=True)
            attached.close()


def _without_umask(wanted: dict[str, Any]) -> dict[str, Any]:
    """The same settings with a profile that refuses `umask`, too, as nothing else does.

    A shell shows whether it is refused; so it shows that the engine enforces the very text that it is given.
    """
    options = []
    for option in wanted.get("security_opt", []):
        name, _equals, text = option.partition("=")
        if name == "seccomp":
            profile = json.loads(text)
            for rule in profile["syscalls"]:
                rule["names"] = [call for call in rule["names"] if call != "umask"]
            option = f"seccomp={json.dumps(profile)}"
        options.append(option)
    return {**wanted, "security_opt": options}
