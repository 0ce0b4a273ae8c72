"""When a run is idle: no task of it runs, can run, or is being woken (``bpf/idle.bpf.c``).

Rules. ``attach`` needs root; the rest works without any privilege. What was decided while the run
was idle holds only while ``is_idle`` says so for the sequence number it was decided on.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hark._native import ffi, lib
from hark.errors import InternalError, KernelUnsupported
from hark.locations import libexec

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["IdleSensor", "IdleState"]

OBJECT = "idle.bpf.o"


@dataclass(frozen=True, slots=True)
class IdleState:
    """``struct hark_idle``: ``seq`` names an idle time, ``edges`` counts them.

    ``active`` is 0 when the run is idle. ``missed`` above 0: the count is not to be believed.
    """

    seq: int
    active: int
    armed: int
    since_ns: int
    edges: int
    missed: int
    repaired: int


class IdleSensor:
    """The idle count of one run. Use ``attach``."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    @classmethod
    def attach(
        cls, cgroup_id: int, *, server_id: int = 0, program: Path | None = None
    ) -> IdleSensor:
        """Attach to a cgroup v2 by its id. ``server_id``: another one, whose work is the run's.

        Raises KernelUnsupported.
        """
        path = program or libexec(OBJECT)
        try:
            blob = path.read_bytes()
        except OSError as error:
            raise KernelUnsupported(
                "the BPF object cannot be read", f"{path}: {error.strerror}", "run `make build`"
            ) from error
        err = ffi.new("struct hark_err *")
        handle = lib.hark_idle_new(ffi.from_buffer(blob), len(blob), cgroup_id, server_id, err)
        if handle == ffi.NULL:
            text = ffi.string(err.what).decode(errors="replace")
            cause = f"{text}: {os.strerror(err.err)}"
            raise KernelUnsupported("the kernel cannot tell when a run is idle", cause)
        return cls(handle)

    def fileno(self) -> int:
        """Readable once the run has become idle after ``arm``; ``hush`` answers it."""
        return int(lib.hark_idle_fd(self._open()))

    def arm(self) -> None:
        """Ask for the bell at the next time the run becomes idle. It may be so already."""
        lib.hark_idle_arm(self._open())

    def hush(self) -> None:
        """Take the bell."""
        lib.hark_idle_hush(self._open())

    def state(self) -> IdleState:
        """Return what is known now."""
        out = ffi.new("struct hark_idle *")
        lib.hark_idle_read(self._open(), out)
        names = IdleState.__slots__
        return IdleState(*(int(getattr(out, name)) for name in names))

    def is_idle(self, seq: int) -> bool:
        """Whether the run is idle, and has been since it became so for the ``seq``-th time."""
        return bool(lib.hark_idle_is(self._open(), seq))

    def close(self) -> None:
        """Detach. Harmless when repeated."""
        handle, self._handle = self._handle, ffi.NULL
        lib.hark_idle_free(handle)

    def _open(self) -> Any:
        if self._handle == ffi.NULL:
            raise InternalError("the idle count was closed")
        return self._handle
