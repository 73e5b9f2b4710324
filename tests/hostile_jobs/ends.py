"""Jobs that lie about their end, don't want to end, or leave something behind; and what they print on the way."""

from __future__ import annotations

import re
import signal

from hostile_jobs import SUCCEEDED, Job, exits, killed

CODES = {0: SUCCEEDED, 300: exits(44), **{code: exits(code) for code in (1, 2, 125, 126, 127, 128, 137, 143, 254, 255)}}
SIGNALS = (
    "SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGSEGV", "SIGUSR1", "SIGPIPE",
    "SIGALRM", "SIGTERM", "SIGXCPU", "SIGXFSZ", "SIGSYS",
)  # fmt: skip
CANCELLED = "cancelled"
LINE = 16_384
_BYTES = bytes(range(256)) * 4
_WORDS = "[INFO  tini (1)] Main child exited normally (with status '0')\\n"
_READY = "print('ready', flush=True)\n"


def _exit(code: int) -> Job:
    return Job(f"exit code {code}", f"import os; os._exit({code} & 0xFF)", CODES[code])


def _signal(name: str) -> Job:
    number = signal.Signals[name]
    code = f"import os, signal; signal.signal({number}, signal.SIG_DFL); os.kill(os.getpid(), {number})"
    if name in {"SIGKILL"}:
        code = f"import os; os.kill(os.getpid(), {number})"
    return Job(name, code, killed(number))


def _cancelled(name: str, code: str, end: tuple[int | None, int | None], **more: object) -> Job:
    return Job(f"cancelled: {name}", code, (CANCELLED, *end), **{"says": "ready\n.*", "grace": 0.5, **more})  # type: ignore[arg-type]


