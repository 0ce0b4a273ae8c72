"""Roots, chain values and body roots: the hashes that join batches (spec, "Tree", "Chain")."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from hark.bundle.format import DOMAINS

if TYPE_CHECKING:
    from hark.bundle.core import Core

__all__ = ["blob_root", "chain_next", "root_of"]


def root_of(core: Core, count: int, peaks: bytes) -> bytes:
    """Root over ``count`` leaves; ``peaks`` highest first."""
    return core.keyed(DOMAINS.root, struct.pack(">Q", count) + peaks)


def chain_next(core: Core, chain: bytes, events: int, root: bytes, chunks: int) -> bytes:
    """Chain value after a batch: everything before it, and the counts so far."""
    return core.keyed(
        DOMAINS.chain, b"".join((chain, struct.pack(">Q", events), root, struct.pack(">Q", chunks)))
    )


def blob_root(core: Core, length: int, table: bytes) -> bytes:
    """Root of a body; ``table`` is (u32 size, commitment) of each of its chunks."""
    return core.keyed(DOMAINS.blob, struct.pack(">Q", length) + table)
