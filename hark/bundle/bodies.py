"""Chunks seen so far, and whether a body reference tells the truth about them."""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, Any

from hark import limits
from hark.bundle.faults import Broken, Step
from hark.bundle.tree import blob_root

if TYPE_CHECKING:
    from hark.bundle.core import Core

__all__ = ["ChunkTable"]

_ROW = 36  # u32 size, 32 bytes of commitment: what a body root is made of


class ChunkTable:
    """Size and commitment of every chunk of a bundle, 44 bytes each."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._rows = bytearray()
        self._ends = array("Q", [0])  # sum of the sizes up to and including chunk i, at i + 1
        self._references = 0

    def __len__(self) -> int:
        return len(self._ends) - 1

    @property
    def total(self) -> int:
        """All chunks together."""
        return self._ends[-1]

    def add(self, sizes: list[int], commitments: bytes) -> None:
        """Append the chunks of a batch."""
        end = self._ends[-1]
        for i, size in enumerate(sizes):
            end += size
            self._ends.append(end)
            self._rows += struct.pack(">I", size) + commitments[32 * i : 32 * i + 32]

    def check(self, reference: Any, event: int, used: bytearray, first: int) -> int:
        """Check ``[length, root, ranges]`` and return its length; raises ``Broken``.

        Chunks of the batch that starts at chunk ``first`` are marked in ``used``.
        """
        length, root, flat = reference
        total = 0
        chunks = 0
        parts = []
        for i in range(0, len(flat), 2):
            start, count = flat[i], flat[i + 1]
            chunks += count
            if count == 0 or start + count > len(self):
                raise _bad("a body names a chunk that is not there", event)
            self._spend(count, chunks, event)
            parts.append(self._rows[_ROW * start : _ROW * (start + count)])
            total += self._ends[start + count] - self._ends[start]
            if start + count > first:
                low = max(start - first, 0)
                used[low : start + count - first] = b"\1" * (start + count - first - low)
        if total != length:
            raise _bad("a body of another length", event)
        if blob_root(self._core, length, b"".join(parts)) != root:
            raise _bad("a body does not match its root", event)
        return total

    def _spend(self, count: int, chunks: int, event: int) -> None:
        self._references += count
        budget = limits.BUNDLE_REFS_BASE + limits.BUNDLE_REFS_PER_CHUNK * len(self)
        if chunks > limits.BUNDLE_CHUNKS_PER_BODY or self._references > budget:
            raise _bad("too many chunk references", event)


def _bad(why: str, event: int) -> Broken:
    return Broken(Step.BODIES, why, event)
