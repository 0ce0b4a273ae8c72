"""Names to addresses by the host's own resolver, without one slow name holding up another.

Rules: a thread per name, never two for one name; a thread only calls ``resolve`` and puts the
result on a queue, whose eventfd wakes the broker. Threads that never come back die with the
process.
"""

from __future__ import annotations

import errno
import os
import queue
import socket
import threading
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from hark import limits

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Lookups", "Resolved", "host_addresses"]

_ERRNO = {
    socket.EAI_AGAIN: errno.EAGAIN,
    socket.EAI_FAIL: errno.EREMOTEIO,
    socket.EAI_MEMORY: errno.ENOMEM,
    socket.EAI_NONAME: errno.ENOENT,
}


@dataclass(frozen=True, slots=True)
class Resolved:
    """What became of a name. ``addresses``: 4 or 16 bytes each, best first. ``err``: errno."""

    name: str
    addresses: tuple[bytes, ...]
    err: int = 0


def host_addresses(name: str) -> Resolved:
    """Ask getaddrinfo(3): /etc/hosts, split DNS and whatever else the host is set up for.

    The families take turns (RFC 8305 section 4), beginning with the one getaddrinfo prefers.
    """
    try:
        found = socket.getaddrinfo(
            name.encode("ascii"),  # as bytes: text would import Python's IDNA codec first
            None,
            type=socket.SOCK_STREAM,
            flags=socket.AI_ADDRCONFIG,
        )
    except socket.gaierror as error:
        return Resolved(name, (), _ERRNO.get(error.errno or 0, errno.EIO))
    except (OSError, UnicodeError):
        return Resolved(name, (), errno.EIO)
    by_family: dict[int, list[bytes]] = {}
    for family, _, _, _, address in found:
        if family in (socket.AF_INET, socket.AF_INET6):
            raw = socket.inet_pton(family, str(address[0]).partition("%")[0])
            by_family.setdefault(family, []).append(raw)
    mixed = [raw for row in zip_longest(*by_family.values()) for raw in row if raw is not None]
    return Resolved(name, tuple(dict.fromkeys(mixed)))


class Lookups:
    """Look-ups under way. ``fileno`` is readable when ``finished`` has something to give."""

    def __init__(self, resolve: Callable[[str], Resolved] = host_addresses) -> None:
        self._resolve = resolve
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._done: queue.SimpleQueue[Resolved] = queue.SimpleQueue()
        self._running: set[str] = set()

    def fileno(self) -> int:
        """Descriptor to poll for input."""
        return self._event

    def start(self, name: str) -> bool:
        """Begin to look ``name`` up, unless it is under way. False: too many are."""
        if name in self._running:
            return True
        if len(self._running) >= limits.BROKER_LOOKUPS_MOST:
            return False
        self._running.add(name)
        threading.Thread(target=self._work, args=(name,), daemon=True).start()
        return True

    def finished(self) -> list[Resolved]:
        """Return what has come in since the last call."""
        try:
            os.eventfd_read(self._event)
        except BlockingIOError:
            return []
        results = []
        while not self._done.empty():
            results.append(self._done.get())
        self._running -= {result.name for result in results}
        return results

    def _work(self, name: str) -> None:
        result = Resolved(name, (), errno.EIO)
        try:
            result = self._resolve(name)
        finally:
            self._done.put(result)
            os.eventfd_write(self._event, 1)
