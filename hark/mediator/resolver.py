"""The run's resolver: sockets of netns M at port 53, UDP and TCP, answered by ``dns``.

Rules. What is answered is recorded first. Nothing waits: a client that does not read its answer, or
says nothing, loses its connection; what it had asked by then is recorded all the same. Hostile
input gets FORMERR, silence or an end, never an exception.
Sources: RFC 1035 section 4.2.2 (TCP: a length before each message), RFC 7766 (several questions on
one connection, idle ones may be closed).
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hark import limits
from hark.mediator import dns
from hark.policy import control

if TYPE_CHECKING:
    from collections.abc import Callable

    from hark.policy.model import CompiledPolicy

__all__ = ["Budget", "Resolver", "StreamResolver"]

_SLOT = 16
_IP_PKTINFO = 8  # linux/in.h; Python has no name for it before 3.14
_IPV6_PKTINFO = 50  # linux/in6.h
_PKTINFO4 = struct.Struct("=i4s4s")  # ifindex, local address, destination in the header
_PKTINFO6 = struct.Struct("=16si")
_ANCILLARY = socket.CMSG_SPACE(_PKTINFO4.size) + socket.CMSG_SPACE(_PKTINFO6.size)
_SO_MEMINFO = 55  # asm-generic/socket.h; its nine numbers are SK_MEMINFO_* of linux/sock_diag.h
_MEMINFO = struct.Struct("=9I")
_MEMINFO_DROPS = 8


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
        return message(self.sock.family, asked, made)

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


@dataclass(slots=True)
class Stream:
    """One TCP connection to port 53: what has come of the next question, and until when it may."""

    sock: socket.socket
    peer: tuple[str, int]
    server: bytes
    deadline_ns: int
    data: bytearray = field(default_factory=bytearray)
    asked: int = 0
    deaf: bool = False  # it did not take an answer: it gets no more, and what it has asked is told


class StreamResolver:
    """One listening TCP socket of netns M at port 53, transparent.

    ``watch`` has the loop call a function when a socket has input, ``forget`` ends that.
    """

    def __init__(
        self,
        sock: socket.socket,
        policy: CompiledPolicy,
        report: Callable[[control.Message], None],
        watch: Callable[[int, Callable[[], object]], None],
        forget: Callable[[int], None],
    ) -> None:
        self.sock = sock
        self.policy = policy
        self.report = report
        self.watch = watch
        self.forget = forget
        self.budget = Budget(limits.DNS_BURST, limits.DNS_PER_S)
        self.streams: dict[int, Stream] = {}
        sock.setblocking(False)

    def serve(self) -> bool:
        """Accept what waits, up to a batch. False: nothing more waits."""
        for _ in range(limits.DNS_BATCH):
            try:
                sock, peer = self.sock.accept()
            except BlockingIOError:
                return False
            except OSError:  # it is gone already, or there are no descriptors
                continue
            self.begin(sock, (str(peer[0]).partition("%")[0], int(peer[1])))
        return True

    def begin(self, sock: socket.socket, peer: tuple[str, int]) -> None:
        """Take a connection, unless there are too many: that is told, and it is closed."""
        sock.setblocking(False)
        server = socket.inet_pton(sock.family, sock.getsockname()[0].partition("%")[0])
        stream = Stream(sock, peer, server, time.monotonic_ns() + limits.DNS_STREAM_IDLE_NS)
        if len(self.streams) >= limits.DNS_STREAMS_MOST:
            self.tell(stream, dns.Answer(reply=b"", rule=dns.Rule.RATE))
            sock.close()
            return
        self.streams[sock.fileno()] = stream
        self.watch(sock.fileno(), lambda: self.listen(stream))

    def listen(self, stream: Stream) -> None:
        """Take what has come; of a client that is given up, all of it, at once."""
        while self.read(stream) and stream.deaf:
            pass

    def read(self, stream: Stream) -> bool:
        """Take what has come, and answer each question that is whole. False: no more is there."""
        try:
            data = stream.sock.recv(limits.DNS_STREAM_READ_BYTES)
        except BlockingIOError:
            if stream.deaf:
                self.end(stream)
            return False
        except OSError:
            data = b""
        if not data:
            self.end(stream)
            return False
        stream.deadline_ns = time.monotonic_ns() + limits.DNS_STREAM_IDLE_NS
        stream.data += data
        while len(stream.data) >= 2 and self.take(stream):  # noqa: PLR2004 - the length itself
            pass
        return stream.sock.fileno() in self.streams

    def take(self, stream: Stream) -> bool:
        """Answer the first question that is there. False: it is not whole, or all is over."""
        length = int.from_bytes(stream.data[:2], "big")
        if length > limits.DNS_QUERY_MAX_BYTES:
            self.end(stream)  # nothing asks for as much; what follows has no beginning
            return False
        if len(stream.data) < 2 + length:
            return False
        question = bytes(stream.data[2 : 2 + length])
        del stream.data[: 2 + length]
        if not self.budget.take(time.monotonic_ns()):
            self.tell(stream, dns.Answer(reply=b"", rule=dns.Rule.RATE))
            self.close(stream)
            return False
        made = dns.answer(question, self.policy)
        self.tell(stream, made)
        return self.reply(stream, made.reply)

    def reply(self, stream: Stream, answer: bytes) -> bool:
        """Send one answer to a client that takes it. False: there is none, and all is over."""
        if not answer:
            self.close(stream)
            return False
        if not stream.deaf:
            framed = len(answer).to_bytes(2, "big") + answer
            try:
                stream.deaf = stream.sock.send(framed, socket.MSG_NOSIGNAL) != len(framed)
            except OSError:  # it is gone, or its socket full
                stream.deaf = True
        return True

    def tell(self, stream: Stream, made: dns.Answer) -> None:
        """Record one question, or a connection that asked none."""
        stream.asked += 1
        asked = Asked(b"", stream.peer, stream.server)
        self.report(message(stream.sock.family, asked, made, tcp=True))

    def end(self, stream: Stream) -> None:
        """Close a connection; what it left unfinished, or that it asked nothing, is told."""
        if stream.data or not stream.asked:
            self.tell(stream, dns.Answer(reply=b""))
        self.close(stream)

    def close(self, stream: Stream) -> None:
        """Close a connection."""
        fd = stream.sock.fileno()
        if self.streams.pop(fd, None) is not None:
            self.forget(fd)
            stream.sock.close()

    def tick(self, now: int) -> None:
        """Close connections that have been idle too long."""
        for stream in [s for s in self.streams.values() if s.deadline_ns <= now]:
            self.end(stream)

    def finish(self) -> None:
        """Answer and record what is left: the agent is gone, and nothing more comes."""
        while self.serve():
            pass
        for stream in list(self.streams.values()):
            while self.read(stream):
                pass
            if stream.sock.fileno() in self.streams:
                self.end(stream)

    def due_ns(self) -> int | None:
        """When ``tick`` has something to do."""
        return min((s.deadline_ns for s in self.streams.values()), default=None)


def message(family: int, asked: Asked, made: dns.Answer, *, tcp: bool = False) -> control.Dns:
    """Make the message about one question."""
    slots = b"".join(address.ljust(_SLOT, b"\0") for address in made.addresses)
    source = socket.inet_pton(family, str(asked.peer[0]).partition("%")[0])
    return control.Dns(
        boot_ns=time.clock_gettime_ns(time.CLOCK_BOOTTIME),
        src=source.ljust(_SLOT, b"\0"),
        dst=asked.server.ljust(_SLOT, b"\0"),
        family=family,
        sport=int(asked.peer[1]),
        qtype=made.qtype,
        rcode=made.rcode,
        allowed=int(made.allowed),
        answers=len(made.addresses),
        answer=slots.ljust(8 * _SLOT, b"\0"),
        qname=made.name[: limits.DNS_NAME_RECORDED_CHARS],
        rule=made.rule.value,
        tcp=int(tcp),
    )


@dataclass(frozen=True, slots=True)
class Asked:
    """One question: from whom, and to which server's address (empty: unknown)."""

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
