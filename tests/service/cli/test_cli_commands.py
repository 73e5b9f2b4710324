"""The commands as a person or a script meets them: output, exit codes, `--json`, the stored login."""

from __future__ import annotations

import base64
import json
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from service.cli.mingora_fake import TOKEN, FakePlatform, Seen

from mingora.client import Client
from mingora.errors import WaitTimeout

Command = Callable[..., Any]
JOB = "job_00000001"


def data(run: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run.out)
    assert found["schemaVersion"] == 1
    return found


# -- login ---------------------------------------------------------------------------------------------------


@pytest.mark.req("AUTH-2", "AUTH-3")
def test_login_stores_the_token_and_never_the_password(
    platform: FakePlatform, mingora: Command, tmp_path: Path
) -> None:
    (tmp_path / "login.json").unlink()
    run = mingora("login", "--identifier", "ada", "--server", platform.url, "--password-stdin", stdin="correct horse\n")
    assert run.code == 0
    stored = (tmp_path / "login.json").read_text()
    assert "correct horse" not in stored + run.out + run.err
    assert TOKEN not in run.out + run.err
    assert json.loads(stored)["token"] == TOKEN
    if os.name != "nt":
        assert stat.S_IMODE((tmp_path / "login.json").stat().st_mode) == 0o600
    assert mingora("whoami").code == 0


@pytest.mark.req("AUTH-2", "CLI-12")
def test_a_wrong_password_is_exit_3_and_keeps_the_former_login(mingora: Command, tmp_path: Path) -> None:
    before = (tmp_path / "login.json").read_bytes()
    run = mingora("login", "--identifier", "ada", "--password-stdin", stdin="wrong\n")
    assert (run.code, run.out) == (3, "")
    assert (tmp_path / "login.json").read_bytes() == before


