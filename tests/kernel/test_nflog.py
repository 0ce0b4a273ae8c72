"""Refused packets: the parser with any bytes, the reader on the real kernel."""

from __future__ import annotations

import ctypes
import os
import select
import socket
import subprocess
import threading
import time
import uuid
from struct import pack
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hark.kernel.nflog import Reader, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUP = 77
CLONE_NEWNET = 0x40000000
NETLINK_NETFILTER = 12


def attribute(kind: int, data: bytes) -> bytes:
    return pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def message(*attributes: bytes, kind: int = 0x400) -> bytes:
    body = bytes(4) + b"".join(attributes)
    return pack("=IHHII", 16 + len(body), kind, 0, 0, 0) + body


def v4(proto: int = 6, options: int = 0, fragment: int = 0) -> bytes:
    head = bytes([0x45 + options, 0, 0, 0, 0, 0]) + pack(">H", fragment) + bytes([64, proto, 0, 0])
    return head + bytes([10, 0, 0, 1, 10, 0, 0, 2]) + bytes(4 * options) + pack(">HH", 1234, 443)


def v6(next_header: int, rest: bytes) -> bytes:
    return bytes([0x60, 0, 0, 0, 0, 0, next_header, 64]) + bytes(range(32)) + rest


PORTS = pack(">HH", 1234, 443)


@pytest.mark.parametrize(
    ("packet", "proto", "ports"),
    [
        (v4(), 6, (1234, 443)),
        (v4(17), 17, (1234, 443)),
        (v4(1), 1, (0, 0)),
        (v4(6, options=3), 6, (1234, 443)),
        (v4(17, fragment=8), 17, (0, 0)),
        (v6(17, PORTS), 17, (1234, 443)),
        (v6(0, bytes([60, 0, 0, 0, 0, 0, 0, 0, 6, 1]) + bytes(14) + PORTS), 6, (1234, 443)),
        (v6(44, bytes([17, 0, 0, 1, 0, 0, 0, 0]) + PORTS), 17, (1234, 443)),
        (v6(44, bytes([17, 0, 0, 8, 0, 0, 0, 0]) + PORTS), 17, (0, 0)),
        (v6(58, bytes(8)), 58, (0, 0)),
    ],
)
def test_packets(packet: bytes, proto: int, ports: tuple[int, int]):
    datagram = message(
        attribute(10, b"deny tcp\0"), attribute(9, packet), attribute(12, b"\0\0\0\7")
    )
    (logged,) = parse(datagram, 99)
    got = logged.packet
    assert (got.boot_ns, got.prefix, got.proto) == (99, "deny tcp", proto)
    assert (got.sport, got.dport) == ports
    assert len(got.src) == len(got.dst) == (4 if packet[0] >> 4 == 4 else 16)
    assert logged.seq == 7


def test_a_datagram_may_hold_several_and_others():
    two = message(attribute(9, v4())) + message(kind=2) + message(attribute(9, v4(17)))
    assert [logged.packet.proto for logged in parse(two, 0)] == [6, 17]


def test_every_cut_is_survived():
    whole = message(attribute(10, b"p\0"), attribute(9, v6(0, bytes([17]) + bytes(7) + PORTS)))
    for end in range(len(whole)):
        assert list(parse(whole[:end], 0)) == []
    for end in range(60):
        (logged,) = parse(message(attribute(9, v6(0, bytes(20))[:end])), 0)
        assert logged.packet.dport == 0


@given(st.binary(max_size=200), st.booleans())
def test_noise_is_survived(data: bytes, wrapped: bool):
    list(parse(message(attribute(9, data)) if wrapped else data, 0))


@pytest.fixture
def namespace() -> Iterator[str]:
    """A network namespace that refuses what goes to port 4444, in both families."""
    name = f"hark-test-{uuid.uuid4().hex[:8]}"
    rules = (
        "table inet t { chain c { type filter hook output priority 0; policy accept;"
        f' udp dport 4444 log group {GROUP} prefix "hark udp" drop;'
        f' tcp dport 4444 log group {GROUP} prefix "hark tcp" reject with tcp reset\n}}\n}}\n'
    )
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        inside = ["ip", "netns", "exec", name]
        subprocess.run([*inside, "ip", "link", "set", "lo", "up"], check=True)
        subprocess.run([*inside, "nft", "-f", "-"], input=rules.encode(), check=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


def _bound_socket(namespace: str) -> int:
    """As the launcher makes it: bound to the group, one packet a datagram, numbered."""
    made: list[socket.socket] = []

    def make() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        fd = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
        assert libc.setns(fd, CLONE_NEWNET) == 0
        os.close(fd)
        made.append(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    (sock,) = made
    for kind, data in (
        (1, b"\1\0\0\0"),
        (2, pack(">IBx", 256, 2)),
        (5, pack(">I", 1)),
        (6, b"\0\1"),
    ):
        body = pack(">BBH", 0, 0, GROUP) + attribute(kind, data)
        sock.send(pack("=IHHII", 16 + len(body), 0x401, 5, 0, 0) + body)
        assert sock.recv(4096)[16:20] == bytes(4)
    return sock.detach()


SENDER = """
import socket
for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    u = socket.socket(family, socket.SOCK_DGRAM)
    try: u.sendto(b"secret", (host, 4444))
    except PermissionError: pass
    u.sendto(b"fine", (host, 4445))
    t = socket.socket(family, socket.SOCK_STREAM)
    assert t.connect_ex((host, 4444)) != 0
"""


@pytest.mark.kernel
def test_refused_packets_are_read(namespace: str):
    reader = Reader(_bound_socket(namespace))
    poller = select.epoll()
    poller.register(reader.fileno(), select.EPOLLIN)
    assert reader.poll() == []
    inside = ["ip", "netns", "exec", namespace, "/usr/bin/python3", "-c", SENDER]
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    subprocess.run(inside, check=True)
    assert poller.poll(10)
    packets = reader.poll()
    assert [(p.prefix, p.proto, p.dport) for p in packets] == [
        ("hark udp", 17, 4444),
        ("hark tcp", 6, 4444),
    ] * 2
    assert {p.dst for p in packets} == {
        socket.inet_pton(socket.AF_INET, "127.0.0.1"),
        socket.inet_pton(socket.AF_INET6, "::1"),
    }
    assert all(p.sport > 1023 and p.src == p.dst and p.boot_ns > before for p in packets)
    assert reader.lost == 0
    poller.close()
    reader.close()


FLOOD = """
import socket
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(3000):
    try: u.sendto(b"x" * 200, ("127.0.0.1", 4444))
    except PermissionError: pass
"""


@pytest.mark.kernel
def test_packets_nobody_read_are_counted(namespace: str):
    fd = _bound_socket(namespace)
    with socket.socket(fileno=os.dup(fd)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader = Reader(fd)
    for _ in range(2):
        subprocess.run(
            ["ip", "netns", "exec", namespace, "/usr/bin/python3", "-c", FLOOD], check=True
        )
        got = len(reader.poll())
    assert got < 3000
    assert 3000 <= reader.lost + got <= 6000
    reader.close()
