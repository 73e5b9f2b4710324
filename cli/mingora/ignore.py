"""Which files of a project are left out: the defaults of CLI-5 and `.mingoraignore` with gitignore's semantics.

Written from gitignore's documentation and tested against `git check-ignore`. Rules are read from the project's own
`.mingoraignore` at its root; as in git, the last rule that matches decides, and nothing inside a folder that is left
out can be brought back. Secrets are never sent, whatever the rules say; the other defaults can be negated.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from mingora.errors import ProjectError
from mingora.i18n import _

IGNORE_FILE = ".mingoraignore"
JOB_FILE = "job.json"
MAX_IGNORE_BYTES = 1024 * 1024

SECRETS = """
.env*
.envrc
.mingora-research.json*
.netrc
_netrc
.pypirc
.npmrc
.git-credentials
.pgpass
.my.cnf
.htpasswd
.vault-token
.dockercfg
.boto
.s3cfg
.Renviron
.aws/
.azure/
.config/gcloud/
.docker/config.json
.gnupg/
.kaggle/
.kube/
.oci/
.ssh/
id_rsa*
id_dsa*
id_ecdsa*
id_ed25519*
*.pem
*.key
*.p12
*.pfx
*.jks
*.keystore
*.kdbx
*.ppk
*.ovpn
credentials.json
client_secret*.json
service-account*.json
service_account*.json
application_default_credentials.json
"""

DEFAULTS = """
.git
.local
.hg/
.svn/
/results
venv/
.venv/
virtualenv/
.virtualenv/
__pycache__/
*.py[cod]
.ipynb_checkpoints/
.mypy_cache/
.pytest_cache/
.ruff_cache/
.tox/
.nox/
.cache/
.mingora-partial/
*.tmp
*.temp
*.swp
*.swo
*~
~$*
.#*
.DS_Store
._*
Thumbs.db
desktop.ini
"""


@dataclass(frozen=True)
class Rule:
    """One line. `negated` brings back, `folders_only` matches folders alone."""

    matches: Callable[[bytes], object]
    negated: bool
    folders_only: bool


class Rules:
    """The rules of one project."""

    def __init__(self, own: str = "") -> None:
        self._secrets = parse(SECRETS.lower())
        self._rules = [*parse(DEFAULTS), *parse(own)]

    @classmethod
    def of(cls, root: Path) -> Rules:
        """The defaults and what the project's `.mingoraignore` adds."""
        file = root / IGNORE_FILE
        try:
            if file.is_symlink():
                raise ProjectError(_("{path} is a symbolic link.").format(path=IGNORE_FILE))
            raw = file.read_bytes()
        except FileNotFoundError:
            return cls()
        except OSError as error:
            raise ProjectError(
                _("{path} can't be read: {reason}").format(path=IGNORE_FILE, reason=error.strerror)
            ) from error
        if len(raw) > MAX_IGNORE_BYTES:
            raise ProjectError(_("{path} is too long.").format(path=IGNORE_FILE))
        try:
            return cls(raw.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise ProjectError(_("{path} is not UTF-8.").format(path=IGNORE_FILE)) from error

    def leaves_out(self, path: str, *, folder: bool, source: Path | None = None) -> bool:
        """Whether the file or folder is left out; its own folder isn't. `source` lets a folder be looked at."""
        if path in {IGNORE_FILE, JOB_FILE}:
            return True
        if verdict(self._secrets, path.lower(), folder):
            return True
        decided = verdict(self._rules, path, folder)
        if decided is None and folder and source is not None:
            return (source / "pyvenv.cfg").is_file()
        return bool(decided)


def verdict(rules: Iterable[Rule], path: str, folder: bool) -> bool | None:
    """What the last matching rule says of a path whose folder isn't left out: True out, False in, None no rule."""
    result: bool | None = None
    raw = os.fsencode(path)
    for rule in rules:
        if (folder or not rule.folders_only) and rule.matches(raw):
            result = not rule.negated
    return result


def parse(text: str) -> list[Rule]:
    """The rules of a text, line by line."""
    return [rule for line in text.split("\n") if (rule := _parse_line(line.removesuffix("\r"))) is not None]


def _parse_line(line: str) -> Rule | None:
    if line.startswith("#"):
        return None
    pattern = os.fsencode(_without_trailing_spaces(line))
    negated = pattern.startswith(b"!")
    pattern = pattern[1:] if negated else pattern
    folders_only = pattern.endswith(b"/")
    pattern = pattern[:-1] if folders_only else pattern
    if not pattern:
        return None
    regex = _regex(pattern)
    return None if regex is None else Rule(re.compile(regex, re.DOTALL).fullmatch, negated, folders_only)


def _without_trailing_spaces(line: str) -> str:
    """Cuts spaces at the end that no backslash keeps."""
    end = at = 0
    while at < len(line):
        if line[at] == "\\":
            if at + 1 == len(line):
                return line
            at += 1
            end = at + 1
        elif line[at] != " ":
            end = at + 1
        at += 1
    return line[:end]


def _regex(pattern: bytes) -> bytes | None:
    """The pattern as an expression over whole paths in bytes, as git compares them; None if it can't match.

    Without a slash a pattern is about names in any folder. With one it is about paths from the root: what precedes
    the first special character is compared as it is, and the rest stands by itself, so that `**` right after it
    counts as leading.
    """
    if b"/" not in pattern:
        rest = _Glob(pattern).regex()
        return None if rest is None else b"(?:.*/)?" + rest
    pattern = pattern.removeprefix(b"/")
    special = re.search(rb"[*?\[\\]", pattern)
    cut = special.start() if special else len(pattern)
    rest = _Glob(pattern[cut:]).regex()
    return None if rest is None else re.escape(pattern[:cut]) + rest


_CLASSES: dict[bytes, Callable[[bytes], bool]] = {
    b"alnum": bytes.isalnum,
    b"alpha": bytes.isalpha,
    b"blank": lambda c: c in b" \t",
    b"cntrl": lambda c: c < b" " or c == b"\x7f",
    b"digit": bytes.isdigit,
    b"graph": lambda c: b"!" <= c <= b"~",
    b"lower": bytes.islower,
    b"print": lambda c: b" " <= c <= b"~",
    b"punct": lambda c: b"!" <= c <= b"~" and not c.isalnum(),
    b"space": bytes.isspace,
    b"upper": bytes.isupper,
    b"xdigit": lambda c: c in b"0123456789abcdefABCDEF",
}


class _NeverMatches(Exception):
    """The pattern is broken: an open bracket, an unknown class, a backslash at the end."""


class _Glob:
    """Reads a glob from left to right into a regular expression."""

    def __init__(self, pattern: bytes) -> None:
        self._text = pattern
        self._at = 0

    def regex(self) -> bytes | None:
        parts: list[bytes] = []
        try:
            while self._at < len(self._text):
                parts.append(self._next())
        except _NeverMatches:
            return None
        return b"".join(parts)

    def _take(self) -> bytes:
        char = self._text[self._at : self._at + 1]
        if not char:
            raise _NeverMatches
        self._at += 1
        return char

    def _next(self) -> bytes:
        char = self._take()
        if char == b"\\":
            return re.escape(self._take())
        if char == b"?":
            return b"[^/]"
        if char == b"*":
            return self._stars()
        if char == b"[":
            return _one_of(self._bracket())
        return re.escape(char)

    def _stars(self) -> bytes:
        """`**` between slashes or ends crosses folders; any other run of stars stays in one name."""
        start = self._at - 1
        while self._text[self._at : self._at + 1] == b"*":
            self._at += 1
        after = self._text[self._at : self._at + 2]
        leads = start == 0 or self._text[start - 1 : start] == b"/"
        if self._at - start < 2 or not leads or not (after == b"" or after[:1] == b"/" or after == b"\\/"):
            return b"[^/]*"
        if after[:1] == b"/":
            self._at += 1
            return b"(?:.*/)?"
        return b".*"

    def _bracket(self) -> set[int]:
        """The bytes of a bracket expression; its first character may be `]`."""
        negated = self._text[self._at : self._at + 1] in {b"!", b"^"}
        self._at += negated
        members: set[int] = set()
        previous = b""
        char = self._take()
        while True:
            if char == b"\\":
                previous = self._take()
                members.add(previous[0])
            elif char == b"-" and previous and self._text[self._at : self._at + 1] not in {b"", b"]"}:
                end = self._take()
                end = self._take() if end == b"\\" else end
                members.update(range(previous[0], end[0] + 1))
                previous = b""
            elif char == b"[" and self._text[self._at : self._at + 1] == b":":
                previous = self._class(members)
            else:
                members.add(char[0])
                previous = char
            char = self._take()
            if char == b"]":
                return set(range(256)) - members if negated else members

    def _class(self, members: set[int]) -> bytes:
        """A `[:name:]`; without its end, the bracket is a character like others. Returns what may start a range."""
        close = self._text.find(b"]", self._at + 1)
        if close < 0:
            raise _NeverMatches
        if close == self._at + 1 or self._text[close - 1 : close] != b":":
            members.add(ord("["))
            return b"["
        test = _CLASSES.get(self._text[self._at + 1 : close - 1])
        if test is None:
            raise _NeverMatches
        members.update(value for value in range(128) if test(bytes([value])))
        self._at = close + 1
        return b""


def _one_of(members: set[int]) -> bytes:
    allowed = sorted(members - {ord("/")})
    return b"[" + b"".join(b"\\x%02x" % value for value in allowed) + b"]" if allowed else b"(?!)"
