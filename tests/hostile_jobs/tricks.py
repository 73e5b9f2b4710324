"""What a job may leave under results/ so that whoever collects it is led elsewhere, hangs or is overrun."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from hostile_jobs import Job

LINKED = "has more than one name (a hard link); copy it instead"
NO_FILE = "is a link, a pipe or a device"
ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
CONTROL = "the name has a control character"


@dataclass(frozen=True)
class Trick:
    """Python below results/, and what is kept and refused of it. `refused`: texts of the log's warnings."""

    name: str
    code: str
    kept: dict[str, bytes] = field(default_factory=dict)
    refused: tuple[str, ...] = ()


def _link(name: str, target: str) -> Trick:
    path = name.replace(" ", "-")
    return Trick(name, f"os.symlink({target!r}, {path!r})", refused=(f"{path}: {NO_FILE}",))


def _name(name: str, raw: Any, *refused: str) -> Trick:
    kept = {} if refused else {os.fsdecode(raw): b"x"}
    return Trick(name, f"open({raw!r}, 'wb').write(b'x')", kept, refused)


TRICKS = (
    _link("absolute link", "/etc/passwd"),
    _link("relative link", "../main.py"),
    _link("link to itself", "link-to-itself"),
    _link("link to a folder", "/proc/self/root/etc"),
    _link("link upwards", "../../../../../../../../etc"),
    _link("link into proc", "/proc/self/environ"),
    _link("link to nothing", "/nowhere"),
    _link("link to the log", "/mingora/log"),
    Trick("link to a good one", "open('good', 'w').write('x'); os.symlink('good', 'alias')", {"good": b"x"},
        (f"alias: {NO_FILE}",)),
    Trick("hard link", "open('one', 'w').write('x'); os.link('one', 'two')",
        refused=(f"one: {LINKED}", f"two: {LINKED}")),
    Trick("hard link to the project's", "tried(os.link, '../main.py', 'main.py')"),
    Trick("hard link to the system's", "tried(os.link, '/etc/passwd', 'passwd')"),
    Trick("FIFO", "os.mkfifo('fifo')", refused=(f"fifo: {NO_FILE}",)),
    Trick("socket", "socket.socket(socket.AF_UNIX).bind('socket')", refused=(f"socket: {NO_FILE}",)),
    Trick("device", "tried(os.mknod, 'device', 0o600 | stat.S_IFBLK, os.makedev(254, 0))"),
    Trick("replaced folder", "os.mkdir('was'); os.rmdir('was'); os.symlink('/etc', 'was')",
        refused=(f"was: {NO_FILE}",)),
    Trick("the folder itself moved", "tried(os.rename, '../results', '../other'); tried(os.rmdir, '../results')"),
    Trick("the folder itself linked", "tried(os.symlink, '/etc', '../results')"),
    Trick("set-uid file", "open('suid', 'w').write('x'); os.chmod('suid', 0o4755)", {"suid": b"x"}),
    Trick("sticky folder", "os.mkdir('sticky', 0o777); os.chmod('sticky', 0o7777); open('sticky/x', 'w').write('x')",
        {"sticky/x": b"x"}),
    Trick("attributes", "open('attr', 'w').write('x'); os.setxattr('attr', 'user.evil', b'x' * 100)", {"attr": b"x"}),
    Trick("a capability", "open('cap', 'w').write('x'); tried(os.setxattr, 'cap', 'security.capability', bytes(20))",
        {"cap": b"x"}),
    Trick("deep", "os.makedirs('/'.join(['d' * 200] * 6))",
        refused=(f"{'/'.join(['d' * 200] * 6)[:300]}: the path is longer than 1024 bytes",)),
    Trick("huge of holes", "tried(os.truncate, os.open('tib', os.O_CREAT | os.O_WRONLY), 1 << 40)", {"tib": b""}),
    _name("newline", b"a\nb", f"a\\nb: {CONTROL}"),
    _name("escape", b"a\x1b[2Jb", f"a\\x1b[2Jb: {CONTROL}"),
    _name("bell", b"a\x07b", f"a\\x07b: {CONTROL}"),
    _name("backslash", b"..\\..\\evil", "..\\..\\evil: the name has a backslash"),
    _name("not UTF-8", b"\xff\xfe", "\\udcff\\udcfe: the name is not UTF-8"),
    _name("turned text", "a\u202egnp.exe".encode()),
    _name("drive", b"C:evil"),
    _name("stream", b"file.txt:evil"),
    _name("reserved", b"CON"),
    _name("dots", b"..."),
    _name("option", b"-rf"),
    _name("longest name", b"n" * 255),
    Trick("case", "open('Case', 'w').write('x'); open('case', 'w').write('x')", {"Case": b"x"},
        ("case: differs from Case only by case or Unicode form",)),
    Trick("normal forms", "open('caf\\u00e9', 'w').write('x'); open('cafe\\u0301', 'w').write('x')",
        {"cafe\u0301": b"x"}, ("caf\u00e9: differs from cafe\u0301 only by case or Unicode form",)),
    Trick("folder and file by case", "os.mkdir('Mixed'); open('Mixed/x', 'w').write('x'); open('mixed', 'w')",
        {"mixed": b""}, ("Mixed/x: differs from mixed only by case or Unicode form",)),
    Trick("locked away", "os.mkdir('locked'); open('locked/x', 'w').write('x'); os.chmod('locked', 0)",
        {"locked/x": b"x"} if ROOT else {}, () if ROOT else ("locked: can't be read: Permission denied",)),
)  # fmt: skip
WORKSHOP = Job("every trick", "\n".join([
    "import os, socket, stat", "os.chdir('results')",
    "def tried(function, *given):", "    try:", "        function(*given)",
    "        if function not in (os.truncate,):", "            print('done', function.__name__, given)",
    "    except OSError:", "        pass",
    *(trick.code for trick in TRICKS),
]))  # fmt: skip
"""One job does them all, so that none gets in the way of another either."""
