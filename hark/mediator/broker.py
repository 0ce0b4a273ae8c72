"""The broker: the only process of a run that resolves names and dials, and the run's resolver.

A forked child of the command line with its own user id. It takes DIAL from the mediator, looks the
host index up in its own copy of the compiled table, resolves, checks the address, has the intent
recorded and connects; the socket goes to the mediator. Where the policy names a proxy it asks that
for a tunnel. From netns M it answers the agent's DNS.
Rules. It holds no secret but the proxy's password, and no file of the run. It never forwards a
question of the agent. Every wait has a deadline, and the end of either control socket is its end.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import select
import socket
import stat
import time
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, NoReturn

from hark import limits
from hark.errors import HarkError
from hark.mediator.dial import Attempt, Dial, Step, Target, Tunnel
from hark.mediator.lookup import Lookups, Resolved, host_addresses
from hark.mediator.proxy import connect_request
from hark.mediator.resolver import Resolver, StreamResolver
from hark.policy import control, privileges
from hark.policy.control import Channel, DialStatus, MsgType, PeerBroken, PeerClosed

if TYPE_CHECKING:
    from collections.abc import Callable

    from hark.policy.model import CompiledPolicy, Redirect

__all__ = ["Broker", "BrokerConfig", "main"]

_SLOT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """What a broker is given: the table, ``--upstream``, and whom to become.

    ``resolve`` looks a name up; it may block, and is called in a thread. ``offline``: a replay's,
    which answers the agent's DNS and has no network to dial from. ``proxy_auth``: user:password.
    """

    policy: CompiledPolicy
    redirects: tuple[Redirect, ...] = ()
    uid: int
    gid: int
    resolve: Callable[[str], Resolved] = field(default=host_addresses)
    offline: bool = False
    proxy_auth: bytes = field(default=b"", repr=False)


def main(recorder: socket.socket, mediator: socket.socket, config: BrokerConfig) -> NoReturn:
    """Be the broker. Call it in a child right after fork, as root; it never returns.

    Sends BROKER_READY when it has become ``config.uid``. Exit status: 0 after end of file on
    either socket, 125 when a peer broke the protocol, 70 after a bug.
    """
    code = limits.EXIT_BUG
    try:
        privileges.kept_apart("hark-broker")
        privileges.close_all_but([recorder.fileno(), mediator.fileno()])
        if config.offline:
            privileges.leave_network()
        privileges.drop(config.uid, config.gid)
        Broker(Channel(recorder), Channel(mediator), config).run()
        code = 0
    except HarkError as error:
        code = error.exit_code
    finally:  # whatever happened: a child never runs on in its parent's code
        os._exit(code)


class Broker:
    """The event loop. One instance per run; ``run`` returns at end of file."""

    def __init__(self, recorder: Channel, mediator: Channel, config: BrokerConfig) -> None:
        self.recorder = recorder
        self.mediator = mediator
        self.config = config
        self.redirects = {redirect.host: redirect for redirect in config.redirects}
        self.lookups = Lookups(config.resolve)
        self.dials: list[Dial] = []
        self.attempts: dict[int, Attempt] = {}
        self.idents = count(1)
        self.resolvers: list[Resolver | StreamResolver] = []
        self.poll = select.epoll()
        self.handlers: dict[int, Callable[[], object]] = {}

    # --- the loop ---------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until a control socket closes."""
        self.on_input(self.recorder.fileno(), self.from_recorder)
        self.on_input(self.mediator.fileno(), self.from_mediator)
        self.on_input(self.lookups.fileno(), self.from_lookups)
        self.recorder.send(control.Plain(MsgType.BROKER_READY), timeout_s=limits.BROKER_SEND_S)
        try:
            while True:
                self.turn()
        except PeerClosed:
            return

    def turn(self) -> None:
        """Wait for the next event or deadline, and act on all that are due."""
        due = min((dial.due_ns() for dial in self.dials), default=None)
        for resolver in self.resolvers:
            due = min(filter(None, (due, resolver.due_ns())), default=None)
        wait = None if due is None else max(0.0, (due - time.monotonic_ns()) / 1e9)
        for fd, _ in self.poll.poll(wait):
            handler = self.handlers.get(fd)  # gone, when an earlier one of this turn ended it
            if handler:
                handler()
        now = time.monotonic_ns()
        for resolver in self.resolvers:
            resolver.tick(now)
        for dial in list(self.dials):
            if dial.due_ns() <= now:
                dial.tick(now)

    def on_input(
        self, fd: int, handler: Callable[[], object], events: int = select.EPOLLIN
    ) -> None:
        """Call ``handler`` whenever ``fd`` is ready."""
        self.handlers[fd] = handler
        self.poll.register(fd, events)

    def off_input(self, fd: int) -> None:
        """Call nothing for ``fd`` any more."""
        del self.handlers[fd]
        self.poll.unregister(fd)

    # --- the peers --------------------------------------------------------------------------------

    def from_mediator(self) -> None:
        """Take one DIAL."""
        got = self.mediator.recv()
        if got is None:
            return
        got.close()
        if not isinstance(got.msg, control.Dial):
            raise PeerBroken(f"{type(got.msg).__name__} message from the mediator")
        self.begin(got.ident, got.msg)

    def from_recorder(self) -> None:
        """Take the DNS sockets, word that an intent is on disk, or that the agent is gone."""
        got = self.recorder.recv()
        if got is None:
            return
        kind = got.msg.kind
        if kind is MsgType.RESOLVE_SOCKETS and got.fds and not self.resolvers:
            for fd in got.fds:
                self.begin_resolver(fd)
            return
        got.close()
        if kind is MsgType.STOP:
            for resolver in self.resolvers:
                resolver.finish()
            self.report(control.Plain(MsgType.DRAINED))
            return
        if kind is not MsgType.DIAL_RECORDED:
            raise PeerBroken(f"{kind.name} message from the recorder")
        if attempt := self.attempts.get(got.ident):  # else it came after the dial was over
            attempt.dial.recorded(attempt, time.monotonic_ns())

    def begin_resolver(self, fd: int) -> None:
        """Serve one socket of netns M. Where the kernel has no IPv6, two are no sockets."""
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            os.close(fd)
            return
        sock = socket.socket(fileno=fd)
        resolver = (
            StreamResolver(sock, self.config.policy, self.report, self.on_input, self.off_input)
            if sock.type == socket.SOCK_STREAM
            else Resolver(sock, self.config.policy, self.report)
        )
        self.resolvers.append(resolver)
        self.on_input(fd, resolver.serve)

    def from_lookups(self) -> None:
        """Hand results to every dial that waits for the name."""
        for result in self.lookups.finished():
            for dial in list(self.dials):
                if dial.looked_up == result.name and not dial.attempts:
                    dial.resolved(result, time.monotonic_ns())

    def report(self, message: control.Message, ident: int = 0) -> None:
        """Send to the recorder; one that does not take it in time ends the run."""
        self.recorder.send(message, ident=ident, timeout_s=limits.BROKER_SEND_S)

    # --- dials ------------------------------------------------------------------------------------

    def begin(self, ident: int, msg: control.Dial) -> None:
        """Check the row and the port, then resolve or redirect."""
        hosts = self.config.policy.hosts
        now = time.monotonic_ns()
        if msg.host >= len(hosts) or msg.port not in hosts[msg.host].ports:
            self.turn_down(ident, msg, DialStatus.DENIED, errno.EACCES)
            return
        if len(self.dials) >= limits.BROKER_DIALS_MOST:
            self.turn_down(ident, msg, DialStatus.RESOLVE, errno.EAGAIN)
            return
        host = hosts[msg.host]
        deadline = now + limits.BROKER_DIAL_NS
        dial = Dial(ident, msg.conn, host, msg.port, deadline, reports=self)
        self.dials.append(dial)
        if host.forward is not None:
            service = Resolved(host.name, (packed(host.forward.address),))
            dial.port = host.forward.target
            dial.resolved(service, now)
        elif redirect := self.redirects.get(host.name):
            dial.redirect(redirect, now)
        else:
            self.look_up(dial, now)

    def look_up(self, dial: Dial, now: int) -> None:
        """Find the addresses to dial: the host's own, or those of the proxy."""
        proxy = self.config.policy.policy.way_out.proxy
        if proxy is not None and proxy.carries(dial.host.name):
            request = connect_request(dial.host.name, dial.port, self.config.proxy_auth)
            dial.tunnel = Tunnel(proxy.host, proxy.port, request)
            if is_address(proxy.host):
                dial.resolved(Resolved(proxy.host, (packed(proxy.host),)), now)
                return
        if not self.lookups.start(dial.looked_up):
            dial.resolved(Resolved(dial.looked_up, (), errno.EAGAIN), now)

    def turn_down(self, ident: int, msg: control.Dial, status: DialStatus, err: int) -> None:
        """Refuse a dial before it begins: no row, no port, or too many."""
        event = control.DialEvent(
            type=MsgType.DIAL_RESULT,
            boot_ns=boot_ns(),
            conn=msg.conn,
            host=msg.host,
            status=status,
            err=err,
            port=msg.port,
            family=0,
            addr=bytes(_SLOT),
        )
        self.report(event)
        self.mediator.send(dialed(None, status, err), ident=ident, timeout_s=limits.BROKER_SEND_S)

    def intent(self, dial: Dial, target: Target) -> Attempt:
        """See ``Reports.intent``."""
        attempt = Attempt(dial, next(self.idents), target, time.monotonic_ns())
        self.attempts[attempt.ident] = attempt
        self.report(event_of(MsgType.DIAL_INTENT, dial, target), attempt.ident)
        return attempt

    def watch(self, attempt: Attempt) -> None:
        """See ``Reports.watch``."""
        if attempt.sock is not None:
            self.on_input(
                attempt.sock.fileno(),
                lambda: attempt.dial.ready(attempt, time.monotonic_ns()),
                select.EPOLLIN if attempt.step is Step.ASKING else select.EPOLLOUT,
            )

    def forget(self, attempt: Attempt) -> None:
        """See ``Reports.forget``."""
        self.attempts.pop(attempt.ident, None)
        if attempt.sock is not None and attempt.sock.fileno() in self.handlers:
            self.off_input(attempt.sock.fileno())

    def result(
        self, dial: Dial, target: Target | None, status: DialStatus, err: int, ident: int
    ) -> None:
        """See ``Reports.result``."""
        self.report(event_of(MsgType.DIAL_RESULT, dial, target, status, err), ident)

    def answer(self, dial: Dial, target: Target | None, status: DialStatus, err: int) -> None:
        """See ``Reports.answer``."""
        self.dials.remove(dial)
        self.mediator.send(
            dialed(target, status, err),
            ident=dial.ident,
            fds=[dial.connected.fileno()] if dial.connected else [],
            timeout_s=limits.BROKER_SEND_S,
        )


