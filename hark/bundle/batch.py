"""Block ``b``: events and chunks of one flush (docs/spec/bundle.md, "Batch").

Rules: pure. ``Batch.parse`` checks the frame of a batch (sizes, reserved bits, chunk table); what
is inside its sections is checked by who reads them, since a reader of one event must not pay for
all.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hark import limits
from hark.bundle.faults import Broken, Step
from hark.bundle.format import (
    BATCH_HEAD,
    FRAME,
    HASH_SIZE,
    LOCATOR_SIZE,
    REDACTED,
    SALT_SIZE,
    SPARSE,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hark.bundle.core import Core

__all__ = ["Batch", "Frame", "Packer", "build_batch", "frames_of", "locators_of"]

_TOP = 0x80000000
_PACK_LEAST = 64  # below this a zstd frame only adds bytes


class Packer:
    """Sections to and from their stored form. Not for use by two threads at once."""

    def __init__(self, level: int = limits.BUNDLE_ZSTD_LEVEL) -> None:
        self._level = level
        self._compressor: Any = None
        self._decompressor: Any = None
        self._zstd: Any = None

    def _module(self) -> Any:
        if self._zstd is None:
            import zstandard  # noqa: PLC0415 - imported when first needed

            self._zstd = zstandard
        return self._zstd

    def pack(self, plain: bytes) -> bytes:
        """Return the smaller of ``plain`` and its zstd frame."""
        if len(plain) < _PACK_LEAST:
            return plain
        if self._compressor is None:
            self._compressor = self._module().ZstdCompressor(
                level=self._level, write_content_size=True, write_checksum=False
            )
        packed: bytes = self._compressor.compress(plain)
        return packed if len(packed) < len(plain) else plain

    def unpack(self, stored: bytes, plain_size: int, step: Step) -> bytes:
        """Return the plain section; raises ``Broken``. Never yields more than ``plain_size``."""
        if plain_size > limits.BUNDLE_SECTION_MAX_BYTES:
            raise Broken(step, "section over its limit")
        if len(stored) == plain_size:
            return stored
        if len(stored) > plain_size:
            raise Broken(step, "stored section larger than its content")
        zstd = self._module()
        try:
            frame = zstd.get_frame_parameters(stored)
            if (
                frame.content_size != plain_size
                or frame.has_checksum
                or frame.dict_id
                or frame.window_size > limits.BUNDLE_WINDOW_MAX_BYTES
            ):
                raise Broken(step, "zstd frame of a wrong shape")
            if self._decompressor is None:
                self._decompressor = zstd.ZstdDecompressor(
                    max_window_size=limits.BUNDLE_WINDOW_MAX_BYTES
                )
            plain: bytes = self._decompressor.decompress(
                stored, max_output_size=plain_size, allow_extra_data=False
            )
        except zstd.ZstdError as error:
            raise Broken(step, f"zstd: {error}") from None
        if len(plain) != plain_size:
            raise Broken(step, "zstd frame of a wrong length")
        return plain


@dataclass(frozen=True, slots=True)
class Frame:
    """One event inside a section. ``payload`` is its commitment when ``redacted``."""

    kind: int
    time_ns: int
    length: int
    redacted: bool
    payload: bytes


def frames_of(section: bytes, count: int) -> Iterator[Frame]:
    """Yield the frames of an events section; raises ``Broken``."""
    at = 0
    for _ in range(count):
        if len(section) - at < FRAME.size:
            raise Broken(Step.EVENTS, "section ends inside a frame")
        length, kind, time_ns = FRAME.unpack_from(section, at)
        at += FRAME.size
        stored = HASH_SIZE if kind & REDACTED else length
        if stored > len(section) - at:
            raise Broken(Step.EVENTS, "payload longer than its section")
        redacted = bool(kind & REDACTED)
        yield Frame(kind & ~REDACTED, time_ns, length, redacted, section[at : at + stored])
        at += stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A parsed block ``b``. ``salts`` is None in a dense batch: they come from ``seed``."""

    first_seq: int
    events: int
    chunks: int
    first_chunk: int
    plain_events: int
    plain_chunks: int
    seed: bytes
    salts: bytes | None
    stored_events: bytes
    locators: bytes
    chunk_sizes: list[int]
    chunk_redacted: list[bool]
    commitments: bytes  # of the redacted chunks, in order
    stored_chunks: bytes
    chain: bytes

    @property
    def sparse(self) -> bool:
        """Whether the batch carries explicit salts, and so may hold redacted items."""
        return self.salts is not None

    @classmethod
    def parse(cls, body: bytes) -> Batch:
        """Read the body of a block ``b``; raises ``Broken``."""
        if len(body) < BATCH_HEAD.size + HASH_SIZE:
            raise _bad("batch too short")
        (
            first,
            events,
            chunks,
            first_chunk,
            plain_ev,
            stored_ev,
            plain_ch,
            stored_ch,
            flags,
            seed,
        ) = BATCH_HEAD.unpack_from(body)
        if flags & ~SPARSE or any(body[41:44]):
            raise _bad("batch with reserved bits set")
        if not 0 < events <= limits.BUNDLE_EVENTS_PER_BATCH:
            raise _bad("batch of a wrong number of events")
        if chunks > limits.BUNDLE_CHUNKS_PER_BATCH:
            raise _bad("batch of too many chunks")
        if max(plain_ev, plain_ch, stored_ev, stored_ch) > limits.BUNDLE_SECTION_MAX_BYTES:
            raise _bad("section over its limit")
        cut = _Cutter(body, BATCH_HEAD.size)
        salts = cut.take(SALT_SIZE * (events + chunks)) if flags & SPARSE else None
        if salts is not None and any(seed):
            raise _bad("sparse batch with a seed")
        stored_events = cut.take(stored_ev)
        locators = cut.take(LOCATOR_SIZE * events)
        table = struct.unpack(f">{chunks}I", cut.take(4 * chunks))
        redacted = [size >= _TOP for size in table]
        sizes = [size & ~_TOP for size in table]
        _check_table(sizes, redacted, plain_ch, sparse=salts is not None)
        commitments = cut.take(HASH_SIZE * sum(redacted))
        stored_chunks = cut.take(stored_ch)
        chain = cut.take(HASH_SIZE)
        if cut.left:
            raise _bad("bytes behind a batch")
        return cls(
            first_seq=first,
            events=events,
            chunks=chunks,
            first_chunk=first_chunk,
            plain_events=plain_ev,
            plain_chunks=plain_ch,
            seed=seed,
            salts=salts,
            stored_events=stored_events,
            locators=locators,
            chunk_sizes=sizes,
            chunk_redacted=redacted,
            commitments=commitments,
            stored_chunks=stored_chunks,
            chain=chain,
        )

    def event_salts(self, core: Core) -> bytes:
        """16 bytes for each event."""
        if self.salts is not None:
            return self.salts[: SALT_SIZE * self.events]
        return core.xof(self.seed, b"event", SALT_SIZE * self.events)

    def chunk_salts(self, core: Core) -> bytes:
        """16 bytes for each chunk."""
        if self.salts is not None:
            return self.salts[SALT_SIZE * self.events :]
        return core.xof(self.seed, b"chunk", SALT_SIZE * self.chunks)

    def event_section(self, packer: Packer) -> bytes:
        """All frames."""
        return packer.unpack(self.stored_events, self.plain_events, Step.EVENTS)

    def chunk_section(self, packer: Packer) -> bytes:
        """All chunks that are still there, one after the other."""
        return packer.unpack(self.stored_chunks, self.plain_chunks, Step.BODIES)

    def chunk_commitments(self, core: Core, data: bytes, key: bytes) -> bytes:
        """32 bytes for each chunk; ``data`` is the chunk section."""
        salts = self.chunk_salts(core)
        if not any(self.chunk_redacted):
            return core.commit_chunks(data, self.chunk_sizes, salts, key)
        kept = [i for i, gone in enumerate(self.chunk_redacted) if not gone]
        kept_salts = b"".join(salts[SALT_SIZE * i : SALT_SIZE * (i + 1)] for i in kept)
        kept_sizes = [self.chunk_sizes[i] for i in kept]
        fresh = _Cutter(core.commit_chunks(data, kept_sizes, kept_salts, key), 0)
        stored = _Cutter(self.commitments, 0)
        return b"".join((stored if gone else fresh).take(HASH_SIZE) for gone in self.chunk_redacted)


