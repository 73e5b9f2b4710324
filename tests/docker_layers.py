"""Puts a layer on an image inside a registry: the engine would take a minute to build and compress a large one."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import requests

# How the two kinds of manifest call a layer that isn't compressed.
_LAYERS = {
    "application/vnd.docker.distribution.manifest.v2+json": "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.oci.image.manifest.v1+json": "application/vnd.oci.image.layer.v1.tar",
}


def add_layer(repository: str, digest: str, files: Iterable[tuple[str, Path]]) -> str:
    """The digest of the image in ``http://HOST/v2/NAME`` with ``files`` more, each with its path inside; root's."""
    with requests.Session() as http:
        http.trust_env = False  # no proxy leads to this machine
        found = _ask(http, "GET", f"{repository}/manifests/{digest}", headers={"Accept": ", ".join(_LAYERS)})
        kind, manifest = found.headers["Content-Type"], found.json()
        config = _ask(http, "GET", f"{repository}/blobs/{manifest['config']['digest']}").json()
        with tempfile.TemporaryFile() as layer:
            with tarfile.open(fileobj=layer, mode="w") as archive:
                for inside, path in files:
                    archive.add(path, inside, recursive=False, filter=_of_root)
            added = _upload(http, repository, layer)
        config["rootfs"]["diff_ids"].append(added["digest"])
        config["history"].append({"created_by": "the tests"})
        manifest["layers"].append({"mediaType": _LAYERS[kind], **added})
        manifest["config"] |= _upload(http, repository, io.BytesIO(json.dumps(config).encode()))
        content = json.dumps(manifest).encode()
        made = f"sha256:{hashlib.sha256(content).hexdigest()}"
        _ask(http, "PUT", f"{repository}/manifests/{made}", data=content, headers={"Content-Type": kind})
        return made


def _upload(http: requests.Session, repository: str, blob: IO[bytes]) -> dict[str, Any]:
    digest = hashlib.sha256()
    blob.seek(0)
    while piece := blob.read(1 << 20):
        digest.update(piece)
    size, name = blob.tell(), f"sha256:{digest.hexdigest()}"
    blob.seek(0)
    place = _ask(http, "POST", f"{repository}/blobs/uploads/").headers["Location"]
    _ask(http, "PUT", place, params={"digest": name}, data=blob)
    return {"size": size, "digest": name}


def _ask(http: requests.Session, method: str, url: str, **more: Any) -> requests.Response:
    answer = http.request(method, url, timeout=120, **more)
    assert answer.ok, f"{method} {url}: {answer.status_code} {answer.text}"
    return answer


def _of_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member
