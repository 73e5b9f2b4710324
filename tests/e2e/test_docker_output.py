"""Outputs on a real engine: what a job can't overfill, what is read of it, and what a killed worker leaves."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import docker
import pytest

from mingora_worker.runtimes.docker import output, output_tmpfs
from mingora_worker.runtimes.docker.output import Output, OutputFailed, OutputFull, Place
from mingora_worker.runtimes.docker.output_loop import LoopOutput, image_bytes, mounts_below
from mingora_worker.runtimes.docker.output_tmpfs import TmpfsOutput
from mingora_worker.runtimes.docker.output_watchdog import WatchdogOutput
from mingora_worker.runtimes.docker.outputs import KINDS, clear

pytestmark = [pytest.mark.engine("docker"), pytest.mark.xdist_group("docker"), pytest.mark.timeout(300)]

MAKE: dict[str, Callable[[Place], Output]] = {kind.kind: kind for kind in KINDS}
MIB = 1 << 20
LIMIT_BYTES = 8 * MIB
LIMIT_INODES = 100
USER = 61_042
RESULTS = "/mingora/project/results"
needs_root = pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="mounts")


@pytest.fixture
def place(tmp_path: Path, client: docker.DockerClient, image: str) -> Iterator[Place]:
    labels = {"mingora.test": secrets.token_hex(8)}
    folder = tmp_path / "job"
    folder.mkdir()
    yield Place(
        folder, USER, USER, LIMIT_BYTES, LIMIT_INODES, client, labels, image, preset=folder / "project" / "results"
    )
    clear(folder)
    remove(client, labels)
    assert mounts_below(folder) == []


@pytest.fixture(params=MAKE)
def made(request: pytest.FixtureRequest, place: Place) -> Iterator[Output]:
    made = MAKE[request.param](place)
    yield made
    made.close()
    made.close()
    assert list(place.folder.iterdir()) == []
    assert things(place) == []


def things(place: Place) -> list[str]:
    """What the engine has with the place's labels."""
    labels = [f"{name}={value}" for name, value in place.labels.items()]
    found = [str(container.name) for container in place.engine.containers.list(all=True, filters={"label": labels})]
    return found + [str(volume.name) for volume in place.engine.volumes.list(filters={"label": labels})]


def remove(client: docker.DockerClient, labels: dict[str, str]) -> None:
    """What a test that failed or killed left."""
    wanted = [f"{name}={value}" for name, value in labels.items()]
    for container in client.containers.list(all=True, filters={"label": wanted}):
        container.remove(force=True, v=True)
    for volume in client.volumes.list(filters={"label": wanted}):
        volume.remove()


def job(place: Place, made: Output, code: str) -> str:
    """Runs Python in a container with the output, as the job's user; what it printed."""
    said = place.engine.containers.run(
        place.image, ["python3", "-c", code], user=f"{USER}:{USER}", mounts=[made.mount(RESULTS)],
        working_dir=RESULTS, network_mode="none", read_only=True, cap_drop=["ALL"], remove=True, stderr=True,
    )  # fmt: skip
    return bytes(said).decode()


FLOOD = """
import os
done = 0
try:
    with open("flood", "wb", buffering=0) as file:
        while done < 64 << 20:
            done += file.write(os.urandom(1 << 16))
except OSError as error:
    print(error.errno, end=" ")
print(done)
"""


@pytest.mark.req("WORK-7")
@pytest.mark.parametrize("kind", [pytest.param("loop", marks=needs_root), "tmpfs"])
def test_no_more_bytes_than_the_limit(place: Place, kind: str) -> None:
    made = MAKE[kind](place)
    assert not made.full()
    code, done = job(place, made, FLOOD).split()
    assert int(code) == errno.ENOSPC
    assert LIMIT_BYTES * 0.98 <= int(done) <= LIMIT_BYTES * 1.03
    assert made.full()
    found = made.collect(lambda: None)
    assert [(file.path, file.size) for file in found.files] == [("flood", int(done))]
    made.close()


@pytest.mark.req("WORK-7")
@pytest.mark.parametrize("kind", [pytest.param("loop", marks=needs_root), "tmpfs"])
def test_no_more_files_than_the_limit(place: Place, kind: str) -> None:
    made = MAKE[kind](place)
    assert not made.full()
    flood = """
n = 0
try:
    for n in range(1_000):
        open(f"file{n:03}", "w").close()
except OSError as error:
    print(error.errno, n)
"""
    code, done = job(place, made, flood).split()
    assert int(code) == errno.ENOSPC
    assert LIMIT_INODES <= int(done) <= LIMIT_INODES + 64  # ext4 makes whole blocks of inodes
    assert made.full()
    found = made.collect(lambda: None)
    assert len(found.files) == int(done)
    made.close()


