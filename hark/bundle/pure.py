"""``Core`` in Python over the ``blake3`` wheel: slower, same values, no native code of hark's.

Rules: the checks run in the order of ``csrc/bundle/hark_frames.c``, so that both name the same
event. Tests compare the two on every vector.
"""

from __future__ import annotations

import ctypes
import os
import struct

from blake3 import blake3

from hark import limits
from hark.bundle.cbor import CborFault, Span, check
from hark.bundle.core import Bytes, CutRule, FramesFault, FramesResult
from hark.bundle.format import (
    DOMAINS,
    FRAME,
    HASH_SIZE,
    LOCATOR_SIZE,
    MMR_STORED_LEVEL,
    REDACTED,
    SALT_SIZE,
)

__all__ = ["PureCore", "PureMmr"]

_LEAF = struct.Struct(">QQHI")
_FALLOC_KEEP_SIZE = 1
_WORD = (1 << 64) - 1


class PureMmr:
    """A Merkle Mountain Range as a list of peaks."""

    def __init__(self) -> None:
        self.count = 0
        self.nodes = bytearray()
        self._peaks: list[bytes] = []

    def append(self, leaves: bytes) -> None:
        """Append leaves of 32 bytes each."""
        for at in range(0, len(leaves), HASH_SIZE):
            self._append_one(leaves[at : at + HASH_SIZE])

    def _append_one(self, leaf: bytes) -> None:
        peaks = self._peaks
        peaks.append(leaf)
        self.count += 1
        for level in range((self.count & -self.count).bit_length() - 1):
            right = peaks.pop()
            peaks[-1] = blake3(peaks[-1] + right, key=DOMAINS.node).digest()
            if level + 1 >= MMR_STORED_LEVEL:
                self.nodes += peaks[-1]

    def peaks(self) -> bytes:
        """All peaks, highest first."""
        return b"".join(self._peaks)

    def mark(self) -> tuple[int, bytes, int]:
        """Return what ``reset`` needs."""
        return self.count, self.peaks(), len(self.nodes)

    def reset(self, mark: tuple[int, bytes, int]) -> None:
        """Forget the leaves appended since ``mark``."""
        self.count, peaks, nodes = mark
        self._peaks = [peaks[at : at + HASH_SIZE] for at in range(0, len(peaks), HASH_SIZE)]
        del self.nodes[nodes:]


class _Section:
    """One events section while it is parsed."""

    def __init__(self, data: bytes, count: int, *, strict: bool, sparse: bool) -> None:
        self.data = data
        self.count = count
        self.strict = strict
        self.sparse = sparse
        self.frames: list[tuple[int, int, int, int]] = []  # length, kind, time, payload offset
        self.refs: list[Span] = []
        self.kinds = 0
        self.redacted = 0
        self.bad = 0
        self.cbor = CborFault.OK

    def parse(self) -> FramesFault:
        at = 0
        while self.bad < self.count:
            if at == len(self.data):
                return FramesFault.COUNT
            fault, at = self._frame(at)
            if fault is not FramesFault.OK:
                return fault
            self.bad += 1
        return FramesFault.OK if at == len(self.data) else FramesFault.COUNT

    def _frame(self, at: int) -> tuple[FramesFault, int]:
        data = self.data
        if len(data) - at < FRAME.size:
            return FramesFault.HEAD, at
        length, kind, time_ns = FRAME.unpack_from(data, at)
        body = at + FRAME.size
        stored = HASH_SIZE if kind & REDACTED else length
        if length > limits.BUNDLE_SECTION_MAX_BYTES or stored > len(data) - body:
            return FramesFault.LENGTH, at
        if kind & REDACTED and not self.sparse:
            return FramesFault.REDACTED, at
        if self.strict and not kind & REDACTED:
            self.cbor = check(data, body, body + length, self.bad, self.refs)
            if self.cbor is not CborFault.OK:
                return FramesFault.CBOR, at
        self.kinds |= 1 << min(kind & ~REDACTED, 63)
        self.redacted += kind >> 15
        self.frames.append((length, kind, time_ns, body))
        return FramesFault.OK, body + stored


