"""TLS as users meet it: an authority of one's own, a stranger's certificate, another host's name."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from service.cli.mingora_fake import TOKEN, FakePlatform

from mingora.errors import TlsError
from mingora.transport import Transport


def certificate(folder: Path, name: str, *hosts: x509.GeneralName) -> tuple[Path, Path]:
    """A self-signed certificate for `hosts`, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectAlternativeName(list(hosts)), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / f"{name}.crt", folder / f"{name}.pem"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return cert_file, key_file


LOOPBACK = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))


@pytest.fixture
def secure(platform: FakePlatform, tmp_path: Path) -> Iterator[tuple[FakePlatform, Path]]:
    """The platform behind TLS, and the certificate to trust."""
    cert_file, key_file = certificate(tmp_path, "lab", LOOPBACK)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert_file, key_file)
    platform.server.socket = context.wrap_socket(platform.server.socket, server_side=True)
    yield platform, cert_file


def transport(platform: FakePlatform, host: str = "127.0.0.1", ca_file: Path | None = None) -> Transport:
    port = platform.server.server_address[1]
    trusted = None if ca_file is None else str(ca_file)
    return Transport(f"https://{host}:{port}", ca_file=trusted, token=TOKEN, sleep=lambda _seconds: None)


@pytest.mark.req("AUTH-3", "AUTH-5")
def test_an_authority_of_ones_own_is_trusted_when_named(secure: tuple[FakePlatform, Path]) -> None:
    platform, cert_file = secure
    with transport(platform, ca_file=cert_file) as trusting:
        for _n in range(3):
            assert trusting.request_json("GET", "/account").status == 200
    assert len({seen.connection for seen in platform.seen}) == 1


@pytest.mark.req("AUTH-5")
def test_a_certificate_that_is_not_trusted_gets_no_token(secure: tuple[FakePlatform, Path], tmp_path: Path) -> None:
    platform, _cert_file = secure
    other, _key = certificate(tmp_path, "other", LOOPBACK)
    for ca_file in (None, other):
        with transport(platform, ca_file=ca_file) as suspicious, pytest.raises(TlsError) as caught:
            suspicious.request_json("GET", "/account")
        assert "--ca-file" in (caught.value.hint or "")
    assert platform.seen == []


@pytest.mark.req("AUTH-5")
def test_a_certificate_of_another_name_is_refused(secure: tuple[FakePlatform, Path]) -> None:
    platform, cert_file = secure
    with transport(platform, host="localhost", ca_file=cert_file) as wrong, pytest.raises(TlsError) as caught:
        wrong.request_json("GET", "/account")
    assert "certificate is for" in (caught.value.hint or "")
    assert platform.seen == []


@pytest.mark.req("AUTH-5", "CLI-12")
def test_a_server_that_speaks_plain_http_is_named(platform: FakePlatform) -> None:
    with transport(platform) as wrong, pytest.raises(TlsError) as caught:
        wrong.request_json("GET", "/account")
    assert "http://" in (caught.value.hint or "")


@pytest.mark.req("AUTH-3")
def test_a_ca_file_that_is_none_is_named(secure: tuple[FakePlatform, Path], tmp_path: Path) -> None:
    platform, _cert_file = secure
    (tmp_path / "junk.pem").write_text("junk")
    for name in ("junk.pem", "missing.pem"):
        with transport(platform, ca_file=tmp_path / name) as broken, pytest.raises(TlsError, match=name):
            broken.request_json("GET", "/account")
