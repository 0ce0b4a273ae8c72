"""The fixed parts of a bundle: constants, blocks, header and head (docs/spec/bundle.md).

Rules: pure; bytes in, frozen values out. A parser accepts exactly what the encoder writes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from hark import limits
from hark.bundle import cbor
from hark.bundle.faults import Broken, Step

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

__all__ = [
    "BATCH_HEAD",
    "BLOCK_HEAD",
    "DOMAINS",
    "END_MARK",
    "FRAME",
    "HEAD_CONTEXT",
    "HEAD_SIZE",
    "HEAD_STRUCT",
    "MAGIC",
    "MMR_STORED_LEVEL",
    "REDACTED",
    "SPARSE",
    "Domains",
    "Head",
    "Header",
    "Parent",
]

MAGIC = b"HARK\x02\x00\x00\x00"
END_MARK = b"HARKEND\x02"
BLOCK_HEAD = struct.Struct(">B3xI")
BLOCK_TYPES = frozenset(b"hbseiatr")
FRAME = struct.Struct(">IHQ")
BATCH_HEAD = struct.Struct(">QIIQIIIIB3x32s")
HEAD_STRUCT = struct.Struct(">32sQ32s32sQQIB3x")
HEAD_SIZE = HEAD_STRUCT.size + 64
HEAD_CONTEXT = b"hark/head/2\x00"
INDEX_HEAD = struct.Struct(">QIIB7x")
INDEX_ROW = struct.Struct(">QQQQ")
TRAILER = struct.Struct(">QQ8s")
SPARSE = 1
REDACTED = 0x8000
MMR_STORED_LEVEL = 8
HASH_SIZE = 32
SALT_SIZE = 16
LOCATOR_SIZE = 4


@dataclass(frozen=True, slots=True)
class Domains:
    """BLAKE3 keys that separate what is hashed: BLAKE3("hark/bundle/2/" + name)."""

    header: bytes
    payload: bytes
    leaf: bytes
    node: bytes
    root: bytes
    chain: bytes
    chunk: bytes
    blob: bytes


DOMAINS = Domains(
    *(
        bytes.fromhex(text)
        for text in (
            "81783deb022459b3a5369ad3aa1e8f1f6296694df0f9625918b4f56489ff1a6e",
            "6ee0ddffe676a4bafab51c31eaff8838c2b7c432383021cf05b06e659ddc7f8a",
            "6ed5951e79b4a30834c465e441383a656a03116807584a90953091b952a2b0ab",
            "20780dacc5cb67414693048f38084c5d22307924b6d5a250316b54837bb6a26d",
            "dfacc2a6c3fb7f82acbd79169c5792301b9fd91ac37cad4a574ead5d5d64a482",
            "30039e113cb7acbf180c39986094fd63ce87da6e5a914d1142cd7487d83f7583",
            "08ce9b27b8552c0532fc7e2bc788f4c81cfae0c8ddcc0a877145fc64e614265f",
            "e79ea607ac1d7fa18fb05e88678b23c496ae33a0b3bdd99493b5a0a43f174763",
        )
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """Where a forked run comes from."""

    run_id: bytes
    root: bytes
    head_hash: bytes
    boundary: int
    prefix_digest: bytes | None = None
    patch_hash: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first block of a bundle: who writes it, when, with which key.

    ``run_id`` is a ULID's 16 bytes, times are nanoseconds, ``public_key`` 32 bytes of Ed25519,
    ``policy_digest`` 32 bytes, ``anchor_key`` a compressed P-256 point (33 bytes). ``recipients``
    are (kem, encapsulated key) pairs for block ``e``.
    """

    run_id: bytes
    created_unix_ns: int
    recorder: str
    public_key: bytes
    created_boot_ns: int | None = None
    policy_digest: bytes | None = None
    parent: Parent | None = None
    minor: int | None = None
    recipients: tuple[tuple[int, bytes], ...] = field(default=())
    anchor_key: bytes | None = None

    def encode(self) -> bytes:
        """Return the body of block ``h``."""
        values: dict[int, Any] = {
            1: self.run_id,
            2: self.created_unix_ns,
            3: self.recorder,
            4: self.created_boot_ns,
            5: self.policy_digest,
            6: None if self.parent is None else _encode_parent(self.parent),
            7: self.minor,
            8: self.public_key,
            9: [list(r) for r in self.recipients] or None,
            10: self.anchor_key,
        }
        body = cbor.encode({k: v for k, v in values.items() if v is not None})
        if len(body) > limits.BUNDLE_HEADER_MAX_BYTES:
            raise cbor.CborError("header too large")
        return body

    @classmethod
    def parse(cls, body: bytes) -> Header:
        """Read the body of block ``h``; raises ``Broken``."""
        if len(body) > limits.BUNDLE_HEADER_MAX_BYTES:
            raise _bad("header too large")
        try:
            m = cbor.decode(body)
        except cbor.CborError as error:
            raise _bad(f"header: {error}") from None
        if not isinstance(m, dict) or not set(m) <= set(range(1, 11)):
            raise _bad("header: unknown keys")
        return cls(
            run_id=_bytes(m.get(1), 16, "run id"),
            created_unix_ns=_number(m.get(2), "creation time"),
            recorder=_text(m.get(3), "recorder"),
            created_boot_ns=_maybe(m, 4, _number, "boot time"),
            policy_digest=_maybe(m, 5, _hash, "policy digest"),
            parent=_maybe(m, 6, _parse_parent, "parent"),
            minor=_maybe(m, 7, _number, "minor version"),
            public_key=_bytes(m.get(8), 32, "public key"),
            recipients=_maybe(m, 9, _recipients, "recipients") or (),
            anchor_key=_maybe(m, 10, _point, "anchor key"),
        )


