"""An authority of the stack's own, and the certificate it gives the server.

Only used with ``--host``. The authority is made once and lasts ten years; people copy its certificate (never its key)
to the machines that log in. The server's certificate is renewed by itself.
"""

from __future__ import annotations

import ipaddress
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from mingora_stack.errors import StackError
from mingora_stack.folder import sync_folder

AUTHORITY_LIFE = timedelta(days=3653)
SERVER_LIFE = timedelta(days=395)  # with the days before, what browsers accept at most of a public authority
RENEW_BEFORE = timedelta(days=30)
BACKDATED = timedelta(days=2)  # for clients whose clock is a day behind, and for a day's error here

_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_OWN_NAMES: tuple[x509.GeneralName, ...] = (
    x509.DNSName("localhost"),
    x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    x509.IPAddress(ipaddress.ip_address("::1")),
)


class Authority:
    """The authority in ``folder``: ``ca.crt``, ``ca.key``, and ``server.pem`` (key and certificate in one file)."""

    def __init__(self, folder: Path) -> None:
        self.certificate_file = folder / "ca.crt"
        self.server_file = folder / "server.pem"
        self._key_file = folder / "ca.key"

    def certify(self, host: str, now: datetime | None = None) -> bool:
        """Make what is missing, near its end, or made for another name than ``host``; whether anything was made.

        Raises:
            StackError: ``host`` is no host name and no IP address.
        """
        now = now or datetime.now(UTC)
        wanted = _names(host)
        fresh = self._ends_soon(self.certificate_file, now) or not self._key_file.exists()
        if fresh:
            self._make_authority(now)
        if fresh or self._ends_soon(self.server_file, now) or self._certified_names() != wanted:
            self._make_server(wanted, now)
            return True
        return False

    def _make_authority(self, now: datetime) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Mingora authority of one stack")])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - BACKDATED)
            .not_valid_after(now + AUTHORITY_LIFE)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        _write(self._key_file, _pem(key), 0o600)
        _write(self.certificate_file, certificate.public_bytes(Encoding.PEM), 0o644)

    def _make_server(self, names: frozenset[x509.GeneralName], now: datetime) -> None:
        authority = x509.load_pem_x509_certificate(self.certificate_file.read_bytes())
        signer = load_pem_private_key(self._key_file.read_bytes(), password=None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Mingora stack")]))
            .issuer_name(authority.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - BACKDATED)
            .not_valid_after(min(now + SERVER_LIFE, authority.not_valid_after_utc))
            .add_extension(x509.SubjectAlternativeName(sorted(names, key=str)), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
            .sign(signer, hashes.SHA256())
        )
        _write(self.server_file, _pem(key) + certificate.public_bytes(Encoding.PEM), 0o600)

    def _certified_names(self) -> frozenset[x509.GeneralName]:
        certificate = x509.load_pem_x509_certificate(self.server_file.read_bytes())
        return frozenset(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)

    @staticmethod
    def _ends_soon(file: Path, now: datetime) -> bool:
        """Also of one that is missing or can't be read: it is made anew."""
        try:
            certificate = x509.load_pem_x509_certificate(file.read_bytes())
        except (FileNotFoundError, ValueError):
            return True
        return certificate.not_valid_after_utc - now < RENEW_BEFORE


def check_host(host: str) -> None:
    """Raise :class:`StackError` unless ``host`` can be in a certificate."""
    _names(host)


def _names(host: str) -> frozenset[x509.GeneralName]:
    try:
        return frozenset((*_OWN_NAMES, x509.IPAddress(ipaddress.ip_address(host))))
    except ValueError:
        pass
    if len(host) > 253 or _HOST_NAME.fullmatch(host) is None:
        raise StackError(f"--host {host!r} is no host name and no IP address.")
    return frozenset((*_OWN_NAMES, x509.DNSName(host.lower())))


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(path: Path, data: bytes, mode: int) -> None:
    """Whole or not at all, so that a server never reads half a certificate."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    sync_folder(path.parent)
