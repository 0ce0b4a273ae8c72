"""The publisher: has the host's loopback lead to a port of the agent (``--publish``).

A forked child of the command line. It listens where the command line opened sockets, and enters the
agent's network namespace, so that what it connects to is the agent's own loopback and nothing else.
Each connection is on disk before the agent sees it; its bytes pass as they are and are counted.
Rules. It has an own user id, no capability and no file; it is there only for a run that publishes.
Nothing of a connection is parsed. A full buffer stops its source. The end of the recorder's socket
is its end.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import time
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, NoReturn

from hark import limits
from hark.errors import HarkError, InputError
from hark.policy import control, privileges
from hark.policy.control import Channel, InboundWhat, MsgType, PeerBroken, PeerClosed, Plain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Published", "Publisher", "listen", "main"]

_READ = 65_536
_SLOT = 16
_FAMILIES = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
_NO_IPV6 = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


@dataclass(frozen=True, slots=True)
class Published:
    """One listening socket of the host's loopback, and the port of the agent that it leads to."""

    sock: socket.socket
    port: int


def listen(wanted: Sequence[tuple[int, int]]) -> list[Published]:
    """Open the host's side of ``--publish``: (host's port, agent's port). Raises InputError."""
    made: list[Published] = []
    try:
        for host_port, port in wanted:
            for family, address in _FAMILIES:
                with contextlib.suppress(_NotThere):
                    made.append(Published(_listener(family, address, host_port), port))
    except InputError:
        for one in made:
            one.sock.close()
        raise
    return made


class _NotThere(Exception):
    """This host has no such family."""


def _listener(family: int, address: str, port: int) -> socket.socket:
    try:
        return socket.create_server((address, port), family=family, backlog=64)
    except OSError as error:
        if family == socket.AF_INET6 and error.errno in _NO_IPV6:
            raise _NotThere from None
        raise InputError(
            f"port {port} of this host cannot be published",
            error.strerror or "",
            f"choose another: --publish OTHER:{port}",
        ) from None


def main(
    recorder: socket.socket, published: Sequence[Published], *, uid: int, gid: int
) -> NoReturn:
    """Be the publisher. Call it in a child right after fork, as root; it never returns.

    It waits for PUBLISH, which brings the agent's namespace, and answers PUBLISHER_READY. Exit
    status: 0 after end of file, 125 when the recorder broke the protocol, 70 after a bug.
    """
    code = limits.EXIT_BUG
    try:
        privileges.kept_apart("hark-publisher")
        fds = [one.sock.fileno() for one in published]
        privileges.close_all_but([recorder.fileno(), *fds])
        channel = Channel(recorder)
        code = 0
        _enter(channel)
        privileges.drop(uid, gid)
        Publisher(channel, published).run()
    except PeerClosed:
        pass
    except HarkError as error:
        code = error.exit_code
    finally:  # whatever happened: a child never runs on in its parent's code
        os._exit(code)


def _enter(channel: Channel) -> None:
    """Wait for the agent's network namespace, and go there."""
    got = channel.recv(None)
    if got is None or got.msg.kind is not MsgType.PUBLISH or len(got.fds) != 1:
        raise PeerBroken("something else where the agent's namespace was due")
    privileges.enter_network(got.fds[0])
    got.close()


@dataclass(slots=True)
class Way:
    """One direction: what waits for ``sink``, and how far its end has come."""

    data: bytearray = field(default_factory=bytearray)
    bytes: int = 0
    eof: bool = False
    shut: bool = False


@dataclass(slots=True)
class Inbound:
    """One connection of the host's loopback. ``agent`` is None until it is on disk."""

    ident: int
    client: socket.socket
    peer: tuple[str, int]
    published: Published
    agent: socket.socket | None = None
    connected: bool = False
    up: Way = field(default_factory=Way)  # from the host to the agent
    down: Way = field(default_factory=Way)
    tried: int = 0


