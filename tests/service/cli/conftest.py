from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from service.cli.mingora_fake import TOKEN, FakePlatform

from mingora.cli import main
from mingora.client import Client
from mingora.credentials import Credentials, save
from mingora.transport import Transport


@pytest.fixture
def platform() -> Iterator[FakePlatform]:
    with FakePlatform() as fake:
        yield fake


@pytest.fixture
def sleeps() -> list[float]:
    """How long the client wanted to sleep; it doesn't."""
    return []


@pytest.fixture
def transport(platform: FakePlatform, sleeps: list[float]) -> Iterator[Transport]:
    with Transport(platform.url, token=TOKEN, sleep=sleeps.append) as made:
        yield made


@pytest.fixture
def client(transport: Transport, sleeps: list[float]) -> Client:
    return Client(transport=transport, sleep=sleeps.append)


@dataclass
class Run:
    code: int
    out: str
    err: str
    raw: bytes


class Stream(io.TextIOWrapper):
    """Standard output as a pipe or, with `terminal`, as if people read it."""

    def __init__(self, *, terminal: bool = False) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True, newline="")
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    def value(self) -> bytes:
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue()


@pytest.fixture
def mingora(platform: FakePlatform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    """Runs a command in this process as the logged-in user; `terminal` makes both streams terminals."""
    config = tmp_path / "login.json"
    for name in ("MINGORA_URL", "MINGORA_TOKEN", "MINGORA_CA_FILE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MINGORA_CONFIG", str(config))
    monkeypatch.setenv("TERM", "xterm")
    save(Credentials(platform.url, TOKEN, account="ada", token_id="tok_1234"), config)

    def run(*argv: str, terminal: bool = False, stdin: str | None = None) -> Run:
        stdout, stderr = Stream(terminal=terminal), Stream(terminal=terminal)
        if stdin is not None:
            monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        try:
            code = main(argv, stdout=stdout, stderr=stderr)
        except SystemExit as error:
            assert isinstance(error.code, int)
            code = error.code
        raw = stdout.value()
        return Run(code, raw.decode("utf-8", "replace"), stderr.value().decode(), raw)

    return run


@pytest.fixture
def project(tmp_path: Path) -> Callable[..., Path]:
    """Makes a project folder of the given files around a valid job.json."""

    def make(**files: bytes) -> Path:
        root = tmp_path / "project"
        root.mkdir(exist_ok=True)
        (root / "job.json").write_text('{"schemaVersion": 1, "name": "n", "command": ["python3", "main.py"]}')
        for name, data in (files or {"main.py": b"print(1)\n"}).items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(data)
        return root

    return make
