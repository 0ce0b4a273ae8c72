"""BLAKE3 digests of the executables that a run executes.

The recorder has no right to open them: hark-launch opens what the kernel record named and passes a
descriptor. Rules: bounded reads, in one worker thread, because a cold file blocks in ``read`` for
longer than any slice of the loop may take (``blake3`` and ``read`` release the GIL); one digest per
(device, inode, change time); a file that changes while it is read stays unknown. So does one that
had changed so shortly before the exec that a change after it may bear the same time.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
from collections import OrderedDict, deque
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING

import blake3

from hark import limits
from hark.policy.control import OpenExe

if TYPE_CHECKING:
    from collections.abc import Callable

    from hark.kernel.records import Exec, ExeId

__all__ = ["Digest", "Digests", "hash_executable"]


@dataclass(frozen=True, slots=True)
class Digest:
    """The digest of ``exe`` (32 bytes), or ``None`` and a ``state`` that says why not."""

    exe: ExeId
    digest: bytes | None
    state: str


def hash_executable(fd: int, exe: ExeId) -> Digest:
    """Hash the file ``fd``. Never raises for what the file is or does."""
    try:
        before = os.fstat(fd)
        if not stat.S_ISREG(before.st_mode):
            return Digest(exe, None, "unknown: not a regular file")
        if before.st_size > limits.DIGEST_MAX_BYTES:
            return Digest(exe, None, f"unknown: larger than {limits.DIGEST_MAX_BYTES} bytes")
        if exe.ctime_ns not in (0, before.st_ctime_ns):
            return Digest(exe, None, "unknown: changed since it was executed")
        digest = _hash(fd)
        after = os.fstat(fd)
    except OSError as error:
        return Digest(exe, None, f"unknown: {os.strerror(error.errno or 0)}")
    if digest is None or _version(before) != _version(after):
        return Digest(exe, None, "unknown: changed while it was read")
    return Digest(exe, digest, "read")


def _hash(fd: int) -> bytes | None:
    hasher = blake3.blake3()
    offset = 0
    while chunk := os.pread(fd, limits.DIGEST_READ_BYTES, offset):
        hasher.update(chunk)
        offset += len(chunk)
        if offset > limits.DIGEST_MAX_BYTES:  # it grows as we read
            return None
    return bytes(hasher.digest())


def _version(info: os.stat_result) -> tuple[int, ...]:
    return (info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


class Digests:
    """The cache, the questions to hark-launch, and the worker. ``ask`` sends one question."""

    def __init__(self, ask: Callable[[OpenExe, int], None]) -> None:
        self._ask = ask
        self._cache: OrderedDict[ExeId, bytes] = OrderedDict()
        self._wanted: set[ExeId] = set()
        self._waiting: deque[Exec] = deque()
        self._asked: dict[int, ExeId] = {}
        self._open = 0
        self._last_ident = 0
        self._jobs: SimpleQueue[tuple[int, ExeId] | None] = SimpleQueue()
        self._done: SimpleQueue[Digest] = SimpleQueue()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._worker = threading.Thread(target=self._work, name="hark-digest", daemon=True)
        self._worker.start()

    def fileno(self) -> int:
        """Readable when ``results`` has something."""
        return self._wake

    @property
    def busy(self) -> bool:
        """Whether a digest is still to come."""
        return bool(self._wanted)

    def want(self, record: Exec) -> Digest | None:
        """Return what is known of the executable, or begin to find out."""
        exe = record.exe
        if _is_racy(record):
            return Digest(exe, None, "unknown: changed at the time it was executed")
        known = self._cache.get(exe)
        if known is not None:
            self._cache.move_to_end(exe)
            return Digest(exe, known, "cached")
        if exe in self._wanted:
            return None
        if len(self._waiting) >= limits.DIGEST_MAX_QUEUED:
            return Digest(exe, None, "unknown: too many new executables at once")
        self._wanted.add(exe)
        self._waiting.append(record)
        self._ask_more()
        return None

    def answered(self, ident: int, err: int, fds: tuple[int, ...]) -> bool:
        """Take hark-launch's answer, and its descriptor. False: nobody asked."""
        exe = self._asked.pop(ident, None)
        if exe is None or (err == 0) != (len(fds) == 1):
            for fd in fds:
                os.close(fd)
            return False
        if err:
            self._finish(Digest(exe, None, f"unknown: {os.strerror(err)}"))
        else:
            self._jobs.put((fds[0], exe))
        return True

    def results(self) -> list[Digest]:
        """Return what became known since the last call."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        out = []
        while not self._done.empty():
            result = self._done.get()
            out.append(result)
            self._wanted.discard(result.exe)
            self._open -= 1
            if result.digest is not None:
                self._cache[result.exe] = result.digest
                if len(self._cache) > limits.DIGEST_MAX_CACHED:
                    self._cache.popitem(last=False)
        self._ask_more()
        return out

    def close(self) -> None:
        """Stop the worker after the file it is reading."""
        self._jobs.put(None)
        self._worker.join(timeout=1.0)
        if not self._worker.is_alive():
            os.close(self._wake)

    def _ask_more(self) -> None:
        while self._waiting and self._open < limits.DIGEST_MAX_OPEN:
            record = self._waiting.popleft()
            self._open += 1
            self._last_ident += 1
            self._asked[self._last_ident] = record.exe
            self._ask(_question(record), self._last_ident)

    def _finish(self, result: Digest) -> None:
        self._done.put(result)
        os.eventfd_write(self._wake, 1)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            fd, exe = job
            try:
                self._finish(hash_executable(fd, exe))
            finally:
                os.close(fd)


def _is_racy(record: Exec) -> bool:
    """Whether the file may be changed after the exec and show the same change time.

    File systems take that time from a clock that ticks; some keep whole seconds only.
    """
    changed_ns = record.exe.ctime_ns
    coarse = changed_ns % 1_000_000_000 == 0
    step_ns = limits.DIGEST_COARSE_NS if coarse else limits.DIGEST_TICK_NS
    boot_to_unix = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return changed_ns > record.head.boot_ns + boot_to_unix - step_ns


def _question(record: Exec) -> OpenExe:
    task = record.head.task
    return OpenExe(
        start_ns=task.start_ns,
        ino=record.exe.ino,
        tgid=task.tgid,
        dev=record.exe.dev,
        path=record.filename[:4096].rstrip(b"\0"),
    )
