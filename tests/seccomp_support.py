"""Asks a seccomp profile what it answers to a call: by its text, and in a container, where no asked call is made."""

from __future__ import annotations

import errno
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from docker_support import require, run

ALLOWED = 0
"""What a call is answered that the filter lets through; else an errno."""
Call = tuple[int, ...]
"""A syscall's number and its first arguments."""

# Runs in the container. A second filter lets every call through but those with a mark as the sixth argument: of these
# it notifies a thread of this process, which answers for the kernel. A refusal by the profile goes before that.
_PROBE = r"""
import ctypes, json, os, struct, sys, threading

MARK, ANSWER = 0x4D494E47, 123
LOAD, EQUAL, RETURN, ALLOW, NOTIFY = 0x20, 0x15, 0x06, 0x7FFF0000, 0x7FC00000
RECEIVE, SEND = 0xC0502100, 0xC0182101
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
libc.ioctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p]

def syscall(number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *(ctypes.c_ulong(one) for one in arguments))
    return result, ctypes.get_errno()

def install(seccomp):
    steps = [(LOAD, 0, 0, 16 + 8 * 5), (EQUAL, 0, 1, MARK), (RETURN, 0, 0, NOTIFY), (RETURN, 0, 0, ALLOW)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(code)))
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    listener, error = syscall(seccomp, 1, 8, ctypes.addressof(program))  # SET_MODE_FILTER, NEW_LISTENER
    assert listener >= 0, os.strerror(error)
    return listener

def answer():
    installed.wait()
    while True:
        request = ctypes.create_string_buffer(80)
        if libc.ioctl(listeners[0], RECEIVE, request) == 0:
            reply = struct.pack("=QqiI", struct.unpack_from("=Q", request)[0], 0, -ANSWER, 0)
            libc.ioctl(listeners[0], SEND, ctypes.create_string_buffer(reply))

def ask(number, *arguments):
    result, error = syscall(number, *arguments, *[0] * (5 - len(arguments)), MARK)
    assert result == -1, number
    return 0 if error == ANSWER else error

seccomp, calls = json.load(sys.stdin)
installed, listeners = threading.Event(), []
threading.Thread(target=answer, daemon=True).start()
listeners.append(install(seccomp))
installed.set()
print(json.dumps([ask(*call) for call in calls]))
"""


@cache
def numbers() -> Mapping[str, int]:
    """The machine's syscalls by its kernel headers; skips, or fails in CI, where there are none."""
    require(sys.platform == "linux" and shutil.which("cc") is not None, "a C compiler with Linux's headers")
    command = ["cc", "-E", "-dM", "-include", "asm/unistd.h", "-"]
    done = subprocess.run(command, input="", capture_output=True, text=True, check=True)
    found = {name: int(number) for name, number in re.findall(r"#define __NR_(\w+) (\d+)\n", done.stdout)}
    for name in ("uretprobe", "uprobe"):  # the kernel itself uses them; no filter sees them
        found.pop(name, None)
    return found


def expected(profile: Mapping[str, Any], name: str, *arguments: int) -> int:
    """What the profile's text says to a call: :data:`ALLOWED` or an errno; arguments not given are 0."""
    given = [*arguments, *[0] * (6 - len(arguments))]
    for entry in profile["syscalls"]:
        if name in entry["names"] and all(_matches(given[one["index"]], one) for one in entry["args"]):
            return ALLOWED if entry["action"] == "SCMP_ACT_ALLOW" else int(entry["errnoRet"])
    return errno.EPERM


def answered(image: str, calls: Sequence[Call], *options: str) -> list[int]:
    """What the engine answers to each call in a container with ``docker run``'s ``options``."""
    command = ["docker", "run", "--rm", "--interactive", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
    return list(
        json.loads(
            run([*command, *options, image, "python3", "-c", _PROBE], stdin=json.dumps([numbers()["seccomp"], calls]))
        )
    )


def _matches(value: int, argument: Mapping[str, Any]) -> bool:
    assert argument["op"] == "SCMP_CMP_MASKED_EQ"
    return bool(value & argument["value"] == argument["valueTwo"])
