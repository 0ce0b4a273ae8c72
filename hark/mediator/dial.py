"""One dial of the broker: from a row of the host table to a connected socket or a reason.

Rules. Every address is checked and its intent is on disk before connect(2). Addresses are tried in
order, the next one as soon as one fails or has not answered for a while (RFC 8305, sections 5 and
6). ``Dial`` knows no event loop: ``broker`` feeds it results and calls ``tick``.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

from hark import limits
from hark.mediator.addresses import address_fault
from hark.mediator.proxy import Answer
from hark.policy.control import DialStatus

if TYPE_CHECKING:
    from hark.mediator.lookup import Resolved
    from hark.policy.model import CompiledHost, Redirect

__all__ = ["Attempt", "Dial", "Reports", "Step", "Target", "Tunnel"]


@dataclass(frozen=True, slots=True)
class Tunnel:
    """A proxy that carries a dial: the name it is looked up by, its port, what it is asked."""

    name: str
    port: int
    request: bytes = field(repr=False)  # holds the proxy's password


@dataclass(frozen=True, slots=True)
class Target:
    """One address to try: 4 or 16 bytes, and a port."""

    address: bytes
    port: int

    @property
    def family(self) -> int:
        """AF_INET or AF_INET6."""
        return socket.AF_INET if len(self.address) == 4 else socket.AF_INET6  # noqa: PLR2004


class Step(Enum):
    """Where an attempt stands."""

    ASKED = auto()  # intent sent, not yet on disk
    CONNECTING = auto()
    ASKING = auto()  # connected to a proxy, which was asked for a tunnel
    OVER = auto()


@dataclass(slots=True)
class Attempt:
    """One address of a dial. ``ident`` joins the intent, DIAL_RECORDED and the result."""

    dial: Dial
    ident: int
    target: Target
    asked_ns: int
    step: Step = Step.ASKED
    sock: socket.socket | None = None
    answer: Answer = field(default_factory=Answer)


class Reports(Protocol):
    """What a dial tells the rest of the broker."""

    def intent(self, dial: Dial, target: Target) -> Attempt:
        """Ask for the intent to be recorded; returns the attempt, already known by its id."""

    def watch(self, attempt: Attempt) -> None:
        """Call ``ready`` when the attempt's socket is connected, or has an answer of the proxy."""

    def result(
        self, dial: Dial, target: Target | None, status: DialStatus, err: int, ident: int
    ) -> None:
        """Record how an attempt, or a dial without any, ended."""

    def forget(self, attempt: Attempt) -> None:
        """Stop watching; the attempt is over."""

    def answer(self, dial: Dial, target: Target | None, status: DialStatus, err: int) -> None:
        """Tell the mediator; with status OK, ``dial.connected`` goes along."""


