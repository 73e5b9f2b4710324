"""The shared library's rules: paths, ids, settings, what logs hide, tokens' shape, the error catalogue."""

from __future__ import annotations

import re
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mingora_common import errors
from mingora_common.auth import LEASE, NODE, USER, hash_token, new_token
from mingora_common.clock import rfc3339
from mingora_common.config import ConfigError, Env
from mingora_common.filepaths import collision, path_problem
from mingora_common.ids import is_id, new_id
from mingora_common.logs import hide_secrets

PROTOCOL = Path(__file__).parents[3] / "docs" / "protocol.md"


@pytest.mark.req("CLI-7", "BLOB-1")
@pytest.mark.parametrize("path", ["a", "a/b.txt", "пакет/файл.py", "数据/集.csv", "a" * 255, ".hidden", "..a/b.."])
def test_ordinary_paths_are_accepted(path: str) -> None:
    assert path_problem(path) is None


@pytest.mark.req("CLI-7", "AUTH-6")
@pytest.mark.parametrize(
    "path",
    ["", "/etc/passwd", "a//b", "./a", "a/../b", "..", "a/", "a\\b", "a\nb", "a\x00b", "a\x7fb", "a" * 256, "a\x9bb"]
    + ["/".join(["a" * 200] * 6), "\ud800"],
)
def test_paths_that_could_escape_or_confuse_are_refused(path: str) -> None:
    assert path_problem(path) is not None


@pytest.mark.req("CLI-7")
@pytest.mark.parametrize(
    ("paths", "pair"),
    [
        (["a", "b"], None),
        (["A.txt", "a.txt"], ("A.txt", "a.txt")),
        (["é", "é"], ("é", "é")),
        (["straße", "STRASSE"], ("straße", "STRASSE")),
        (["a", "a/b"], ("a", "a/b")),
        (["a/b/c", "A"], ("a/b/c", "A")),
        (["a/b", "a/c", "ab"], None),
        (["x", "x"], ("x", "x")),
    ],
)
def test_colliding_paths_are_named(paths: list[str], pair: tuple[str, str] | None) -> None:
    assert collision(paths) == pair


@pytest.mark.req("REST-1")
@given(st.sampled_from(["job", "obj", "node", "lease", "tok", "att"]))
def test_ids_carry_their_prefix_and_differ(prefix: str) -> None:
    first, second = new_id(prefix), new_id(prefix)
    assert first != second
    assert is_id(prefix, first)
    assert not is_id("acc", first)
    assert not is_id(prefix, first + "/..")


@pytest.mark.req("AUTH-3")
def test_a_tokens_kind_shows_and_its_hash_does_not_reveal_it() -> None:
    for kind, prefix in ((USER, "mgu_"), (NODE, "mgn_"), (LEASE, "mgl_")):
        token, stored = new_token(kind)
        assert token.startswith(prefix)
        assert stored == hash_token(token)
        assert re.fullmatch("[0-9a-f]{64}", stored)
        assert token[4:] not in stored


@pytest.mark.req("AUTH-8", "OPS-3")
@given(st.text(alphabet=string.ascii_letters + string.digits + "_-", min_size=43, max_size=43))
def test_logs_hide_tokens_and_passwords(secret: str) -> None:
    event = {"event": f"got mgu_{secret} today", "password": secret, "token": secret, "number": 7}
    shown = hide_secrets(None, "info", dict(event))
    assert secret not in str(shown)
    assert shown["number"] == 7


@pytest.mark.req("OPS-2")
def test_settings_tell_every_problem_at_once(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k" * 40 + "\n")
    env = Env({"PORT": "no", "SECRET": "short", "KEY_FILE": str(tmp_path / "key"), "FLAG": "2", "BOTH": "1",
               "BOTH_FILE": str(tmp_path / "key")})  # fmt: skip
    assert env.secret("KEY") == "k" * 40
    env.text("URL")
    env.integer("PORT", 1)
    env.secret("SECRET")
    env.flag("FLAG")
    env.text("BOTH")
    with pytest.raises(ConfigError) as caught:
        env.check()
    assert all(name in str(caught.value) for name in ("URL", "PORT", "SECRET", "FLAG", "BOTH"))
    assert "short" not in str(caught.value).replace("too short", "")


@pytest.mark.req("REST-2")
def test_the_catalogue_is_what_the_protocol_document_lists() -> None:
    rows = re.findall(r"^\| `([a-z_]+)` \| (\d{3}) \| (yes|no) \|", PROTOCOL.read_text(encoding="utf-8"), re.MULTILINE)
    listed = {code: (int(status), retryable == "yes") for code, status, retryable in rows}
    assert listed == {kind.code: (kind.status, kind.retryable) for kind in errors.CATALOGUE}


@pytest.mark.req("REST-1")
def test_times_are_utc_with_milliseconds() -> None:
    assert rfc3339(1_800_000_000_007) == "2027-01-15T08:00:00.007Z"
