"""``Core`` over ``hark._native`` (csrc/bundle/hark_bundle.h)."""

from __future__ import annotations

from typing import Any

from hark import limits
from hark._native import ffi, lib
from hark.bundle.cbor import CborFault
from hark.bundle.core import Bytes, CutRule, FramesFault, FramesResult
from hark.bundle.format import DOMAINS, HASH_SIZE

__all__ = ["NativeCore", "NativeMmr"]


_CANONICAL = CborFault.OK


def _in(data: Bytes) -> Any:
    return data if type(data) is bytes else ffi.from_buffer("uint8_t[]", data)


def _out(data: bytearray) -> Any:
    return ffi.from_buffer("uint8_t[]", data)


class NativeMmr:
    """A Merkle Mountain Range in C memory."""

    def __init__(self) -> None:
        self._mmr = ffi.new("struct hark_mmr *")
        self.nodes = bytearray()

    @property
    def count(self) -> int:
        """Leaves so far."""
        return int(self._mmr.count)

    def append(self, leaves: bytes) -> None:
        """Append leaves of 32 bytes each."""
        n = len(leaves) // HASH_SIZE
        room = bytearray(HASH_SIZE * (n // 128 + 64))
        written = lib.hark_mmr_append(self._mmr, leaves, n, DOMAINS.node, _out(room))
        if written:
            self.nodes += room[: HASH_SIZE * written]

    def peaks(self) -> bytes:
        """All peaks, highest first."""
        return bytes(ffi.buffer(self._mmr.peaks, HASH_SIZE * self.count.bit_count()))

    def mark(self) -> tuple[int, bytes, int]:
        """Return what ``reset`` needs."""
        return self.count, self.peaks(), len(self.nodes)

    def reset(self, mark: tuple[int, bytes, int]) -> None:
        """Forget the leaves appended since ``mark``."""
        self._mmr.count, peaks, nodes = mark
        ffi.memmove(self._mmr.peaks, peaks, len(peaks))
        del self.nodes[nodes:]


class NativeCore:
    """Everything in C, one call a batch."""

    name = "native"

    def __init__(self) -> None:
        self._refs = ffi.NULL
        self._hash = ffi.new("uint8_t[32]")
        self._check = lib.hark_cbor_check
        self._null = ffi.NULL

    def keyed(self, key: bytes, data: Bytes) -> bytes:
        """BLAKE3 keyed hash."""
        lib.hark_keyed(key, _in(data), len(data), self._hash)
        return bytes(ffi.buffer(self._hash))

    def xof(self, key: bytes, label: bytes, size: int, seek: int = 0) -> bytes:
        """Keyed output of any length."""
        out = bytearray(size)
        lib.hark_keyed_xof(key, label, len(label), seek, _out(out), size)
        return bytes(out)

    def check_cbor(self, data: bytes) -> CborFault:
        """Whether ``data`` is one value of the CBOR profile."""
        fault = self._check(data, len(data), self._null, 0, self._null)
        return CborFault(fault) if fault else _CANONICAL

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
        leaves = bytearray(HASH_SIZE * count)
        if strict and self._refs == ffi.NULL:
            self._refs = ffi.new("struct hark_span[]", limits.BUNDLE_REFS_PER_BATCH)
        keep = (_in(data), _in(salts), _out(leaves), _in(locators) if locators else ffi.NULL)
        args = ffi.new("struct hark_frames *")
        args.data, args.salts = ffi.cast("uint8_t *", _pointer(keep[0])), _pointer(keep[1])
        args.size, args.leaves = len(data), keep[2]
        if locators is not None:
            args.locators = _pointer(keep[3])
        args.first_seq, args.count = first_seq, count
        args.flags = strict * lib.HARK_FRAMES_STRICT | sparse * lib.HARK_FRAMES_SPARSE
        if strict:
            args.refs, args.refs_cap = self._refs, limits.BUNDLE_REFS_PER_BATCH
        fault = lib.hark_frames_hash(args, DOMAINS.payload, DOMAINS.leaf)
        refs = [(s.event, s.start, s.end) for s in self._refs[0 : args.refs_len]] if strict else []
        return FramesResult(
            FramesFault(fault),
            args.bad,
            CborFault(args.cbor),
            bytes(leaves),
            refs,
            args.kinds,
            args.redacted,
        )

    def mmr(self) -> NativeMmr:
        """Return an empty range."""
        return NativeMmr()

    def commit_chunks(self, data: Bytes, sizes: list[int], salts: Bytes, key: bytes) -> bytes:
        """Return the commitments of consecutive chunks."""
        out = bytearray(HASH_SIZE * len(sizes))
        array = ffi.new("uint32_t[]", sizes)
        if lib.hark_chunks_commit(_in(data), array, _in(salts), len(sizes), key, _out(out)):
            raise MemoryError
        return bytes(out)

    def cut(self, data: Bytes, gear: bytes, rule: CutRule) -> list[int]:
        """End offsets of content-defined chunks."""
        room = len(data) // rule.minimum + 2
        ends = ffi.new("uint32_t[]", room)
        c_rule = ffi.new("struct hark_cut_rule *", (rule.minimum, rule.bits, rule.maximum))
        table = ffi.from_buffer("uint64_t[]", gear)
        n = lib.hark_chunks_cut(_in(data), len(data), table, c_rule, ends, room)
        return list(ends[0:n])

    def reserve(self, fd: int, start: int, size: int) -> int:
        """Allocate file blocks without changing the size."""
        return -int(lib.hark_reserve(fd, start, size))


def _pointer(data: Any) -> Any:
    """Return a C pointer for a struct field; the caller keeps ``data`` alive."""
    return ffi.from_buffer("uint8_t[]", data) if type(data) is bytes else data
