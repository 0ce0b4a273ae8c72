"""Proofs: one event, its path to a signed head, and nothing else (spec, "Proof").

Rules: ``check`` needs only the proof. Directions and sizes of the path follow from numbers, they
are never read. ``prove`` checks what it made before handing it out, so an index that lies shows.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hark import limits
from hark.bundle import cbor
from hark.bundle.faults import Broken
from hark.bundle.format import (
    DOMAINS,
    HASH_SIZE,
    HEAD_CONTEXT,
    HEAD_SIZE,
    HEAD_STRUCT,
    SALT_SIZE,
    Head,
    Header,
)
from hark.bundle.tree import blob_root, root_of
from hark.errors import BundleInvalid

if TYPE_CHECKING:
    from hark.bundle.core import Core

__all__ = [
    "ChunkProof",
    "Proof",
    "ProvenEvent",
    "check",
    "from_json",
    "parse",
    "peak_of",
    "to_json",
]

_VERSION = 2
_LEAF = struct.Struct(">QQHI")


@dataclass(frozen=True, slots=True)
class ChunkProof:
    """One chunk of a body: salt and data, or only the commitment when it was redacted."""

    size: int
    commitment: bytes | None
    salt: bytes | None = None
    data: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """One event, self-contained. ``salt`` is its commitment when ``payload`` is None."""

    header: bytes
    seq: int
    kind: int
    time_ns: int
    length: int
    payload: bytes | None
    salt: bytes
    path: tuple[bytes, ...]
    peaks: tuple[bytes, ...]
    head: bytes
    bodies: tuple[tuple[ChunkProof, ...], ...] | None = None

    def encode(self) -> bytes:
        """Return the CBOR form."""
        value: dict[int, Any] = {
            1: _VERSION,
            2: self.header,
            3: self.seq,
            4: self.kind,
            5: self.time_ns,
            6: self.length,
            7: self.payload,
            8: self.salt,
            9: list(self.path),
            10: list(self.peaks),
            11: self.head,
        }
        if self.bodies is not None:
            value[12] = [[_chunk_row(c) for c in body] for body in self.bodies]
        return cbor.encode(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenEvent:
    """What a checked proof shows. ``events`` and ``final`` are those of the head it leads to."""

    header: Header
    head: Head
    seq: int
    kind: int
    time_ns: int
    payload: Any
    bodies: tuple[bytes | None, ...]  # None where a part was redacted

    @property
    def key(self) -> bytes:
        """The key that signed the head."""
        return self.header.public_key


def peak_of(seq: int, count: int) -> tuple[int, int]:
    """Return (height of the peak over leaf ``seq``, number of peaks before it)."""
    start = 0
    before = 0
    for height in range(63, -1, -1):
        if count >> height & 1:
            if seq < start + (1 << height):
                return height, before
            start += 1 << height
            before += 1
    raise BundleInvalid("the proof does not hold", "its event is not under its head")


def _chunk_row(chunk: ChunkProof) -> list[Any]:
    if chunk.data is None:
        return [chunk.size, chunk.commitment]
    return [chunk.size, chunk.salt, chunk.data]


def parse(data: bytes) -> Proof:
    """Read the CBOR form; raises ``BundleInvalid``."""
    if len(data) > limits.PROOF_MAX_BYTES:
        raise _bad("it is too large")
    try:
        value = cbor.decode(data)
    except cbor.CborError as error:
        raise _bad(str(error)) from None
    if not isinstance(value, dict) or not set(range(1, 12)) <= set(value) <= set(range(1, 13)):
        raise _bad("it has other keys than a proof")
    return _from_map(value)


def _from_map(m: dict[int, Any]) -> Proof:
    if m[1] != _VERSION:
        raise _bad(f"version {m[1]!r} is not known")
    payload = m[7]
    proof = Proof(
        header=_bytes(m[2]),
        seq=_number(m[3]),
        kind=_number(m[4]),
        time_ns=_number(m[5]),
        length=_number(m[6]),
        payload=None if payload is None else _bytes(payload),
        salt=_bytes(m[8], HASH_SIZE if payload is None else SALT_SIZE),
        path=_hashes(m[9]),
        peaks=_hashes(m[10]),
        head=_bytes(m[11], HEAD_SIZE),
    )
    rows = m.get(12)
    if rows is None:
        return proof
    if not isinstance(rows, list) or not all(isinstance(body, list) for body in rows):
        raise _bad("its bodies have a wrong shape")
    return replace(proof, bodies=tuple(tuple(_chunk(row) for row in body) for body in rows))


def _chunk(row: Any) -> ChunkProof:
    match row:
        case [int() as size, bytes() as commitment] if len(commitment) == HASH_SIZE:
            return ChunkProof(_number(size), commitment)
        case [int() as size, bytes() as salt, bytes() as data] if len(salt) == SALT_SIZE:
            if size != len(data):
                raise _bad("a chunk has another size than it says")
            return ChunkProof(size, None, salt, data)
    raise _bad("a chunk has a wrong shape")


_NAMES = {
    1: "version",
    2: "header",
    3: "seq",
    4: "kind",
    5: "time",
    6: "length",
    7: "payload",
    8: "salt",
    9: "path",
    10: "peaks",
    11: "head",
    12: "bodies",
}
_FORMAT = "hark-proof"


def to_json(proof: Proof) -> str:
    """Return the JSON form: names for keys, hexadecimal for bytes."""
    value = cbor.decode(proof.encode())
    named = {_NAMES[key]: _hex(item) for key, item in value.items()}
    return json.dumps({"format": _FORMAT, **named}, indent=1) + "\n"


def _hex(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list):
        return [_hex(item) for item in value]
    return value


def from_json(text: str) -> Proof:
    """Read the JSON form; raises ``BundleInvalid``."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _bad(f"not JSON: {error}") from None
    if not isinstance(value, dict) or value.pop("format", None) != _FORMAT:
        raise _bad("it is not of this format")
    keys = {name: key for key, name in _NAMES.items()}
    if not set(value) <= set(keys):
        raise _bad("it has other keys than a proof")
    try:
        numbered = {keys[name]: _unhex(item) for name, item in value.items()}
    except (ValueError, RecursionError) as error:
        raise _bad(str(error)) from None
    if not set(range(1, 12)) <= set(numbered):
        raise _bad("keys are missing")
    return _from_map(numbered)