class _Cutter:
    """Takes bytes off the front; raises ``Broken`` when there are too few."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        if size > self.left:
            raise _bad("batch too short")
        self._at += size
        return self._data[self._at - size : self._at]


def _bad(why: str) -> Broken:
    return Broken(Step.BLOCKS, why)


def _check_table(sizes: list[int], redacted: list[bool], plain: int, *, sparse: bool) -> None:
    if not sizes:
        if plain:
            raise _bad("chunk bytes without chunks")
        return
    if min(sizes) == 0 or max(sizes) > limits.BUNDLE_CHUNK_MAX_BYTES:
        raise _bad("chunk of a wrong size")
    if not sparse and any(redacted):
        raise _bad("redacted chunk in a dense batch")
    if sum(size for size, gone in zip(sizes, redacted, strict=True) if not gone) != plain:
        raise _bad("chunk sizes do not add up")


def locators_of(leaves: bytes) -> bytes:
    """Return the first bytes of every leaf, which name the event when a batch is broken."""
    return b"".join(leaves[at : at + LOCATOR_SIZE] for at in range(0, len(leaves), HASH_SIZE))


def build_batch(
    packer: Packer,
    *,
    first_seq: int,
    first_chunk: int,
    events: int,
    section: bytes,
    locators: bytes,
    chunk_sizes: list[int],
    chunk_data: bytes,
    chain: bytes,
    seed: bytes | None,
    salts: bytes = b"",
    chunk_redacted: list[bool] | None = None,
    commitments: bytes = b"",
) -> bytes:
    """Return the body of a block ``b``; sparse when ``seed`` is None, then ``salts`` are given."""
    stored_ev, stored_ch = packer.pack(section), packer.pack(chunk_data)
    gone = chunk_redacted or [False] * len(chunk_sizes)
    table = [size | _TOP if g else size for size, g in zip(chunk_sizes, gone, strict=True)]
    head = BATCH_HEAD.pack(
        first_seq,
        events,
        len(chunk_sizes),
        first_chunk,
        len(section),
        len(stored_ev),
        len(chunk_data),
        len(stored_ch),
        0 if seed is not None else SPARSE,
        seed or bytes(HASH_SIZE),
    )
    return b"".join(
        (
            head,
            salts,
            stored_ev,
            locators,
            struct.pack(f">{len(table)}I", *table),
            commitments,
            stored_ch,
            chain,
        )
    )
