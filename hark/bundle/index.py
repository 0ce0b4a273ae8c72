"""Blocks ``i`` and ``t``: where batches lie, and the tree's upper nodes (spec, "Index").

Rules: an index is transport, not evidence. ``verify`` rebuilds it and compares; a reader that
seeks by it checks what it finds.
"""

from __future__ import annotations

import sys
from array import array
from dataclasses import dataclass

from hark.bundle.faults import Broken, Step
from hark.bundle.format import (
    END_MARK,
    HASH_SIZE,
    INDEX_HEAD,
    INDEX_ROW,
    MMR_STORED_LEVEL,
    TRAILER,
)

__all__ = [
    "BatchTable",
    "Row",
    "encode_index",
    "encode_trailer",
    "index_size",
    "parse_index",
    "stored_nodes",
]


@dataclass(frozen=True, slots=True)
class Row:
    """One batch: its first event, file offset, kinds seen (bits) and first chunk."""

    first_seq: int
    offset: int
    kinds: int
    first_chunk: int


class BatchTable:
    """Rows in 32 bytes each, however many batches a run makes."""

    def __init__(self) -> None:
        self._values = array("Q")

    def __len__(self) -> int:
        return len(self._values) // 4

    def add(self, row: Row) -> None:
        """Append a row."""
        self._values.extend((row.first_seq, row.offset, row.kinds, row.first_chunk))

    def row(self, i: int) -> Row:
        """Row ``i``."""
        return Row(*self._values[4 * i : 4 * i + 4])

    def encode(self) -> bytes:
        """All rows, big-endian."""
        return _swapped(self._values).tobytes()

    @classmethod
    def parse(cls, data: bytes) -> BatchTable:
        """Read rows as ``encode`` writes them."""
        table = cls()
        table._values.frombytes(data)
        table._values = _swapped(table._values)
        return table

    def find_event(self, seq: int) -> int:
        """Return the number of the last row whose first event is at most ``seq``; 0 if none."""
        return self._find(0, seq)

    def find_chunk(self, number: int) -> int:
        """Return the number of the last row whose first chunk is at most ``number``; 0 if none."""
        return self._find(3, number)

    def _find(self, column: int, value: int) -> int:
        low, high = 0, len(self)
        while high - low > 1:
            middle = (low + high) // 2
            if self._values[4 * middle + column] <= value:
                low = middle
            else:
                high = middle
        return low


def _swapped(values: array[int]) -> array[int]:
    """Between the machine's byte order and the file's."""
    values = array("Q", values)
    if sys.byteorder == "little":
        values.byteswap()
    return values


def stored_nodes(leaves: int) -> int:
    """How many tree nodes of the stored levels ``leaves`` leaves have."""
    groups = leaves >> MMR_STORED_LEVEL
    return 2 * groups - groups.bit_count()


def index_size(leaves: int, batches: int) -> int:
    """Bytes of the body of a block ``i``."""
    return INDEX_HEAD.size + INDEX_ROW.size * batches + HASH_SIZE * stored_nodes(leaves)


def encode_index(leaves: int, batches: BatchTable, nodes: bytes | bytearray) -> bytes:
    """Return the body of a block ``i``."""
    head = INDEX_HEAD.pack(leaves, len(batches), len(nodes) // HASH_SIZE, MMR_STORED_LEVEL)
    return head + batches.encode() + nodes


def parse_index(body: bytes) -> tuple[int, BatchTable, bytes]:
    """Read a block ``i``: leaves, rows, nodes. Raises ``Broken``."""
    if len(body) < INDEX_HEAD.size:
        raise Broken(Step.INDEX, "index too short")
    leaves, batches, nodes, level = INDEX_HEAD.unpack_from(body)
    if level != MMR_STORED_LEVEL or nodes != stored_nodes(leaves):
        raise Broken(Step.INDEX, "index of a wrong shape")
    rows_end = INDEX_HEAD.size + INDEX_ROW.size * batches
    if len(body) != rows_end + HASH_SIZE * nodes:
        raise Broken(Step.INDEX, "index of a wrong size")
    return leaves, BatchTable.parse(body[INDEX_HEAD.size : rows_end]), body[rows_end:]


def encode_trailer(index_at: int, head_at: int) -> bytes:
    """Return the body of a block ``t``."""
    return TRAILER.pack(index_at, head_at, END_MARK)
