"""The run CA's certificate: what is taken and what is not, with an X.509 library as the oracle."""

from __future__ import annotations

import datetime as dt
import random

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from hark.errors import RecordingFailed
from hark.mediator.ca import checked_pem

P256 = ec.generate_private_key(ec.SECP256R1())
NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hark run CA")])


def certificate(
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey = P256,
    *,
    ca: bool | None = True,
    critical: bool = True,
    sign_by: ec.EllipticCurvePrivateKey | None = None,
) -> bytes:
    begin = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(NAME)
        .issuer_name(NAME)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + dt.timedelta(days=10))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if ca is not None:
        constraints = x509.BasicConstraints(ca=ca, path_length=0 if ca else None)
        builder = builder.add_extension(constraints, critical=critical)
    made = builder.sign(sign_by or key, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM)


def test_a_p256_authority_is_taken_with_one_line_end():
    pem = certificate()
    assert checked_pem(pem) == pem
    assert checked_pem(pem + b"\n\n") == pem


@pytest.mark.parametrize(
    "pem",
    [
        b"",
        b"no certificate",
        certificate() + certificate(),
        b"text before\n" + certificate(),
        certificate() + b"text after\n",
        certificate().replace(b"\n", b"\r\n"),
        certificate(ca=False),
        certificate(ca=None),
        certificate(critical=False),
        certificate(ec.generate_private_key(ec.SECP384R1())),
        certificate(rsa.generate_private_key(65537, 2048), sign_by=P256),
        P256.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    ],
    ids=range(12),
)
def test_anything_else_is_refused(pem: bytes):
    with pytest.raises(RecordingFailed, match="sent no certificate"):
        checked_pem(pem)


def test_cut_and_changed_bytes_never_give_another_error_and_no_wrong_authority():
    good = x509.load_pem_x509_certificate(certificate())
    der = good.public_bytes(serialization.Encoding.DER)
    rng = random.Random(7)  # noqa: S311 - which bytes to change
    taken = 0
    for at in range(len(der)):
        for data in (der[:at], der[:at] + bytes([rng.randrange(256)]) + der[at + 1 :]):
            pem = pem_of(data)
            try:
                checked_pem(pem)
            except RecordingFailed:
                continue
            taken += 1
            assert len(data) == len(der)
            assert b"\x06\x03\x55\x1d\x13\x01\x01\xff\x04" in data
    assert taken, "positive control: a changed name or signature is not looked at here"


def pem_of(der: bytes) -> bytes:
    from base64 import encodebytes  # noqa: PLC0415

    text = encodebytes(der).replace(b"\n", b"")
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    return b"\n".join([b"-----BEGIN CERTIFICATE-----", *lines, b"-----END CERTIFICATE-----", b""])
