"""The BPF sensors of one run: attach as root, then read without any privilege.

Rules. ``attach`` needs root; every other method but ``detach`` works after all privileges are
gone, because it uses only descriptors. One thread uses an object. ``detach`` as root takes the run
out of the machine's pinned set; without root it only closes, and the launcher's clean-up or the
next run does the rest (``csrc/sensors/hark_pins.h``).
"""

from __future__ import annotations

import os
import select
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from hark import limits
from hark._native import ffi, lib
from hark.errors import InternalError, KernelUnsupported
from hark.kernel.decode import COUNT_KEY, decode
from hark.kernel.records import Exit, RingStats, SyscallCount
from hark.locations import libexec
from hark.policy.privileges import prctl

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hark.kernel.records import KernelRecord

__all__ = [
    "NoSensors",
    "Place",
    "Preparation",
    "Sensors",
    "cgroup2_mounts",
    "cgroup_level",
    "hold",
    "leave",
    "prepare",
]

OBJECT = "hark.bpf.o"
_PR_SET_PDEATHSIG = 1  # prctl(2)
RING_NAMES = ("control", "bulk", "socket")
COUNTS_NAME = "counts"

_Process = tuple[int, int]
_Row = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Place:
    """Where pins and member files lie; tests use their own."""

    pins: Path
    state: Path


class Sensors:
    """The sensors attached to one cgroup. Use ``attach``."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._buffer = ffi.new("uint8_t[]", limits.KERNEL_READ_BYTES)
        self._rows = int(lib.hark_sensors_rows(handle))
        self._keys = ffi.new("struct hark_count_key[]", self._rows)
        self._values = ffi.new("uint64_t[]", self._rows)
        # Of processes that ended: moved here so that the kernel's map only holds living ones.
        self._ended: dict[_Row, int] = {}
        self._dying: set[_Process] = set()
        self._dead: set[_Process] = set()

    @classmethod
    def attach(
        cls,
        cgroup_fd: int,
        cgroup_id: int,
        *,
        place: Place | None = None,
        control_bytes: int = limits.KERNEL_CONTROL_RING_BYTES,
        bulk_bytes: int = limits.KERNEL_BULK_RING_BYTES,
        socket_bytes: int = limits.KERNEL_SOCKET_RING_BYTES,
    ) -> Sensors:
        """Attach to the cgroup v2 directory ``cgroup_fd`` whose id (inode) is ``cgroup_id``.

        Everything below that cgroup is sensed too. Takes some 10 ms, nearly all of it waiting, and
        45 ms of work more when this is the machine's first run and ``prepare`` was not called.
        Raises KernelUnsupported.
        """
        plan, _keep = _plan(
            place,
            cgroup_fd=cgroup_fd,
            level=cgroup_level(cgroup_fd),
            cgroup_id=cgroup_id,
            control_bytes=control_bytes,
            bulk_bytes=bulk_bytes,
            socket_bytes=socket_bytes,
        )
        err = ffi.new("struct hark_err *")
        handle = lib.hark_sensors_new(plan, err)
        if handle == ffi.NULL:
            raise _fault("cannot attach the kernel sensors", err)
        return cls(handle)

    def fileno(self) -> int:
        """Return an epoll descriptor that is readable when records wait."""
        return int(lib.hark_sensors_fd(self._open()))

    def spawns(self) -> int:
        """Return the descriptor of the map of ``struct hark_spawn``; it stays this object's."""
        return int(lib.hark_sensors_spawns(self._open()))

    def poll(self) -> list[KernelRecord]:
        """Return the records that wait, control records first; empty when there are none."""
        size = lib.hark_sensors_read(self._open(), self._buffer, len(self._buffer))
        if size < 0:
            raise InternalError("cannot read the kernel rings", os.strerror(-size))
        records = decode(ffi.buffer(self._buffer, size)[:])
        self._dying.update(
            (r.head.task.tgid, r.head.task.start_ns)
            for r in records
            if isinstance(r, Exit) and r.last
        )
        if len(self._dying) >= limits.KERNEL_ENDED_PROCESSES_HELD:
            self._collect()
        return records

    def counts(self) -> list[SyscallCount]:
        """Return all counts of the run so far, of ended and of living processes."""
        rows = self._collect()
        for row, count in self._ended.items():
            rows[row] = rows.get(row, 0) + count
        return [SyscallCount(*row, count) for row, count in sorted(rows.items())]

    def stats(self) -> list[RingStats]:
        """Return the counters of both rings and, as ``counts``, of the syscall counts."""
        out = ffi.new("struct hark_run_stats *")
        failed = lib.hark_sensors_stats(self._open(), out)
        if failed:
            raise InternalError("cannot read the kernel counters", os.strerror(-failed))
        rings = [
            RingStats(name, int(ring.produced), int(ring.emitted), int(ring.dropped))
            for name, ring in zip(RING_NAMES, out.ring, strict=True)
        ]
        counted = sum(ffi.unpack(self._values, self._read_counts())) + sum(self._ended.values())
        dropped = int(out.counts_dropped)
        return [*rings, RingStats(COUNTS_NAME, counted + dropped, counted, dropped)]

    def detach(self) -> None:
        """Close all; as root, also leave the machine's set. Harmless when repeated."""
        if self._handle == ffi.NULL:
            return
        handle, self._handle = self._handle, ffi.NULL
        err = ffi.new("struct hark_err *")
        left = lib.hark_sensors_leave(handle, err) if os.geteuid() == 0 else 0
        lib.hark_sensors_free(handle)
        if left:
            raise _fault("cannot take the kernel sensors down", err)

    def _open(self) -> Any:
        if self._handle == ffi.NULL:
            raise InternalError("the sensors were detached")
        return self._handle

    def _read_counts(self) -> int:
        n = int(lib.hark_sensors_counts(self._open(), self._keys, self._values, self._rows))
        if n < 0:
            raise InternalError("cannot read the syscall counts", os.strerror(-n))
        return n

    def _collect(self) -> dict[_Row, int]:
        """Read the map, move rows of dead processes to ``_ended``, return the others.

        A process is dead one collection after its last exit record: another thread of it may have
        been told a moment later.
        """
        n = self._read_counts()
        keys = bytes(ffi.buffer(self._keys)[: n * COUNT_KEY.size])
        alive: dict[_Row, int] = {}
        gone = bytearray()
        for row, count in _rows(keys, self._values, n):
            if row[:2] in self._dead:
                self._ended[row] = self._ended.get(row, 0) + count
                tgid, start_ns, nr, err = row
                gone += COUNT_KEY.pack(start_ns, tgid, nr, err)
            else:
                alive[row] = count
        if gone:
            lib.hark_sensors_forget(
                self._open(), ffi.from_buffer(gone), len(gone) // COUNT_KEY.size
            )
        self._dead, self._dying = self._dying, set()
        return alive


