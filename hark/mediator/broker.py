"""The broker: the only process of a run that resolves names and dials, and the run's resolver.

A forked child of the command line with its own user id. It takes DIAL from the mediator, looks the
host index up in its own copy of the compiled table, resolves, checks the address, has the intent
recorded and connects; the socket goes to the mediator. Where the policy names a proxy it asks that
for a tunnel. From netns M it answers the agent's DNS.
Rules. It holds no secret but the proxy's password, and no file of the run. It never forwards a
question of the agent. Every wait has a deadline, and the end of either control socket is its end.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import select
import socket
import struct
import time
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, NoReturn

from hark import limits
from hark.errors import HarkError
from hark.mediator import dns
from hark.mediator.dial import Attempt, Dial, Step, Target, Tunnel
from hark.mediator.lookup import Lookups, Resolved, host_addresses
from hark.mediator.proxy import connect_request
from hark.policy import control, privileges
from hark.policy.control import Channel, DialStatus, MsgType, PeerBroken, PeerClosed

if TYPE_CHECKING:
    from collections.abc import Callable

    from hark.policy.model import CompiledPolicy, Redirect

__all__ = ["Broker", "BrokerConfig", "main"]

_IP_PKTINFO = 8  # linux/in.h; Python has no name for it before 3.14
_IPV6_PKTINFO = 50  # linux/in6.h
_PKTINFO4 = struct.Struct("=i4s4s")  # ifindex, local address, destination in the header
_PKTINFO6 = struct.Struct("=16si")
_ANCILLARY = socket.CMSG_SPACE(_PKTINFO4.size) + socket.CMSG_SPACE(_PKTINFO6.size)
_SLOT = 16
_SO_MEMINFO = 55  # asm-generic/socket.h; its nine numbers are SK_MEMINFO_* of linux/sock_diag.h
_MEMINFO = struct.Struct("=9I")
_MEMINFO_DROPS = 8


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
        self.resolvers: list[Resolver] = []
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
                resolver = Resolver(socket.socket(fileno=fd), self.config.policy, self.report)
                self.resolvers.append(resolver)
                self.on_input(fd, resolver.serve)
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
            del self.handlers[attempt.sock.fileno()]
            self.poll.unregister(attempt.sock.fileno())

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


# --- the run's resolver ---------------------------------------------------------------------------


class Resolver:
    """One UDP socket of netns M, bound to port 53 and transparent: any server's address is asked.

    The answer comes from the address that was asked (IP_PKTINFO, IPV6_PKTINFO), from the port the
    socket is bound to.
    """

    def __init__(
        self,
        sock: socket.socket,
        policy: CompiledPolicy,
        report: Callable[[control.Message], None],
    ) -> None:
        self.sock = sock
        self.policy = policy
        self.report = report
        self.budget = Budget(limits.DNS_BURST, limits.DNS_PER_S)
        self.unanswered = 0
        self.unanswered_from: Asked | None = None
        self.latest: Asked | None = None
        sock.setblocking(False)
        if sock.family == socket.AF_INET:
            sock.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
        else:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)

    def serve(self) -> bool:
        """Answer what has come in, up to a batch, so that dials get their turn.

        False: the socket holds nothing more.
        """
        for _ in range(limits.DNS_BATCH):
            try:
                asked = self.receive()
            except BlockingIOError:
                return False
            except OSError:  # an ICMP error of an earlier answer; the socket is fine
                continue
            self.latest = asked
            if not self.budget.take(time.monotonic_ns()):
                self.unanswered += 1
                self.unanswered_from = asked
                continue
            self.handle(asked)
        return True

    def finish(self) -> None:
        """Answer and report all that is left: the agent is gone, and nothing more comes.

        Questions that found the socket full are told too, as ones that were not answered.
        """
        for _ in range(limits.DNS_LAST_BATCHES):
            if not self.serve():
                break
        info = self.sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
        if dropped := _MEMINFO.unpack(info)[_MEMINFO_DROPS]:
            self.unanswered += dropped
            self.unanswered_from = self.unanswered_from or self.latest
        self.tell_unanswered()

    def receive(self) -> Asked:
        """Read one datagram with both its addresses."""
        data, ancillary, _, peer = self.sock.recvmsg(limits.DNS_QUERY_MAX_BYTES + 1, _ANCILLARY)
        server = b""
        for level, kind, value in ancillary:
            if (level, kind) == (socket.IPPROTO_IP, _IP_PKTINFO):
                server = _PKTINFO4.unpack_from(value)[2]
            elif (level, kind) == (socket.IPPROTO_IPV6, _IPV6_PKTINFO):
                server = _PKTINFO6.unpack_from(value)[0]
        return Asked(data, peer, server)

    def handle(self, asked: Asked) -> None:
        """Record one answer, then give it."""
        made = dns.answer(asked.data, self.policy)
        if made.reply:
            self.report(self.record(asked, made))
            with contextlib.suppress(OSError):  # the client is gone, or its socket full
                self.sock.sendmsg([made.reply], self.source(asked), 0, asked.peer)

    def source(self, asked: Asked) -> list[tuple[int, int, bytes]]:
        """Return the control message that sets the answer's source address."""
        if not asked.server:
            return []
        if self.sock.family == socket.AF_INET:
            info = _PKTINFO4.pack(0, asked.server, bytes(4))
            return [(socket.IPPROTO_IP, _IP_PKTINFO, info)]
        return [(socket.IPPROTO_IPV6, _IPV6_PKTINFO, _PKTINFO6.pack(asked.server, 0))]

    def record(self, asked: Asked, made: dns.Answer) -> control.Dns:
        """Make the message about one question."""
        slots = b"".join(address.ljust(_SLOT, b"\0") for address in made.addresses)
        source = socket.inet_pton(self.sock.family, str(asked.peer[0]).partition("%")[0])
        return control.Dns(
            boot_ns=boot_ns(),
            src=source.ljust(_SLOT, b"\0"),
            dst=asked.server.ljust(_SLOT, b"\0"),
            family=self.sock.family,
            sport=int(asked.peer[1]),
            qtype=made.qtype,
            rcode=made.rcode,
            allowed=int(made.allowed),
            answers=len(made.addresses),
            answer=slots.ljust(8 * _SLOT, b"\0"),
            qname=made.name[: limits.DNS_NAME_RECORDED_CHARS],
            rule=made.rule.value,
        )

    def tick(self, now: int) -> None:
        """Report questions over the rate: one message for all of them."""
        if self.unanswered_from and self.budget.take(now):
            self.tell_unanswered()

    def tell_unanswered(self) -> None:
        """Report the questions that were not answered, if there are any."""
        if self.unanswered_from:
            made = dns.Answer(
                reply=b"", name=f"{self.unanswered} questions not answered", rule=dns.Rule.RATE
            )
            asked, self.unanswered_from, self.unanswered = self.unanswered_from, None, 0
            self.report(self.record(asked, made))

    def due_ns(self) -> int | None:
        """When ``tick`` has something to report."""
        return self.budget.next_ns() if self.unanswered_from else None


@dataclass(frozen=True, slots=True)
class Asked:
    """One datagram: from whom, and to which server's address (empty: unknown)."""

    data: bytes
    peer: tuple[str, int]
    server: bytes


class Budget:
    """A token bucket: ``burst`` at once, then ``per_s`` each second. Times are nanoseconds."""

    def __init__(self, burst: int, per_s: int) -> None:
        self.step_ns = 1_000_000_000 // per_s
        self.depth_ns = burst * self.step_ns
        self.full_at_ns = 0  # when the bucket is full again

    def take(self, now: int) -> bool:
        """Take one, if there is one."""
        full_at = max(self.full_at_ns, now) + self.step_ns
        if full_at > now + self.depth_ns:
            return False
        self.full_at_ns = full_at
        return True

    def next_ns(self) -> int:
        """When there is one again."""
        return self.full_at_ns + self.step_ns - self.depth_ns
