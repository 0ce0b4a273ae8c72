"""Makes proofs from a bundle, by its index (spec, "Proof" and "Index").

Rules: hashes at most the leaves of two groups of 256 events, whatever the size of the bundle. Every
proof is checked before it is returned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hark import limits
from hark.bundle import cbor
from hark.bundle.batch import frames_of
from hark.bundle.core import FramesFault
from hark.bundle.format import DOMAINS, HASH_SIZE, MMR_STORED_LEVEL, SALT_SIZE
from hark.bundle.proof import ChunkProof, Proof, check, peak_of, references
from hark.errors import BundleInvalid, InputError

if TYPE_CHECKING:
    from hark.bundle.batch import Batch
    from hark.bundle.reader import Bundle

__all__ = ["prove"]

_GROUP = 1 << MMR_STORED_LEVEL


def prove(bundle: Bundle, seq: int, *, bodies: bool = False) -> Proof:
    """Return a proof of event ``seq``, with its bodies if asked for.

    Raises ``InputError`` when there is no such event under a signed head, ``BundleInvalid`` when
    the bundle does not hold what it must.
    """
    signed = bundle.last_head()
    if signed is None:
        raise BundleInvalid("nothing can be proved", "the bundle has no signed head")
    head, raw = signed
    if not 0 <= seq < head.events:
        raise InputError(
            f"event {seq} is not under a signed head", f"{head.events} events are signed"
        )
    tree = _Tree(bundle, head.events)
    height, before = peak_of(seq, head.events)
    peaks = tree.peaks()
    path = tuple(tree.node(level, (seq >> level ^ 1) << level) for level in range(height))
    event = _event(bundle, seq)
    kind, time_ns, length, payload, salt = event
    proof = Proof(
        header=bundle.header_bytes,
        seq=seq,
        kind=kind,
        time_ns=time_ns,
        length=length,
        payload=payload,
        salt=salt,
        path=path,
        peaks=(*peaks[:before], *peaks[before + 1 :]),
        head=raw,
        bodies=_bodies(bundle, payload) if bodies and payload is not None else None,
    )
    check(proof, bundle.core)
    return proof


class _Tree:
    """Nodes of the tree over the first ``count`` events, stored ones from the index."""

    def __init__(self, bundle: Bundle, count: int) -> None:
        self._bundle = bundle
        self._count = count
        self._groups: dict[int, bytes] = {}
        # An index covers all events; a head in the middle of a killed run has none.
        self._stored = bundle.stored_nodes() if bundle.indexed_events() == count else b""
        if not self._stored and count >= _GROUP:
            self._rebuild()

    def peaks(self) -> list[bytes]:
        """All peaks, highest first."""
        start = 0
        out = []
        for height in range(63, -1, -1):
            if self._count >> height & 1:
                out.append(self.node(height, start))
                start += 1 << height
        return out

    def node(self, level: int, start: int) -> bytes:
        """Return the node over leaves [start, start + 2^level)."""
        if level >= MMR_STORED_LEVEL:
            # Post order: all nodes of the leaves up to the end of this one come before it.
            groups = (start + (1 << level)) >> MMR_STORED_LEVEL
            place = 2 * (groups - 1) - (groups - 1).bit_count() + level - MMR_STORED_LEVEL
            return self._stored[HASH_SIZE * place : HASH_SIZE * (place + 1)]
        group = start >> MMR_STORED_LEVEL
        leaves = self._groups.get(group)
        if leaves is None:
            leaves = self._groups[group] = _leaves(
                self._bundle, group * _GROUP, min(self._count, (group + 1) * _GROUP)
            )
        at = HASH_SIZE * (start - group * _GROUP)
        row = leaves[at : at + (HASH_SIZE << level)]
        for _ in range(level):
            pairs = range(0, len(row), 2 * HASH_SIZE)
            row = b"".join(
                self._bundle.core.keyed(DOMAINS.node, row[i : i + 2 * HASH_SIZE]) for i in pairs
            )
        return row

    def _rebuild(self) -> None:
        """Without an index: one pass over all leaves."""
        mmr = self._bundle.core.mmr()
        for first in range(0, self._count, 64 * _GROUP):
            mmr.append(_leaves(self._bundle, first, min(self._count, first + 64 * _GROUP)))
        self._stored = bytes(mmr.nodes)


def _batch_leaves(bundle: Bundle, batch: Batch, section: bytes) -> bytes:
    result = bundle.core.frames(
        section,
        batch.event_salts(bundle.core),
        batch.first_seq,
        batch.events,
        strict=False,
        sparse=batch.sparse,
        locators=batch.locators,
    )
    if result.fault is not FramesFault.OK:
        raise BundleInvalid("the bundle is broken", f"event {batch.first_seq + result.bad}")
    return result.leaves


def _leaves(bundle: Bundle, first: int, end: int) -> bytes:
    """Leaves of events [first, end)."""
    out = []
    for batch, section in bundle.batches_over(first, end):
        leaves = _batch_leaves(bundle, batch, section)
        low = max(first - batch.first_seq, 0)
        high = min(end - batch.first_seq, batch.events)
        out.append(leaves[HASH_SIZE * low : HASH_SIZE * high])
    joined = b"".join(out)
    if len(joined) != HASH_SIZE * (end - first):
        raise BundleInvalid("the bundle is broken", "events are missing")
    return joined


def _event(bundle: Bundle, seq: int) -> tuple[int, int, int, bytes | None, bytes]:
    """Kind, time, length, payload and salt; commitment as salt when it was redacted."""
    for batch, section in bundle.batches_over(seq, seq + 1):
        at = seq - batch.first_seq
        salts = batch.event_salts(bundle.core)
        for i, frame in enumerate(frames_of(section, batch.events)):
            if i == at:
                if frame.redacted:
                    return frame.kind, frame.time_ns, frame.length, None, frame.payload
                salt = salts[SALT_SIZE * i : SALT_SIZE * (i + 1)]
                return frame.kind, frame.time_ns, frame.length, frame.payload, salt
    raise BundleInvalid("the bundle is broken", f"event {seq} is missing")


def _bodies(bundle: Bundle, payload: bytes) -> tuple[tuple[ChunkProof, ...], ...]:
    refs = list(references(cbor.decode(payload)))
    if sum(ref.length for ref in refs) > limits.PROOF_MAX_BYTES:
        raise InputError("the event's bodies are too long for a proof", hint="leave --bodies out")
    for ref in refs:
        for _ in bundle.parts(ref):  # as long as it says
            pass
    return tuple(
        tuple(
            _chunk(bundle, number)
            for first, count in ref.ranges
            for number in range(first, first + count)
        )
        for ref in refs
    )


def _chunk(bundle: Bundle, number: int) -> ChunkProof:
    batch, data = bundle.chunk_batch(number)
    i = number - batch.first_chunk
    size = batch.chunk_sizes[i]
    if batch.chunk_redacted[i]:
        place = HASH_SIZE * sum(batch.chunk_redacted[:i])
        return ChunkProof(size, batch.commitments[place : place + HASH_SIZE])
    kept = zip(batch.chunk_sizes[:i], batch.chunk_redacted[:i], strict=True)
    at = sum(s for s, gone in kept if not gone)
    salts = batch.chunk_salts(bundle.core)
    return ChunkProof(size, None, salts[SALT_SIZE * i : SALT_SIZE * (i + 1)], data[at : at + size])
