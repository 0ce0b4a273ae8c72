"""Takes events and chunks out of a bundle without touching what is signed (spec, "Redaction").

Rules: writes a new file and never the old one. Roots, chain, heads and old proofs stay. What is
taken out leaves its commitment, and loses its salt, so that it cannot be guessed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hark.bundle import cbor
from hark.bundle.batch import Batch, Packer, build_batch, frames_of
from hark.bundle.core import FramesFault
from hark.bundle.faults import Broken, Step, Torn
from hark.bundle.format import (
    BLOCK_HEAD,
    DOMAINS,
    FRAME,
    HASH_SIZE,
    MAGIC,
    REDACTED,
    SALT_SIZE,
)
from hark.bundle.index import BatchTable, Row, encode_index, encode_trailer
from hark.bundle.notes import NOTE_CONTEXT, Note
from hark.bundle.proof import references
from hark.bundle.source import blocks, check_magic
from hark.errors import BundleInvalid, InputError

if TYPE_CHECKING:
    from hark.bundle.core import Core
    from hark.bundle.keys import SigningKey
    from hark.bundle.source import Source

__all__ = ["Redaction", "redact"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """What to take out, and what the note says. ``key`` signs the note, if given.

    With ``bodies`` the chunks of redacted events go too, also where another body shares them.
    """

    events: frozenset[int] = frozenset()
    chunks: frozenset[int] = frozenset()
    reason: str
    unix_ns: int
    bodies: bool = True
    key: SigningKey | None = None


@dataclass(slots=True)
class _Output:
    """The new file and what its index needs."""

    fd: int
    core: Core
    packer: Packer = field(default_factory=Packer)
    at: int = 0
    head_at: int = 0
    batches: BatchTable = field(default_factory=BatchTable)

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self.fd, view) :]
        self.at += len(data)

    def block(self, kind: str, body: bytes) -> None:
        self.write(BLOCK_HEAD.pack(ord(kind), len(body)) + body)


def redact(source: Source, fd: int, wish: Redaction, core: Core) -> None:
    """Write a redacted copy of the sealed bundle ``source`` to the empty file ``fd``.

    Raises ``BundleInvalid`` for a bundle that cannot be read, ``InputError`` for numbers it does
    not have. Verify the source first; the copy is as good as it.
    """
    try:
        check_magic(source)
        wish = _with_bodies(source, wish)
        _copy(source, _Output(fd, core), wish)
    except (Broken, Torn) as fault:
        raise BundleInvalid("the bundle cannot be redacted", fault.why) from None


def _with_bodies(source: Source, wish: Redaction) -> Redaction:
    """Add the chunks of the events; checks that all numbers exist."""
    packer = Packer()
    chunks = set(wish.chunks)
    events = 0
    held = 0
    for block in blocks(source):
        if block.head.kind != "b":
            continue
        batch = Batch.parse(block.body)
        events = batch.first_seq + batch.events
        held = batch.first_chunk + batch.chunks
        mine = wish.events & set(range(batch.first_seq, events)) if wish.bodies else set()
        if mine:
            frames = frames_of(batch.event_section(packer), batch.events)
            chunks.update(
                number
                for i, frame in enumerate(frames)
                if batch.first_seq + i in mine and not frame.redacted
                for number in _chunks_of(frame.payload)
            )
    if any(not 0 <= n < events for n in wish.events) or any(not 0 <= n < held for n in chunks):
        raise InputError("no such event or chunk", f"{events} events and {held} chunks are there")
    return replace(wish, chunks=frozenset(chunks))


def _chunks_of(payload: bytes) -> set[int]:
    try:
        refs = references(cbor.decode(payload))
    except cbor.CborError as error:
        raise Broken(Step.EVENTS, str(error)) from None
    return {n for ref in refs for first, count in ref.ranges for n in range(first, first + count)}


def _copy(source: Source, out: _Output, wish: Redaction) -> None:
    mmr = out.core.mmr()
    sealed = False
    out.write(MAGIC)
    for block in blocks(source):
        kind, body = block.head.kind, block.body
        if kind in "it":
            continue
        if kind == "b":
            batch = Batch.parse(body)
            section = batch.event_section(out.packer)
            leaves, kinds = _leaves(batch, section, out.core)
            mmr.append(leaves)
            out.batches.add(Row(batch.first_seq, out.at, kinds, batch.first_chunk))
            body = _redact_batch(batch, section, body, out, wish)
        elif kind == "s":
            out.head_at = out.at
            sealed = body[124] == 1  # the final flag of a head
        elif kind == "e" and _touches(source, block.head.end, wish):
            continue  # it opens what its batch redacts: left in, its holder could still read it
        out.block(kind, body)
    if not sealed:
        raise Torn("only a sealed bundle can be redacted")
    out.block("r", _note(wish))
    index_at = out.at
    out.block("i", encode_index(mmr.count, out.batches, mmr.nodes))
    out.block("t", encode_trailer(index_at, out.head_at))


def _touches(source: Source, at: int, wish: Redaction) -> bool:
    """Whether the batch behind offset ``at`` holds an event to redact."""
    for block in blocks(source, at):
        batch = Batch.parse(block.body)
        return bool(wish.events & set(range(batch.first_seq, batch.first_seq + batch.events)))
    return False


def _leaves(batch: Batch, section: bytes, core: Core) -> tuple[bytes, int]:
    result = core.frames(
        section,
        batch.event_salts(core),
        batch.first_seq,
        batch.events,
        strict=False,
        sparse=batch.sparse,
        locators=batch.locators,
    )
    if result.fault is not FramesFault.OK:
        raise Broken(Step.EVENTS, f"event {batch.first_seq + result.bad} was changed")
    return result.leaves, result.kinds


def _redact_batch(
    batch: Batch, section: bytes, body: bytes, out: _Output, wish: Redaction
) -> bytes:
    events = wish.events & set(range(batch.first_seq, batch.first_seq + batch.events))
    chunks = wish.chunks & set(range(batch.first_chunk, batch.first_chunk + batch.chunks))
    if not events and not chunks:
        return body
    new_section, event_salts = _redact_events(batch, section, out.core, events)
    gone, commitments, data, chunk_salts = _redact_chunks(batch, out, chunks)
    return build_batch(
        out.packer,
        first_seq=batch.first_seq,
        first_chunk=batch.first_chunk,
        events=batch.events,
        section=new_section,
        locators=batch.locators,
        chunk_sizes=batch.chunk_sizes,
        chunk_data=data,
        chain=batch.chain,
        seed=None,
        salts=event_salts + chunk_salts,
        chunk_redacted=gone,
        commitments=commitments,
    )


def _redact_events(
    batch: Batch, section: bytes, core: Core, events: set[int] | frozenset[int]
) -> tuple[bytes, bytes]:
    salts = bytearray(batch.event_salts(core))
    frames = []
    for i, frame in enumerate(frames_of(section, batch.events)):
        payload = frame.payload
        redacted = frame.redacted
        place = slice(SALT_SIZE * i, SALT_SIZE * (i + 1))
        if batch.first_seq + i in events and not redacted:
            payload = core.keyed(DOMAINS.payload, bytes(salts[place]) + payload)
            redacted = True
        if redacted:
            salts[place] = bytes(SALT_SIZE)
        kind = frame.kind | (REDACTED if redacted else 0)
        frames.append(FRAME.pack(frame.length, kind, frame.time_ns) + payload)
    return b"".join(frames), bytes(salts)


def _redact_chunks(
    batch: Batch, out: _Output, chunks: set[int] | frozenset[int]
) -> tuple[list[bool], bytes, bytes, bytes]:
    """Return which chunks are gone, their commitments, the data of the others, all salts."""
    if not batch.chunks:
        return [], b"", b"", b""
    data = batch.chunk_section(out.packer)
    table = batch.chunk_commitments(out.core, data, DOMAINS.chunk)
    salts = bytearray(batch.chunk_salts(out.core))
    gone = list(batch.chunk_redacted)
    kept = []
    commitments = []
    at = 0
    for i, size in enumerate(batch.chunk_sizes):
        was = gone[i]
        gone[i] = was or batch.first_chunk + i in chunks
        if gone[i]:
            commitments.append(table[HASH_SIZE * i : HASH_SIZE * (i + 1)])
            salts[SALT_SIZE * i : SALT_SIZE * (i + 1)] = bytes(SALT_SIZE)
        else:
            kept.append(data[at : at + size])
        at += 0 if was else size
    return gone, b"".join(commitments), b"".join(kept), bytes(salts)


def _note(wish: Redaction) -> bytes:
    note = Note(
        events=tuple(sorted(wish.events)),
        chunks=tuple(sorted(wish.chunks)),
        unix_ns=wish.unix_ns,
        reason=wish.reason,
        key=wish.key.public if wish.key else None,
    )
    if wish.key is None:
        return note.encode()
    signature = wish.key.sign(NOTE_CONTEXT, note.encode(signed=False))
    return replace(note, signature=signature).encode()
