"""The hot operations of a bundle, native or in Python; both give the same values.

Rules: ``load`` prefers ``hark._native``; nothing else in this package knows which one runs.
``HARK_PURE=1`` in the environment asks for Python.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from hark.bundle.cbor import CborFault, Span

__all__ = ["Core", "CutRule", "FramesFault", "FramesResult", "Mmr", "load"]

Bytes = bytes | bytearray | memoryview


class FramesFault(IntEnum):
    """What is wrong with an events section; numbers as in ``hark_bundle.h``."""

    OK = 0
    HEAD = 1
    LENGTH = 2
    COUNT = 3
    REDACTED = 4
    CBOR = 5
    LOCATOR = 6
    MEMORY = 7


@dataclass(frozen=True, slots=True)
class FramesResult:
    """Leaves of a batch (32 bytes each), or the first fault and the event it is in."""

    fault: FramesFault
    bad: int
    cbor: CborFault
    leaves: bytes
    refs: list[Span]
    kinds: int
    redacted: int


@dataclass(frozen=True, slots=True)
class CutRule:
    """Chunk sizes in bytes; ``bits`` is the binary logarithm of the average."""

    minimum: int
    bits: int
    maximum: int


class Mmr(Protocol):
    """A Merkle Mountain Range that grows; ``nodes`` are those an index stores, in post order."""

    nodes: bytearray

    @property
    def count(self) -> int:
        """Leaves so far."""

    def append(self, leaves: bytes) -> None:
        """Append leaves of 32 bytes each."""

    def peaks(self) -> bytes:
        """All peaks, highest first."""

    def mark(self) -> tuple[int, bytes, int]:
        """Return what ``reset`` needs to come back to this state."""

    def reset(self, mark: tuple[int, bytes, int]) -> None:
        """Forget the leaves appended since ``mark``."""


class Core(Protocol):
    """What a writer or reader needs done fast."""

    name: str

    def keyed(self, key: bytes, data: Bytes) -> bytes:
        """BLAKE3 keyed hash, 32 bytes."""

    def xof(self, key: bytes, label: bytes, size: int, seek: int = 0) -> bytes:
        """``size`` bytes of keyed output over ``label``, from byte ``seek`` on."""

    def check_cbor(self, data: bytes) -> CborFault:
        """Whether ``data`` is one value of the CBOR profile."""

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
        """Leaves of an events section. ``strict`` checks payloads and collects references."""

    def mmr(self) -> Mmr:
        """Return an empty range."""

    def commit_chunks(self, data: Bytes, sizes: list[int], salts: Bytes, key: bytes) -> bytes:
        """Return the commitments of chunks that lie in a row in ``data``, 32 bytes each."""

    def cut(self, data: Bytes, gear: bytes, rule: CutRule) -> list[int]:
        """End offsets of content-defined chunks; ``gear`` is 256 native-endian 64-bit words."""

    def reserve(self, fd: int, start: int, size: int) -> int:
        """Allocate file blocks without changing the size; 0 or an errno."""


def load(*, pure: bool = False) -> Core:
    """Return the native core, or the Python one when that is all there is or ``pure`` is set."""
    if not pure and os.environ.get("HARK_PURE") != "1":
        try:
            from hark.bundle.native import NativeCore  # noqa: PLC0415 - optional at run time
        except ImportError:
            pass
        else:
            return NativeCore()
    from hark.bundle.pure import PureCore  # noqa: PLC0415 - needs the blake3 wheel

    return PureCore()