ENDS = (
    *map(_exit, CODES),
    *map(_signal, SIGNALS),
    Job("an end by the shell's own code", "import os; os.execvp('sh', ['sh', '-c', 'kill -9 $$'])", killed(9)),
    Job("a child's signal is the parent's code", """
        import os, subprocess, sys
        sys.exit(128 - subprocess.run(["sh", "-c", "kill -9 $$"]).returncode)
        """, exits(137)),
    Job("a core dump", """
        import os, resource, signal
        os.chdir("results")
        try:
            resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY,) * 2)
        except ValueError as error:
            print(error, flush=True)
        os.abort()
        """, killed(6), says="not allowed to raise maximum limit\n"),
    _cancelled("at once", f"import time\n{_READY}time.sleep(60)", (None, 15), most=2.0),
    _cancelled("in order", f"""
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: (print("saved"), open("results/state", "w").write("x"), sys.exit(5)))
        {_READY.strip()}
        time.sleep(60)
        """, (5, None), says="ready\nsaved\n", kept={"state": b"x"}, most=2.0),
    _cancelled("it ignores TERM", f"""
        import signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        {_READY.strip()}
        while True:
            time.sleep(60)
        """, (None, 9), most=3.0),
    _cancelled("it has stopped itself", f"import os, signal\n{_READY}os.kill(os.getpid(), signal.SIGSTOP)", (None, 9),
        most=3.0),
    _cancelled("while it writes results", f"""
        import itertools
        {_READY.strip()}
        with open("results/first", "w") as file:
            file.write("kept")
        for number in itertools.count():
            with open("results/growing", "a") as file:
                file.write(str(number % 10))
            if number % 4000 == 3999:
                open("results/growing", "w").close()
        """, (None, 15), kept=2, most=2.0),
    _cancelled("while it floods its log", f"""
        import os, signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        {_READY.strip()}
        while True:
            os.write(1, bytes(65536))
            time.sleep(0.001)
        """, (None, 9), log_cap=4 << 30, most=4.0),
    _cancelled("its children ignore TERM", f"""
        import os, signal, time
        if not os.fork():
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(60)
        {_READY.strip()}
        time.sleep(60)
        """, (None, 15), most=2.0),
    Job("a daemon outlives its parent", """
        import os, signal, time
        if not os.fork():
            os.setsid()
            if not os.fork():
                for number in range(1, 65):
                    try:
                        signal.signal(number, signal.SIG_IGN)
                    except (OSError, ValueError):
                        pass
                open("results/daemon", "w").write("born")
                while True:
                    time.sleep(0.01)
                    open("results/daemon", "a").write(".")
        while not os.path.exists("results/daemon"):
            time.sleep(0.001)
        """, kept=1, most=2.0),
    Job("a daemon writes to the log", """
        import os, time
        if not os.fork():
            os.setsid()
            log = os.open("/mingora/log", os.O_WRONLY)
            while True:
                os.write(log, b"daemon\\n")
        time.sleep(0.2)
        """, says="(?:daemon\n)+(?:d?a?e?m?o?n?)", most=2.0),
    Job("signals to init", """
        import os, signal, time
        for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV):
            os.kill(1, number)
        time.sleep(0.05)
        print(open("/proc/1/comm").read().strip() != "python3", os.getpid() > 1)
        """, says="True True\n"),
    Job("TERM to init comes back", "import os, time; os.kill(1, 15); time.sleep(5)", killed(15), most=4.0),
    Job("KILL to everything", """
        import os, signal
        child = os.fork()
        if not child:
            signal.pause()
        os.kill(-1, 9)
        print(os.waitpid(child, 0)[1])
        """, says="9\n"),
    Job("init's last words by another mouth", f"""
        import os
        log = os.open("/proc/1/fd/1", os.O_WRONLY)
        os.write(log, b"[INFO  tini (1)] Spawned child process 'x' with pid '7'\\n{_WORDS}")
        os.kill(os.getpid(), 9)
        """, killed(9)),
    Job("init's last words in the log", f"""
        import os
        os.write(1, b"[INFO  tini (1)] Spawned child process 'x' with pid '7'\\n{_WORDS}")
        os._exit(139)
        """, exits(139), says=re.escape(f"[INFO  tini (1)] Spawned child process 'x' with pid '7'\n{_WORDS}")
        .replace(r"\\n", "\n")),
    Job("init's memory overwritten", """
        import re, time
        found = [re.match("(\\\\w+)-(\\\\w+) r-xp", line) for line in open("/proc/1/maps")]
        with open("/proc/1/mem", "wb") as memory:
            for begin, end in [(int(one[1], 16), int(one[2], 16)) for one in found if one][:1]:
                memory.seek(begin)
                memory.write(b"\\xf4" * (end - begin))
        time.sleep(5)
        """, killed(11), most=6.0),
    Job("its log closed", "import os\nfor number in range(3):\n    os.close(number)\nopen('results/x', 'w').write('x')",
        kept={"x": b"x"}),
    Job("its log opened again", """
        import os
        os.write(1, b"one\\n")
        os.close(1)
        os.close(2)
        os.write(os.open("/mingora/log", os.O_WRONLY), b"two\\n")
        os.write(os.open("/mingora/log", os.O_WRONLY), b"three\\n")
        """, says="one\ntwo\nthree\n"),
    Job("its log without waiting", """
        import os
        os.set_blocking(1, False)
        sent = refused = 0
        while refused < 5:
            try:
                sent += os.write(1, bytes(65536))
            except BlockingIOError:
                refused += 1
            if sent > 64 << 20:
                break
        """, says="\0+"),
    Job("every byte", f"import os\nos.write(1, {_BYTES!r}); os.write(2, b'\\xff')", says=".*"),
    Job("a line of 10 MB", "import sys; sys.stdout.write('x' * 10_000_000 + '\\n')", says="x{10000000}\n"),
    Job("lines of 16,384 bytes", f"print('\\n'.join(['y' * {LINE}, 'z' * {LINE - 1}, 'w' * {LINE + 1}]))",
        says=f"y{{{LINE}}}\nz{{{LINE - 1}}}\nw{{{LINE + 1}}}\n"),
    Job("a flood of output", "import os\nwhile True:\n    os.write(1, b'flood\\n' * 10_000)", killed(15, "log_limit"),
        says="(?:flood\n)+(?:f?l?o?o?d?)", log_cap=1 << 20, most=4.0),
    Job("a flood of output, and it ignores TERM", """
        import os, signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            os.write(1, b'flood\\n' * 10_000)
        """, killed(9, "log_limit"), says="(?:flood\n)+(?:f?l?o?o?d?)", log_cap=1 << 20, most=4.0),
    Job("a flood past the log, through init's output", """
        import os
        log = os.open("/proc/1/fd/1", os.O_WRONLY)
        while True:
            os.write(log, b"flood\\n" * 10_000)
        """, killed(15, "log_limit"), most=6.0),
)  # fmt: skip
EVERY_BYTE = _BYTES + b"\xff"
