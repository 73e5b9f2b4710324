"""The stack's own authority: what it certifies, when it renews, and that a strict client accepts it."""

from __future__ import annotations

import ipaddress
import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from mingora_stack.errors import StackError
from mingora_stack.tls import Authority, check_host

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def certificate(file: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(file.read_bytes())


def names(file: Path) -> set[str]:
    value = certificate(file).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(name.value) for name in value}


@pytest.mark.req("OPS-2", "AUTH-5")
def test_the_server_is_certified_for_its_name_and_for_this_machine(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    assert authority.certify("Lab.Example.org", NOW)
    assert names(authority.server_file) == {"lab.example.org", "localhost", "127.0.0.1", "::1"}


@pytest.mark.req("OPS-2")
@pytest.mark.parametrize("address", ["192.0.2.7", "2001:db8::7"])
def test_an_address_is_certified_as_an_address(tmp_path: Path, address: str) -> None:
    authority = Authority(tmp_path)
    authority.certify(address, NOW)
    value = certificate(authority.server_file).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert ipaddress.ip_address(address) in value.get_values_for_type(x509.IPAddress)


@pytest.mark.req("AUTH-5")
def test_keys_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.certify("lab", NOW)
    assert stat.S_IMODE((tmp_path / "ca.key").stat().st_mode) == 0o600
    assert stat.S_IMODE(authority.server_file.stat().st_mode) == 0o600
    assert b"PRIVATE" not in authority.certificate_file.read_bytes()


@pytest.mark.req("OPS-2")
def test_a_restart_changes_nothing_until_the_certificate_is_near_its_end(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.certify("lab", NOW)
    before = authority.certificate_file.read_bytes(), authority.server_file.read_bytes()
    assert not authority.certify("lab", NOW + timedelta(days=360))
    assert (authority.certificate_file.read_bytes(), authority.server_file.read_bytes()) == before
    assert authority.certify("lab", NOW + timedelta(days=368))
    assert authority.certificate_file.read_bytes() == before[0]
    assert certificate(authority.server_file).not_valid_after_utc > NOW + timedelta(days=700)


@pytest.mark.req("OPS-2")
def test_another_name_gets_another_certificate_from_the_same_authority(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.certify("lab", NOW)
    root = authority.certificate_file.read_bytes()
    assert authority.certify("desk", NOW)
    assert authority.certificate_file.read_bytes() == root
    assert "desk" in names(authority.server_file)
    assert "lab" not in names(authority.server_file)


@pytest.mark.req("OPS-2")
def test_no_certificate_outlives_its_authority_and_an_ending_authority_is_made_anew(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.certify("lab", NOW)
    root = certificate(authority.certificate_file)
    late = root.not_valid_after_utc - timedelta(days=40)
    assert authority.certify("lab", late)
    assert certificate(authority.server_file).not_valid_after_utc == root.not_valid_after_utc
    assert authority.certify("lab", late + timedelta(days=20))
    assert certificate(authority.certificate_file).serial_number != root.serial_number


@pytest.mark.req("AUTH-5")
def test_a_strict_client_accepts_the_chain(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.certify("lab")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(authority.server_file)
    client = ssl.create_default_context(cafile=str(authority.certificate_file))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    for name in ("lab", "localhost", "127.0.0.1", "::1"):
        shake_hands(client, server, name)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(client, server, "elsewhere")


@pytest.mark.req("AUTH-5")
@pytest.mark.parametrize("host", ["", "a b", "-lab", "lab/", "lab:1", "*.lab", "ü.example", "a" * 64, "http://lab"])
def test_what_is_no_name_is_refused(host: str) -> None:
    with pytest.raises(StackError, match="host"):
        check_host(host)


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> None:
    """A whole TLS handshake in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname=name)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    waiting = [ours, theirs]
    for _ in range(10):
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                continue
        if not waiting:
            return
    raise AssertionError("the handshake doesn't end")


@pytest.mark.parametrize("name", ["server.pem", "ca.crt"])
def test_a_certificate_that_cant_be_read_is_made_anew(tmp_path: Path, name: str) -> None:
    Authority(tmp_path).certify("localhost")
    (tmp_path / name).write_text("")
    assert Authority(tmp_path).certify("localhost")
    assert not Authority(tmp_path).certify("localhost")