class PureCore:
    """Everything in Python."""

    name = "pure"

    def keyed(self, key: bytes, data: Bytes) -> bytes:
        """BLAKE3 keyed hash."""
        return blake3(data, key=key).digest()

    def xof(self, key: bytes, label: bytes, size: int, seek: int = 0) -> bytes:
        """Keyed output of any length."""
        return blake3(label, key=key).digest(length=size, seek=seek)

    def check_cbor(self, data: bytes) -> CborFault:
        """Whether ``data`` is one value of the CBOR profile."""
        return check(data)

    def frames(
        self,
        data: Bytes,
        salts: Bytes,
        first_seq: int,
        count: int,
        *,
        strict: bool,
        sparse: bool = False,
        locators: Bytes | None = None,
    ) -> FramesResult:
        """Leaves of an events section."""
        section = _Section(bytes(data), count, strict=strict, sparse=sparse)
        fault = section.parse()
        leaves: list[bytes] = []
        if fault is FramesFault.OK:
            fault = self._leaves(section, bytes(salts), first_seq, locators, leaves)
        return FramesResult(
            fault,
            section.bad,
            section.cbor,
            b"".join(leaves),
            section.refs,
            section.kinds,
            section.redacted,
        )

    def _leaves(
        self,
        section: _Section,
        salts: bytes,
        first_seq: int,
        locators: Bytes | None,
        leaves: list[bytes],
    ) -> FramesFault:
        data = section.data
        for i, (length, kind, time_ns, at) in enumerate(section.frames):
            if kind & REDACTED:
                commitment = data[at : at + HASH_SIZE]
            else:
                salt = salts[SALT_SIZE * i : SALT_SIZE * (i + 1)]
                commitment = blake3(salt + data[at : at + length], key=DOMAINS.payload).digest()
            head = _LEAF.pack(first_seq + i, time_ns, kind & ~REDACTED, length)
            leaf = blake3(head + commitment, key=DOMAINS.leaf).digest()
            if (
                locators is not None
                and leaf[:LOCATOR_SIZE] != locators[LOCATOR_SIZE * i : LOCATOR_SIZE * (i + 1)]
            ):
                section.bad = i
                return FramesFault.LOCATOR
            leaves.append(leaf)
        return FramesFault.OK

    def mmr(self) -> PureMmr:
        """Return an empty range."""
        return PureMmr()

    def commit_chunks(self, data: Bytes, sizes: list[int], salts: Bytes, key: bytes) -> bytes:
        """Return the commitments of consecutive chunks."""
        out = []
        at = 0
        for i, size in enumerate(sizes):
            hasher = blake3(salts[SALT_SIZE * i : SALT_SIZE * (i + 1)], key=key)
            out.append(hasher.update(data[at : at + size]).digest())
            at += size
        return b"".join(out)

    def cut(self, data: Bytes, gear: bytes, rule: CutRule) -> list[int]:
        """End offsets of content-defined chunks."""
        table = struct.unpack("=256Q", gear)
        ends = []
        at = 0
        while at < len(data):
            at += _first_cut(data[at : at + rule.maximum], table, rule)
            ends.append(at)
        return ends

    def reserve(self, fd: int, start: int, size: int) -> int:
        """Allocate file blocks without changing the size."""
        libc = ctypes.CDLL(None, use_errno=True)
        libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
        if libc.fallocate(fd, _FALLOC_KEEP_SIZE, start, size) == 0:
            return 0
        return ctypes.get_errno() or os.EX_OSERR


def _first_cut(data: Bytes, gear: tuple[int, ...], rule: CutRule) -> int:
    """Size of the first chunk of ``data``, which holds at most one maximal chunk."""
    size = len(data)
    if size <= rule.minimum:
        return size
    hard = _WORD << (64 - (rule.bits + 2)) & _WORD
    easy = _WORD << (64 - (rule.bits - 2)) & _WORD
    average = min(1 << rule.bits, size)
    value = 0
    for i in range(max(0, rule.minimum - 64), size):
        value = ((value << 1) + gear[data[i]]) & _WORD
        if i >= rule.minimum and not value & (hard if i < average else easy):
            return i + 1
    return size
