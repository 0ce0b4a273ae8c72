"""Where bundle bytes come from, and the blocks in them.

Rules: reads only, by offset, never a mapping (a file that shrinks must not kill the reader). Holds
one block at a time.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from hark import limits
from hark.bundle.faults import Broken, Step, Torn
from hark.bundle.format import BLOCK_HEAD, BLOCK_TYPES, MAGIC

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Block", "BlockHead", "BytesSource", "FileSource", "Source", "block_heads", "blocks"]


class Source(Protocol):
    """Bytes by offset; fewer than asked for at the end."""

    def size(self) -> int:
        """Return the bytes there are now."""

    def read(self, at: int, size: int) -> bytes:
        """Return up to ``size`` bytes from ``at`` on."""


class BytesSource:
    """A bundle in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def size(self) -> int:
        """Return the bytes there are."""
        return len(self._data)

    def read(self, at: int, size: int) -> bytes:
        """Return up to ``size`` bytes."""
        return self._data[at : at + size]


class FileSource:
    """A bundle behind a descriptor, which stays the caller's. Reads ahead when asked in order."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._at = 0
        self._ahead = b""

    def size(self) -> int:
        """Return the bytes there are now."""
        return os.fstat(self._fd).st_size

    def read(self, at: int, size: int) -> bytes:
        """Return up to ``size`` bytes."""
        start = at - self._at
        if start >= 0 and start + size <= len(self._ahead):
            return self._ahead[start : start + size]
        in_order = 0 <= start <= len(self._ahead)
        data = self._pread(at, max(size, limits.BUNDLE_READ_AHEAD_BYTES) if in_order else size)
        self._at, self._ahead = at, data
        return data[:size]

    def _pread(self, at: int, size: int) -> bytes:
        parts = []
        while size > 0:
            part = os.pread(self._fd, size, at)
            if not part:
                break
            parts.append(part)
            at += len(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


@dataclass(frozen=True, slots=True)
class BlockHead:
    """Type and place of a block; ``end`` is the offset behind it."""

    kind: str
    start: int
    end: int

    @property
    def body(self) -> int:
        """Offset of the body."""
        return self.start + BLOCK_HEAD.size

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return self.end - self.body


@dataclass(frozen=True, slots=True)
class Block:
    """A block with its body."""

    head: BlockHead
    body: bytes


def check_magic(source: Source) -> None:
    """Raise ``Broken`` or ``Torn`` unless the file starts as a bundle."""
    magic = source.read(0, len(MAGIC))
    if magic == MAGIC:
        return
    if MAGIC.startswith(magic):
        raise Torn("the file ends inside its magic")
    if magic[:4] == MAGIC[:4] and magic[4:5] != MAGIC[4:5]:
        raise Broken(Step.HEADER, f"bundle version {magic[4]} is not known")
    raise Broken(Step.HEADER, "not a bundle")


def _only_zeros(source: Source, at: int) -> bool:
    while data := source.read(at, limits.BUNDLE_READ_AHEAD_BYTES):
        if any(data):
            return False
        at += len(data)
    return True


def _read_head(source: Source, at: int) -> BlockHead | None:
    raw = source.read(at, BLOCK_HEAD.size)
    if not raw:
        return None
    if not any(raw) and _only_zeros(source, at):
        raise Torn("only zeros follow")
    if len(raw) < BLOCK_HEAD.size:
        raise Torn("the file ends inside a block")
    kind, size = BLOCK_HEAD.unpack(raw)
    if kind not in BLOCK_TYPES or any(raw[1:4]):
        raise Broken(Step.BLOCKS, f"unknown block at offset {at}")
    if size > limits.BUNDLE_BLOCK_MAX_BYTES:
        raise Broken(Step.BLOCKS, f"block over its limit at offset {at}")
    return BlockHead(chr(kind), at, at + BLOCK_HEAD.size + size)


def block_heads(source: Source, at: int = len(MAGIC)) -> Iterator[BlockHead]:
    """Yield the complete blocks from ``at`` on without their bodies.

    Ends silently at the end of a block; raises ``Torn`` inside one, ``Broken`` at nonsense.
    """
    end = source.size()
    while (head := _read_head(source, at)) is not None:
        if head.end > end:
            end = source.size()  # the file may be growing
            if head.end > end:
                raise Torn("the file ends inside a block")
        yield head
        at = head.end


def blocks(source: Source, at: int = len(MAGIC)) -> Iterator[Block]:
    """Yield the complete blocks from ``at`` on; ends as ``block_heads`` does."""
    for head in block_heads(source, at):
        body = source.read(head.body, head.size)
        if len(body) != head.size:
            raise Torn("the file ends inside a block")
        yield Block(head, body)
