"""Block ``e``: payloads that only recipients can read (spec, "Other blocks").

Rules: the plain payload of a sealed event never reaches the disk; the bundle holds its commitment,
so verification and proofs need no key. One file key per bundle, encapsulated for each recipient.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from hark.bundle import cbor
from hark.bundle.batch import frames_of
from hark.bundle.format import DOMAINS, SALT_SIZE
from hark.errors import BundleInvalid, InputError

if TYPE_CHECKING:
    from hark.bundle.notes import Sealed
    from hark.bundle.reader import Bundle

__all__ = ["KEM_X25519", "FileKey", "recipient", "unseal", "unwrap", "wrap"]

KEM_X25519 = 0x0020  # RFC 9180, table 2
_INFO = b"hark/recipient/2"
_SEED_INFO = b"hark/seed/1"


def _suite() -> Any:
    from cryptography.hazmat.primitives import hpke  # noqa: PLC0415 - slow to import

    return hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.CHACHA20_POLY1305)


class FileKey:
    """The key of one bundle's sealed items; exists only while the bundle is written or opened."""

    def __init__(self, key: bytes | None = None) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import (  # noqa: PLC0415 - slow to import
            ChaCha20Poly1305,
        )

        self._key = key or os.urandom(32)
        self._aead = ChaCha20Poly1305(self._key)

    def recipients(self, public_keys: list[bytes]) -> tuple[tuple[int, bytes], ...]:
        """Return the header's recipients: the file key for each X25519 public key (32 bytes)."""
        return tuple((KEM_X25519, recipient(self._key, public)) for public in public_keys)

    def seal(self, header_hash: bytes, first_seq: int, items: dict[int, list[bytes]]) -> bytes:
        """Return the body of block ``e``; ``items`` is {event: [salt, payload]}."""
        first = first_seq.to_bytes(8, "big")
        plain = cbor.encode(items)
        return first + self._aead.encrypt(bytes(4) + first, plain, header_hash + first)

    def open(self, header_hash: bytes, sealed: Sealed) -> dict[int, list[bytes]]:
        """Return {event: [salt, payload]}; raises ``BundleInvalid``."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - slow to import

        first = sealed.first_seq.to_bytes(8, "big")
        try:
            plain = self._aead.decrypt(bytes(4) + first, sealed.ciphertext, header_hash + first)
            items: dict[int, list[bytes]] = cbor.decode(plain)
        except (InvalidTag, cbor.CborError) as error:
            raise BundleInvalid("sealed items cannot be opened", str(error)) from None
        return items


def recipient(file_key: bytes, public: bytes) -> bytes:
    """Encapsulate ``file_key`` for one X25519 public key."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import (  # noqa: PLC0415 - slow
        X25519PublicKey,
    )

    sealed: bytes = _suite().encrypt(
        file_key, X25519PublicKey.from_public_bytes(public), info=_INFO
    )
    return sealed


def wrap(secret: bytes, private: bytes) -> tuple[bytes, bytes]:
    """Seal 32 bytes for the holder of ``private`` (X25519): its public key, and 80 bytes."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import (  # noqa: PLC0415 - slow
        X25519PrivateKey,
    )

    public = X25519PrivateKey.from_private_bytes(private).public_key()
    return public.public_bytes_raw(), _suite().encrypt(secret, public, info=_SEED_INFO)


def unwrap(sealed: bytes, private: bytes) -> bytes | None:
    """Return what ``wrap`` sealed, or None when it was for another key, or damaged."""
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - slow to import
    from cryptography.hazmat.primitives.asymmetric.x25519 import (  # noqa: PLC0415
        X25519PrivateKey,
    )

    key = X25519PrivateKey.from_private_bytes(private)
    try:
        secret: bytes = _suite().decrypt(sealed, key, info=_SEED_INFO)
    except (InvalidTag, ValueError):
        return None
    return secret


def _file_key(bundle: Bundle, private: bytes) -> FileKey:
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - slow to import
    from cryptography.hazmat.primitives.asymmetric.x25519 import (  # noqa: PLC0415
        X25519PrivateKey,
    )

    key = X25519PrivateKey.from_private_bytes(private)
    for kem, encapsulated in bundle.header.recipients:
        if kem != KEM_X25519:
            continue
        try:
            return FileKey(_suite().decrypt(encapsulated, key, info=_INFO))
        except (InvalidTag, ValueError):
            continue
    raise InputError("the bundle was not sealed for this key")


def unseal(bundle: Bundle, private: bytes) -> dict[int, Any]:
    """Return {event number: payload} of all sealed events that are still there.

    ``private`` is an X25519 private key (32 bytes). Every payload is checked against the commitment
    in its frame; raises ``BundleInvalid`` when one does not match.
    """
    file_key = _file_key(bundle, private)
    header_hash = bundle.core.keyed(DOMAINS.header, bundle.header_bytes)
    out: dict[int, Any] = {}
    for sealed in bundle.sealed_blocks():
        for seq, item in file_key.open(header_hash, sealed).items():
            out[seq] = _checked(bundle, seq, item)
    return out


def _checked(bundle: Bundle, seq: int, item: Any) -> Any:
    match item:
        case [bytes() as salt, bytes() as payload] if len(salt) == SALT_SIZE:
            commitment = bundle.core.keyed(DOMAINS.payload, salt + payload)
        case _:
            raise BundleInvalid("a sealed item has a wrong shape", f"event {seq}")
    for batch, section in bundle.batches_over(seq, seq + 1):
        for i, frame in enumerate(frames_of(section, batch.events)):
            if batch.first_seq + i == seq and frame.redacted and frame.payload == commitment:
                return cbor.decode(payload)
    raise BundleInvalid("a sealed item does not match its commitment", f"event {seq}")