class Publisher:
    """The event loop. ``run`` returns at end of file."""

    def __init__(self, recorder: Channel, published: Sequence[Published]) -> None:
        self.recorder = recorder
        self.published = published
        self.inbound: dict[int, Inbound] = {}
        self.idents = count(1)
        self.poll = select.epoll()
        self.handlers: dict[int, Callable[[int], None]] = {}
        self.accepting = True

    # --- the loop ---------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until the recorder's socket closes."""
        self.watch(self.recorder.fileno(), select.EPOLLIN, lambda _: self.from_recorder())
        for one in self.published:
            one.sock.setblocking(False)
            self.watch(one.sock.fileno(), select.EPOLLIN, self.acceptor(one))
        self.send(Plain(MsgType.PUBLISHER_READY))
        while True:
            for fd, events in self.poll.poll():
                if handler := self.handlers.get(fd):  # gone, when an earlier one ended it
                    handler(events)

    def watch(self, fd: int, events: int, handler: Callable[[int], None]) -> None:
        """Call ``handler`` with the events of ``fd``; a known one may wait for others."""
        if fd in self.handlers:
            self.poll.modify(fd, events)
        else:
            self.poll.register(fd, events)
        self.handlers[fd] = handler

    def forget(self, fd: int) -> None:
        """Wait for nothing of ``fd`` any more."""
        if self.handlers.pop(fd, None) is not None:
            self.poll.unregister(fd)

    def send(self, message: control.Message, ident: int = 0) -> None:
        """Tell the recorder; one that does not take it in time ends the run."""
        self.recorder.send(message, ident=ident, timeout_s=limits.BROKER_SEND_S)

    def from_recorder(self) -> None:
        """Take word that a connection is on disk, or that the agent is gone."""
        got = self.recorder.recv()
        if got is None:
            return
        got.close()
        if got.msg.kind is MsgType.STOP:
            for one in self.published:
                self.forget(one.sock.fileno())
            for inbound in list(self.inbound.values()):
                self.end(inbound, InboundWhat.STOPPED)
            self.send(Plain(MsgType.DRAINED))
        elif got.msg.kind is MsgType.INBOUND_RECORDED:
            if known := self.inbound.get(got.ident):  # else it is over already
                self.connect(known)
        else:
            raise PeerBroken(f"{got.msg.kind.name} message from the recorder")

    # --- a connection begins ----------------------------------------------------------------------

    def acceptor(self, published: Published) -> Callable[[int], None]:
        """Return the handler of a listening socket."""

        def accept(_: int) -> None:
            try:
                client, peer = published.sock.accept()
            except OSError:  # it left again, or there are no descriptors
                return
            client.setblocking(False)
            name = str(peer[0]).partition("%")[0]
            inbound = Inbound(next(self.idents), client, (name, int(peer[1])), published)
            self.inbound[inbound.ident] = inbound
            self.tell(inbound, InboundWhat.OPEN)
            self.pace()

        return accept

    def pace(self) -> None:
        """Accept no more than there may be at once; the rest waits in the backlog."""
        wanted = len(self.inbound) < limits.PUBLISHED_CONNS_MOST
        if wanted == self.accepting:
            return
        self.accepting = wanted
        for one in self.published:
            if wanted:
                self.watch(one.sock.fileno(), select.EPOLLIN, self.acceptor(one))
            else:
                self.forget(one.sock.fileno())

    def tell(self, inbound: Inbound, what: InboundWhat) -> None:
        """Report a connection's begin or end."""
        family = inbound.published.sock.family
        server = inbound.published.sock.getsockname()
        self.send(
            control.Inbound(
                boot_ns=time.clock_gettime_ns(time.CLOCK_BOOTTIME),
                rx_bytes=inbound.down.bytes,
                tx_bytes=inbound.up.bytes,
                src=socket.inet_pton(family, inbound.peer[0]).ljust(_SLOT, b"\0"),
                dst=socket.inet_pton(family, server[0]).ljust(_SLOT, b"\0"),
                what=what,
                family=family,
                sport=inbound.peer[1],
                port=inbound.published.port,
                host_port=server[1],
            ),
            ident=inbound.ident,
        )

    def connect(self, inbound: Inbound) -> None:
        """Connect to the agent's loopback, IPv4 first: this process lives in its namespace."""
        while inbound.tried < len(_FAMILIES):
            family, address = _FAMILIES[inbound.tried]
            inbound.tried += 1
            try:
                agent = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            except OSError:
                continue
            err = agent.connect_ex((address, inbound.published.port))
            if err in (0, errno.EINPROGRESS):
                inbound.agent = agent
                self.watch(agent.fileno(), select.EPOLLOUT, lambda _: self.connected(inbound))
                return
            agent.close()
        self.end(inbound, InboundWhat.REFUSED)

    def connected(self, inbound: Inbound) -> None:
        """Go on with a connection that is there, or with the other family."""
        agent = inbound.agent
        if agent is None:
            return
        if agent.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.forget(agent.fileno())
            agent.close()
            inbound.agent = None
            self.connect(inbound)
            return
        inbound.connected = True
        self.settle(inbound)

    # --- and goes on ------------------------------------------------------------------------------

    def ready(self, inbound: Inbound, sock: socket.socket, events: int) -> None:
        """Act on one side's events. An error ends it, also when nothing of it is wanted now."""
        if events & select.EPOLLERR:
            self.end(inbound, lost(inbound, sock))
        else:
            self.turn(inbound)

    def turn(self, inbound: Inbound) -> None:
        """Move what can be moved, both ways."""
        agent = inbound.agent
        if agent is None:
            return
        for source, sink, way in (
            (inbound.client, agent, inbound.up),
            (agent, inbound.client, inbound.down),
        ):
            side = source
            try:
                pump(source, way)
                side = sink
                push(sink, way)
            except OSError:
                self.end(inbound, lost(inbound, side))
                return
        self.settle(inbound)

    def settle(self, inbound: Inbound) -> None:
        """Wait for what can come next; both ways shut: it is over."""
        agent = inbound.agent
        if agent is None:
            return
        if inbound.up.shut and inbound.down.shut:
            self.end(inbound, InboundWhat.COMPLETE)
            return
        for sock, came, leaves in (
            (inbound.client, inbound.up, inbound.down),
            (agent, inbound.down, inbound.up),
        ):
            events = 0 if came.eof or len(came.data) >= limits.PUBLISHED_BUFFER else select.EPOLLIN
            events |= select.EPOLLOUT if leaves.data else 0
            if came.eof and leaves.shut:
                self.forget(sock.fileno())  # it only reports its hang-up, again and again
            else:
                # Edge-triggered where nothing is wanted: else a hang-up would keep the loop busy.
                self.watch(
                    sock.fileno(), events or select.EPOLLET, partial(self.ready, inbound, sock)
                )

    def end(self, inbound: Inbound, what: InboundWhat) -> None:
        """Close both sides, and say how it ended."""
        if self.inbound.pop(inbound.ident, None) is None:
            return
        for sock in (inbound.client, inbound.agent):
            if sock is not None:
                self.forget(sock.fileno())
                sock.close()
        self.tell(inbound, what)
        self.pace()


def lost(inbound: Inbound, sock: socket.socket) -> InboundWhat:
    """Say which side broke off."""
    return InboundWhat.HOST_GONE if sock is inbound.client else InboundWhat.AGENT_GONE


def pump(source: socket.socket, way: Way) -> None:
    """Read once, when there is room. Raises OSError for a connection that broke."""
    if way.eof or len(way.data) >= limits.PUBLISHED_BUFFER:
        return
    with contextlib.suppress(BlockingIOError):
        data = source.recv(_READ)
        way.eof = not data
        way.data += data


def push(sink: socket.socket, way: Way) -> None:
    """Write what waits, and pass the end on behind it. Raises OSError."""
    with contextlib.suppress(BlockingIOError):
        while way.data:
            sent = sink.send(way.data, socket.MSG_NOSIGNAL)
            way.bytes += sent
            del way.data[:sent]
    if way.eof and not way.data and not way.shut:
        with contextlib.suppress(OSError):  # it has left already: there is nobody to tell
            sink.shutdown(socket.SHUT_WR)
        way.shut = True
