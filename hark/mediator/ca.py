"""The run CA's certificate, as the agent is made to trust it.

Rules: pure. The key stays in the mediator, which made it; only the certificate comes here.
"""

from __future__ import annotations

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from hark.errors import RecordingFailed

__all__ = ["checked_pem"]


def checked_pem(pem: bytes) -> bytes:
    """Return exactly one P-256 CA certificate in PEM, or raise RecordingFailed.

    The text goes into the agent's trust store, so it is parsed before anybody relies on it.
    """
    try:
        certificates = x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise RecordingFailed("the mediator sent no certificate", str(error)) from None
    if len(certificates) != 1:
        raise RecordingFailed("the mediator sent more than one certificate")
    certificate = certificates[0]
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    key = certificate.public_key()
    if not constraints.ca or not isinstance(key, ec.EllipticCurvePublicKey):
        raise RecordingFailed("the mediator's certificate is no P-256 certificate authority")
    return pem.rstrip(b"\n") + b"\n"
