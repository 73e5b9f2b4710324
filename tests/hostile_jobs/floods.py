"""Jobs that want all of something: processes, memory, files, the output, processors."""

from __future__ import annotations

from docker_runtime import AS_ROOT

from hostile_jobs import FULL, Job, killed, with_memory

_FORKS = """
    import os, signal
    children = []
    try:
        while len(children) < 3000:
            child = os.fork()
            if not child:
                signal.pause()
            children.append(child)
    except OSError as error:
        print(error.strerror, 900 < len(children) < 1024)
"""
_MEMORY = """
    held = []
    while len(held) < 600:
        held.append(bytearray(b"x") * (1 << 20))
    print("survived", len(held))
"""

FLOODS = (
    Job("fork bomb", """
        import os, signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            os.fork()
        """, killed(9, "timed_out"), says=".*", most=15.0,
        spec={"timeoutSeconds": 1, **with_memory(1024)}),
    Job("as many children as there may be", _FORKS, says="Resource temporarily unavailable True\n",
        spec=with_memory(1024)),
    Job("thread bomb", """
        import threading
        threading.stack_size(65536)
        ever, count = threading.Event(), 0
        try:
            for count in range(3000):
                threading.Thread(target=ever.wait, daemon=True).start()
        except RuntimeError as error:
            print(error, 900 < count < 1024)
        """, says="can't start new thread True\n"),
    Job("memory", _MEMORY, killed(9, "memory_exceeded")),
    Job("memory of a child", f"""
        import os
        if not os.fork():
            exec({_MEMORY.replace("    ", "", 1)!r}.replace("\\n    ", "\\n"))
        print(os.waitstatus_to_exitcode(os.wait()[1]))
        """, says="-9\n", warnings=["A process of the job was killed for memory; the budget is 96 MiB."]),
    Job("memory files", """
        import os
        for number in range(600):
            os.write(os.memfd_create(str(number)), bytes(1 << 20))
        print("survived")
        """, killed(9, "memory_exceeded")),
    # Unlimited it would be half a gigabyte.
    Job("buffers of sockets", """
        import socket, time
        def held():
            line = next(line for line in open("/proc/net/sockstat") if line.startswith("UDP:"))
            return int(line.split()[-1]) * 4096
        time.sleep(0.3)
        before, taking = held(), []
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for _ in range(2500):
                taker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                taker.bind(("127.0.0.1", 0))
                taking.append(taker)
                for _ in range(4):
                    sender.sendto(bytes(50000), taker.getsockname())
        print(held() - before < 110 << 20)
        """, says="True\n" if AS_ROOT else "(True|False)\n"),
    Job("shared memory and /tmp together", """
        for number in range(40):
            for folder in "/dev/shm", "/tmp":
                with open(f"{folder}/{number}", "wb") as file:
                    file.write(bytes(1_250_000))
        print("survived")
        """, killed(9, "memory_exceeded")),
    Job("System V shared memory", """
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        libc.shmat.restype = ctypes.c_void_p
        for _ in range(60):
            ctypes.memset(libc.shmat(libc.shmget(0, 10 << 20, 0o1600), None, 0), 1, 10 << 20)
        print("survived")
        """, killed(9, "memory_exceeded")),
    Job("memory in sockets", """
        import socket
        held = []
        while len(held) < 4000:
            pair = socket.socketpair()
            held.append(pair)
            pair[0].setblocking(False)
            try:
                while True:
                    pair[0].send(bytes(65536))
            except BlockingIOError:
                pass
        print("survived")
        """, killed(9, "memory_exceeded")),
    Job("memory in pipes", """
        import fcntl, os
        held = []
        while len(held) < 600:
            reader, writer = os.pipe()
            held.append(writer)
            os.set_blocking(writer, False)
            try:
                fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 1 << 20)
            except PermissionError:
                pass  # what one account may have in pipes is used up
            try:
                while True:
                    os.write(writer, bytes(65536))
            except BlockingIOError:
                pass
        print("survived")
        """, says="survived\n"),
    Job("shared memory", """
        done = 0
        try:
            for number in range(100):
                with open(f"/dev/shm/{number}", "wb", buffering=0) as file:
                    done += file.write(bytes(1 << 20))
        except OSError as error:
            print(error.strerror, done >> 20)
        """, says="No space left on device 48\n"),
    Job("bytes in /tmp", """
        done = 0
        try:
            for number in range(100):
                with open(f"/tmp/{number}", "wb", buffering=0) as file:
                    done += file.write(bytes(1 << 20))
        except OSError as error:
            print(error.strerror, done >> 20)
        """, says="No space left on device 4[78]\n"),
    Job("files in /tmp", """
        import os
        count = 0
        try:
            for count in range(100_000):
                os.mknod(f"/tmp/{count}")
        except OSError as error:
            print(error.strerror, count)
        """, says="No space left on device 6553\\d\n", spec=with_memory(512)),
    Job("output, and it notices", """
        try:
            for number in range(5):
                with open(f"results/{number}", "wb", buffering=0) as file:
                    for _ in range(4096):
                        assert file.write(bytes(1024)) == 1024
        except OSError as error:
            print(error.strerror)
            raise SystemExit(3)
        """, ("output_limit", 3, None), says="No space left on device\n", kept=5),
    Job("output, and it goes on", """
        import os
        try:
            for number in range(5):
                with open(f"results/{number}", "wb", buffering=0) as file:
                    for _ in range(4096):
                        assert file.write(bytes(1024)) == 1024
        except OSError as error:
            print(error.strerror)
        """, says="No space left on device\n", warnings=[FULL], kept=5),
    Job("100,000 results", """
        import os
        os.chdir("results")
        try:
            for number in range(100_000):
                os.mknod(str(number))
        except OSError as error:
            print(error.strerror, number)
        """, ("result_refused", 0, None), says="No space left on device 65[56]\\d\\d\n", warnings=[FULL]),
    Job("a tebibyte of nothing", """
        import os
        try:
            os.truncate(os.open("results/holes", os.O_WRONLY | os.O_CREAT), 1 << 40)
        except OSError as error:
            print(error.strerror)
        """, says="File too large\n", kept={"holes": b""}),
    Job("holes as far as they go", """
        import os
        for number in range(20):
            os.truncate(os.open(f"results/{number:02}", os.O_WRONLY | os.O_CREAT), 16 << 20)
        """, kept=1, refused=[
            f"{number:02}: is more than the output can hold, so it has holes" for number in range(1, 20)
        ]),
    Job("folders in folders", """
        import os
        os.chdir("results")
        for depth in range(3000):
            os.mkdir("folder")
            os.chdir("folder")
        open("deep", "w").write("lost")
        """, refused=["/".join(["folder"] * 147)[:300] + ": the path is longer than 1024 bytes"]),
    Job("open files", """
        import os
        try:
            for count in range(100_000):
                os.open("/dev/null", os.O_RDONLY)
        except OSError as error:
            print(error.strerror, count)
        """, says="Too many open files 1638\\d\n"),
    Job("locked memory", """
        import ctypes, mmap, os
        libc = ctypes.CDLL(None, use_errno=True)
        memory = mmap.mmap(-1, 32 << 20)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        print(libc.mlock(ctypes.c_void_p(address), 32 << 20), os.strerror(ctypes.get_errno()))
        """, says="-1 Cannot allocate memory\n"),
    Job("message queues", """
        try:
            open("/dev/mqueue/queue", "w")
        except OSError as error:
            print(error.strerror)
        """, says="Too many open files\n"),
    Job("all processors", """
        import os, time
        began = time.monotonic()
        for _ in range(3):
            if not os.fork():
                while time.monotonic() < began + 1:
                    pass
                os._exit(0)
        for _ in range(3):
            os.wait()
        used = os.times()
        print(used.children_user + used.children_system < 1.4)
        """, says="True\n"),
    Job("sleep past the deadline", "import time; time.sleep(60)", killed(15, "timed_out"), spec={"timeoutSeconds": 1},
        most=3.0),
    Job("1,500 orphans", """
        import os, time
        for _ in range(1500):
            child = os.fork()
            if not child:
                os.fork()
                os._exit(0)
            os.waitpid(child, 0)
        print("all gone")
        """, says="all gone\n"),
    Job("1,500 zombies", """
        import os
        try:
            for count in range(1500):
                if not os.fork():
                    os._exit(0)
        except OSError as error:
            print(error.strerror, 900 < count < 1024)
        """, says="Resource temporarily unavailable True\n"),
)  # fmt: skip
OUTPUT_FLOODS = tuple(job for job in FLOODS if job.name.startswith(("output", "100,000", "a tebibyte", "folders")))
"""Those that would overfill the output, of whatever kind it is."""