@pytest.mark.req("AUTH-5")
def test_login_refuses_plain_http_before_it_asks_for_a_password(
    mingora: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mingora.commands.session._password", lambda _from: pytest.fail("asked"))
    run = mingora("login", "--identifier", "ada", "--server", "http://example.org", "--password-stdin")
    assert run.code == 2
    assert "HTTPS" in run.err


@pytest.mark.req("AUTH-4", "CLI-2")
def test_logout_revokes_and_forgets(platform: FakePlatform, mingora: Command, tmp_path: Path) -> None:
    assert mingora("logout").code == 0
    assert platform.tokens == {}
    assert not (tmp_path / "login.json").exists()
    run = mingora("status")
    assert run.code == 3
    assert "mingora login" in run.err


@pytest.mark.req("AUTH-4", "CLI-10")
def test_a_revocation_of_unknown_outcome_is_looked_up(platform: FakePlatform, mingora: Command) -> None:
    platform.tokens["tok_other"] = platform.token_row("tok_other", current=False)
    platform.fail("DELETE", "/tokens/.*", "lose")
    assert mingora("token", "revoke", "tok_other").code == 0
    assert [seen.method for seen in platform.seen] == ["DELETE", "GET"]
    assert set(platform.tokens) == {"tok_1234"}


@pytest.mark.req("AUTH-4", "CLI-12")
def test_token_list(mingora: Command) -> None:
    run = mingora("token", "list", "--json")
    assert data(run)["tokens"][0]["id"] == "tok_1234"
    assert "tok_1234" in mingora("token", "list").out


# -- jobs ----------------------------------------------------------------------------------------------------


@pytest.mark.req("CLI-2", "CLI-8", "CLI-12")
def test_submit_prints_the_id_alone_on_stdout(platform: FakePlatform, mingora: Command, project: Command) -> None:
    run = mingora("submit", str(project()), "--key", "k")
    assert (run.code, run.out.strip()) == (0, next(iter(platform.jobs)))
    generated = mingora("submit", str(project()))
    assert platform.jobs[generated.out.strip()]["key"] in generated.err


@pytest.mark.req("CLI-12")
@pytest.mark.parametrize(
    ("state", "code"), [("succeeded", 0), ("failed", 100), ("cancelled", 103), ("running", 101), ("stopping", 101)]
)
def test_status_exit_codes(platform: FakePlatform, mingora: Command, state: str, code: int) -> None:
    platform.add_job(state=state)
    assert mingora("status", JOB, "--exit-code").code == code
    assert mingora("status", JOB).code == 0
    assert data(mingora("--json", "status", JOB))["job"]["state"] == state


@pytest.mark.req("CLI-12")
@pytest.mark.parametrize(("state", "code"), [("succeeded", 0), ("failed", 100), ("cancelled", 103)])
def test_wait_exit_codes(platform: FakePlatform, mingora: Command, state: str, code: int) -> None:
    platform.add_job(state="running")
    threading.Timer(0.1, platform.update_job, (JOB,), {"state": state}).start()
    run = mingora("wait", JOB)
    assert run.code == code
    assert state in run.out


@pytest.mark.req("CLI-12")
def test_a_failed_job_shows_its_reason_and_the_end_of_its_log(platform: FakePlatform, mingora: Command) -> None:
    reason = {"code": "exit_code", "message": "ended with 3"}
    platform.add_job(state="failed", attempt=1, reason=reason, ranks=[{"rank": 0, "exitCode": 3, "nodeName": "lab"}])
    platform.write_log(JOB, b"start\n" * 30 + b"Traceback\n\x1b[31mKeyError\n", done=True)
    run = mingora("wait", JOB)
    assert run.code == 100
    assert "exit_code: ended with 3" in run.out
    assert "KeyError" in run.err
    assert "\x1b" not in run.err
    assert run.err.count("start") == 18


@pytest.mark.req("CLI-12")
def test_wait_times_out_with_124(platform: FakePlatform, mingora: Command) -> None:
    platform.add_job(state="running")
    run = mingora("wait", JOB, "--timeout", "0.2", "--json")
    assert (run.code, data(run)["error"]["exitCode"]) == (124, 124)


@pytest.mark.req("CLI-12")
def test_an_interrupt_detaches_and_never_cancels(platform: FakePlatform, mingora: Command, client: Client) -> None:
    platform.add_job(state="running")

    def interrupt(*_args: object, **_kwargs: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Client, "wait", interrupt)
        run = mingora("wait", JOB)
    assert run.code == 130
    assert f"mingora wait {JOB}" in run.err
    assert platform.asked("POST", ".*") == []


@pytest.mark.req("CLI-10")
def test_waiting_reads_are_used_and_polling_where_the_server_cannot_wait(
    platform: FakePlatform, client: Client, sleeps: list[float]
) -> None:
    platform.intervals = {"jobPollSeconds": 10, "maxWaitSeconds": 15}
    looks: list[float] = []

    def finish_at_third(seen: Seen) -> None:
        if "knownState" in seen.query:
            looks.append(float(seen.query["wait"]))
            seen.query["wait"] = "0"
            if len(looks) == 3:
                platform.jobs[JOB]["state"] = "succeeded"

    platform.add_job(state="running")
    platform.before = finish_at_third
    assert client.wait(JOB).finished
    assert (looks, sleeps) == ([15, 15, 15], [10, 10])


@pytest.mark.req("CLI-10")
def test_an_outage_while_waiting_is_waited_out(platform: FakePlatform, client: Client) -> None:
    platform.add_job(state="running")
    platform.fail("GET", f"/jobs/{JOB}", "answer", 503, times=12, headers={"Retry-After": "1"})
    threading.Timer(0.2, platform.update_job, (JOB,), {"state": "succeeded"}).start()
    assert client.wait(JOB)["state"] == "succeeded"


@pytest.mark.req("CLI-11", "CLI-12")
def test_wait_raises_a_timeout_in_programs(platform: FakePlatform, client: Client) -> None:
    platform.add_job(state="queued")
    with pytest.raises(WaitTimeout):
        client.wait(JOB, timeout=0)


@pytest.mark.req("CLI-10")
@pytest.mark.parametrize("kind", ["cut", "lose"])
def test_cancel_of_unknown_outcome_looks_first(platform: FakePlatform, mingora: Command, kind: str) -> None:
    platform.add_job(state="running")
    platform.fail("POST", ".*cancel", kind)
    assert mingora("cancel", JOB).code == 0
    methods = [seen.method for seen in platform.seen]
    assert methods == (["POST", "GET"] if kind == "lose" else ["POST", "GET", "POST"])
    assert platform.jobs[JOB]["cancelRequested"]


@pytest.mark.req("CLI-10")
@pytest.mark.parametrize("kind", ["cut", "lose"])
def test_rm_of_unknown_outcome_looks_first(platform: FakePlatform, mingora: Command, kind: str) -> None:
    platform.add_job(state="failed")
    platform.fail("DELETE", ".*", kind)
    assert mingora("rm", JOB).code == 0
    assert platform.jobs == {}
    assert [seen.method for seen in platform.seen] == ["DELETE", "GET", "DELETE"][: 2 if kind == "lose" else 3]


@pytest.mark.req("CLI-12")
@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["status", "job_unknown1"], 4),
        (["rm", JOB], 101),
        (["status", "../tokens"], 2),
        (["nonsense"], 2),
        (["wait", JOB, "--timeout", "-1"], 2),
        (["submit", "/does/not/exist"], 2),
        (["download", JOB, "--output", "out"], 101),
    ],
)
def test_exit_codes_of_errors(platform: FakePlatform, mingora: Command, argv: list[str], code: int) -> None:
    platform.add_job(state="running")
    run = mingora(*argv)
    assert (run.code, run.out) == (code, "")


