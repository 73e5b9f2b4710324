"""How an image is named: by its digest alone."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mingora.errors import UsageProblem
from mingora_worker.texts import _

# A host has a dot, a port, or is localhost; the parts of a path are lower case (the distribution project's grammar).
_HOST = r"(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|[A-Za-z0-9-]+(?=:)|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_ID = re.compile(r"sha256:[0-9a-f]*|[0-9a-f]{12}|[0-9a-f]{64}")
_MAX_NAME = 255
_HUB = "docker.io"


@dataclass(frozen=True)
class Reference:
    """`repository@sha256:…`."""

    repository: str
    digest: str

    def __str__(self) -> str:
        return f"{self.repository}@{self.digest}"

    @property
    def registry(self) -> str:
        """The host that the image comes from, as `docker login` takes it."""
        host, slash, _path = self.repository.partition("/")
        return host if slash and re.fullmatch(_HOST, host) else _HUB


def parse_reference(text: str) -> Reference:
    """Reads `repository@sha256:…` and nothing else: a tag may mean another image tomorrow. Raises `UsageProblem`."""
    repository, at, digest = text.partition("@")
    tagged = ":" in repository.rpartition("/")[2]
    if not text:
        problem = _("--docker-image is empty.")
    elif _ID.fullmatch(text):
        problem = _("--docker-image {image} is an image's id, known to one engine alone, and no name with a digest.")
    elif not at:
        problem = _("--docker-image {image} names no digest, and a name or tag may mean another image tomorrow.")
    elif tagged:
        problem = _("--docker-image {image} names a tag beside the digest; engines ignore it. Leave it out.")
    elif not _DIGEST.fullmatch(digest):
        problem = _("--docker-image {image}: the digest has to be sha256: and 64 hex digits in lower case.")
    elif len(repository) > _MAX_NAME or not _REPOSITORY.fullmatch(repository):
        problem = _("--docker-image {image}: {repository} is no repository's name.")
    else:
        return Reference(repository, digest)
    raise UsageProblem(
        problem.format(image=repr(text), repository=repr(repository)),
        hint=_("Give repository@sha256:…; `docker image inspect --format '{{.RepoDigests}}' NAME` shows it."),
    )
