"""The seccomp profile on a real engine: it answers what the rule says, and allows less than Docker's own."""

from __future__ import annotations

import errno
import json
import platform
from collections.abc import Iterator
from typing import Any

import pytest
from docker_support import run
from seccomp_support import ALLOWED, Call, answered, expected, numbers

from devtools.seccomp import PROFILE

pytestmark = [pytest.mark.engine("docker"), pytest.mark.xdist_group("docker"), pytest.mark.req("WORK-7")]

OURS = f"--security-opt=seccomp={PROFILE}"
# Docker 20.10's profile lets each of these through without any capability.
STRICTER = {
    "adjtimex", "clock_adjtime", "fanotify_mark", "memfd_secret", "modify_ldt", "mq_open", "msgget", "process_mrelease",
    "ptrace", "remap_file_pages", "sync", "vmsplice",
}  # fmt: skip
UNKNOWN = 2000
"""A syscall's number that no kernel has yet."""


@pytest.fixture(scope="module")
def profile() -> Any:
    return json.loads(PROFILE.read_text(encoding="utf-8"))


def cases() -> Iterator[tuple[str, Call]]:
    """Every syscall of the machine with no arguments, and those whose arguments count with many."""
    yield from ((name, ()) for name in numbers())
    for kind in range(16):
        for protocol in (0, 1, 6, 16, 17, 58, 132, 255, 262):
            yield from (("socket", (family, kind, protocol)) for family in (*range(47), 1 << 32 | 1, 1 << 32 | 40))
        yield from (("socketpair", (family, kind)) for family in range(47))
    yield from (("clone", (1 << bit | 17,)) for bit in range(40))
    yield from (("personality", (value,)) for value in (0, 8, 0x20000, 0x40000, 0x20008, (1 << 32) - 1))
    for form in range(16):
        yield from (("mknod", (0, form << 12 | 0o600)), ("mknodat", (0, 0, form << 12 | 0o600)))
    for request in (0x5412, 0x541C, 0x5423):
        yield from (("ioctl", (0, request ^ 1 << bit)) for bit in range(40))
        yield "ioctl", (0, request)


@pytest.fixture(scope="module")
def calls() -> list[tuple[str, Call]]:
    return [(name, given) for name, given in cases() if name in numbers()]


def test_the_engine_answers_what_the_rule_says(image: str, profile: Any, calls: list[tuple[str, Call]]) -> None:
    found = answered(image, [(numbers()[name], *given) for name, given in calls], OURS)
    wrong = [
        (name, given, answer)
        for (name, given), answer in zip(calls, found, strict=True)
        if answer != expected(profile, name, *given)
    ]
    assert wrong == []


def test_it_allows_nothing_that_dockers_own_refuses(image: str, profile: Any, calls: list[tuple[str, Call]]) -> None:
    """Docker's own is asked for what it allows to a container without capabilities."""
    dockers = answered(image, [(numbers()[name], *given) for name, given in calls])
    allowed = [(name, given, expected(profile, name, *given) == ALLOWED) for name, given in calls]
    both = list(zip(allowed, [answer == ALLOWED for answer in dockers], strict=True))
    assert [call for call, theirs in both if call[2] and not theirs] == []
    refused_besides = {call[0] for call, theirs in both if theirs and not call[2]}
    assert refused_besides >= STRICTER & set(numbers())


def test_a_syscall_that_nobody_knows_is_absent(image: str) -> None:
    """So that a library which tries a newer one takes its other way."""
    assert answered(image, [(UNKNOWN,)], OURS) == [errno.ENOSYS]


