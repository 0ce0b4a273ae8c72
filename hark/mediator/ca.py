"""The run CA's certificate, as the agent is made to trust it.

Rules: pure. The key stays in the mediator, which made it; only the certificate comes here. It goes
into the agent's trust store, so it is parsed before anybody relies on it; only as far as that
needs, since a whole X.509 library costs 17 ms at the start of each run.
"""

from __future__ import annotations

import re
from binascii import a2b_base64

from hark.errors import RecordingFailed

__all__ = ["checked_pem"]

_BLOCK = re.compile(
    rb"-----BEGIN CERTIFICATE-----\n((?:[A-Za-z0-9+/=]{1,64}\n)+)-----END CERTIFICATE-----\n*\Z"
)
# Tags of DER (X.690) and the object identifiers that matter here, with their heads.
_BOOLEAN, _BITS, _OCTETS, _SEQUENCE, _EXTENSIONS = 0x01, 0x03, 0x04, 0x30, 0xA3
_P256 = bytes.fromhex("301306072a8648ce3d020106082a8648ce3d030107")  # RFC 5480 section 2.1.1
_CONSTRAINTS = bytes.fromhex("0603551d13")  # basicConstraints, RFC 5280 section 4.2.1.9
_TRUE = b"\x01\x01\xff"
_KEY_AT = 5  # subjectPublicKeyInfo in TBSCertificate, after the version
_SHORT = 0x80


class _NotDer(ValueError):
    """The bytes are no DER, or not of the expected kind."""


def checked_pem(pem: bytes) -> bytes:
    """Return exactly one P-256 CA certificate in PEM, or raise RecordingFailed."""
    found = _BLOCK.match(pem)
    if found is None:
        raise RecordingFailed("the mediator sent no certificate", "not one PEM block")
    try:
        _check(a2b_base64(found[1].replace(b"\n", b""), strict_mode=True))
    except ValueError as error:  # also a wrong number of parts, and what base64 refuses
        raise RecordingFailed("the mediator sent no certificate", str(error)) from None
    return pem.rstrip(b"\n") + b"\n"


def _check(der: bytes) -> None:
    """Check Certificate (RFC 5280 section 4.1): a P-256 key, critically CA:TRUE."""
    (whole,) = _parts(der)
    tbs, _algorithm, _signature = _parts(_body(whole, _SEQUENCE))
    parts = _parts(_body(tbs, _SEQUENCE))
    if len(parts) <= _KEY_AT + 1:
        raise _NotDer("a certificate without extensions")
    algorithm, key = _parts(_body(parts[_KEY_AT + 1], _SEQUENCE))
    if algorithm != _P256 or not _body(key, _BITS).startswith(b"\x00\x04"):
        raise _NotDer("its key is not on P-256")
    (listed,) = _parts(_body(parts[-1], _EXTENSIONS))
    for extension in _parts(_body(listed, _SEQUENCE)):
        name, *critical, value = _parts(_body(extension, _SEQUENCE))
        if name == _CONSTRAINTS and critical == [_TRUE]:
            (constraints,) = _parts(_body(value, _OCTETS))
            if _parts(_body(constraints, _SEQUENCE))[:1] == [_TRUE]:
                return
    raise _NotDer("it is no certificate authority")


def _parts(data: bytes) -> list[bytes]:
    """Split a run of DER values, each with its head. Raises ``_NotDer``."""
    out = []
    while data:
        end = _head(data)[1]
        out.append(data[:end])
        data = data[end:]
    return out


def _body(value: bytes, tag: int) -> bytes:
    """Return the content of one value of this tag."""
    if value[0] != tag:
        raise _NotDer(f"tag {value[0]:#x} where {tag:#x} is due")
    begin, end = _head(value)
    return value[begin:end]


def _head(data: bytes) -> tuple[int, int]:
    """Return where the content begins and ends; lengths of up to 2 bytes, in their only form."""
    if len(data) < 2:  # noqa: PLR2004 - tag and length
        raise _NotDer("cut short")
    begin, length = 2, data[1]
    if length >= _SHORT:
        begin += length - _SHORT
        if not 3 <= begin <= 4 or len(data) < begin:  # noqa: PLR2004 - one or two more bytes
            raise _NotDer("a length of more than two bytes, or cut short")
        length = int.from_bytes(data[2:begin], "big")
        if length < _SHORT or (begin == 4 and length < 1 << 8):  # noqa: PLR2004
            raise _NotDer("a length that is not the shortest")
    if begin + length > len(data):
        raise _NotDer("cut short")
    return begin, begin + length
