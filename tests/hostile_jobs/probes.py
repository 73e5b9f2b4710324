"""Questions that a job asks of its container, each with the only answer it may get: an error's name, or a value."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker_runtime import ENTRY_MARK, HEALTH_MARK, MEMORY_MIB, ROOT_CAT
from seccomp_support import numbers

from hostile_jobs import SUCCEEDED, Job
from mingora_worker.runtimes.docker.runtime import DockerRuntime

HOST_PORT = "@PORT@"
"""Stands for the port of a service of the host, at 127.0.0.1, at every other address, and as an abstract socket."""
SOCKET = "mingora-hostile-"
SECRET_NAME, SECRET = "MINGORA_WORKER_SECRET_OF_TEST", "what-no-job-may-see"
"""In the worker's own environment while the jobs run."""
DATA_TEXT = "read only data"
VARIABLES = [
    "CUDA_VISIBLE_DEVICES=", "HOME=/tmp", "LOGNAME=mingora", "MINGORA_ATTEMPT=1",
    "MINGORA_DATA_sets=/mingora/data/sets", "MINGORA_JOB_ID=job_1", "MINGORA_RANK=0", "MINGORA_RANKS=1",
    "MINGORA_RESULTS=/mingora/project/results", "NVIDIA_VISIBLE_DEVICES=void", "OWN=yes", "PYTHONUNBUFFERED=1",
    "TINI_KILL_PROCESS_GROUP=1", "TINI_VERBOSITY=2", "TMPDIR=/tmp", "USER=mingora",
]  # fmt: skip
ENV = {"OWN": "yes", "NVIDIA_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "0", "MINGORA_RANK": "7",
       "TINI_VERBOSITY": "0", "TINI_KILL_PROCESS_GROUP": "0"}  # fmt: skip
"""What the job wants in its environment. Only the first of it is its own."""


Answer = str | tuple[str, ...]


@dataclass(frozen=True)
class Probe:
    """An expression of Python, and its answer, or the answers of different kernels and accounts."""

    name: str
    asks: str
    answer: Answer

    def check(self, said: str) -> None:
        """Fails where it is told anything else."""
        assert said in ((self.answer,) if isinstance(self.answer, str) else self.answer)


def _each(answer: Answer, asked: Mapping[str, str]) -> Iterable[Probe]:
    return (Probe(name, asks, answer) for name, asks in asked.items())


def _writes(answer: Answer, *paths: str) -> Iterable[Probe]:
    return (Probe(f"write to {path}", f"write({path!r})", answer) for path in paths)


def _connects(answer: Answer, asked: Mapping[str, tuple[str, str, Any]]) -> Iterable[Probe]:
    for name, (family, kind, address) in asked.items():
        connect = f"socket.socket(socket.AF_{family}, socket.SOCK_{kind}).connect({address!r})"
        yield Probe(name, connect.replace(f"'{HOST_PORT}'", HOST_PORT), answer)


def _syscalls(answer: Answer, *names: str) -> Iterable[Probe]:
    return (Probe(f"syscall {name}", f"syscall({numbers()[name]})", answer) for name in names if name in numbers())