def dialed(target: Target | None, status: DialStatus, err: int) -> control.Dialed:
    """Make the answer to the mediator."""
    address, port, family = where(target)
    return control.Dialed(status, err, family, port, address)


def event_of(
    kind: MsgType,
    dial: Dial,
    target: Target | None,
    status: DialStatus = DialStatus.OK,
    err: int = 0,
) -> control.DialEvent:
    """Make DIAL_INTENT or DIAL_RESULT; the port is the one that is connected to."""
    address, port, family = where(target)
    return control.DialEvent(
        type=kind,
        boot_ns=boot_ns(),
        conn=dial.conn,
        host=dial.host.index,
        status=status,
        err=err,
        port=port or dial.port,
        family=family,
        addr=address,
        proxied=int(dial.tunnel is not None),
    )


def is_address(host: str) -> bool:
    """Whether a proxy is named by its address."""
    return ":" in host or host.rpartition(".")[2].isdigit()


def packed(address: str) -> bytes:
    """Return the 4 or 16 bytes of an address. Raises ValueError for a name."""
    return ipaddress.ip_address(address).packed


def where(target: Target | None) -> tuple[bytes, int, int]:
    """Return address (16 bytes), port and family as messages carry them; zeros for none."""
    if target is None:
        return bytes(_SLOT), 0, 0
    return target.address.ljust(_SLOT, b"\0"), target.port, target.family


def boot_ns() -> int:
    """CLOCK_BOOTTIME, the clock of every record."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