REFUSED = {
    "vsock": "socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)",
    "alg": "socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)",
    "packet": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "raw": "socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)",
    "ping": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)",
    "raw IPv6": "socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)",
    "generic netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 16)",
    "traced by the parent": "called(libc.ptrace(0, 0, 0, 0))",
    "a new user namespace": "called(libc.unshare(0x10000000))",
    "a child in a new user namespace": "called(libc.clone(CALLBACK, STACK, 0x10000011, None))",
    "another's namespace": "called(libc.setns(os.open('/proc/self/ns/net', os.O_RDONLY), 0))",
    "a mount": "called(libc.mount(b'none', b'/tmp', b'tmpfs', 0, None))",
    "a root": "called(libc.chroot(b'/tmp'))",
    "another's memory": "called(libc.process_vm_readv(os.getppid(), None, 0, None, 0, 0))",
    "no random addresses": "called(libc.personality(0x40000))",
    "a device": "os.mknod('/tmp/device', stat.S_IFCHR | 0o600, os.makedev(1, 3))",
    "typing into a terminal": "fcntl.ioctl(os.openpty()[1], 0x5412, b'x')",
    "a line discipline": "fcntl.ioctl(os.openpty()[1], 0x5423, struct.pack('i', 3))",
}  # fmt: skip
ALLOWED_TO_A_JOB = {
    "files": "pathlib.Path('/tmp/file').write_text('x'); os.replace('/tmp/file', '/tmp/other'); os.stat('/tmp/other')",
    "a copy": "shutil.copy('/bin/sh', '/tmp/copy'); subprocess.run(['/tmp/copy', '-c', ':'], check=True)",
    "a FIFO": "os.mkfifo('/tmp/fifo')",
    "a listener": "s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname()).close()",
    "a local socket": "socket.socket(socket.AF_UNIX).bind('/tmp/socket')",
    "a pair": "a, b = socket.socketpair(); socket.send_fds(a, [b'x'], [0]); socket.recv_fds(b, 1, 1)",
    "UDP over IPv6": "socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)",
    "interfaces": "assert 'lo' in [name for _, name in socket.if_nameindex()]",
    "names": "socket.getaddrinfo('localhost', 80)",
    "threads": "t = threading.Thread(target=print); t.start(); t.join()",
    "children": "subprocess.run(['true'], check=True)",
    "a spawned child": "assert os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)[1] == 0",
    "a pool": "p = multiprocessing.Pool(2); assert p.map(abs, [-1, 2]) == [1, 2]; p.close(); p.join()",
    "a spawned pool": "p = concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context('forkserver'));"
    " assert p.submit(abs, -1).result() == 1; p.shutdown()",
    "shared memory": "m = multiprocessing.shared_memory.SharedMemory(create=True, size=4096); m.close(); m.unlink()",
    "a memory file": "os.write(os.memfd_create('x'), b'x')",
    "a map": "mmap.mmap(-1, 4096).write(b'x')",
    "an event loop": "assert asyncio.run(asyncio.create_subprocess_exec('true'))",
    "processors": "os.sched_setaffinity(0, os.sched_getaffinity(0)); os.nice(1)",
    "limits": "resource.setrlimit(resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE))",
    "timers": "signal.setitimer(signal.ITIMER_REAL, 1000); time.sleep(0.001)",
    "chance": "secrets.token_bytes(16)",
    "a process by descriptor": "signal.pidfd_send_signal(os.pidfd_open(os.getpid()), 0)",
    "its own permissions": "os.chown('/tmp', -1, -1); os.setuid(os.getuid()); os.umask(0o22)",
}  # fmt: skip
_MODULES = (
    "asyncio, concurrent.futures, ctypes, errno, fcntl, json, mmap, multiprocessing, multiprocessing.shared_memory, os,"
    " pathlib, resource, secrets, shutil, signal, socket, stat, struct, subprocess, sys, threading, time, traceback"
)
_SCRIPT = f"""
import {_MODULES}
libc = ctypes.CDLL(None, use_errno=True)
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 0)
STACK = ctypes.c_void_p(ctypes.addressof(ctypes.create_string_buffer(65536)) + 65536 & ~15)

def called(result):
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

def ended(line):
    try:
        exec(line, globals())
    except OSError as error:
        return error.errno
    except BaseException:
        return traceback.format_exc()
    return 0

if __name__ == "__main__":
    print(json.dumps([ended(line) for line in json.loads(sys.argv[1])]))
"""


def ends(image: str, lines: list[str], *options: str) -> list[Any]:
    """How each line of Python ends in one container: 0, an errno, or what it raises."""
    options = (
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        "--network=none",
        "--init",
        "--read-only",
        *options,
    )
    command = ["docker", "run", "--rm", *options, "--tmpfs=/tmp:exec", image, "python3", "-c", _SCRIPT]
    said = run([*command, json.dumps(lines)])
    return list(json.loads(said.splitlines()[-1]))


def test_what_hostile_code_tries_is_refused(image: str) -> None:
    found = ends(image, list(REFUSED.values()), OURS, "--user=61000:61000")
    assert dict(zip(REFUSED, found, strict=True)) == dict.fromkeys(REFUSED, errno.EPERM)


def test_what_jobs_do_works(image: str) -> None:
    found = ends(image, list(ALLOWED_TO_A_JOB.values()), OURS, "--user=61000:61000")
    assert dict(zip(ALLOWED_TO_A_JOB, found, strict=True)) == dict.fromkeys(ALLOWED_TO_A_JOB, 0)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="it is x86_64's")
def test_a_32_bit_syscall_ends_the_thread(image: str) -> None:
    """Whose numbers mean other calls, and whose ``socketcall`` hides its arguments."""
    getpid = "b8 14 00 00 00 cd 80 c3"  # mov eax, 20; int 0x80; ret
    lines = f"""import ctypes, mmap, os
page = mmap.mmap(-1, 4096, prot=7)
page.write(bytes.fromhex("{getpid}"))
call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
child = os.fork()
if child == 0:
    call()
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"""
    assert run(["docker", "run", "--rm", "--cap-drop=ALL", OURS, image, "python3", "-c", lines]) == "-31"  # SIGSYS