@pytest.mark.req("CLI-12", "REST-2")
def test_errors_in_json_are_one_object(mingora: Command) -> None:
    run = mingora("status", "job_unknown1", "--json")
    error = data(run)["error"]
    assert (run.code, error["code"], error["exitCode"]) == (4, "not_found", 4)


@pytest.mark.req("CLI-2", "CLI-12")
def test_listing_explaining_and_policy(platform: FakePlatform, mingora: Command) -> None:
    platform.add_job(name="first \x1b[2J", state="running")
    assert JOB in mingora("status").out
    assert "\x1b" not in mingora("status", terminal=True).out
    assert "has no GPU" in mingora("explain", JOB).out
    assert data(mingora("explain", JOB, "--json"))["explanation"]["waiting"] is True
    assert "4.0 KiB" in mingora("policy").out
    assert data(mingora("nodes", "--json"))["nodes"] == []
    assert "mingora-worker" in mingora("nodes").out


@pytest.mark.req("WORK-7", "CLI-2")
def test_a_machine_is_shown_as_job_json_asks_for_it(platform: FakePlatform, mingora: Command) -> None:
    digest = "sha256:" + "a" * 64
    profile = {"network": "none", "quota": "loop\x1b[2J", "seccomp": True, "swap": False, "apparmor": None, "pids": 512}
    platform.add_node("node_00000001", name="lab", pauseReason="hot", state="paused")
    platform.add_node(
        "node_00000002", name="box", runtimes=["docker"], imageDigest=digest, isolation=profile, data=["CORPUS"],
        gpu={"index": 0, "uuid": "u", "name": "H200", "memoryMiB": 1},
        lease={"jobId": JOB, "attempt": 1, "rank": 0, "state": "running"},
    )  # fmt: skip
    listed = mingora("nodes").out
    assert "paused (hot)" in listed and "docker" in listed and JOB in listed and digest not in listed
    for asked in ("node_00000002", "box"):
        shown = mingora("nodes", asked).out
        for text in (digest, "H200", "CORPUS", JOB, "network none, quota loop", "seccomp yes, swap no, pids 512"):
            assert text in shown
        assert "lab" not in shown and "\x1b" not in shown
    assert data(mingora("nodes", "box", "--json"))["nodes"][0]["isolation"] == profile
    assert "imageDigest" not in mingora("nodes", "lab").out
    assert mingora("nodes", "elsewhere").code == 4


@pytest.mark.req("WORK-7", "CLI-2")
def test_status_says_how_a_jobs_container_is_kept_in(platform: FakePlatform, mingora: Command) -> None:
    rank = {"rank": 0, "nodeId": "node_1", "nodeName": "lab", "state": "running", "exitCode": None, "logBytes": 0}
    inside = {**rank, "isolation": {"network": "none", "quota": "loop", "pids": 512}}
    platform.add_job(state="running", ranks=[inside, {**inside, "rank": 1}, {**rank, "rank": 2, "isolation": None}])
    shown = mingora("status", JOB).out
    assert shown.count("network none, quota loop\n") == 1 and "512" not in shown
    platform.add_job(state="running", ranks=[{**rank, "isolation": None}])
    assert "Isolation" not in mingora("status", JOB).out


# -- logs and events -----------------------------------------------------------------------------------------