def _unhex(value: Any) -> Any:
    if isinstance(value, str):
        return bytes.fromhex(value)
    if isinstance(value, list):
        return [_unhex(item) for item in value]
    return value


def check(proof: Proof, core: Core) -> ProvenEvent:
    """Check a proof from its header to its signature; raises ``BundleInvalid``."""
    try:
        header = Header.parse(proof.header)
        head = Head.parse(proof.head[: HEAD_STRUCT.size])
    except Broken as broken:
        raise _bad(broken.why) from None
    if head.header_hash != core.keyed(DOMAINS.header, proof.header):
        raise _bad("its head belongs to another header")
    _check_signature(header.public_key, proof.head)
    if _root(proof, head.events, core) != head.root:
        raise _bad("its path does not lead to the signed root")
    payload, bodies = _check_content(proof, core)
    return ProvenEvent(
        header=header,
        head=head,
        seq=proof.seq,
        kind=proof.kind,
        time_ns=proof.time_ns,
        payload=payload,
        bodies=bodies,
    )


def _check_signature(key: bytes, head: bytes) -> None:
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - slow to import
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415
        Ed25519PublicKey,
    )

    signed, signature = head[: HEAD_STRUCT.size], head[HEAD_STRUCT.size :]
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, HEAD_CONTEXT + signed)
    except (InvalidSignature, ValueError):
        raise _bad("the signature of its head does not verify") from None


def _root(proof: Proof, count: int, core: Core) -> bytes:
    height, before = peak_of(proof.seq, count)
    if len(proof.path) != height or len(proof.peaks) != count.bit_count() - 1:
        raise _bad("its path has a wrong length")
    value = leaf_of(proof, core)
    for level, sibling in enumerate(proof.path):
        pair = sibling + value if proof.seq >> level & 1 else value + sibling
        value = core.keyed(DOMAINS.node, pair)
    peaks = (*proof.peaks[:before], value, *proof.peaks[before:])
    return root_of(core, count, b"".join(peaks))


def leaf_of(proof: Proof, core: Core) -> bytes:
    """Return the leaf of the proof's event."""
    commitment = proof.salt
    if proof.payload is not None:
        if proof.length != len(proof.payload):
            raise _bad("its payload has another length than it says")
        commitment = core.keyed(DOMAINS.payload, proof.salt + proof.payload)
    try:
        head = _LEAF.pack(proof.seq, proof.time_ns, proof.kind, proof.length)
    except struct.error as error:
        raise _bad(str(error)) from None
    return core.keyed(DOMAINS.leaf, head + commitment)


def references(payload: Any) -> list[cbor.BlobRef]:
    """Return the references inside a decoded payload, in order."""
    if isinstance(payload, cbor.BlobRef):
        return [payload]
    if isinstance(payload, dict):
        return [ref for value in payload.values() for ref in references(value)]
    if isinstance(payload, list):
        return [ref for value in payload for ref in references(value)]
    return []


def _check_content(proof: Proof, core: Core) -> tuple[Any, tuple[bytes | None, ...]]:
    if proof.payload is None:
        if proof.bodies:
            raise _bad("bodies of an event that was redacted")
        return None, ()
    try:
        payload = cbor.decode(proof.payload)
    except cbor.CborError as error:
        raise _bad(str(error)) from None
    if proof.bodies is None:
        return payload, ()
    refs = references(payload)
    if len(refs) != len(proof.bodies):
        raise _bad("it has more or fewer bodies than its event")
    return payload, tuple(
        _check_body(ref, body, core) for ref, body in zip(refs, proof.bodies, strict=True)
    )


def _check_body(ref: cbor.BlobRef, body: tuple[ChunkProof, ...], core: Core) -> bytes | None:
    table = b""
    for chunk in body:
        commitment = chunk.commitment
        if commitment is None:
            commitment = core.keyed(DOMAINS.chunk, (chunk.salt or b"") + (chunk.data or b""))
        if chunk.size >= 1 << 32:
            raise _bad("a chunk of a wrong size")
        table += struct.pack(">I", chunk.size) + commitment
    if sum(c.size for c in body) != ref.length or blob_root(core, ref.length, table) != ref.root:
        raise _bad("a body does not match its root")
    if any(chunk.data is None for chunk in body):
        return None
    return b"".join(chunk.data or b"" for chunk in body)


def _bad(why: str) -> BundleInvalid:
    return BundleInvalid("the proof does not hold", why)


def _bytes(value: Any, size: int | None = None) -> bytes:
    if type(value) is not bytes or (size is not None and len(value) != size):
        raise _bad("a byte string of a wrong size")
    return value


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 64:
        raise _bad("a number is missing or out of range")
    return value


def _hashes(value: Any) -> tuple[bytes, ...]:
    if not isinstance(value, list) or len(value) > 64:  # noqa: PLR2004 - a path has no more
        raise _bad("a list of hashes has a wrong shape")
    return tuple(_bytes(item, HASH_SIZE) for item in value)
