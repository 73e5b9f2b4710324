"""A wrong wall clock for live processes, whose offset a test may change while they run.

A library that is loaded before libc's answers what asks for the time of day. The monotonic clocks stay what they are,
as on a machine whose clock is set.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

DAY = 86_400
_SOURCE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;

__attribute__((constructor)) static void begin(void) {
    int file = open(getenv("WRONG_CLOCK_FILE"), O_RDONLY | O_CLOEXEC);
    void *mapped = file < 0 ? MAP_FAILED : mmap(0, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) abort();
    offset = mapped;
    close(file);
}
int clock_gettime(clockid_t id, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, id, now);
    if (result == 0 && offset && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) now->tv_sec += *offset;
    return result;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *store) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (store) *store = exact.tv_sec;
    return exact.tv_sec;
}
"""
# The stack hands its processes no LD_PRELOAD, so each Python starts itself once more with it.
_AGAIN = """
import os, sys
if "LD_PRELOAD" not in os.environ:
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {{**os.environ, **{settings!r}}})
"""


class WrongClock:
    """``env`` makes a process's clock wrong by what :meth:`set` said last, and its Python children's too."""

    def __init__(self, folder: Path, seconds: int = 0) -> None:
        folder.mkdir()
        self._file = folder / "offset"
        self._file.write_bytes(struct.pack("=q", seconds))
        settings = {"LD_PRELOAD": str(_built(folder)), "WRONG_CLOCK_FILE": str(self._file)}
        (folder / "sitecustomize.py").write_text(_AGAIN.format(settings=settings))
        self.env = {"PYTHONPATH": os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])}

    def set(self, seconds: int) -> None:
        """In place and at once: the processes have the file in their memory."""
        with open(self._file, "r+b", buffering=0) as file:
            file.write(struct.pack("=q", seconds))


def _built(folder: Path) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        if os.environ.get("CI"):
            pytest.fail("CI needs a C compiler for the tests of wrong clocks")
        pytest.skip("no C compiler")
    source, library = folder / "clock.c", folder / "clock.so"
    source.write_text(_SOURCE)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source)], check=True, timeout=60)
    return library
