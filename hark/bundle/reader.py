"""Reads bundles: events in order or by number, bodies, verification.

Rules. ``events``, ``event`` and ``read_body`` decode strictly but do not authenticate: call
``verify`` first where it matters. What they cannot decode raises ``BundleInvalid``. The index is
used for seeking when the bundle has one, and what it leads to is checked to be what was asked for.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from hark import limits
from hark.bundle import cbor
from hark.bundle.batch import Batch, Packer, frames_of
from hark.bundle.core import Core, load
from hark.bundle.faults import Broken, Step, Torn
from hark.bundle.format import (
    BATCH_HEAD,
    END_MARK,
    HEAD_STRUCT,
    MAGIC,
    TRAILER,
    Head,
    Header,
)
from hark.bundle.index import BatchTable, Row, parse_index
from hark.bundle.notes import Sealed
from hark.bundle.source import Block, BytesSource, FileSource, block_heads, check_magic
from hark.bundle.verify import VerifyReport, verify_source
from hark.errors import BundleInvalid, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hark.bundle.keys import Trust
    from hark.bundle.source import Source

__all__ = ["Bundle", "Event"]

_ALL_KINDS = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Event:
    """One event. ``payload`` is None when it was redacted; ``length`` is that of its encoding."""

    seq: int
    kind: int
    time_ns: int
    length: int
    payload: dict[int, Any] | None

    @property
    def redacted(self) -> bool:
        """Whether the payload was taken out."""
        return self.payload is None


def _raise(error: BundleInvalid) -> None:
    raise error


class Bundle:
    """An open bundle. A context manager when it was opened by path."""

    def __init__(self, source: Source, *, core: Core | None = None, fd: int | None = None) -> None:
        self._source = source
        self._core = core or load()
        self._packer = Packer()
        self._fd = fd
        self._cache: dict[int, Batch] = {}
        self._sections: dict[int, bytes] = {}
        self._chunks: dict[int, list[bytes | int]] = {}
        self._nodes: bytes | None = None
        self._leaves = 0
        self._rows: BatchTable | None = None
        self._head_at: int | None = None
        self.header, self.header_bytes = self._read_header()

    @classmethod
    def open(cls, path: str | os.PathLike[str] | int, *, core: Core | None = None) -> Self:
        """Open a path, or a descriptor that stays the caller's."""
        if isinstance(path, int):
            return cls(FileSource(path), core=core)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise InputError(
                f"cannot open {os.fspath(path)}", error.strerror or str(error)
            ) from None
        try:
            return cls(FileSource(fd), core=core, fd=fd)
        except OSError as error:  # a folder
            os.close(fd)
            raise InputError(
                f"cannot read {os.fspath(path)}", error.strerror or str(error)
            ) from None
        except BaseException:
            os.close(fd)
            raise

    @classmethod
    def from_bytes(cls, data: bytes, *, core: Core | None = None) -> Self:
        """Open a bundle in memory."""
        return cls(BytesSource(data), core=core)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close what ``open`` opened."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def fileno(self) -> int:
        """Return the descriptor of a bundle that was opened by path; else -1."""
        return -1 if self._fd is None else self._fd

    @property
    def core(self) -> Core:
        """What hashes here."""
        return self._core

    @property
    def size(self) -> int:
        """Bytes of the file, now."""
        return self._source.size()

    def verify(
        self, trust: Trust, *, progress: Callable[[int], None] | None = None
    ) -> VerifyReport:
        """Check everything; never raises for what the file holds."""
        return verify_source(self._source, trust, self._core, progress)

    # --- events ---

    def events(
        self,
        kind: int | frozenset[int] | None = None,
        *,
        since: int | None = None,
        start: int = 0,
        on_fault: Callable[[BundleInvalid], None] = _raise,
    ) -> Iterator[Event]:
        """Yield events from number ``start`` on, of the kinds asked for, from ``since`` on.

        ``since`` is CLOCK_BOOTTIME in nanoseconds. Times need not rise, so it is a filter, not a
        place. Ends at the last whole batch; a file that is cut raises nothing. ``on_fault`` gets
        what cannot be read; if it returns, the events behind that follow.
        """
        kinds = frozenset((kind,)) if isinstance(kind, int) else kind
        rows = self._table()
        for i in range(rows.find_event(start), len(rows)):
            if _may_hold(rows.row(i), kinds):
                yield from self._batch_events(rows.row(i), kinds, since, start, on_fault)

    def follow(
        self,
        kind: int | frozenset[int] | None = None,
        *,
        since: int | None = None,
        start: int = 0,
        wait: Callable[[], None] = lambda: time.sleep(limits.BUNDLE_FOLLOW_NS / 1e9),
    ) -> Iterator[Event]:
        """Yield events as ``events`` does, then new ones as they are written.

        Ends when the bundle is sealed. ``wait`` is called whenever nothing new is there.
        """
        kinds = frozenset((kind,)) if isinstance(kind, int) else kind
        at = len(MAGIC)
        while True:
            try:
                for head in block_heads(self._source, at):
                    if head.kind == "b":
                        row = self._scan_row(head.body, head.start)
                        yield from self._batch_events(row, kinds, since, start)
                    at = head.end
                    if head.kind == "t":
                        return
            except Torn:
                pass
            except Broken as broken:
                raise _invalid(broken) from None
            wait()

    def event(self, seq: int) -> Event:
        """Return one event, found by the index where there is one."""
        rows = self._table()
        if len(rows) and seq >= 0:
            row = rows.row(rows.find_event(seq))
            for event in self._batch_events(row, None, None, seq):
                if event.seq == seq:
                    return event
                break
        raise InputError(f"there is no event {seq}", f"the bundle holds {self.count()} events")

    def count(self) -> int:
        """Return how many events the whole batches hold."""
        rows = self._table()
        if not len(rows):
            return 0
        batch = self.batch_at(rows.row(len(rows) - 1))
        return batch.first_seq + batch.events

    def _batch_events(
        self,
        row: Row,
        kinds: frozenset[int] | None,
        since: int | None,
        start: int,
        on_fault: Callable[[BundleInvalid], None] = _raise,
    ) -> Iterator[Event]:
        try:
            batch = self.batch_at(row)
            for i, frame in enumerate(frames_of(self.section_of(row), batch.events)):
                seq = batch.first_seq + i
                if seq < start or (kinds is not None and frame.kind not in kinds):
                    continue
                if since is not None and frame.time_ns < since:
                    continue
                try:
                    payload = None if frame.redacted else _decode(frame.payload, seq)
                except BundleInvalid as error:
                    on_fault(error)
                    continue
                yield Event(seq, frame.kind, frame.time_ns, frame.length, payload)
        except Broken as broken:
            on_fault(_invalid(broken))
        except BundleInvalid as error:
            on_fault(error)

    # --- bodies ---

    def chunk(self, number: int) -> bytes | int:
        """Return a chunk, or its size when it was redacted."""
        row = self._chunk_row(number)
        batch = self.batch_at(row)
        chunks = self._chunks.get(row.offset)
        if chunks is None:
            chunks = list(_cut_chunks(batch, self._chunk_section(batch)))
            self._chunks[row.offset] = chunks
        return chunks[number - batch.first_chunk]

    def chunk_batch(self, number: int) -> tuple[Batch, bytes]:
        """Return the batch that holds a chunk, and its chunk section."""
        batch = self.batch_at(self._chunk_row(number))
        return batch, self._chunk_section(batch)

    def _chunk_row(self, number: int) -> Row:
        rows = self._table()
        i = rows.find_chunk(number)
        while i > 0 and self.batch_at(rows.row(i)).chunks == 0:
            i -= 1
        batch = self.batch_at(rows.row(i)) if len(rows) else None
        if batch is None or not 0 <= number - batch.first_chunk < batch.chunks:
            raise BundleInvalid("a body names a chunk that is not there", f"chunk {number}")
        return rows.row(i)

    def _chunk_section(self, batch: Batch) -> bytes:
        try:
            return batch.chunk_section(self._packer)
        except Broken as broken:
            raise _invalid(broken) from None

    def parts(self, ref: cbor.BlobRef) -> Iterator[bytes | int]:
        """Yield the chunks of a body, or the size of each that was redacted.

        No more than the reference says: it may name a chunk again and again.
        """
        left = ref.length
        for first, count in ref.ranges:
            for number in range(first, first + count):
                part = self.chunk(number)
                left -= len(part) if isinstance(part, bytes) else part
                if left < 0:
                    raise BundleInvalid("a body is longer than its event says")
                yield part

    def read_body(self, body: bytes | cbor.BlobRef, *, missing: bytes = b"\0") -> bytes:
        """Return a body; ``missing`` (one byte) stands for each redacted byte.

        Raises BundleInvalid above ``limits.BUNDLE_BODY_READ_MAX_BYTES``: a kilobyte can name
        gigabytes.
        """
        if isinstance(body, bytes):
            return body
        if body.length > limits.BUNDLE_BODY_READ_MAX_BYTES:
            raise BundleInvalid("a body is too long to be read whole", f"{body.length} bytes")
        return b"".join(
            part if isinstance(part, bytes) else missing * part for part in self.parts(body)
        )

    # --- batches and the index ---

    def batch_at(self, row: Row) -> Batch:
        """Return the batch of a row, which must be the one the row says; keeps a few."""
        batch = self._cache.get(row.offset)
        if batch is None:
            try:
                batch = Batch.parse(self._block_at(row.offset, "b").body)
            except Broken as broken:
                raise _invalid(broken) from None
            if (batch.first_seq, batch.first_chunk) != (row.first_seq, row.first_chunk):
                raise BundleInvalid("the index leads to another batch")
            if len(self._cache) >= _CACHED:
                oldest = next(iter(self._cache))
                del self._cache[oldest]
                self._sections.pop(oldest, None)
                self._chunks.pop(oldest, None)
            self._cache[row.offset] = batch
        return batch

    def section_of(self, row: Row) -> bytes:
        """Return the events section of a row's batch."""
        section = self._sections.get(row.offset)
        if section is None:
            try:
                section = self.batch_at(row).event_section(self._packer)
            except Broken as broken:
                raise _invalid(broken) from None
            self._sections[row.offset] = section
        return section

    def batches_over(self, first: int, end: int) -> Iterator[tuple[Batch, bytes]]:
        """Yield the batches that hold events [first, end), with their events sections."""
        rows = self._table()
        for i in range(rows.find_event(first), len(rows)):
            row = rows.row(i)
            if row.first_seq >= end:
                return
            yield self.batch_at(row), self.section_of(row)

    def sealed_blocks(self) -> Iterator[Sealed]:
        """Yield the blocks ``e``, not opened."""
        try:
            for head in block_heads(self._source):
                if head.kind == "e":
                    yield Sealed.parse(self._source.read(head.body, head.size))
        except Torn:
            return
        except Broken as broken:
            raise _invalid(broken) from None

    def indexed_events(self) -> int | None:
        """Return how many events the index covers; None without one."""
        self._table()
        return self._leaves if self._nodes is not None else None

    def stored_nodes(self) -> bytes:
        """Return the tree nodes of the index."""
        return self._nodes or b""

    def last_head(self) -> tuple[Head, bytes] | None:
        """Return the last signed head and its 192 bytes, not checked; None without one."""
        self._table()
        if self._head_at is None:
            return None
        body = self._block_at(self._head_at, "s").body
        try:
            return Head.parse(body[: HEAD_STRUCT.size]), body
        except Broken as broken:
            raise _invalid(broken) from None

    def _block_at(self, at: int, kind: str) -> Block:
        try:
            for head in block_heads(self._source, at):
                if head.kind != kind:
                    break
                return Block(head, self._source.read(head.body, head.size))
        except (Broken, Torn) as fault:
            raise BundleInvalid("the bundle cannot be read", fault.why) from None
        raise BundleInvalid("the index leads nowhere", f"offset {at}")

    def _read_header(self) -> tuple[Header, bytes]:
        try:
            check_magic(self._source)
            head = next(block_heads(self._source), None)
            body = self._source.read(head.body, head.size) if head else b""
            header = Header.parse(body)
        except (Broken, Torn) as fault:
            raise BundleInvalid("not a readable bundle", fault.why) from None
        return header, body

    def _table(self) -> BatchTable:
        if self._rows is None:
            self._rows = self._indexed() or self._scanned()
        return self._rows

    def _indexed(self) -> BatchTable | None:
        end = self._source.size() - TRAILER.size
        tail = self._source.read(end, TRAILER.size) if end > 0 else b""
        if len(tail) < TRAILER.size or not tail.endswith(END_MARK):
            return None
        index_at, self._head_at, _ = TRAILER.unpack(tail)
        try:
            body = self._block_at(index_at, "i").body
            self._leaves, rows, self._nodes = parse_index(body)
        except (Broken, BundleInvalid):
            self._head_at = None
            return None  # damaged: what it says can still be found by looking
        return rows

    def _scanned(self) -> BatchTable:
        rows = BatchTable()
        try:
            for head in block_heads(self._source):
                if head.kind == "b":
                    rows.add(self._scan_row(head.body, head.start))
                elif head.kind == "s":
                    self._head_at = head.start
        except Torn:
            pass
        except Broken as broken:
            if not len(rows):
                raise _invalid(broken) from None
        return rows

    def _scan_row(self, body: int, start: int) -> Row:
        raw = self._source.read(body, BATCH_HEAD.size)
        if len(raw) < BATCH_HEAD.size:
            raise Broken(Step.BLOCKS, "batch too short")
        fields = BATCH_HEAD.unpack(raw)
        return Row(fields[0], start, _ALL_KINDS, fields[3])


_CACHED = 8


def _cut_chunks(batch: Batch, data: bytes) -> Iterator[bytes | int]:
    """Yield each chunk, or the size of one that was redacted."""
    at = 0
    for size, gone in zip(batch.chunk_sizes, batch.chunk_redacted, strict=True):
        if gone:
            yield size
        else:
            yield data[at : at + size]
            at += size


def _may_hold(row: Row, kinds: frozenset[int] | None) -> bool:
    return kinds is None or any(row.kinds >> min(kind, 63) & 1 for kind in kinds)


def _decode(payload: bytes, seq: int) -> dict[int, Any]:
    try:
        value = cbor.decode(payload)
    except cbor.CborError as error:
        raise BundleInvalid(f"event {seq} is not canonical", str(error)) from None
    if not isinstance(value, dict) or not all(type(key) is int for key in value):
        raise BundleInvalid(f"event {seq} is not a map of numbered fields")
    return value


def _invalid(broken: Broken) -> BundleInvalid:
    return BundleInvalid("the bundle is broken", broken.why, "hark verify says where")