@pytest.mark.req("CLI-12", "WORK-6")
def test_a_log_in_a_pipe_is_byte_for_byte(platform: FakePlatform, mingora: Command) -> None:
    raw = bytes(range(256)) * 3 + b"\x1b[31mred\r\n"
    platform.add_job(state="succeeded", attempt=1)
    platform.write_log(JOB, raw, done=True)
    assert mingora("logs", JOB).raw == raw
    assert mingora("logs", JOB, "--tail", "5").raw == raw[-5:]
    assert base64.b64decode(data(mingora("logs", JOB, "--json"))["log"]["base64"]) == raw


@pytest.mark.req("CLI-12")
def test_a_log_on_a_terminal_cannot_steer_it(platform: FakePlatform, mingora: Command) -> None:
    platform.add_job(state="succeeded", attempt=1)
    platform.write_log(JOB, "\x1b]0;evil\x07ü\u202e\n".encode(), done=True)
    assert mingora("logs", JOB, terminal=True).out == "\\x1b]0;evil\\x07ü\\u202e\n"


@pytest.mark.req("CLI-2", "CLI-10")
def test_following_a_log_over_attempts_to_the_end(platform: FakePlatform, mingora: Command) -> None:
    platform.add_job(state="running", attempt=1)
    platform.write_log(JOB, b"one ")
    steps = [
        lambda: platform.write_log(JOB, b"two ", done=True),
        lambda: platform.update_job(JOB, attempt=2),
        lambda: platform.write_log(JOB, b"three ", attempt=2),
        lambda: platform.update_job(JOB, state="succeeded"),
        lambda: platform.write_log(JOB, b"four", attempt=2, done=True),
    ]
    timers = [threading.Timer(0.08 * number, step) for number, step in enumerate(steps, 1)]
    for timer in timers:
        timer.start()
    run = mingora("logs", JOB, "--follow")
    assert (run.code, run.raw) == (0, b"one two three four")
    assert run.err == "Attempt 2 begins.\n"


@pytest.mark.req("CLI-10")
def test_following_goes_on_after_a_cut(platform: FakePlatform, mingora: Command) -> None:
    platform.add_job(state="succeeded", attempt=1)
    platform.write_log(JOB, b"x" * 5000, done=True)
    platform.fail("GET", ".*/logs", "half", times=2)
    assert mingora("logs", JOB, "-f").raw == b"x" * 5000


@pytest.mark.req("CLI-2")
def test_following_a_job_cancelled_before_it_ran_ends(platform: FakePlatform, mingora: Command) -> None:
    platform.add_job(state="cancelled")
    assert mingora("logs", JOB, "-f").raw == b""


@pytest.mark.req("CLI-2", "JOB-1")
def test_events_are_printed_once_each(platform: FakePlatform, mingora: Command) -> None:
    platform.add_job(state="succeeded")
    at = "2026-01-31T10:00:00.000Z"
    platform.events[JOB] = [{"seq": n, "at": at, "type": "job.submitted", "data": {}} for n in (1, 2, 3)]
    lines = mingora("events", JOB, "--follow", "--json").out.splitlines()
    assert [json.loads(line)["event"]["seq"] for line in lines] == [1, 2, 3]
    assert len(mingora("events", JOB, "--after", "2").out.splitlines()) == 1


# -- the rest ------------------------------------------------------------------------------------------------


@pytest.mark.req("CLI-2", "CLI-12")
def test_download_prints_paths_and_says_what_was_verified(
    platform: FakePlatform, mingora: Command, tmp_path: Path
) -> None:
    platform.add_job(state="succeeded", results=[platform.result("a.txt", b"x")])
    run = mingora("download", JOB, "--output", str(tmp_path / "out"))
    assert (run.code, run.out.strip()) == (0, str(tmp_path / "out" / "a.txt"))
    assert "SHA-256" in run.err


@pytest.mark.req("CLI-2", "CLI-12")
def test_download_of_nothing_and_into_a_file(platform: FakePlatform, mingora: Command, tmp_path: Path) -> None:
    platform.add_job(state="failed")
    run = mingora("download", JOB, "--output", str(tmp_path / "out"))
    assert (run.code, run.out, run.err) == (0, "", "The job has no result files.\n")
    (tmp_path / "file").touch()
    run = mingora("download", JOB, "--output", str(tmp_path / "file"))
    assert (run.code, run.err) == (1, f"Error: {tmp_path / 'file'} is not a folder.\n")