@dataclass(slots=True)
class Dial:
    """A question of the mediator (``ident``) and what is being done about it. Times: monotonic.

    ``tunnel``: the proxy in between; then the addresses are the proxy's.
    """

    ident: int
    conn: int
    host: CompiledHost
    port: int
    deadline_ns: int
    reports: Reports
    tunnel: Tunnel | None = None
    waiting: list[Target] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    next_ns: int = 0
    last_err: int = errno.ETIMEDOUT
    over: bool = False
    connected: socket.socket | None = None

    def redirect(self, to: Redirect, now: int) -> None:
        """Dial the operator's address for this host, whatever it is."""
        self.waiting = [Target(to.address, to.port)]
        self.try_next(now)

    @property
    def looked_up(self) -> str:
        """The name whose addresses are dialled."""
        return self.tunnel.name if self.tunnel else self.host.name

    def resolved(self, found: Resolved, now: int) -> None:
        """Check what the name resolved to, and try the first address that passes."""
        if self.over:
            return
        proxied = self.tunnel is not None
        if not found.addresses:
            status = DialStatus.PROXY_UNREACHABLE if proxied else DialStatus.RESOLVE
            self.refuse(status, found.err or errno.ENOENT)
            return
        port = self.tunnel.port if self.tunnel else self.port
        private = proxied or self.host.private
        targets = [Target(raw, port) for raw in found.addresses]
        good = [t for t in targets if not address_fault(t.address, private=private)]
        if not good:
            status = DialStatus.PROXY_UNREACHABLE if proxied else DialStatus.PRIVATE
            self.refuse(status, errno.EACCES, targets[0])
            return
        self.waiting = good[: limits.BROKER_ADDRESSES_MOST]
        self.try_next(now)

    def try_next(self, now: int) -> None:
        """Ask to record the next address; without one, and with no attempt left, give up."""
        if self.waiting:
            self.next_ns = now + limits.BROKER_STAGGER_NS
            self.attempts.append(self.reports.intent(self, self.waiting.pop(0)))
        elif not any(attempt.step is not Step.OVER for attempt in self.attempts):
            self.finish(self.unreached, self.last_err)

    @property
    def unreached(self) -> DialStatus:
        """What it is called when no address took the connection."""
        return DialStatus.PROXY_UNREACHABLE if self.tunnel else DialStatus.CONNECT

    def recorded(self, attempt: Attempt, now: int) -> None:
        """Connect: the intent is on disk."""
        if attempt.step is not Step.ASKED or self.over:
            return
        self.next_ns = now + limits.BROKER_STAGGER_NS
        attempt.step = Step.CONNECTING
        try:
            attempt.sock = open_socket(attempt.target)
            err = attempt.sock.connect_ex(sockaddr(attempt.target))
        except OSError as error:
            err = error.errno or errno.EIO
        if err in (0, errno.EINPROGRESS):
            self.reports.watch(attempt)
        else:
            self.failed(attempt, err, now)

    def ready(self, attempt: Attempt, now: int) -> None:
        """Take the socket: it is connected, has failed, or has an answer of the proxy."""
        if attempt.sock is None or self.over:
            return
        if attempt.step is Step.ASKING:
            self.answered(attempt, attempt.sock)
            return
        err = attempt.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if err:
            self.failed(attempt, err, now)
        elif self.tunnel is not None:
            self.ask(attempt, attempt.sock, self.tunnel.request, now)
        else:
            self.take(attempt)

    def ask(self, attempt: Attempt, sock: socket.socket, request: bytes, now: int) -> None:
        """Ask the proxy for a tunnel. One answer decides, so its other addresses are let go."""
        self.waiting.clear()
        for other in self.attempts:
            if other is not attempt and other.step is not Step.OVER:
                self.drop(other, DialStatus.PROXY_UNREACHABLE, errno.ECANCELED)
        try:
            sent = sock.send(request, socket.MSG_NOSIGNAL)
        except OSError as error:
            self.failed(attempt, error.errno or errno.EIO, now)
            return
        if sent < len(request):  # a new socket's buffer holds far more
            self.failed(attempt, errno.EMSGSIZE, now)
            return
        self.reports.forget(attempt)
        attempt.step = Step.ASKING
        self.reports.watch(attempt)

    def answered(self, attempt: Attempt, sock: socket.socket) -> None:
        """Read what the proxy says, and act when it is complete."""
        try:
            data = sock.recv(limits.PROXY_ANSWER_MAX_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        verdict = attempt.answer.feed(data)
        if verdict is None:
            return
        if verdict.status is DialStatus.OK:
            self.take(attempt)
            return
        self.drop(attempt, verdict.status, verdict.code)
        self.finish(verdict.status, verdict.code, attempt.target)

    def take(self, attempt: Attempt) -> None:
        """Hand the connected socket on."""
        self.reports.forget(attempt)
        attempt.step = Step.OVER
        self.reports.result(self, attempt.target, DialStatus.OK, 0, attempt.ident)
        self.connected, attempt.sock = attempt.sock, None
        self.finish(DialStatus.OK, 0, attempt.target)

    def failed(self, attempt: Attempt, err: int, now: int) -> None:
        """Note one address as failed, and go to the next at once."""
        self.last_err = err
        self.drop(attempt, self.unreached, err)
        self.try_next(now)

    def drop(self, attempt: Attempt, status: DialStatus, err: int) -> None:
        """End one attempt and record how."""
        self.reports.forget(attempt)
        attempt.step = Step.OVER
        if attempt.sock is not None:
            attempt.sock.close()
            attempt.sock = None
        self.reports.result(self, attempt.target, status, err, attempt.ident)

    def tick(self, now: int) -> None:
        """Act on what is due: the whole deadline, a recorder that is silent, the next address."""
        if self.over:
            return
        late = [
            a
            for a in self.attempts
            if a.step is Step.ASKED and now >= a.asked_ns + limits.BROKER_RECORD_NS
        ]
        if late:
            self.finish(DialStatus.UNRECORDED, errno.ETIMEDOUT)
        elif now >= self.deadline_ns:
            self.finish(DialStatus.TIMEOUT, errno.ETIMEDOUT)
        elif self.waiting and now >= self.next_ns:
            self.try_next(now)

    def due_ns(self) -> int:
        """When ``tick`` has to be called next."""
        times = [self.deadline_ns]
        times += [
            a.asked_ns + limits.BROKER_RECORD_NS for a in self.attempts if a.step is Step.ASKED
        ]
        return min([*times, self.next_ns] if self.waiting else times)

    def refuse(self, status: DialStatus, err: int, target: Target | None = None) -> None:
        """End a dial for which nothing was dialled, and record that."""
        self.reports.result(self, target, status, err, 0)
        self.finish(status, err, target)

    def finish(self, status: DialStatus, err: int, target: Target | None = None) -> None:
        """Answer the mediator; attempts still under way are given up and recorded as such."""
        self.over = True
        self.waiting.clear()
        for attempt in self.attempts:
            if attempt.step is not Step.OVER:
                lost = status if status is not DialStatus.OK else self.unreached
                self.drop(attempt, lost, err or errno.ECANCELED)
        if not self.attempts and status in (DialStatus.TIMEOUT, DialStatus.UNRECORDED):
            self.reports.result(self, target, status, err, 0)
        self.reports.answer(self, target, status, err)
        if self.connected is not None:
            self.connected.close()
            self.connected = None


def open_socket(target: Target) -> socket.socket:
    """Return a TCP socket as the mediator wants it: not blocking, no delay, closed on exec."""
    sock = socket.socket(target.family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return sock


def sockaddr(target: Target) -> tuple[str, int]:
    """Return the address for connect(2)."""
    return socket.inet_ntop(target.family, target.address), target.port