PROBES = (
    # The file system.
    *_writes("EROFS", "/new", "/var/tmp/new", "/usr/bin/new", "/mingora/new", "/mingora/project/new",
        "/mingora/data/new", "/mingora/data/sets/new"),
    *_writes(("EROFS", "EACCES"), "/mingora/project/main.py", "/mingora/data/sets/text", "/etc/hosts", "/etc/hostname",
        "/etc/resolv.conf", "/dev/new", "/dev/pts/new", "/proc/irq/default_smp_affinity"),
    *_writes(("EROFS", "EACCES", "ENOENT"), "/proc/sys/kernel/hostname", "/proc/sys/kernel/core_pattern",
        "/proc/sysrq-trigger", "/sys/kernel/mm/ksm/run", "/sys/fs/cgroup/cgroup.procs",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes"),
    Probe("data is there", "open('/mingora/data/sets/text').read()", DATA_TEXT),
    Probe("what is in the root", "sorted(os.listdir('/mingora'))", "['data', 'log', 'project']"),
    Probe("shadow", "open('/etc/shadow').read()", "EACCES"),
    Probe("shadow by a set-uid program",
        f"subprocess.run([{ROOT_CAT!r}, '/etc/shadow'], capture_output=True).returncode", "1"),
    Probe("the engine's socket", "'docker.sock' in os.listdir('/var/run') + os.listdir('/run')", "False"),
    Probe("devices", "sorted(os.listdir('/dev'))", str(sorted([
        "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty",
        "urandom", "zero"]))),
    Probe("block devices", "[e for e in os.scandir('/dev') if stat.S_ISBLK(os.lstat(e).st_mode)]", "[]"),
    Probe("kcore", "open('/proc/kcore', 'rb').read(1)", ("EACCES", "ENOENT", "b''")),
    Probe("kernel log", "open('/proc/kmsg').read(1)", ("EPERM", "EACCES", "ENOENT")),
    Probe("timers and keys", "open('/proc/keys').read() + open('/proc/timer_list').read()", ""),
    Probe("firmware", "os.listdir('/sys/firmware')", "[]"),
    Probe("the log can't be read", "os.open('/mingora/log', os.O_RDONLY | os.O_NONBLOCK)", "EACCES"),
    Probe("the log can't be removed", "os.unlink('/mingora/log')", ("EROFS", "EBUSY")),
    Probe("the log can't be opened to others", "os.chmod('/mingora/log', 0o666)", ("EPERM", "EROFS")),
    Probe("standard input", "os.read(0, 1)", "b''"),
    # The environment, and what the image wanted.
    Probe("environment", "sorted(f'{k}={v}' for k, v in os.environ.items() if k not in CONTAINERS)", str(VARIABLES)),
    Probe("the worker's secret", f"[e for e in environments() if {SECRET!r} in e or {SECRET_NAME!r} in e]", "[]"),
    Probe("processes", "max(int(p) for p in os.listdir('/proc') if p.isdigit()) < 200", "True"),
    Probe("cgroup", "{line.split(':')[2] for line in open('/proc/self/cgroup').read().split()}", "{'/'}"),
    Probe("entry point", f"os.path.exists({ENTRY_MARK!r})", "False"),
    Probe("health check", f"time.sleep(0.3) or os.path.exists({HEALTH_MARK!r})", "False"),
    Probe("its account", "os.getuid() in {0, 4321} or os.getgid() in {0, 4321} or 0 in os.getgroups()", "False"),
    Probe("it isn't PID 1", "main > 1", "True"),
    # Rights.
    Probe("capabilities", "{line.split()[1] for line in status() if line.startswith('Cap')}", "{'0000000000000000'}"),
    Probe("no new privileges", "[line for line in status() if line.startswith('NoNewPrivs')]", "['NoNewPrivs:\\t1']"),
    Probe("score for memory", "open('/proc/self/oom_score_adj').read().strip()", "500"),
    Probe("a better score", "os.write(os.open('/proc/self/oom_score_adj', os.O_WRONLY), b'-1')", "EACCES"),
    Probe("a better score for init", "os.write(os.open('/proc/1/oom_score_adj', os.O_WRONLY), b'-1')", "EACCES"),
    *(Probe(f"limit of {name}", f"resource.getrlimit(resource.RLIMIT_{name})", str((most, most))) for name, most in {
        "CORE": 0, "NOFILE": 16_384, "FSIZE": MEMORY_MIB // 2 << 20, "MEMLOCK": 8 << 20}.items()),
    Probe("limit of queues", "[e.split()[3:5] for e in open('/proc/self/limits') if 'msgq' in e]", "[['0', '0']]"),
    Probe("its share of processors", "share()", "1.0"),
    Probe("more processor time", "os.nice(-5)", ("EPERM", "EACCES")),
    Probe("real time", "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))", "EPERM"),
    *_each("EPERM", {
        "setuid": "os.setuid(0)", "setgid": "os.setgid(0)", "setgroups": "os.setgroups([0])",
        "another's account": "os.setresuid(1, 1, 1)", "chown": "os.chown('/tmp', 0, 0)",
        "mount": "called(libc.mount(b'none', b'/tmp', b'tmpfs', 0, None))",
        "remount": "called(libc.mount(b'none', b'/', None, 32, None))",
        "bind": "called(libc.mount(b'/proc', b'/tmp', None, 4096, None))",
        "umount": "called(libc.umount2(b'/mingora/project/results', 2))", "chroot": "os.chroot('/tmp')",
        "unshare user": "called(libc.unshare(0x10000000))", "unshare net": "called(libc.unshare(0x40000000))",
        "unshare mounts": "called(libc.unshare(0x00020000))",
        "setns": "called(libc.setns(os.open('/proc/1/ns/net', os.O_RDONLY), 0))",
        "ptrace of init": "called(libc.ptrace(16, 1, 0, 0))",
        "ptrace of its parent": "called(libc.ptrace(0x4206, os.getppid(), 0, 0))",
        "traced by its parent": "called(libc.ptrace(0, 0, 0, 0))",
        "block device": "os.mknod('/tmp/b', 0o600 | stat.S_IFBLK, os.makedev(254, 0))",
        "character device": "os.mknod('/tmp/c', 0o600 | stat.S_IFCHR, os.makedev(1, 1))",
        "host name": "socket.sethostname('evil')", "clock": "time.clock_settime(time.CLOCK_REALTIME, 0)",
        "terminal input": "fcntl.ioctl(os.openpty()[1], 0x5412, b'x')",
        "kernel log by syscall": "called(libc.klogctl(3, ctypes.create_string_buffer(9), 9))",
        "reboot": "called(libc.reboot(0x01234567))", "swap": "called(libc.swapon(b'/tmp/x', 0))",
        "accounting": "called(libc.acct(None))", "random addresses off": "called(libc.personality(0x40000))",
        "memory of init": "called(libc.process_vm_readv(1, None, 0, None, 0, 0))",
    }),
    *_syscalls("EPERM", "pivot_root", "keyctl", "add_key", "request_key", "bpf", "perf_event_open", "init_module",
        "finit_module", "delete_module", "kexec_load", "open_by_handle_at", "name_to_handle_at", "userfaultfd", "kcmp",
        "fanotify_init", "quotactl", "settimeofday", "adjtimex", "move_pages", "mbind", "vhangup", "pidfd_getfd",
        "process_madvise", "move_mount", "open_tree", "fsopen", "fsmount", "mount_setattr", "iopl", "ioperm",
        "modify_ldt", "lookup_dcookie"),
    *_syscalls("ENOSYS", "io_setup", "io_submit", "io_uring_setup", "io_uring_enter", "io_uring_register", "clone3"),
    *_syscalls("ENOSYS", "mq_open", "msgget"),
    # The network.
    Probe("interfaces", "[n for _, n in socket.if_nameindex() if open(f'/sys/class/net/{n}/operstate').read() != DOWN]",
        "['lo']"),
    Probe("routes", "open('/proc/net/route').read().count('\\n')", "1"),
    *_connects(("ENETUNREACH", "EADDRNOTAVAIL"), {
        "TCP": ("INET", "STREAM", ("1.1.1.1", 443)), "UDP": ("INET", "DGRAM", ("1.1.1.1", 53)),
        "metadata": ("INET", "STREAM", ("169.254.169.254", 80)),
        "the bridge": ("INET", "STREAM", ("172.17.0.1", HOST_PORT)),
        "private": ("INET", "STREAM", ("10.0.0.1", 22)), "IPv6 UDP": ("INET6", "DGRAM", ("2606:4700::1111", 53)),
        "IPv6": ("INET6", "STREAM", ("2606:4700::1111", 443)),
    }),
    *_connects("ECONNREFUSED", {
        "the host's service": ("INET", "STREAM", ("127.0.0.1", HOST_PORT)),
        "the host's abstract socket": ("UNIX", "STREAM", f"\0{SOCKET}{HOST_PORT}"),
    }),
    Probe("names", "socket.getaddrinfo('example.com', 80)", "gaierror"),
    Probe("broadcast", "datagram().sendto(b'x', ('255.255.255.255', 9))", "ENETUNREACH"),
    Probe("multicast", "datagram().sendto(b'x', ('224.0.0.251', 5353))", "ENETUNREACH"),
    *_each("EPERM", {f"{name} socket": f"socket.socket({given})" for name, given in {
        "raw": "socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP",
        "packet": "socket.AF_PACKET, socket.SOCK_RAW", "ping": "socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP",
        "vsock": "socket.AF_VSOCK, socket.SOCK_STREAM",
        "alg": "socket.AF_ALG, socket.SOCK_SEQPACKET", "uevent": "socket.AF_NETLINK, socket.SOCK_RAW, 15",
        "bluetooth": "socket.AF_BLUETOOTH, socket.SOCK_RAW", "CAN": "socket.AF_CAN, socket.SOCK_RAW",
        "audit": "socket.AF_NETLINK, socket.SOCK_RAW, 9", "TIPC": "socket.AF_TIPC, socket.SOCK_RDM",
    }.items()}),
)  # fmt: skip

_ASK = """
    import ctypes, errno, fcntl, json, os, resource, signal, socket, stat, subprocess, sys, time
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    main, DOWN = os.getpid(), "down\\n"
    CONTAINERS = {"HOSTNAME", "PATH", "PWD", "OLDPWD", "LANG", "LC_CTYPE"}  # the engine's, the image's and the shell's

    def called(result):
        if result < 0:
            raise OSError(ctypes.get_errno(), "")
        return result

    def syscall(number):
        return called(libc.syscall(ctypes.c_long(number), *[ctypes.c_ulong(0)] * 6))

    def write(path):
        os.close(os.open(path, os.O_WRONLY if os.path.exists(path) else os.O_WRONLY | os.O_CREAT))

    def datagram():
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        return made

    def share():
        one, both = "/sys/fs/cgroup/cpu/cpu.cfs_", "/sys/fs/cgroup/cpu.max"
        if os.path.exists(both):
            quota, period = open(both).read().split()
        else:
            quota, period = (open(f"{one}{name}_us").read() for name in ("quota", "period"))
        return int(quota) / int(period)

    def status():
        return open("/proc/self/status").read().splitlines()

    def environments():
        for pid in filter(str.isdigit, os.listdir("/proc")):
            yield open(f"/proc/{pid}/environ").read()

    def answer(asks):
        try:
            return str(eval(asks))
        except OSError as error:
            return errno.errorcode.get(error.errno, type(error).__name__)
        except Exception as error:
            return type(error).__name__

    for asks in PROBES:
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            signal.alarm(5)
            os.write(writer, answer(asks).encode())
            os._exit(0)
        os.close(writer)
        said = open(reader).read()
        print(json.dumps(said if os.waitpid(child, 0)[1] == 0 else "killed"))
"""


def answers(runtime: DockerRuntime, probes: Iterable[Probe], folder: Path, port: int = 9) -> list[str]:
    """What the probes are answered in one container, each in a process of its own.

    `folder` is for the data; at `port` the host listens.
    """
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    (folder / "text").write_text(DATA_TEXT)
    asked = [probe.asks.replace(HOST_PORT, str(port)) for probe in probes]
    code = textwrap.dedent(_ASK).replace("PROBES", repr(asked))
    ran = Job("probes", code, spec={"env": ENV}).run(runtime, data={"sets": folder})
    assert ran.end == SUCCEEDED, (ran.end, ran.outcome.message, ran.text[-2000:])
    return [json.loads(line) for line in ran.text.splitlines()]
