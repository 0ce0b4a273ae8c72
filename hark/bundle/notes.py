"""Blocks ``e``, ``a`` and ``r``: sealed items, annexes, redaction notes (spec, "Other blocks").

Rules: pure; these blocks are not signed by the run, so they are only checked for shape and for
agreement with what is signed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hark import limits
from hark.bundle import cbor
from hark.bundle.faults import Broken, Step

__all__ = ["Note", "Sealed", "check_annex", "check_note", "check_sealed"]

_TAG_SIZE = 16


@dataclass(frozen=True, slots=True)
class Sealed:
    """Block ``e``: encrypted payloads of the sparse batch behind it."""

    first_seq: int
    ciphertext: bytes

    @classmethod
    def parse(cls, body: bytes) -> Sealed:
        """Read the body; raises ``Broken``."""
        if len(body) < 8 + _TAG_SIZE:
            raise Broken(Step.BLOCKS, "sealed items too short")
        return cls(int.from_bytes(body[:8], "big"), body[8:])


def check_sealed(sealed: Sealed, first_seq: int, *, sparse: bool) -> None:
    """Raise ``Broken`` unless ``sealed`` belongs to the batch that starts at ``first_seq``."""
    if sealed.first_seq != first_seq or not sparse:
        raise Broken(Step.BLOCKS, "sealed items of another batch")


def check_annex(body: bytes, heads: int) -> None:
    """Raise ``Broken`` unless ``body`` is ``{1: kind, 2: head number, 3: bytes}``."""
    value = _map(body, "annex", limits.BUNDLE_ANNEX_MAX_BYTES)
    if (
        set(value) != {1, 2, 3}
        or type(value[1]) is not int
        or type(value[2]) is not int
        or not 0 <= value[2] < heads
        or type(value[3]) is not bytes
    ):
        raise Broken(Step.BLOCKS, "annex of a wrong shape")


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Block ``r``: what was redacted, when (unix ns), why, and by whom if that was signed."""

    events: tuple[int, ...]
    chunks: tuple[int, ...]
    unix_ns: int
    reason: str
    key: bytes | None = None
    signature: bytes | None = None

    def encode(self, *, signed: bool = True) -> bytes:
        """Return the body; without the signature, what the redactor signs."""
        value: dict[int, Any] = {
            1: list(self.events),
            2: list(self.chunks),
            3: self.unix_ns,
            4: self.reason,
            5: self.key,
            6: self.signature if signed else None,
        }
        return cbor.encode({k: v for k, v in value.items() if v is not None})


def check_note(body: bytes, events: set[int], chunks: set[int]) -> str:
    """Return the reason; raises ``Broken`` when the note names what is still there."""
    value = _map(body, "redaction note", limits.BUNDLE_BLOCK_MAX_BYTES)
    if not {1, 2, 3, 4} <= set(value) <= {1, 2, 3, 4, 5, 6}:
        raise Broken(Step.BLOCKS, "redaction note of a wrong shape")
    if type(value[3]) is not int or type(value[4]) is not str:
        raise Broken(Step.BLOCKS, "redaction note of a wrong shape")
    for key, gone in ((1, events), (2, chunks)):
        numbers = value[key]
        if type(numbers) is not list or not all(type(n) is int and n in gone for n in numbers):
            raise Broken(Step.BLOCKS, "redaction note names what is not redacted")
    _check_redactor(value)
    return value[4]


def _check_redactor(value: dict[int, Any]) -> None:
    key, signature = value.get(5), value.get(6)
    if key is None and signature is None:
        return
    if type(key) is not bytes or type(signature) is not bytes:
        raise Broken(Step.BLOCKS, "redaction note of a wrong shape")
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - slow to import
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415
        Ed25519PublicKey,
    )

    signed = cbor.encode({k: v for k, v in value.items() if k < 6})  # noqa: PLR2004 - 6 signs it
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, NOTE_CONTEXT + signed)
    except (InvalidSignature, ValueError):
        raise Broken(Step.BLOCKS, "the signature of a redaction note does not verify") from None


NOTE_CONTEXT = b"hark/redact/2\x00"


def _map(body: bytes, name: str, limit: int) -> dict[int, Any]:
    if len(body) > limit:
        raise Broken(Step.BLOCKS, f"{name} over its limit")
    try:
        value = cbor.decode(body)
    except cbor.CborError as error:
        raise Broken(Step.BLOCKS, f"{name}: {error}") from None
    if type(value) is not dict:
        raise Broken(Step.BLOCKS, f"{name} of a wrong shape")
    return value
