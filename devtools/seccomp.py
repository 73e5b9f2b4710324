"""The rule of the job container's seccomp profile, and the profile made of it: ``python -m devtools.seccomp [--fix]``.

The rule: a job gets what a Python program that computes needs (files it may see, memory, threads, child processes,
clocks, pipes, local and Internet sockets), and nothing that reaches another process's memory, the kernel's own
workings, other namespaces or the machine. Each syscall stands in one group with its reason:

- ``ALLOW``, for some syscalls only with certain arguments;
- ``REFUSED``: EPERM, which is also the profile's default and so isn't written into it;
- ``ABSENT``: ENOSYS, as on a kernel without it, for what libraries try first and have another way for. A syscall that
  is newer than all that are named here is absent too: runc answers so for numbers above the highest it knows.

The profile is never wider than Docker's own (tests/e2e/test_docker_seccomp.py asks the engine for its). Syscalls of
another architecture than the container's (32-bit and x32 ones on x86_64) end the thread, which is libseccomp's default.
Arguments are compared as the 32-bit values that the kernel takes: what is set above them changes nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from devtools.venv import ROOT

PROFILE = ROOT / "worker" / "mingora_worker" / "runtimes" / "docker" / "seccomp.json"
ALLOW, REFUSED, ABSENT = "SCMP_ACT_ALLOW", "EPERM", "ENOSYS"
ARCHITECTURES = ("SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64")

_ENOSYS = 38
_INT = 0xFFFFFFFF


@dataclass(frozen=True)
class Bits:
    """Argument ``index`` has ``value`` in the bits of ``mask``."""

    index: int
    value: int
    mask: int = _INT


@dataclass(frozen=True)
class Group:
    """Syscalls for one purpose; ``cases``: with one of these lists of arguments only."""

    reason: str
    answer: str
    names: str
    cases: tuple[tuple[Bits, ...], ...] = ()


def all_but(index: int, *refused: int) -> tuple[tuple[Bits, ...], ...]:
    """The cases that together are every 32-bit value of an argument except ``refused``.

    Filters can't say "neither": so the values are halved bit by bit, and the halves without a refused one are named.
    """

    def halves(free: int, value: int) -> Iterator[tuple[Bits, ...]]:
        mask = _INT & ~((1 << free) - 1)
        if not any(one & mask == value for one in refused):
            yield (Bits(index, value, mask),)
        elif free:
            yield from halves(free - 1, value)
            yield from halves(free - 1, value | 1 << free - 1)

    return tuple(halves(32, 0))


# ---- arguments -----------------------------------------------------------------------------------------------------
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_STREAM, _DATAGRAM, _RAW, _SEQUENCED = 1, 2, 3, 5
_TCP, _UDP = 6, 17


def _socket(family: int, kind: int, protocol: int) -> tuple[Bits, ...]:
    # The kind's upper bits are SOCK_CLOEXEC and SOCK_NONBLOCK.
    return Bits(0, family), Bits(1, kind, 0xF), Bits(2, protocol)


_LOCAL = tuple(_socket(_UNIX, kind, 0) for kind in (_STREAM, _DATAGRAM, _SEQUENCED))
_INTERNET = tuple(
    _socket(family, kind, protocol)
    for family in (_INET, _INET6)
    for kind, own in ((_STREAM, _TCP), (_DATAGRAM, _UDP))
    for protocol in (0, own)
)
_ROUTES = tuple(_socket(_NETLINK, kind, 0) for kind in (_RAW, _DATAGRAM))  # its "raw" is a datagram all the same


def _file_formats(index: int) -> tuple[tuple[Bits, ...], ...]:
    # Unsaid (a regular file), regular, FIFO, socket.
    return tuple((Bits(index, value, 0o170000),) for value in (0, 0o100000, 0o010000, 0o140000))


# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
_TIOCSTI, _TIOCLINUX, _TIOCSETD = 0x5412, 0x541C, 0x5423

# ---- the rule ------------------------------------------------------------------------------------------------------
GROUPS = (
    Group(
        "files and folders that the container shows",
        ALLOW,
        """access chdir chmod chown close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2 fadvise64
        fallocate fchdir fchmod fchmodat fchown fchownat fcntl fdatasync fgetxattr flistxattr flock fremovexattr
        fsetxattr fstat fstatfs fsync ftruncate futimesat getcwd getdents getdents64 getxattr inotify_add_watch
        inotify_init inotify_init1 inotify_rm_watch lchown lgetxattr link linkat listxattr llistxattr lremovexattr lseek
        lsetxattr lstat mkdir mkdirat newfstatat open openat openat2 pread64 preadv preadv2 pwrite64 pwritev pwritev2
        read readahead readlink readlinkat readv removexattr rename renameat renameat2 rmdir sendfile setxattr stat
        statfs statx symlink symlinkat sync_file_range syncfs truncate umask unlink unlinkat utime utimensat utimes
        write writev""",
    ),
    Group(
        "waiting and pipes: event loops, data loaders, subprocesses",
        ALLOW,
        """epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 pipe pipe2 poll
        ppoll pselect6 select signalfd signalfd4 splice tee""",
    ),
    Group(
        "memory of one's own, shared with one's children or in this container's IPC namespace",
        ALLOW,
        """brk madvise membarrier memfd_create mincore mlock mlock2 mlockall mmap mprotect mremap msync munlock
        munlockall munmap semctl semget semop semtimedop shmat shmctl shmdt shmget""",
    ),
    Group(
        "processes and threads: limits, identity and signals, all of which the container's user and cgroup bound",
        ALLOW,
        """arch_prctl capget capset execve execveat exit exit_group fork futex get_robust_list getegid geteuid getgid
        getgroups getpgid getpgrp getpid getppid getpriority getresgid getresuid getrlimit getrusage getsid gettid
        getuid ioprio_get ioprio_set kill pause pidfd_open pidfd_send_signal prctl prlimit64 restart_syscall rseq
        rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait
        rt_tgsigqueueinfo seccomp set_robust_list set_tid_address setfsgid setfsuid setgid setgroups setpgid setpriority
        setregid setresgid setresuid setreuid setrlimit setsid setuid sigaltstack tgkill tkill vfork wait4 waitid""",
    ),
    Group(
        "processors: OpenMP, MKL and PyTorch place their threads",
        ALLOW,
        """getcpu sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam
        sched_getscheduler sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam sched_setscheduler
        sched_yield""",
    ),
    Group(
        "reading clocks, timers, chance, and what machine this is",
        ALLOW,
        """alarm clock_getres clock_gettime clock_nanosleep getitimer getrandom gettimeofday nanosleep setitimer sysinfo
        time timer_create timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime
        timerfd_settime times uname""",
    ),
    Group(
        "using a socket, once one has it",
        ALLOW,
        """accept accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmmsg recvmsg sendmmsg
        sendmsg sendto setsockopt shutdown""",
    ),
    Group(
        "sockets: local ones, TCP and UDP, and the list of network interfaces (getifaddrs). No vsock, which reaches a"
        " virtual machine's host, no alg, packet or raw ones, nor protocols whose module would be loaded for it",
        ALLOW,
        "socket",
        (*_LOCAL, *_INTERNET, *_ROUTES),
    ),
    Group("pairs of local sockets", ALLOW, "socketpair", _LOCAL),
    Group("threads and children, but no new namespaces", ALLOW, "clone", ((Bits(0, 0, _NAMESPACES),),)),
    Group("FIFOs, sockets and regular files, but no devices", ALLOW, "mknod", _file_formats(1)),
    Group("FIFOs, sockets and regular files, but no devices", ALLOW, "mknodat", _file_formats(2)),
    Group("asking for one's personality, and the usual one", ALLOW, "personality", ((Bits(0, 0),), (Bits(0, _INT),))),
    Group(
        "devices, but not typing into a terminal (TIOCSTI, TIOCLINUX) nor having the kernel load a line discipline",
        ALLOW,
        "ioctl",
        all_but(1, _TIOCSTI, _TIOCLINUX, _TIOCSETD),
    ),
    Group(
        "glibc then uses clone, whose flags are an argument that a filter can see",
        ABSENT,
        "clone3",
    ),
    Group(
        "large and young parts of the kernel, without which programs run as well",
        ABSENT,
        """cachestat file_getattr file_setattr futex_requeue futex_wait futex_waitv futex_wake getxattrat io_uring_enter
        io_uring_register io_uring_setup landlock_add_rule landlock_create_ruleset landlock_restrict_self listmount
        listxattrat lsm_get_self_attr lsm_list_modules lsm_set_self_attr map_shadow_stack memfd_secret mseal
        open_tree_attr pkey_alloc pkey_free pkey_mprotect process_mrelease removexattrat setxattrat statmount""",
    ),
    Group(
        "libaio's asynchronous I/O: the machine has one number of requests for everybody, which a job could use up",
        ABSENT,
        "io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit",
    ),
    Group("fchmodat2: glibc then uses fchmodat; Docker 20.10 and libseccomp 2.5 don't have it", ABSENT, "fchmodat2"),
    Group(
        "queues in the kernel's memory",
        ABSENT,
        """mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd""",
    ),
    Group(
        "gone from the kernel or used by no program of today",
        ABSENT,
        """_sysctl afs_syscall create_module epoll_ctl_old epoll_wait_old get_kernel_syms get_thread_area getpmsg
        nfsservctl putpmsg query_module remap_file_pages security set_thread_area sysfs tuxcall uselib ustat vmsplice
        vserver""",
    ),
    Group(
        "other processes' memory, descriptors and course; a traced PID 1 would hang the job",
        REFUSED,
        "kcmp pidfd_getfd process_madvise process_vm_readv process_vm_writev ptrace",
    ),
    Group(
        "namespaces, mounts and roots",
        REFUSED,
        """chroot fsconfig fsmount fsopen fspick mount mount_setattr move_mount open_tree pivot_root setns umount2
        unshare""",
    ),
    Group("keyrings, which know no namespace of their own", REFUSED, "add_key keyctl request_key"),
    Group(
        "the kernel's own workings: programs in it, its counters, faults handled outside it, its log",
        REFUSED,
        """bpf delete_module finit_module init_module kexec_file_load kexec_load lookup_dcookie perf_event_open syslog
        userfaultfd""",
    ),
    Group("files by handle, past every mount, and watching all of a file system", REFUSED,
          "fanotify_init fanotify_mark name_to_handle_at open_by_handle_at"),
    Group(
        "the machine: its clock, name, power, swap, ports, accounts and quotas; sync writes all of its disks",
        REFUSED,
        """acct adjtimex clock_adjtime clock_settime ioperm iopl modify_ldt quotactl quotactl_fd reboot setdomainname
        sethostname settimeofday swapoff swapon sync vhangup""",
    ),
    Group(
        "memory by NUMA node: libraries try and go on without, as under Docker's own profile",
        REFUSED,
        "get_mempolicy mbind migrate_pages move_pages set_mempolicy set_mempolicy_home_node",
    ),
)  # fmt: skip


def profile() -> dict[str, Any]:
    """The rule in Docker's format (JSON object), as Docker Engine 20.10 and later take it."""
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "archMap": [{"architecture": name, "subArchitectures": []} for name in ARCHITECTURES],
        "syscalls": [entry for group in GROUPS if group.answer != REFUSED for entry in _entries(group)],
    }


def text() -> str:
    """The profile as it stands in the worker's package."""
    return json.dumps(profile(), indent=1) + "\n"


def _entries(group: Group) -> Iterator[dict[str, Any]]:
    entry: dict[str, Any] = {"names": group.names.split(), "comment": group.reason}
    entry |= {"action": ALLOW} if group.answer == ALLOW else {"action": "SCMP_ACT_ERRNO", "errnoRet": _ENOSYS}
    for case in group.cases or ((),):
        yield entry | {"args": [_argument(bits) for bits in case]}


def _argument(bits: Bits) -> dict[str, Any]:
    return {"index": bits.index, "value": bits.mask, "valueTwo": bits.value, "op": "SCMP_CMP_MASKED_EQ"}


def main(arguments: Sequence[str]) -> int:
    """0 when the profile in the worker's package is what the rule says; with ``--fix`` it is written first."""
    if "--fix" in arguments:
        PROFILE.write_text(text(), encoding="utf-8")
    if PROFILE.exists() and PROFILE.read_text(encoding="utf-8") == text():
        return 0
    print(f"{PROFILE.relative_to(ROOT)} isn't what the rule says.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
