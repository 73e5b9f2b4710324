"""How an image may be named: by its digest, and by nothing that can mean another image tomorrow."""

from __future__ import annotations

import pytest

from mingora.errors import UsageProblem
from mingora_worker.config import parse
from mingora_worker.runtimes.docker.reference import parse_reference

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.req("WORK-7")
@pytest.mark.parametrize(
    "repository",
    [
        *(
            "python",
            "library/python",
            "docker.io/library/python",
            "localhost/x",
            "localhost:5000/x",
            "127.0.0.1:5000/a/b",
        ),
        *("ghcr.io/lab/train-it", "registry.example.org:8443/a__b/c.d", "[2001:db8::1]:5000/x", "a-b/c--d"),
    ],
)
def test_a_digest_is_accepted(repository: str) -> None:
    found = parse_reference(f"{repository}@{DIGEST}")
    assert (found.repository, found.digest, str(found)) == (repository, DIGEST, f"{repository}@{DIGEST}")


@pytest.mark.req("WORK-7")
@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "empty"),
        ("python", "names no digest"),
        ("python:3.11", "names no digest"),
        ("registry.example.org:8443/x:latest", "names no digest"),
        (DIGEST, "image's id"),
        ("sha256:0123456789ab", "image's id"),
        ("0123456789ab", "image's id"),
        ("0123456789abcdef" * 4, "image's id"),
        (f"python:3.11@{DIGEST}", "tag"),
        (f"localhost:5000/x:y@{DIGEST}", "tag"),
        ("python@sha256:abc", "64 hex digits"),
        (f"python@{DIGEST.upper()}", "64 hex digits"),
        (f"python@{DIGEST}0", "64 hex digits"),
        (f"python@{DIGEST}\n", "64 hex digits"),
        ("python@sha512:" + "0" * 128, "64 hex digits"),
        (f"python@{DIGEST}@{DIGEST}", "64 hex digits"),
        (f"@{DIGEST}", "repository"),
        (f"Python@{DIGEST}", "repository"),
        (f"../x@{DIGEST}", "repository"),
        (f"-v/x@{DIGEST}", "repository"),
        (f"a b@{DIGEST}", "repository"),
        (f"a//b@{DIGEST}", "repository"),
        (f"a/{'b' * 300}@{DIGEST}", "repository"),
        (f"http://x/y@{DIGEST}", "repository"),
    ],
)
def test_everything_else_is_refused_with_the_reason(text: str, word: str) -> None:
    with pytest.raises(UsageProblem) as refused:
        parse_reference(text)
    assert word in refused.value.message
    assert "RepoDigests" in (refused.value.hint or "")


@pytest.mark.req("WORK-7")
@pytest.mark.parametrize(
    ("repository", "registry"),
    [
        ("python", "docker.io"),
        ("lab/train", "docker.io"),
        ("ghcr.io/lab/train", "ghcr.io"),
        ("localhost/x", "localhost"),
        ("registry:5000/x", "registry:5000"),
        ("[2001:db8::1]:5000/x", "[2001:db8::1]:5000"),
    ],
)
def test_the_registry_is_known_for_a_login(repository: str, registry: str) -> None:
    assert parse_reference(f"{repository}@{DIGEST}").registry == registry


@pytest.mark.req("WORK-1", "WORK-7")
def test_the_option_takes_one_image() -> None:
    found = parse(["--root", "work", "--docker-image", f"python@{DIGEST}"])
    assert found.docker_image is not None and found.docker_image.digest == DIGEST
    assert not found.allow_own_code
    with pytest.raises(UsageProblem):
        parse(["--root", "work", "--docker-image", "python:latest"])