@pytest.mark.req("WORK-7")
@needs_root
def test_a_watchdog_tells_of_bytes_files_and_what_it_cannot_count(place: Place) -> None:
    made = WatchdogOutput(place)
    job(place, made, "open('little', 'w').write('x')")
    assert (made.full(), made.over()) == (False, False)
    job(place, made, FLOOD)
    assert (made.full(), made.over()) == (True, True)
    job(place, made, "import os; os.unlink('flood')")
    assert not made.full()
    job(place, made, "[open(f'{n}', 'w').close() for n in range(100)]")
    assert (made.full(), made.over()) == (True, True)
    made.close()


@pytest.mark.req("WORK-7")
@needs_root
def test_a_watchdog_guards_the_disk(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    made = WatchdogOutput(place)
    monkeypatch.setattr("mingora_worker.runtimes.docker.output_watchdog.SPARE_BYTES", 1 << 60)
    assert (made.full(), made.over()) == (False, True)
    made.close()


TRICKS = r"""
import os, socket
os.mkdir("good"); open("good/file", "w").write("good"); open("run.sh", "w").write("#!"); os.chmod("run.sh", 0o755)
open("bidi\u202e", "w").close()
os.symlink("/etc/passwd", "absolute"); os.symlink("../../etc/passwd", "relative"); os.symlink("loop", "loop")
os.symlink("/proc/self/environ", "proc"); os.symlink("good", "folder")
os.mkfifo("pipe")
s = socket.socket(socket.AF_UNIX); s.bind("socket")
open("linked", "w").write("x"); os.link("linked", "other")
open("new\nline", "w").close(); open("escape\033", "w").close(); open(b"\xff", "w").close()
open("back\\slash", "w").close()
open("README", "w").close(); open("readme", "w").close(); open("e\u0301", "w").close(); open("\u00e9", "w").close()
path = "deep"
for _ in range(8):
    os.mkdir(path); path += "/" + "d" * 150
os.chdir("deep"); open("kept", "w").close(); os.chdir("..")
os.mkdir("locked"); open("locked/file", "w").close(); os.chmod("locked/file", 0); os.chmod("locked", 0)
with open("zholes", "wb") as f: f.truncate(1 << 40)
"""


@pytest.mark.req("WORK-7", "WORK-3")
@pytest.mark.timeout(60)
@needs_root
def test_no_trick_gets_through_and_the_good_is_kept(place: Place, made: Output) -> None:
    job(place, made, TRICKS)
    found = made.collect(lambda: None)
    assert {file.path: file.source.read_bytes() for file in found.files} == {
        "README": b"", "bidi\u202e": b"", "deep/kept": b"", "e\u0301": b"", "good/file": b"good", "locked/file": b"",
        "run.sh": b"#!",
    }  # fmt: skip
    assert [file.path for file in found.files if file.executable] == ["run.sh"]
    refused = {text.rsplit(": ", 1)[0] for text in found.refused}
    assert {
        "absolute", "relative", "loop", "proc", "folder", "pipe", "linked", "other", "new\\nline", "escape\\x1b",
        "\\udcff", "back\\slash", "readme", "é", "zholes",
    } <= refused  # fmt: skip
    assert all(text.isprintable() for text in found.warnings)
    assert not made.over()


@pytest.mark.req("WORK-7")
def test_holes_cost_a_tmpfs_no_other_file(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    made = TmpfsOutput(place)
    job(place, made, """
for name in "abcd":
    with open(name, "wb") as file:
        file.truncate(5 << 20)
open("e", "w").write("e")
""")  # fmt: skip
    found = made.collect(lambda: None)
    assert [file.path for file in found.files] == ["a", "e"]
    assert [text[0] for text in found.refused] == ["b", "c", "d"]
    job(place, made, """
for name in "bcd":
    with open(name, "wb") as file:
        file.truncate(5 << 20)
""")  # fmt: skip
    monkeypatch.setattr(output_tmpfs, "MAX_REMOVED", 1)
    found = made.collect(lambda: None)
    assert [file.path for file in found.files] == ["a"]
    assert "left out" in found.refused[-1]
    made.close()


@pytest.mark.req("WORK-7")
@needs_root
def test_the_projects_own_results_are_there_and_counted(place: Place, made: Output) -> None:
    made.close()
    (place.preset / "sub").mkdir(parents=True)
    (place.preset / "input").write_bytes(b"input")
    (place.preset / "sub" / "tool").write_bytes(b"tool")
    (place.preset / "sub" / "tool").chmod(0o500)
    made = MAKE[made.kind](place)
    job(place, made, "open('input', 'a').write('+'); open('sub/new', 'w').close()")
    found = made.collect(lambda: None)
    assert [(f.path, f.size, f.executable) for f in found.files] == [
        ("input", 6, False), ("sub/new", 0, False), ("sub/tool", 4, True)
    ]  # fmt: skip
    assert (place.preset / "input").read_bytes() == b"input"
    made.close()
    (place.preset / "much").write_bytes(bytes(LIMIT_BYTES))
    with pytest.raises(OutputFull):
        MAKE[made.kind](place)
    shutil.rmtree(place.folder / "project")


@pytest.mark.req("WORK-7")
@needs_root
def test_a_full_disk_is_told_before_anything_is_made(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (LoopOutput, WatchdogOutput):
        monkeypatch.setattr(output, "SPARE_BYTES", 1 << 60)
        with pytest.raises(OSError) as caught:
            kind(place)
        assert caught.value.errno == errno.ENOSPC
    assert list(place.folder.iterdir()) == []


@pytest.mark.req("WORK-7")
@needs_root
@pytest.mark.parametrize("mib", [1, 16, 1_024])
@pytest.mark.parametrize("inodes", [16, 100_000])
def test_a_loop_has_its_bytes_reserved_and_free(place: Place, mib: int, inodes: int) -> None:
    place = replace(place, limit_bytes=mib * MIB, limit_inodes=inodes)
    made = LoopOutput(place)
    info = os.statvfs(place.folder / output.FOLDER)
    free = info.f_bavail * info.f_frsize
    assert place.limit_bytes <= free <= place.limit_bytes * 1.02 + 2 * MIB
    assert info.f_favail >= inodes
    image = place.folder / "output.img"
    assert image.stat().st_blocks * 512 >= image.stat().st_size == image_bytes(place.limit_bytes, inodes)
    assert list((place.folder / output.FOLDER).iterdir()) == []
    made.close()


@pytest.mark.req("WORK-7")
@needs_root
def test_a_disk_that_fills_takes_nothing_from_a_loop(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "SPARE_BYTES", 0)
    disk = LoopOutput(replace(place, limit_bytes=64 * MIB))
    inner = replace(place, folder=place.folder / output.FOLDER / "job", limit_bytes=16 * MIB)
    inner.folder.mkdir()
    made = LoopOutput(inner)
    with pytest.raises(OSError, match="No space left"), open(inner.folder.parent / "fill", "wb", buffering=0) as fill:
        while True:
            fill.write(bytes(4096))
    content = secrets.token_bytes(15 * MIB)
    with open(inner.folder / output.FOLDER / "file", "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    found = made.collect(lambda: None)
    assert [file.sha256 for file in found.files] == [hashlib.sha256(content).hexdigest()]
    made.close()
    disk.close()


@pytest.mark.req("WORK-7")
@needs_root
def test_nothing_of_a_loop_can_be_run_with_rights_or_used_as_a_device(place: Place) -> None:
    made = LoopOutput(place)
    options = next(line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(place.folder) in line)
    assert {"nosuid", "nodev"} <= set(options.split()[5].split(","))
    made.close()


KILLED = """
import os, signal, sys, docker
from pathlib import Path
from mingora_worker.runtimes.docker.output import Place
from mingora_worker.runtimes.docker.outputs import LoopOutput, TmpfsOutput
folder, image, label = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
place = Place(folder, 61042, 61042, 8 << 20, 100, docker.from_env(), {"mingora.test": label}, image, folder / "none")
kept = LoopOutput(place), TmpfsOutput(place)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.req("WORK-7")
@needs_root
def test_what_a_killed_worker_leaves_is_cleared(place: Place) -> None:
    arguments = [str(place.folder), place.image, place.labels["mingora.test"]]
    subprocess.run([sys.executable, "-c", KILLED, *arguments], env=os.environ, check=False, timeout=60)
    assert mounts_below(place.folder) == [place.folder / output.FOLDER]
    assert len(things(place)) == 2
    with open(place.folder / output.FOLDER / "busy", "w"):  # as a container's process might still have it
        clear(place.folder)
        clear(place.folder)
    assert mounts_below(place.folder) == []
    shutil.rmtree(place.folder)
    place.folder.mkdir()
    devices = subprocess.run(["losetup", "--list", "--noheadings"], capture_output=True, text=True, check=True).stdout
    assert str(place.folder) not in devices


@pytest.mark.req("WORK-7")
@needs_root
def test_a_kind_that_a_machine_lacks_says_so_and_leaves_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mingora_worker.runtimes.docker.output_loop._MKFS", ("mkfs.missing",))
    with pytest.raises(OutputFailed, match=r"mkfs\.missing is missing"):
        LoopOutput(place)
    monkeypatch.setattr(output_tmpfs, "_FOREVER", ["/missing"])
    with pytest.raises(OutputFailed, match="/missing"):
        TmpfsOutput(place)
    assert list(place.folder.iterdir()) == []
    assert things(place) == []


@pytest.mark.req("WORK-7")
def test_a_tmpfs_that_cannot_be_seen_is_full_once_collected(place: Place) -> None:
    made = TmpfsOutput(place)
    made._seen = "/proc/self/root/mingora/output"  # the engine is on another machine
    job(place, made, FLOOD)
    assert not made.full()
    made.collect(lambda: None)
    assert made.full()
    made.close()
