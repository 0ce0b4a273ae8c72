"""Who is behind a socket or an event: processes, their executables, the tuples they opened.

Pure tables of ``merge``; filled in the order in which events are written. Rules: every table is
bounded and counts what it had to forget; an answer is exact or ``None``, never the next best.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any

from hark import limits
from hark.recorder.translate import address

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hark.kernel import records as kernel

__all__ = ["Actor", "Connections", "Flows", "Image", "Owner", "Processes", "Tuple"]

Tuple = tuple[bytes, int, bytes, int]  # source address and port, destination address and port


@dataclass(slots=True)
class Image:
    """A program that was executed. ``state`` is empty until the digest is known or given up."""

    exe: kernel.ExeId
    filename: bytes
    digest: bytes | None = None
    state: str = ""


@dataclass(frozen=True, slots=True)
class Actor:
    """A thread and the program it ran at that moment."""

    task: kernel.Task
    image: Image | None

    def value(self) -> list[Any]:
        """Key 1 of an event. The digest is the one known now, which may be later than the act."""
        digest = self.image.digest if self.image else None
        return [self.task.tgid, self.task.tid, self.task.start_ns, digest]


class Processes:
    """(tgid, start) to the image it runs. Ended processes stay until room is needed."""

    def __init__(self, limit: int = limits.RECORDER_MAX_PROCESSES) -> None:
        self._images: dict[tuple[int, int], Image | None] = {}
        self._ended: OrderedDict[tuple[int, int], None] = OrderedDict()
        self._limit = limit
        self.forgotten = 0

    def execed(self, task: kernel.Task, image: Image) -> None:
        """``task`` now runs ``image``."""
        self._put((task.tgid, task.start_ns), image)

    def forked(self, parent: kernel.Task, child: kernel.Task) -> None:
        """Let a new process run what its parent runs."""
        self._put((child.tgid, child.start_ns), self._images.get((parent.tgid, parent.start_ns)))

    def ended(self, task: kernel.Task) -> None:
        """Note that the last thread is gone; the entry may be forgotten."""
        key = (task.tgid, task.start_ns)
        if key in self._images:
            self._ended[key] = None

    def actor(self, task: kernel.Task) -> Actor | None:
        """``task`` with what it runs; ``None`` when the kernel could not name a task."""
        if not task.tgid:
            return None
        return Actor(task, self._images.get((task.tgid, task.start_ns)))

    def _put(self, key: tuple[int, int], image: Image | None) -> None:
        self._images[key] = image
        if len(self._images) <= self._limit:
            return
        if self._ended:
            oldest, _ = self._ended.popitem(last=False)
        else:
            oldest = next(iter(self._images))
            self.forgotten += 1
        del self._images[oldest]


@dataclass(slots=True, eq=False)
class Owner:
    """Who opened a socket, and when."""

    boot_ns: int
    cookie: int
    actor: Actor | None
    key: Tuple
    inside: bool = False  # it cannot have left the agent
    met: bool = False  # the mediator accepted it, or the rules refused it
    closed_ns: int | None = None

    @property
    def unmet(self) -> bool:
        """Whether somebody should have seen it by the end of the run, and nobody has."""
        return not self.met and not self.inside


def tuple_of(src: bytes, sport: int, dst: bytes, dport: int) -> Tuple:
    """Return the tuple with comparable addresses."""
    return (address(src), sport, address(dst), dport)


def _stays_inside(key: Tuple) -> bool:
    """Whether a connection cannot leave the agent's namespace: loopback, or to itself."""
    src, _, dst, _ = key
    if len(dst) == 4:  # noqa: PLR2004
        return dst[0] == 127 or src == dst  # noqa: PLR2004
    return dst == bytes(15) + b"\x01" or src == dst