def _encode_parent(p: Parent) -> dict[int, Any]:
    values = {
        1: p.run_id,
        2: p.root,
        3: p.head_hash,
        4: p.boundary,
        5: p.prefix_digest,
        6: p.patch_hash,
    }
    return {k: v for k, v in values.items() if v is not None}


def _parse_parent(m: Any, name: str) -> Parent:
    if not isinstance(m, dict) or not set(m) <= set(range(1, 7)):
        raise _bad(f"header: {name}")
    return Parent(
        run_id=_bytes(m.get(1), 16, "parent run id"),
        root=_bytes(m.get(2), 32, "parent root"),
        head_hash=_bytes(m.get(3), 32, "parent head"),
        boundary=_number(m.get(4), "boundary"),
        prefix_digest=_maybe(m, 5, _hash, "prefix digest"),
        patch_hash=_maybe(m, 6, _hash, "patch hash"),
    )


def _recipients(value: Any, name: str) -> tuple[tuple[int, bytes], ...]:
    if not isinstance(value, list) or not 0 < len(value) <= limits.BUNDLE_RECIPIENTS_MAX:
        raise _bad(f"header: {name}")
    out = []
    for row in value:
        match row:
            case [int() as kem, bytes() as encapsulated]:
                out.append((_number(kem, name), encapsulated))
            case _:
                raise _bad(f"header: {name}")
    return tuple(out)


def _bad(why: str) -> Broken:
    return Broken(Step.HEADER, why)


def _bytes(value: Any, size: int, name: str) -> bytes:
    if type(value) is not bytes or len(value) != size:
        raise _bad(f"header: {name}")
    return value


def _hash(value: Any, name: str) -> bytes:
    return _bytes(value, HASH_SIZE, name)


def _point(value: Any, name: str) -> bytes:
    return _bytes(value, 33, name)


def _maybe(m: dict[int, Any], key: int, read: Callable[[Any, str], T], name: str) -> T | None:
    return read(m[key], name) if key in m else None


def _number(value: Any, name: str) -> int:
    if type(value) is not int or value < 0:
        raise _bad(f"header: {name}")
    return value


def _text(value: Any, name: str) -> str:
    if type(value) is not str:
        raise _bad(f"header: {name}")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A statement about the first ``events`` events; the signature covers its 128 bytes."""

    header_hash: bytes
    events: int
    root: bytes
    chain: bytes
    unix_ns: int
    boot_ns: int
    number: int
    final: bool

    def encode(self) -> bytes:
        """Return the 128 bytes that are signed behind ``HEAD_CONTEXT``."""
        return HEAD_STRUCT.pack(
            self.header_hash,
            self.events,
            self.root,
            self.chain,
            self.unix_ns,
            self.boot_ns,
            self.number,
            self.final,
        )

    @classmethod
    def parse(cls, data: bytes) -> Head:
        """Read 128 bytes; raises ``Broken``."""
        if len(data) != HEAD_STRUCT.size:
            raise Broken(Step.HEADS, "head of a wrong size")
        *fields, final = HEAD_STRUCT.unpack(data)
        head = cls(
            header_hash=fields[0],
            events=fields[1],
            root=fields[2],
            chain=fields[3],
            unix_ns=fields[4],
            boot_ns=fields[5],
            number=fields[6],
            final=final == 1,
        )
        if head.encode() != data:
            raise Broken(Step.HEADS, "head with reserved bits set")
        return head
