"""A Java key store (JKS, version 2) that trusts one certificate.

Rules: pure. The format is that of sun.security.provider.JavaKeyStore: big-endian, a list of
entries, and a keyed SHA-1 digest at the end that Java checks only when a password is given.
"""

from __future__ import annotations

import base64
import hashlib
from struct import pack

__all__ = ["java_store"]

_MAGIC, _VERSION, _TRUSTED = 0xFEEDFEED, 2, 2
_PASSWORD = "changeit"  # noqa: S105 - the one of every cacerts; it protects nothing
_SALT = b"Mighty Aphrodite"


def java_store(pem: bytes, alias: str = "hark") -> bytes:
    """Return a store with the first certificate of ``pem``."""
    text = pem.partition(b"-----BEGIN CERTIFICATE-----")[2].partition(b"-----END")[0]
    der = base64.b64decode(text)
    body = (
        pack(">IIII", _MAGIC, _VERSION, 1, _TRUSTED)
        + _text(alias)
        + pack(">Q", 0)  # made at, in ms
        + _text("X.509")
        + pack(">I", len(der))
        + der
    )
    keyed = hashlib.sha1(_PASSWORD.encode("utf-16-be") + _SALT + body, usedforsecurity=False)
    return body + keyed.digest()


def _text(text: str) -> bytes:
    raw = text.encode("ascii")
    return pack(">H", len(raw)) + raw