class NoSensors:
    """In the place of sensors in a run whose policy allows to do without: reports nothing."""

    def __init__(self) -> None:
        self._epoll = select.epoll()

    def fileno(self) -> int:
        """Never readable."""
        return self._epoll.fileno()

    def spawns(self) -> int:
        """Return -1: there is no map."""
        return -1

    def poll(self) -> list[KernelRecord]:
        """Return nothing."""
        return []

    def counts(self) -> list[SyscallCount]:
        """Return nothing."""
        return []

    def stats(self) -> list[RingStats]:
        """Return nothing: there is no ring that could have lost a record."""
        return []

    def detach(self) -> None:
        """Close."""
        self._epoll.close()


class Preparation:
    """A child that loads the set ahead of ``attach`` and keeps it until ``close``."""

    def __init__(self, place: Place | None = None) -> None:
        """Start it. Needs root; what goes wrong is for ``attach`` to find out and to tell."""
        self._pid = os.fork()
        if self._pid == 0:
            try:
                prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                hold(place)
            finally:
                os._exit(0)

    def close(self) -> None:
        """End the child, after ``attach`` and before root is dropped. Harmless when repeated."""
        if self._pid > 0:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = -1


def hold(place: Place | None = None) -> None:
    """Load the set in this process and keep it until a signal; returns when that is impossible."""
    plan, _keep = _plan(place)
    if lib.hark_sensors_prepare(plan, ffi.new("struct hark_err *")) >= 0:
        signal.pause()


def prepare(place: Place | None = None) -> Preparation:
    """Begin to load the sensors while the caller does other things; then ``attach``, then close."""
    return Preparation(place)


def leave(cgroup_id: int) -> None:
    """As root: take a run that is over out of the machine's set. Harmless when it is not in it."""
    err = ffi.new("struct hark_err *")
    if lib.hark_pins_leave_host(cgroup_id, err):
        raise _fault("cannot take the kernel sensors down", err)


def _plan(place: Place | None, **fields: int) -> tuple[Any, list[Any]]:
    """The C plan, and what must live as long as it."""
    blob = _object_bytes()
    keep = [
        ffi.from_buffer(blob),
        ffi.new("char[]", blake3(blob).hexdigest().encode()),
        ffi.new("char[]", os.fsencode(place.pins)) if place else ffi.NULL,
        ffi.new("char[]", os.fsencode(place.state)) if place else ffi.NULL,
    ]
    names = ("object", "digest", "pins", "state")
    values = dict(zip(names, keep, strict=True)) | {"object_len": len(blob)} | fields
    return ffi.new("struct hark_sensors_plan *", values), keep


def _rows(keys: bytes, values: Any, n: int) -> Iterator[tuple[_Row, int]]:
    for (start_ns, tgid, nr, err), count in zip(
        COUNT_KEY.iter_unpack(keys), ffi.unpack(values, n) if n else (), strict=True
    ):
        yield (tgid, start_ns, nr, err), int(count)


def _object_bytes() -> bytes:
    path = libexec(OBJECT)
    try:
        return path.read_bytes()
    except OSError as error:
        raise KernelUnsupported(
            "the BPF object cannot be read", f"{path}: {error.strerror}", "run `make build`"
        ) from error


def _fault(what: str, err: Any) -> KernelUnsupported:
    text = ffi.string(err.what).decode(errors="replace")
    hint = ffi.string(err.hint).decode(errors="replace")
    return KernelUnsupported(what, f"{text}: {os.strerror(err.err)}", hint)


def cgroup_level(cgroup_fd: int) -> int:
    """Depth of a cgroup v2 directory below the root of its hierarchy."""
    path = Path(f"/proc/self/fd/{cgroup_fd}").readlink()
    for root, mount in cgroup2_mounts():
        if path.is_relative_to(mount):
            depth = len(path.relative_to(mount).parts) + len(root.parts) - 1
            if depth:
                return depth
    raise KernelUnsupported(
        "the run's cgroup cannot be sensed", f"{path} is not below a cgroup v2 mount"
    )


def cgroup2_mounts() -> Iterator[tuple[Path, Path]]:
    """(root inside the hierarchy, mount point) of each cgroup v2 mount (proc_pid_mountinfo(5))."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        if right.split(" ")[0] == "cgroup2":
            fields = left.split(" ")
            yield Path(fields[3]), Path(fields[4])
