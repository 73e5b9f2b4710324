"""What a log line looks like, and what never is in one."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from mingora_common import logs
from mingora_common.auth import USER, new_token

SAY = """
import logging, sys, structlog
from mingora_common import logs
logs.configure("test")
logs.begin("given-by-client", service="test", task="t")
log = structlog.get_logger()
secret = sys.argv[1]
log.info("said", token=secret, password="hunter2-hunter2", nested={"key": "hunter2-hunter2", "list": [f"x {secret}"]})
logging.getLogger("other").warning("a library says %s of redis://:hunter2-hunter2@host/0", secret)
try:
    raise ValueError(f"bad {secret} postgresql://me:hunter2-hunter2@host/db")
except ValueError:
    log.exception("failed")
"""


def said(*, terminal: bool) -> str:
    """What the program above writes to stderr, a pipe or a terminal."""
    token, _ = new_token(USER)
    command = [sys.executable, "-c", SAY, token]
    if not terminal:
        text = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    else:
        import os
        import pty

        ours, theirs = pty.openpty()
        with subprocess.Popen(command, stderr=theirs) as process:
            os.close(theirs)
            text = ""
            while True:
                try:
                    data = os.read(ours, 65536)
                except OSError:
                    break
                if not data:
                    break
                text += data.decode()
            process.wait(20)
        os.close(ours)
    assert token not in text
    assert "hunter2" not in text
    return text


@pytest.mark.req("OPS-3", "AUTH-3")
def test_a_line_is_a_json_object_with_its_request_and_without_secrets() -> None:
    lines = [json.loads(line) for line in said(terminal=False).splitlines()]
    assert [line["event"].partition(" ")[0] for line in lines] == ["said", "a", "failed"]
    for line in lines:
        assert (line["service"], line["request"], line["task"]) == ("test", "given-by-client", "t")
        assert {"level", "timestamp"} <= set(line)
    assert lines[0]["token"] == lines[0]["nested"]["key"] == "[hidden]"
    assert "ValueError" in lines[2]["exception"]


@pytest.mark.req("OPS-3", "AUTH-3")
@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
def test_on_a_terminal_it_is_text_for_people_and_holds_no_secrets_either() -> None:
    text = said(terminal=True)
    assert "said" in text
    assert "ValueError" in text
    with pytest.raises(ValueError):
        json.loads(text.splitlines()[0])


@pytest.mark.req("OPS-3")
@pytest.mark.parametrize(
    "given", [None, 7, "", "short", "x" * 65, "a b c d e f", "new\nline-12", "<script>", ["abcdefgh"]]
)
def test_only_harmless_ids_are_taken_over(given: object) -> None:
    assert logs.begin("abcdefgh") == "abcdefgh" == logs.request_id()
    fresh = logs.begin(given)
    assert fresh == logs.request_id() != given
    assert logs.traced(logs.trace()) == fresh


@pytest.mark.req("OPS-3")
@pytest.mark.parametrize("meta", [None, [], "x", {"unserialized": b"x"}])
def test_a_task_without_an_id_gets_one_of_its_own(meta: object) -> None:
    assert logs.begin(logs.traced(meta), task="t")