@pytest.mark.req("CLI-10", "CLI-12")
@pytest.mark.parametrize("words", [("wait", JOB), ("logs", JOB, "-f"), ("events", JOB, "-f")])
def test_an_outage_while_waiting_is_told_once(
    platform: FakePlatform, mingora: Command, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    quick = {**(Client.__init__.__kwdefaults__ or {}), "sleep": lambda _seconds: None}
    monkeypatch.setattr(Client.__init__, "__kwdefaults__", quick)
    platform.add_job(state="succeeded", attempt=1)
    platform.write_log(JOB, b"x", done=True)
    platform.fail("GET", f".*/{JOB}.*", "answer", 503, times=12)
    run = mingora(*words)
    assert run.code == 0
    assert run.err.count("Waiting for the platform to come back.") == 1


@pytest.mark.req("CLI-12")
def test_waiting_tells_attempts_apart(platform: FakePlatform, mingora: Command) -> None:
    platform.add_job(state="queued", attempt=1)
    steps: list[dict[str, Any]] = [{"state": "running", "attempt": 2}, {"state": "succeeded"}]
    for number, step in enumerate(steps, 1):
        threading.Timer(0.15 * number, platform.update_job, (JOB,), step).start()
    states = [line.removeprefix(f"{JOB}: ") for line in mingora("wait", JOB).err.splitlines()]
    assert states == ["queued (again, after attempt 1)", "running (attempt 2)", "succeeded (attempt 2)"]


@pytest.mark.req("CLI-12", "AUTH-2")
def test_a_dead_token_of_the_environment_is_named(mingora: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINGORA_TOKEN", "mgu_" + "x" * 43)
    run = mingora("status")
    assert run.code == 3
    assert "MINGORA_TOKEN" in run.err


@pytest.mark.req("CLI-12")
def test_bars_are_drawn_on_terminals_only(platform: FakePlatform, mingora: Command, tmp_path: Path) -> None:
    platform.add_job(state="succeeded", results=[platform.result("a.txt", b"x" * 100)])
    assert "[####" in mingora("download", JOB, "--output", str(tmp_path / "1"), terminal=True).err
    assert "[" not in mingora("download", JOB, "--output", str(tmp_path / "2")).err


@pytest.mark.req("CLI-12")
def test_no_color(platform: FakePlatform, mingora: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    platform.add_job(state="succeeded")
    assert "\x1b[32m" in mingora("wait", JOB, terminal=True).err
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[32m" not in mingora("wait", JOB, terminal=True).err


@pytest.mark.req("CLI-2")
def test_doctor_names_the_fix(platform: FakePlatform, mingora: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    run = mingora("doctor", "--json")
    findings = {finding["check"]: finding for finding in data(run)["findings"]}
    assert run.code == 1  # no machine is registered
    assert findings["server"]["ok"] and findings["token"]["ok"] and findings["clock"]["ok"] and findings["quota"]["ok"]
    assert "mingora-worker" in findings["nodes"]["fix"]
    monkeypatch.setenv("MINGORA_TOKEN", "mgu_dead")
    findings = {finding["check"]: finding for finding in data(mingora("doctor", "--json"))["findings"]}
    assert "MINGORA_TOKEN" in findings["token"]["fix"]
    monkeypatch.setenv("MINGORA_URL", "http://127.0.0.1:9")
    findings = {finding["check"]: finding for finding in data(mingora("doctor", "--json"))["findings"]}
    assert not findings["server"]["ok"] and findings["server"]["fix"]


@pytest.mark.req("CLI-2")
def test_init_then_submit_the_template(platform: FakePlatform, mingora: Command, tmp_path: Path) -> None:
    platform.limits["maxFileBytes"] = platform.limits["maxBytes"] = 1 << 20
    platform.part_size = 1 << 20
    made = mingora("init", str(tmp_path / "p"), "--template", "summary", "--json")
    assert "main.py" in data(made)["files"]
    run = mingora("submit", str(tmp_path / "p"), "--key", "k", "--json")
    assert run.code == 0
    sent = {entry["path"] for entry in platform.jobs[data(run)["job"]["id"]]["inputs"]}
    assert sent == {"main.py", "README.md", "DATA.md", "data/penguins.csv"}
    assert mingora("init", str(tmp_path / "p")).code == 1
