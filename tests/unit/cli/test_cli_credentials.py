"""The stored login: private, whole, and never given to another server."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from mingora.credentials import Credentials, config_path, load, save, stored
from mingora.errors import InsecureServer, NotLoggedIn, UsageProblem
from mingora.server import is_loopback, parse_server

LOGIN = Credentials("https://lab.example", "mgu_secret", "/ca.pem", "ada", "tok_1", "2036-01-01T00:00:00.000Z")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"MINGORA_CONFIG": str(tmp_path / "deep" / "login.json")}


@pytest.mark.req("AUTH-3")
def test_round_trip_is_private_and_leaves_no_temporary_file(env: dict[str, str]) -> None:
    path = config_path(env)
    save(LOGIN, path)
    assert load(env) == LOGIN
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == ["login.json"]


@pytest.mark.req("AUTH-3")
def test_a_login_that_cannot_be_written_leaves_the_old_one(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = config_path(env)
    save(LOGIN, path)

    def fail(*_args: object, **_kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(UsageProblem, match="No space"):
        save(Credentials("https://other.example", "mgu_other"), path)
    monkeypatch.undo()
    assert load(env) == LOGIN
    assert os.listdir(path.parent) == ["login.json"]


@pytest.mark.req("AUTH-3")
@pytest.mark.skipif(os.name == "nt", reason="modes are Unix's")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666, 0o620])
def test_a_file_others_can_read_is_made_private_and_said_so(
    env: dict[str, str], capsys: pytest.CaptureFixture[str], mode: int
) -> None:
    path = config_path(env)
    save(LOGIN, path)
    path.chmod(mode)
    assert load(env) == LOGIN
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert str(path) in capsys.readouterr().err


@pytest.mark.req("AUTH-3")
def test_the_environment_overrides(env: dict[str, str]) -> None:
    save(LOGIN, config_path(env))
    assert load({**env, "MINGORA_TOKEN": "mgu_env"}) == Credentials("https://lab.example", "mgu_env", "/ca.pem")
    assert load({**env, "MINGORA_CA_FILE": "/x.pem"}).ca_file == "/x.pem"
    both = load({**env, "MINGORA_URL": "https://other.example", "MINGORA_TOKEN": "mgu_env"})
    assert both == Credentials("https://other.example", "mgu_env", None)


@pytest.mark.req("AUTH-3", "AUTH-5")
def test_a_stored_token_never_goes_to_another_server(env: dict[str, str]) -> None:
    save(LOGIN, config_path(env))
    with pytest.raises(NotLoggedIn, match="lab"):
        load({**env, "MINGORA_URL": "https://evil.example"})
    assert load({**env, "MINGORA_URL": "https://LAB.example/"}).token == "mgu_secret"


@pytest.mark.req("AUTH-3", "CLI-12")
@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"server": 5, "token": "x"}', '{"server": "https://x"}', "\x00"]
)
def test_a_broken_file_asks_for_a_login(env: dict[str, str], text: str) -> None:
    path = config_path(env)
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(NotLoggedIn):
        load(env)
    with pytest.raises(NotLoggedIn):
        load({"MINGORA_CONFIG": str(path.parent / "none")})
    assert stored(path.parent / "none") is None


@pytest.mark.req("AUTH-3")
def test_a_token_is_not_shown_by_repr() -> None:
    assert "mgu_secret" not in repr(LOGIN)
    assert json.dumps("mgu_secret") not in f"{LOGIN}"


@pytest.mark.req("AUTH-5")
@pytest.mark.parametrize(
    "address",
    ["http://example.org", "http://192.168.0.1", "http://0.0.0.0:80", "http://127.0.0.1.example.org", "http://[::2]",
     "http://localhost.example", "http://127.1", "http://2130706433", "http://[::ffff:8.8.8.8]", "HTTP://EXAMPLE.org"],
)  # fmt: skip
def test_plain_http_beyond_loopback_is_refused(address: str) -> None:
    with pytest.raises(InsecureServer):
        parse_server(address)


@pytest.mark.req("AUTH-5")
@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://LOCALHOST:1/", "http://localhost:1"),
        ("http://[::1]:5", "http://[::1]:5"),
        ("https://lab.example", "https://lab.example"),
        (" https://lab.example:8443/api/research/v1/ ", "https://lab.example:8443"),
    ],
)
def test_addresses_that_are_fine(address: str, origin: str) -> None:
    assert parse_server(address).origin == origin


@pytest.mark.req("AUTH-5")
@pytest.mark.parametrize(
    "address",
    ["", "lab.example", "ftp://x", "https://", "https://user:pw@x", "https://x/path", "https://x?q", "https://x#f",
     "https://x:99999", "https://a b", "https://x\r\nHost: y", "//x"],
)  # fmt: skip
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(UsageProblem):
        parse_server(address)


@pytest.mark.req("AUTH-5")
def test_localhost_is_not_looked_up() -> None:
    assert parse_server("http://localhost:8080").address == ("127.0.0.1", 8080)
    assert is_loopback("127.0.0.2") and not is_loopback("localhost.")
