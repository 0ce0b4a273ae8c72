"""Packets that a run's nft rules refused, from an nflog socket. The launcher binds its group.

Rules. ``parse`` is pure and takes any bytes. Reading needs no privilege. A packet nobody read in
time is counted as lost, from the kernel's sequence numbers, never forgotten.
"""

from __future__ import annotations

import errno
import socket
import time
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING

from hark import limits
from hark.kernel.records import RefusedPacket

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Logged", "Reader", "parse"]

# linux/netlink.h, linux/netfilter/nfnetlink.h, linux/netfilter/nfnetlink_log.h
_NLMSG = Struct("=IHHII")
_NFGEN = 4
_ATTR = Struct("=HH")
_ATTR_TYPE_MASK = 0x3FFF
NFNL_SUBSYS_ULOG = 4
NFULNL_MSG_PACKET = NFNL_SUBSYS_ULOG << 8
NFULA_PAYLOAD = 9
NFULA_PREFIX = 10
NFULA_SEQ = 12

_V4_HEAD = 20
_V6_HEAD = 40
_V6_NEXT = 6
_V6_FRAGMENT = 44
_V6_EXTENSIONS = frozenset({0, 43, _V6_FRAGMENT, 60, 135})
_WITH_PORTS = frozenset({6, 17, 33, 132, 136})  # TCP, UDP, DCCP, SCTP, UDP-Lite
_FRAGMENT_OFFSET = 0x1FFF
_PORTS = Struct(">HH")


@dataclass(frozen=True, slots=True)
class Logged:
    """One packet as nflog gave it; ``seq`` is None when the group does not number them."""

    packet: RefusedPacket
    seq: int | None


class Reader:
    """Reads the nflog socket ``fd``; it owns the descriptor from now on."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(False)
        self._next: int | None = None
        self.lost = 0
        """Packets the kernel could not hand over so far."""

    def fileno(self) -> int:
        """Readable when packets wait."""
        return self._socket.fileno()

    def poll(self) -> list[RefusedPacket]:
        """Return the packets that wait; empty when there are none."""
        packets: list[RefusedPacket] = []
        for _ in range(limits.NFLOG_DATAGRAMS_PER_POLL):
            try:
                datagram = self._socket.recv(limits.NFLOG_DATAGRAM_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:  # the gap in the numbers tells how many
                    raise
                continue
            now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            packets += [self._counted(logged) for logged in parse(datagram, now)]
        return packets

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _counted(self, logged: Logged) -> RefusedPacket:
        if logged.seq is not None:
            if self._next is not None:
                self.lost += (logged.seq - self._next) & 0xFFFFFFFF
            self._next = (logged.seq + 1) & 0xFFFFFFFF
        return logged.packet


def parse(datagram: bytes, boot_ns: int) -> Iterator[Logged]:
    """Yield the packets of one netlink datagram. What is cut or of another kind is passed over."""
    at = 0
    while at + _NLMSG.size <= len(datagram):
        size, kind, _, _, _ = _NLMSG.unpack_from(datagram, at)
        if size < _NLMSG.size or at + size > len(datagram):
            return
        if kind == NFULNL_MSG_PACKET:
            yield _packet(datagram[at + _NLMSG.size + _NFGEN : at + size], boot_ns)
        at += (size + 3) & ~3


def _packet(body: bytes, boot_ns: int) -> Logged:
    attributes = dict(_attributes(body))
    prefix = attributes.get(NFULA_PREFIX, b"").rstrip(b"\0").decode("ascii", "replace")
    proto, src, sport, dst, dport = _tuple(attributes.get(NFULA_PAYLOAD, b""))
    number = attributes.get(NFULA_SEQ, b"")
    seq = int.from_bytes(number, "big") if len(number) == 4 else None  # noqa: PLR2004
    packet = RefusedPacket(
        boot_ns=boot_ns, prefix=prefix, proto=proto, src=src, sport=sport, dst=dst, dport=dport
    )
    return Logged(packet, seq)


def _attributes(body: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _ATTR.size <= len(body):
        size, kind = _ATTR.unpack_from(body, at)
        if size < _ATTR.size or at + size > len(body):
            return
        yield kind & _ATTR_TYPE_MASK, body[at + _ATTR.size : at + size]
        at += (size + 3) & ~3


def _tuple(packet: bytes) -> tuple[int, bytes, int, bytes, int]:
    """(protocol, source, its port, destination, its port) of an IP packet; b"" and 0 if unknown."""
    version = packet[0] >> 4 if packet else 0
    if version == 4 and len(packet) >= _V4_HEAD:  # noqa: PLR2004
        fragment = int.from_bytes(packet[6:8], "big") & _FRAGMENT_OFFSET
        start = len(packet) if fragment else (packet[0] & 15) * 4
        sport, dport = _ports(packet, packet[9], start)
        return packet[9], packet[12:16], sport, packet[16:20], dport
    if version == 6 and len(packet) >= _V6_HEAD:  # noqa: PLR2004
        proto, start = _v6_upper(packet)
        sport, dport = _ports(packet, proto, start)
        return proto, packet[8:24], sport, packet[24:40], dport
    return 0, b"", 0, b"", 0


def _v6_upper(packet: bytes) -> tuple[int, int]:
    """Protocol above the extension headers and where it starts (RFC 8200 section 4)."""
    proto, at = packet[_V6_NEXT], _V6_HEAD
    while proto in _V6_EXTENSIONS and at + 8 <= len(packet):
        if proto == _V6_FRAGMENT:
            if int.from_bytes(packet[at + 2 : at + 4], "big") >> 3:
                return packet[at], len(packet)
            size = 8
        else:
            size = (packet[at + 1] + 1) * 8
        proto, at = packet[at], at + size
    return proto, at


def _ports(packet: bytes, proto: int, start: int) -> tuple[int, int]:
    if proto not in _WITH_PORTS or start + _PORTS.size > len(packet):
        return 0, 0
    sport, dport = _PORTS.unpack_from(packet, start)
    return sport, dport
