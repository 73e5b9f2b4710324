"""From a folder to a job over real HTTP: what is sent, what is skipped, and what a bad network does to it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from service.cli.mingora_fake import FakePlatform, Seen

from mingora.client import Client
from mingora.errors import ApiError, FileChanged, OutcomeUnknown, ProjectError, UsageProblem
from mingora.manifest import build
from mingora.transfer import upload_files
from mingora.transport import Transport

Project = Callable[..., Path]
PARTS = r"/objects/obj_\d+/parts/\d+"


def contents(platform: FakePlatform, job: dict[str, object]) -> dict[str, bytes]:
    stored = platform.jobs[str(job["id"])]["inputs"]
    return {entry["path"]: platform.bytes_of(platform.objects[entry["objectId"]]) for entry in stored}


@pytest.mark.req("CLI-4", "CLI-7", "CLI-9")
def test_every_byte_name_and_executable_bit_arrives(platform: FakePlatform, client: Client, project: Project) -> None:
    files = {
        "main.py": b"print(1)\n",
        "pkg/__init__.py": b"",
        "pkg/deep/er.bin": bytes(range(256)) * 3,
        "veri/ölçüm 数据.csv": b"a,b\n" * 20,
        "run.sh": b"#!/bin/sh\n",
    }
    root = project(**files)
    (root / "run.sh").chmod(0o755)
    job = client.submit(root, key="k1")
    assert contents(platform, job) == files
    executable = {entry["path"] for entry in platform.jobs[job["id"]]["inputs"] if entry["executable"]}
    assert executable == {"run.sh"}
    assert job["spec"] == {"schemaVersion": 1, "name": "n", "command": ["python3", "main.py"]}
    assert all(item["state"] == "complete" for item in platform.objects.values())


@pytest.mark.req("CLI-9")
def test_the_last_part_completes_and_equal_files_are_sent_once(
    platform: FakePlatform, client: Client, project: Project
) -> None:
    client.submit(project(a=b"x" * 20, b=b"x" * 20), key="k")
    parts = platform.asked("PUT", PARTS)
    assert len(parts) == 3
    assert [seen.query for seen in parts].count({"complete": "1"}) == 1
    assert all(seen.headers["x-content-sha256"] == hashlib.sha256(seen.body).hexdigest() for seen in parts)


@pytest.mark.req("CLI-8", "CLI-9")
def test_the_same_key_and_content_sends_nothing_and_is_the_same_job(
    platform: FakePlatform, client: Client, project: Project
) -> None:
    root = project()
    first = client.submit(root, key="k")
    sent = len(platform.asked("PUT", PARTS))
    assert client.submit(root, key="k")["id"] == first["id"]
    assert len(platform.asked("PUT", PARTS)) == sent
    (root / "main.py").write_bytes(b"other")
    with pytest.raises(ApiError) as caught:
        client.submit(root, key="k")
    assert (caught.value.code, caught.value.exit_code, len(platform.jobs)) == ("key_conflict", 5, 1)


@pytest.mark.req("CLI-9")
def test_a_broken_off_upload_goes_on_where_it_was(platform: FakePlatform, client: Client, project: Project) -> None:
    root = project(big=bytes(range(80)))
    platform.fail("PUT", ".*/parts/7", "answer", 403, code="insufficient_scope", retryable=False)
    with pytest.raises(ApiError):
        client.submit(root, key="k")
    have = {seen.path for seen in platform.asked("PUT", PARTS)} - {f"/objects/{next(iter(platform.objects))}/parts/7"}
    before = len(platform.seen)
    job = client.submit(root, key="k")
    again = {seen.path for seen in platform.seen[before:] if seen.method == "PUT"}
    assert contents(platform, job) == {"big": bytes(range(80))}
    assert not again & have


@pytest.mark.req("CLI-9", "CLI-10")
@pytest.mark.parametrize("kind", ["cut", "lose"])
@pytest.mark.parametrize(("method", "path"), [("PUT", PARTS), ("POST", "/objects/batch")])
def test_lost_answers_while_uploading_are_repeated(
    platform: FakePlatform, client: Client, project: Project, kind: str, method: str, path: str
) -> None:
    platform.fail(method, path, kind, times=2)
    job = client.submit(project(big=bytes(range(60))), key="k")
    assert contents(platform, job) == {"big": bytes(range(60))}


@pytest.mark.req("CLI-9")
def test_an_object_that_lacks_only_its_completion_is_completed(
    platform: FakePlatform, client: Client, project: Project
) -> None:
    data = b"0123456789"
    item = platform.open_object({"size": 10, "sha256": hashlib.sha256(data).hexdigest(), "kind": "input"})
    platform.content[item["id"]] = {0: data[:8], 1: data[8:]}
    item["present"] = [0, 1]
    client.submit(project(f=data), key="k")
    assert item["state"] == "complete"
    assert platform.asked("PUT", PARTS) == []


@pytest.mark.req("BLOB-2", "CLI-9")
def test_a_part_left_with_other_bytes_is_replaced_by_a_new_upload(
    platform: FakePlatform, client: Client, project: Project
) -> None:
    data = b"0123456789"
    item = platform.open_object({"size": 10, "sha256": hashlib.sha256(data).hexdigest(), "kind": "input"})
    platform.content[item["id"]] = {0: b"!!!!!!!!"}  # the client doesn't know: the part isn't listed as present
    job = client.submit(project(f=data), key="k")
    assert contents(platform, job) == {"f": data}


@pytest.mark.req("BLOB-1", "CLI-9")
def test_a_corrupt_upload_is_made_anew(platform: FakePlatform, client: Client, project: Project) -> None:
    data = b"0123456789"
    item = platform.open_object({"size": 10, "sha256": hashlib.sha256(data).hexdigest(), "kind": "input"})
    platform.content[item["id"]], item["present"] = {0: b"!!!!!!!!"}, [0]
    job = client.submit(project(f=data), key="k")
    assert (contents(platform, job), item["state"]) == ({"f": data}, "corrupt")


@pytest.mark.req("CLI-9")
def test_a_file_changed_after_hashing_is_named(transport: Transport, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"before")
    files = build(tmp_path)
    (tmp_path / "a.txt").write_bytes(b"after!")
    os.utime(tmp_path / "a.txt", ns=(1, files[0].mtime_ns + 1))
    with pytest.raises(FileChanged, match=r"a\.txt"):
        upload_files(transport, files, kind="input")


@pytest.mark.req("CLI-9")
def test_a_change_that_keeps_size_and_time_is_found_by_the_digest(transport: Transport, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"before")
    files = build(tmp_path)
    (tmp_path / "a.txt").write_bytes(b"after!")
    os.utime(tmp_path / "a.txt", ns=(files[0].mtime_ns, files[0].mtime_ns))
    with pytest.raises(FileChanged, match=r"a\.txt"):
        upload_files(transport, files, kind="input")


@pytest.mark.req("CLI-8", "CLI-10")
@pytest.mark.parametrize("kind", ["cut", "lose"])
def test_a_submission_of_unknown_outcome_is_looked_up_before_it_is_sent_again(
    platform: FakePlatform, client: Client, project: Project, kind: str
) -> None:
    platform.fail("POST", "/jobs", kind)
    job = client.submit(project(), key="k")
    calls = [(seen.method, seen.query.get("key")) for seen in platform.seen if seen.path == "/jobs"]
    assert calls == [("POST", None), ("GET", "k"), ("POST", None)]
    assert {seen.headers["idempotency-key"] for seen in platform.asked("POST", "/jobs")} == {"k"}
    assert list(platform.jobs) == [job["id"]]


@pytest.mark.req("CLI-10", "CLI-12")
def test_a_submission_that_cannot_be_looked_up_is_reported_with_its_key(
    platform: FakePlatform, client: Client, project: Project
) -> None:
    platform.fail("POST", "/jobs", "lose")
    platform.fail("GET", "/jobs", "cut", times=9)
    with pytest.raises(OutcomeUnknown) as caught:
        client.submit(project(), key="my-key")
    assert "my-key" in (caught.value.hint or "")
    assert len(platform.asked("POST", "/jobs")) == 1


@pytest.mark.req("CLI-10")
def test_429_while_submitting_keeps_the_key(
    platform: FakePlatform, client: Client, project: Project, sleeps: list[float]
) -> None:
    platform.fail("POST", "/jobs", "answer", 429, code="rate_limited", headers={"Retry-After": "30"})
    client.submit(project(), key="k")
    assert sleeps == [30]
    assert [seen.headers["idempotency-key"] for seen in platform.asked("POST", "/jobs")] == ["k", "k"]


@pytest.mark.req("CLI-8")
def test_inputs_gone_between_upload_and_submission_are_sent_again_once(
    platform: FakePlatform, client: Client, project: Project
) -> None:
    def lose_objects(seen: Seen) -> None:
        if seen.method == "POST" and seen.path == "/jobs" and len(platform.asked("POST", "/jobs")) == 1:
            platform.objects.clear()

    platform.before = lose_objects
    job = client.submit(project(f=b"data"), key="k")
    assert contents(platform, job) == {"f": b"data"}


@pytest.mark.req("CLI-4", "CLI-6")
def test_a_bad_spec_is_refused_before_anything_is_uploaded(
    platform: FakePlatform, client: Client, project: Project
) -> None:
    root = project()
    spec = {"schemaVersion": 1, "name": "n", "comand": ["x"], "model": {"format": "pt", "license": "MIT"}}
    (root / "job.json").write_text(json.dumps(spec))
    with pytest.raises(ProjectError) as caught:
        client.submit(root, key="k")
    found = dict(caught.value.problems)
    assert "command" in found["comand"]
    assert "version" in found["model"]
    assert {seen.method for seen in platform.seen} == {"GET"}


@pytest.mark.req("CLI-5", "BLOB-4")
def test_a_project_over_the_limits_is_refused_before_anything_is_uploaded(
    platform: FakePlatform, client: Client, project: Project
) -> None:
    with pytest.raises(ProjectError, match="4096"):
        client.submit(project(big=b"x" * 4097), key="k")
    assert {seen.method for seen in platform.seen} == {"GET"}


@pytest.mark.req("BLOB-7", "CLI-12")
def test_a_full_quota_names_the_limit_and_the_file(platform: FakePlatform, client: Client, project: Project) -> None:
    error = {"code": "quota_exceeded", "message": "full", "limit": "maxBytes", "allowed": 10, "used": 9}
    platform.fail("POST", "/objects/batch", "answer", 200)
    platform.faults[0].body = {"objects": [{"error": error}]}
    with pytest.raises(ApiError, match=r"main\.py") as caught:
        client.submit(project(), key="k")
    assert (caught.value.exit_code, caught.value.fields["limit"]) == (6, "maxBytes")


@pytest.mark.req("BLOB-4", "CLI-9")
def test_a_refused_upload_gives_back_what_it_reserved(platform: FakePlatform, client: Client, project: Project) -> None:
    begun = platform.open_object({"size": 10, "sha256": hashlib.sha256(b"0123456789").hexdigest(), "kind": "input"})
    platform.content[begun["id"]], begun["present"] = {0: b"01234567"}, [0]
    fresh = platform.open_object({"size": 1, "sha256": hashlib.sha256(b"a").hexdigest(), "kind": "input"})
    error = {"code": "quota_exceeded", "message": "full", "limit": "maxBytes", "allowed": 10, "used": 9}
    platform.fail("POST", "/objects/batch", "answer", 200)
    platform.faults[0].body = {"objects": [begun, fresh, {"error": error}]}
    with pytest.raises(ApiError):
        client.submit(project(a=b"0123456789", b=b"a", c=b"c"), key="k")
    assert fresh["id"] not in platform.objects
    assert begun["id"] in platform.objects


@pytest.mark.req("CLI-8")
@pytest.mark.parametrize("key", ["", "x" * 201, "ü", "a\nb"])
def test_a_key_that_is_no_header_value_is_refused(client: Client, project: Project, key: str) -> None:
    with pytest.raises(UsageProblem):
        client.submit(project(), key=key)


@pytest.mark.req("CLI-11")
def test_a_notebook_may_give_the_spec_and_leave_out_the_key(
    platform: FakePlatform, client: Client, project: Project
) -> None:
    root = project()
    (root / "job.json").unlink()
    spec = {"schemaVersion": 1, "name": "<b>", "command": ("python3", "main.py")}
    job = client.submit(root, spec)
    assert platform.jobs[job["id"]]["spec"]["command"] == ["python3", "main.py"]
    assert len(job["key"]) > 10
    assert "&lt;b&gt;" in job._repr_html_()
    assert client.submit(root, spec)["id"] != job["id"]
