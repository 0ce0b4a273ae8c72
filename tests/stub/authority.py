"""A certificate authority for tests: made anew in memory, never installed anywhere.

Rules: keys reach the disk only inside the directory the caller names, and only because OpenSSL's
Python binding loads a chain from a file.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Authority", "Leaf"]

_DAY = dt.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A certificate file and its key file, both PEM."""

    certificate: Path
    key: Path


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


class Authority:
    """Issues leaf certificates into ``directory``; ``ca_file`` is what a client must trust."""

    def __init__(self, directory: Path, common_name: str = "hark test stub CA") -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = _name(common_name)
        self._count = 0
        self.certificate = self._self_signed()
        self.ca_file = directory / "ca.pem"
        self.ca_file.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    def _self_signed(self) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        usage = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        return (
            x509.CertificateBuilder()
            .subject_name(self._subject)
            .issuer_name(self._subject)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + 30 * _DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )

    def leaf(self, name: str, *, expired: bool = False) -> Leaf:
        """Issue a certificate for exactly ``name``; ``expired`` ends it a day ago."""
        now = dt.datetime.now(dt.UTC)
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_name(name[:64]))
            .issuer_name(self._subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * _DAY)
            .not_valid_after(now + (-_DAY if expired else 10 * _DAY))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        self._count += 1
        leaf = Leaf(
            self.directory / f"leaf-{self._count}.pem", self.directory / f"leaf-{self._count}.key"
        )
        leaf.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        leaf.key.touch(mode=0o600)
        leaf.key.write_bytes(_pem_key(key))
        return leaf
