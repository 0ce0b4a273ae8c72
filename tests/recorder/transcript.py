"""Short names for records and events, so that merge tests read as transcripts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hark.kernel import records as k
from hark.mediator import records as m
from hark.policy import control
from hark.recorder.merge import Merged, Merger
from hark.recorder.translate import Names

MS = 1_000_000
AGENT = bytes([10, 0, 0, 2])
SITE = bytes([198, 18, 0, 7])
RESOLVER = bytes([10, 0, 0, 1])
EXE = k.ExeId(dev=8, ino=77, ctime_ns=5)
DIGEST = bytes(range(32))
NAMES = Names(("api.example", "files.example"), ("OPENAI_API_KEY",))


def task(tgid: int, tid: int = 0) -> k.Task:
    return k.Task(tgid, tid or tgid, tgid * 1000)


def khead(ms: float, tgid: int, tid: int = 0) -> k.Head:
    return k.Head(int(ms * MS), 0, 1, task(tgid, tid))


def execed(ms: float, tgid: int, exe: k.ExeId = EXE, name: bytes = b"/usr/bin/curl") -> k.Exec:
    return k.Exec(
        head=khead(ms, tgid),
        parent_tgid=1,
        filename=name,
        argv=(name, b"-v"),
        truncated=False,
        exe=exe,
    )


def forked(ms: float, tgid: int, child: int, *, thread: bool = False) -> k.Fork:
    made = k.Task(tgid, child, tgid * 1000) if thread else task(child)
    return k.Fork(head=khead(ms, tgid), child=made, thread=thread)


def connect(ms: float, tgid: int, sport: int, *, cookie: int = 0, tid: int = 0) -> k.Connect:
    return k.Connect(
        head=khead(ms, tgid, tid),
        cookie=cookie or sport,
        src=AGENT,
        sport=sport,
        dst=SITE,
        dport=443,
    )


def closed(ms: float, cookie: int) -> k.SocketClose:
    return k.SocketClose(head=khead(ms, 0), cookie=cookie, tx_bytes=10, rx_bytes=20)


def udp(ms: float, tgid: int, sport: int) -> k.UdpFlow:
    return k.UdpFlow(
        head=khead(ms, tgid), cookie=sport, src=AGENT, sport=sport, dst=RESOLVER, dport=53
    )


def mhead(ms: float, seq: int = 0) -> m.Head:
    return m.Head(int(ms * MS), seq)


def accepted(ms: float, conn: int, sport: int, *, mapped: bool = False) -> m.ConnOpen:
    prefix = bytes(10) + b"\xff\xff" if mapped else b""
    return m.ConnOpen(
        head=mhead(ms),
        conn=conn,
        src=prefix + AGENT,
        sport=sport,
        dst=prefix + SITE,
        dport=443,
    )


def handshake(ms: float, conn: int, sni: str = "api.example") -> m.ConnTls:
    return m.ConnTls(
        head=mhead(ms),
        conn=conn,
        sni=sni,
        version="TLSv1.3",
        cipher="TLS_AES_128_GCM_SHA256",
        alpn="http/1.1",
        resumed=False,
    )


def request(ms: float, exchange: int, conn: int, host: int = 0) -> m.RequestHead:
    return m.RequestHead(
        head=mhead(ms),
        exchange=exchange,
        conn=conn,
        host=host,
        raw=b"GET /v1 HTTP/1.1\r\nHost: api.example\r\n\r\n",
    )


def delivery(ms: float, exchange: int, data: bytes) -> m.ResponseBody:
    return m.ResponseBody(head=mhead(ms), exchange=exchange, data=data, end=False)


def ended(ms: float, exchange: int) -> m.ExchangeEnd:
    return m.ExchangeEnd(
        head=mhead(ms), exchange=exchange, reason="complete", request_bytes=0, response_bytes=3
    )


def disconnected(ms: float, conn: int, reason: str = "client_closed") -> m.ConnClose:
    return m.ConnClose(head=mhead(ms), conn=conn, reason=reason, rx_bytes=1, tx_bytes=2)


def refused(
    ms: float, conn: int, reason: str = "host_denied", name: str = "evil.example", seq: int = 0
) -> m.Refused:
    return m.Refused(
        head=mhead(ms, seq),
        exchange=0,
        conn=conn,
        reason=reason,
        denial=True,
        name=name,
        detail=b"",
    )


def question(ms: float, sport: int, name: str = "api.example") -> control.Dns:
    return control.Dns(
        boot_ns=int(ms * MS),
        src=AGENT + bytes(12),
        dst=RESOLVER + bytes(12),
        family=2,
        sport=sport,
        qtype=1,
        rcode=0,
        allowed=1,
        answers=1,
        answer=SITE + bytes(124),
        qname=name,
        rule="allow_hosts",
    )


def dial(ms: float, conn: int, *, result: bool = False, status: int = 0) -> control.DialEvent:
    return control.DialEvent(
        type=control.MsgType.DIAL_RESULT if result else control.MsgType.DIAL_INTENT,
        boot_ns=int(ms * MS),
        conn=conn,
        host=0,
        status=status,
        err=0,
        port=443,
        family=2,
        addr=bytes([203, 0, 113, 5]) + bytes(12),
    )


def packet(ms: float, sport: int, proto: int = 6, dport: int = 22) -> k.RefusedPacket:
    return k.RefusedPacket(int(ms * MS), "hark:deny", proto, AGENT, sport, SITE, dport)


@dataclass
class Playbook:
    """Feeds a merger and keeps what came out: ``at(ms, record…)`` then ``lines``."""

    merger: Merger = field(default_factory=lambda: Merger(NAMES))
    out: list[Merged] = field(default_factory=list)
    dials: int = 0

    def at(self, ms: float, *records: Any) -> list[Merged]:
        """Let ``records`` arrive at ``ms``; return what is written then."""
        now = int(ms * MS)
        for record in records:
            self.take(record, now)
        new = list(self.merger.due(now))
        self.out += new
        return new

    def take(self, record: Any, now: int) -> None:
        if isinstance(record, control.Dns):
            self.merger.take_dns(record, now)
        elif isinstance(record, control.DialEvent):
            self.dials += 1
            self.merger.take_dial(record, self.dials, now)
        elif isinstance(record, k.RefusedPacket):
            self.merger.take_packet(record, now)
        elif isinstance(record.head, k.Head):
            self.merger.take_kernel(record, now)
        else:
            self.merger.take_mediator(record, now)

    def end(self) -> list[Merged]:
        """Drain; return everything that was ever written."""
        self.out += self.merger.due(10**18, drain=True)
        return self.out

    def lines(self) -> list[str]:
        return [line(event) for event in self.out]


def line(event: Merged) -> str:
    """``kind@ms actor``: the actor as tgid/tid and the first byte of the digest."""
    actor = event.payload.get(1)
    who = "-"
    if actor:
        digest = actor[3][:2].hex() if actor[3] else "?"
        who = f"{actor[0]}/{actor[1]}:{digest}"
    return f"{event.kind.name.lower()}@{event.boot_ns / MS:g} {who}"
