"""The rule of the job container's seccomp profile, by its text alone."""

from __future__ import annotations

import errno
import json
import stat
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seccomp_support import ALLOWED, expected, numbers

from devtools import seccomp

pytestmark = pytest.mark.req("WORK-7")

VALUES = st.integers(0, 2**32 - 1)
LATER = 450  # the last syscall that libseccomp 2.5.4 knows; of later ones the rule needn't say anything
ABOVE = 1 << 32  # the kernel doesn't read this bit of an int

# Linux's, wherever the test runs.
UNIX, INET, INET6, NETLINK = 1, 2, 10, 16
STREAM, DATAGRAM, RAW, SEQUENCED, NONBLOCK, CLOEXEC = 1, 2, 3, 5, 0o4000, 0o2000000
TCP, UDP = 6, 17


@pytest.fixture(scope="module")
def profile() -> Any:
    return json.loads(seccomp.PROFILE.read_text(encoding="utf-8"))


def test_the_profile_is_what_the_rule_says(profile: Any) -> None:
    assert profile == seccomp.profile()
    assert seccomp.main([]) == 0
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"


def test_a_profile_of_another_rule_is_told_and_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(seccomp, "ROOT", tmp_path)
    monkeypatch.setattr(seccomp, "PROFILE", tmp_path / "seccomp.json")
    assert seccomp.main([]) == 1
    assert "seccomp.json isn't what the rule says" in capsys.readouterr().err
    assert seccomp.main(["--fix"]) == 0
    assert seccomp.main([]) == 0


def test_a_syscall_stands_in_one_group() -> None:
    named = Counter(name for group in seccomp.GROUPS for name in group.names.split())
    assert [name for name, count in named.items() if count > 1] == []


def test_every_syscall_of_the_machine_stands_in_a_group() -> None:
    named = {name for group in seccomp.GROUPS for name in group.names.split()}
    assert [name for name, number in numbers().items() if number <= LATER and name not in named] == []


def test_every_group_has_a_reason() -> None:
    assert all(len(group.reason) > 15 for group in seccomp.GROUPS)
    assert {group.answer for group in seccomp.GROUPS} == {seccomp.ALLOW, seccomp.REFUSED, seccomp.ABSENT}


@given(VALUES, st.sets(VALUES, max_size=4), st.data())
def test_all_but_some_values(value: int, refused: set[int], data: st.DataObject) -> None:
    if refused:
        value = data.draw(st.sampled_from([value, *refused, *(one ^ 1 << 7 for one in refused)]))
    cases = seccomp.all_but(0, *refused)
    met = [case for case in cases if all(value & bits.mask == bits.value for bits in case)]
    assert len(met) == (value not in refused)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("socket", (UNIX, STREAM)),
        ("socket", (UNIX, SEQUENCED)),
        ("socket", (INET, STREAM | CLOEXEC | NONBLOCK)),
        ("socket", (INET, STREAM, TCP)),
        ("socket", (INET6, DATAGRAM, UDP)),
        ("socket", (NETLINK, RAW | CLOEXEC)),  # how glibc lists the network interfaces
        ("socketpair", (UNIX, STREAM)),
        ("clone", (0x003D0F00,)),  # glibc's flags of a thread
        ("clone", (0x01200011,)),  # and of fork()
        ("personality", (0xFFFFFFFF,)),
        ("mknod", (0, stat.S_IFIFO | 0o600)),
        ("mknodat", (0, 0, stat.S_IFSOCK | 0o600)),
        ("ioctl", (0, 0x5401)),
        ("ioctl", (0, 0x5413)),
        ("ioctl", (0, 0x80045430)),
    ],
)  # fmt: skip
def test_what_a_job_may(profile: Any, name: str, arguments: tuple[int, ...]) -> None:
    assert expected(profile, name, *arguments) == ALLOWED


@pytest.mark.parametrize("family", [family for family in range(48) if family not in (UNIX, INET, INET6, NETLINK)])
def test_no_other_family_of_sockets(profile: Any, family: int) -> None:
    for kind in range(16):
        assert expected(profile, "socket", family, kind) == errno.EPERM
        assert expected(profile, "socket", family + ABOVE, kind) == errno.EPERM


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("socket", (INET, RAW, 1)),
        ("socket", (INET6, RAW, 58)),
        ("socket", (INET, RAW | CLOEXEC, 255)),
        ("socket", (INET, 10)),  # SOCK_PACKET
        ("socket", (INET, DATAGRAM, 1)),  # ping
        ("socket", (INET, STREAM, 132)),  # SCTP
        ("socket", (INET, STREAM, 262)),  # MPTCP
        ("socket", (NETLINK, RAW, 16)),  # generic netlink
        ("socketpair", (INET, STREAM)),
        ("personality", (0x0040000,)),  # ADDR_NO_RANDOMIZE
        ("mknod", (0, stat.S_IFCHR | 0o600)),
        ("mknod", (0, stat.S_IFBLK | 0o600)),
        ("mknodat", (0, 0, stat.S_IFCHR | 0o600)),
        ("ioctl", (0, 0x5412)),  # TIOCSTI
        ("ioctl", (0, 0x5412 + ABOVE)),
        ("ioctl", (0, 0x541C)),  # TIOCLINUX
        ("ioctl", (0, 0x5423)),  # TIOCSETD
        *(("clone", (1 << bit | 17,)) for bit in (17, 25, 26, 27, 28, 29, 30)),
        ("ptrace", ()),
        ("unshare", ()),
        ("a syscall of next year", ()),
    ],
)
def test_what_a_job_may_not(profile: Any, name: str, arguments: tuple[int, ...]) -> None:
    assert expected(profile, name, *arguments) == errno.EPERM


@pytest.mark.parametrize("name", ["clone3", "io_uring_setup", "memfd_secret", "mq_open", "msgget"])
def test_what_is_absent_for_a_job(profile: Any, name: str) -> None:
    assert expected(profile, name) == errno.ENOSYS
