"""HTTPS to a coordinator: an authority of its own, a stranger's certificate, a server that speaks no TLS."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from service.volunteer.hostile import HostileCoordinator, say

from mingora.errors import NotSent, TlsError, UsageProblem
from mingora_stack.tls import Authority
from mingora_volunteer.address import parse_address
from mingora_volunteer.exchange import Exchanger
from mingora_volunteer.messages import Done
from mingora_volunteer.protocol import Coordinator


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path)
    made.certify("127.0.0.1")
    return made


@pytest.fixture
def secure(hostile: HostileCoordinator, authority: Authority) -> str:
    """The address of a coordinator behind TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.server_file)
    plain = hostile.socket
    hostile.socket = context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
    hostile.scripts["/gorev"] = [say({"bitti": True})]
    return hostile.url.replace("http:", "https:")


def coordinator(url: str, folder: Path, ca_file: Path | None = None) -> Coordinator:
    exchanger = Exchanger(parse_address(url), key="a-key", ca_file=None if ca_file is None else str(ca_file))
    return Coordinator(exchanger, "ali", folder)


@pytest.mark.req("VOL-1", "COORD-4")
def test_a_named_authority_is_trusted(secure: str, authority: Authority, tmp_path: Path) -> None:
    assert coordinator(secure, tmp_path, authority.certificate_file).task() == Done()


@pytest.mark.req("VOL-1", "COORD-4")
def test_a_stranger_is_not_trusted_and_gets_no_key(secure: str, hostile: HostileCoordinator, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")
    (tmp_path / "other").mkdir()
    other.certify("127.0.0.1")
    for ca_file in (None, other.certificate_file):
        with pytest.raises(TlsError) as caught:
            coordinator(secure, tmp_path, ca_file).task()
        assert "--ca-file" in str(caught.value.hint)
    assert hostile.seen == []


@pytest.mark.req("VOL-1")
def test_a_server_without_tls_and_a_file_that_is_no_certificate(hostile: HostileCoordinator, tmp_path: Path) -> None:
    with pytest.raises(NotSent):
        coordinator(hostile.url.replace("http:", "https:"), tmp_path).task()
    (tmp_path / "ca").write_text("nothing")
    with pytest.raises(UsageProblem):
        coordinator("https://127.0.0.1:1", tmp_path, tmp_path / "ca")