class Connections:
    """TCP sockets of the run by tuple and by cookie.

    A port can be used again before the mediator or the recorder got to see its former use, and
    nothing but the time tells the two apart. So where more than one connect can be meant and they
    are not of one thread, the answer is ``None``.
    """

    def __init__(self, limit: int = limits.RECORDER_MAX_SOCKETS) -> None:
        self._owners: dict[Owner, None] = {}  # all of them, oldest first
        self._by_tuple: dict[Tuple, dict[Owner, None]] = {}
        self._by_cookie: dict[int, Owner] = {}
        self._closed: deque[Owner] = deque()
        self._limit = limit
        self.forgotten = 0
        self.unmet = 0  # connects whose socket closed without the mediator having seen it

    def connected(self, record: kernel.Connect, actor: Actor | None) -> None:
        """Remember a connect of the run's own network namespace."""
        key = tuple_of(record.src, record.sport, record.dst, record.dport)
        owner = Owner(record.head.boot_ns, record.cookie, actor, key, inside=_stays_inside(key))
        self._expire(record.head.boot_ns)
        self.closed(record.cookie, record.head.boot_ns)  # it connects again: the first try is over
        self._owners[owner] = None
        self._by_cookie[record.cookie] = owner
        same = self._by_tuple.setdefault(key, {})
        same[owner] = None
        if len(same) > limits.RECORDER_MAX_SAME_TUPLE:
            first, second = islice(same, 2)
            if first.actor == second.actor:  # else it may be the one that is meant
                self._forget(first)
        if len(self._owners) > self._limit:
            oldest = next(iter(self._owners))
            self.forgotten += oldest.closed_ns is None
            self._forget(oldest)

    def closed(self, cookie: int, boot_ns: int) -> Owner | None:
        """Note the close. The tuple lingers: the mediator may accept it only later."""
        owner = self._by_cookie.get(cookie)
        if owner is not None and owner.closed_ns is None:
            owner.closed_ns = boot_ns
            self._closed.append(owner)
        return owner

    def find(self, key: Tuple, boot_ns: int) -> Owner | None:
        """Return the newest connect with this tuple that is not younger than ``boot_ns``.

        ``None`` when another thread's with the same tuple closed only lately.
        """
        newest = next(self._until(key, boot_ns), None)
        return newest if newest and _of_one(self._until(key, boot_ns)) else None

    def accept(self, key: Tuple, boot_ns: int) -> Owner | None:
        """Return the connect that an accept of the mediator answers.

        One connect answers one accept, so that a port that is used again without a record of its
        own is not given to the former owner. The kernel queues connections in their order, but one
        that was cut off may have come to the queue or not.
        """
        may = list(takewhile(lambda o: not o.met, self._until(key, boot_ns)))
        if not may:
            return None
        oldest = may[-1]
        oldest.met = True
        return oldest if _of_one(may) else None

    def finish(self) -> int:
        """Return how many connects were never met, over the whole run."""
        return self.unmet + sum(o.unmet for o in self._owners)

    def _until(self, key: Tuple, boot_ns: int) -> Iterator[Owner]:
        """Yield the connects with this tuple that are not younger, newest first."""
        return (o for o in reversed(self._by_tuple.get(key, {})) if o.boot_ns <= boot_ns)

    def _expire(self, now_ns: int) -> None:
        while self._closed:
            owner = self._closed[0]
            if (owner.closed_ns or 0) + limits.SOCKET_LINGER_NS > now_ns:
                return
            self._closed.popleft()
            self._forget(owner)

    def _forget(self, owner: Owner) -> None:
        if owner not in self._owners:
            return
        del self._owners[owner]
        same = self._by_tuple[owner.key]
        del same[owner]
        if not same:
            del self._by_tuple[owner.key]
        if self._by_cookie.get(owner.cookie) is owner:
            del self._by_cookie[owner.cookie]
        self.unmet += owner.unmet


def _of_one(owners: Iterable[Owner]) -> bool:
    """Whether all were opened by one thread running one program: which is meant does not matter."""
    first, *rest = owners
    return all(o.actor == first.actor for o in rest)


class Flows:
    """UDP tuples of the run. One flow carries many datagrams, and its end is not reported.

    The kernel tells a tuple again when it changes hands. What was sent before may be seen only
    after that, so for a while the tuple is nobody's.
    """

    def __init__(self, limit: int = limits.RECORDER_MAX_FLOWS) -> None:
        self._by_tuple: OrderedDict[Tuple, Owner] = OrderedDict()
        self._handed_ns: dict[Tuple, int] = {}
        self._limit = limit
        self.forgotten = 0

    def began(self, record: kernel.UdpFlow, actor: Actor | None) -> None:
        """Remember the first datagram of a socket to a peer, or the first of another process."""
        key = tuple_of(record.src, record.sport, record.dst, record.dport)
        former = self._by_tuple.get(key)
        if former is not None and former.actor != actor:
            self._handed_ns[key] = record.head.boot_ns
        self._by_tuple[key] = Owner(record.head.boot_ns, record.cookie, actor, key)
        self._by_tuple.move_to_end(key)
        if len(self._by_tuple) > self._limit:
            oldest, _ = self._by_tuple.popitem(last=False)
            self._handed_ns.pop(oldest, None)
            self.forgotten += 1

    def find(self, key: Tuple, boot_ns: int) -> Owner | None:
        """Return the flow with this tuple; ``None`` when it is younger or may be another's."""
        owner = self._by_tuple.get(key)
        if owner is None or owner.boot_ns > boot_ns:
            return None
        handed_ns = self._handed_ns.get(key)
        if handed_ns is not None and boot_ns - handed_ns < limits.SOCKET_LINGER_NS:
            return None
        return owner

    def clear(self) -> None:
        """Kernel records were lost: a port may have a new owner that nobody reported."""
        self._by_tuple.clear()
        self._handed_ns.clear()
