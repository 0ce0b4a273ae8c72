"""The recorder's end of the mediator's ring.

Rules: what the producer wrote is copied out before it is looked at (``csrc/base/hark_ring.c``), and
a ring that breaks a rule is never read again. A ring that is full makes the mediator wait: not
reading is how the recorder slows an agent down.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hark._native import ffi, lib
from hark.errors import RecordingFailed
from hark.mediator.decode import decode

if TYPE_CHECKING:
    from hark.mediator.records import MediatorRecord

__all__ = ["RingMemory", "RingReader"]


class RingMemory:
    """A fresh ring: its sealed memfd and both bells, made before the mediator is started."""

    def __init__(self) -> None:
        self.memfd = os.memfd_create("hark-ring", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self.doorbell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.space = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        if lib.hark_ring_format(self.memfd):
            raise RecordingFailed("the record ring cannot be made", os.strerror(ffi.errno))

    def close(self) -> None:
        """Close this process's descriptors."""
        for fd in (self.memfd, self.doorbell, self.space):
            os.close(fd)


class RingReader:
    """Reads records. Owns ``memory``; ``close`` gives it back."""

    def __init__(self, memory: RingMemory) -> None:
        self._memory = memory
        self._ring = lib.hark_ring_consumer_new(memory.memfd, memory.doorbell, memory.space)
        if self._ring == ffi.NULL:
            raise RecordingFailed("the record ring cannot be read", os.strerror(ffi.errno))
        self._block = bytearray(lib.HARK_RING_RECORD)
        self._into = ffi.from_buffer("uint8_t[]", self._block)

    def fileno(self) -> int:
        """Readable when there may be records."""
        return self._memory.doorbell

    def poll(self) -> list[MediatorRecord]:
        """Return the next records, at most 1 MiB of them; does not wait.

        Raises RecordingFailed when the ring or a record is malformed.
        """
        self._silence()
        data = self.read()
        # Sleep until the bell rings. What came meanwhile, or was left behind, rings it at once.
        if lib.hark_ring_sleep(self._ring):
            os.eventfd_write(self._memory.doorbell, 1)
        return decode(data)

    def read(self) -> memoryview:
        """Return whole records as bytes, valid until the next call. For tests and measuring."""
        got = lib.hark_ring_read(self._ring, self._into, len(self._block))
        if got < 0:
            raise RecordingFailed("the record ring is broken", "the mediator broke its rules")
        return memoryview(self._block)[:got]

    @property
    def next_seq(self) -> int:
        """Sequence number of the next record; all below it were returned."""
        return int(lib.hark_ring_next_seq(self._ring))

    def close(self) -> None:
        """Unmap the ring and close its descriptors."""
        if self._ring != ffi.NULL:
            lib.hark_ring_free(self._ring)
            self._ring = ffi.NULL
            self._memory.close()

    def _silence(self) -> None:
        try:
            os.eventfd_read(self._memory.doorbell)
        except BlockingIOError:
            return
