"""The run CA's certificate, as the agent is made to trust it.

Rules: pure. The key stays in the mediator, which made it; only the certificate comes here. It goes
into the agent's trust store, so it is parsed before anybody relies on it.
"""

from __future__ import annotations

import re

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec

from hark.errors import RecordingFailed

__all__ = ["checked_pem"]

# One block and nothing around it: what surrounds a block would reach the agent's store as well.
_BLOCK = re.compile(
    rb"-----BEGIN CERTIFICATE-----\n(?:[A-Za-z0-9+/=]{1,64}\n)+-----END CERTIFICATE-----\n*\Z"
)


def checked_pem(pem: bytes) -> bytes:
    """Return exactly one P-256 CA certificate in PEM, or raise RecordingFailed."""
    if _BLOCK.match(pem) is None:
        raise RecordingFailed("the mediator sent no certificate", "not one PEM block")
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        key = certificate.public_key()
        basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except (ValueError, UnsupportedAlgorithm, x509.ExtensionNotFound) as error:
        raise RecordingFailed("the mediator sent no certificate", str(error)) from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise RecordingFailed("the mediator sent no certificate", "its key is not on P-256")
    if not (basic.critical and basic.value.ca):
        raise RecordingFailed("the mediator sent no certificate", "it is no authority")
    return pem.rstrip(b"\n") + b"\n"
