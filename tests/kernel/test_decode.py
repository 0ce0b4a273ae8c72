"""Bytes of a ring, whole, cut and hostile."""

from __future__ import annotations

import contextlib
import os
from struct import Struct, pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hark.errors import InternalError
from hark.kernel.decode import KINDS, decode
from hark.kernel.records import (
    CapRefused,
    CgroupLeft,
    Connect,
    Exec,
    ExeId,
    Exit,
    FileAct,
    Fork,
    Head,
    KernelRecord,
    SocketAct,
    SocketClose,
    SyscallKilled,
    SyscallRefused,
    Task,
    UdpFlow,
)

HEAD = Struct("=IHHQQQ")
TASK = Struct("=QIIQ")
V4 = bytes([127, 0, 0, 1])
V6 = bytes(range(16))


def record(kind: int, body: bytes, flags: int = 0, subject: int = 0) -> bytes:
    body += bytes(-len(body) % 8)
    size = HEAD.size + TASK.size + len(body)
    return HEAD.pack(size, kind, flags, 5, 6, subject) + TASK.pack(9, 100, 101, 77) + body


def flow(family: int, src: bytes, dst: bytes) -> bytes:
    return pack("=Q16s16sHHHH", 3, src, dst, 40000, 443, family, 0)


def an_exec(name: bytes, argv: bytes) -> bytes:
    dev = 254 << 20 | 300
    creds = (1000, 100, 1001, 101, 1 << 21)
    return pack("=IIQqIIIIQHHI", 99, dev, 12, -13, *creds, len(name), len(argv), 0) + name + argv


def a_socket(op: int, family: int, name: bytes = b"") -> bytes:
    fixed = pack("=16s16sHHHHHHI", V4, V6, 40000, 443, family, op, 1, len(name), 0)
    return fixed + name.ljust(112, b"\0")


def a_file(op: int, path: bytes, name: bytes) -> bytes:
    return pack("=QIIHHI", 12, 254 << 20 | 300, op, len(path), len(name), 0) + path + name


HEADED = Head(5, 6, 9, Task(100, 101, 77))
CASES: list[tuple[bytes, KernelRecord]] = [
    (
        record(0x201, an_exec(b"/bin/x", b"x\0\0a b\0")),
        Exec(
            head=HEADED,
            parent_tgid=99,
            filename=b"/bin/x",
            argv=(b"x", b"", b"a b"),
            truncated=False,
            exe=ExeId(os.makedev(254, 300), 12, -13),
            uid=1000,
            gid=100,
            euid=1001,
            egid=101,
            caps=1 << 21,
        ),
    ),
    (
        record(0x202, pack("=IIQ", 200, 201, 88), flags=8),
        Fork(head=HEADED, child=Task(200, 201, 88), thread=True),
    ),
    (record(0x203, pack("=II", 256, 0)), Exit(head=HEADED, status=256, last=True)),
    (
        record(0x204, flow(2, V4, V4), subject=4),
        Connect(head=HEADED, cookie=4, src=V4, sport=40000, dst=V4, dport=443, netns=3),
    ),
    (
        record(0x205, flow(10, V6, V6), subject=4),
        UdpFlow(head=HEADED, cookie=4, src=V6, sport=40000, dst=V6, dport=443, netns=3),
    ),
    (
        record(0x206, pack("=QQ", 1, 2), subject=4),
        SocketClose(head=HEADED, cookie=4, tx_bytes=1, rx_bytes=2),
    ),
    (
        record(0x207, pack("=II", 110, 13), flags=4),
        SyscallRefused(head=HEADED, nr=110, errno=13, ia32=True),
    ),
    (record(0x208, pack("=II", 110, 0)), SyscallKilled(head=HEADED, nr=110, ia32=False)),
    (record(0x209, pack("=Q", 55)), CgroupLeft(head=HEADED, to_cgroup=55)),
    (
        record(0x20A, a_socket(1, 10), subject=4),
        SocketAct(
            head=HEADED,
            op="bind",
            family=10,
            type=1,
            cookie=4,
            src=V4 + bytes(12),
            sport=40000,
            dst=V6,
            dport=443,
        ),
    ),
    (
        record(0x20A, a_socket(3, 1, b"\0abstract"), subject=4),
        SocketAct(
            head=HEADED,
            op="connect",
            family=1,
            type=1,
            cookie=4,
            sport=40000,
            dport=443,
            name=b"\0abstract",
        ),
    ),
    (
        record(0x20B, a_file(3, b"b\0a\0", b"old"), flags=1),
        FileAct(
            head=HEADED,
            op="rename-from",
            path=b"/a/b",
            name=b"old",
            dev=os.makedev(254, 300),
            ino=12,
            truncated=True,
        ),
    ),
    (
        record(0x20C, pack("=II", 21, 165), flags=4),
        CapRefused(head=HEADED, cap=21, nr=165, ia32=True),
    ),
]


@pytest.mark.parametrize(("data", "value"), CASES, ids=lambda v: type(v).__name__)
def test_each_kind(data: bytes, value: KernelRecord):
    assert decode(data) == [value]
    assert decode(memoryview(data + data)) == [value, value]


def test_every_kind_has_a_case():
    assert {HEAD.unpack_from(data)[1] for data, _ in CASES} == set(KINDS)


def test_nothing_is_nothing():
    assert decode(b"") == []


@pytest.mark.parametrize(("data", "value"), CASES, ids=lambda v: type(v).__name__)
def test_every_cut_is_refused(data: bytes, value: KernelRecord):
    for end in range(1, len(data)):
        with pytest.raises(InternalError, match="malformed"):
            decode(data[:end])
        with pytest.raises(InternalError) as caught:
            decode(data + data[:end])
        assert str(len(data)) in caught.value.cause
    assert value


@pytest.mark.parametrize(("data", "value"), CASES, ids=lambda v: type(v).__name__)
def test_a_wrong_length_is_refused(data: bytes, value: KernelRecord):
    for size in (0, 1, 7, 8, 32, 55, 56, len(data) - 8, len(data) + 8, 2**31, 2**32 - 8):
        wrong = pack("=I", size) + data[4:] + bytes(8)
        with pytest.raises(InternalError):
            decode(wrong)
    assert value


def test_what_the_layout_does_not_know_is_refused():
    for bad in (
        record(0, b""),
        record(0x20A, bytes(16)),
        record(0x101, bytes(64)),
        record(0x204, flow(7, V4, V4)),
        record(0x201, an_exec(b"/bin/x", b"x\0") + bytes(8)),
        record(0x201, pack("=IIQqHHI", 1, 2, 3, 4, 65535, 65535, 0)),
    ):
        with pytest.raises(InternalError):
            decode(bad)


@pytest.mark.parametrize(
    ("argv", "seen"),
    [(b"", ()), (b"\0", (b"",)), (b"a", (b"a",)), (b"a\0b", (b"a", b"b")), (b"a\0", (b"a",))],
)
def test_arguments_are_split_at_nul(argv: bytes, seen: tuple[bytes, ...]):
    (value,) = decode(record(0x201, an_exec(b"n", argv)))
    assert isinstance(value, Exec)
    assert value.argv == seen


@given(st.binary(max_size=300))
def test_noise_is_refused_or_decoded_never_a_crash(data: bytes):
    with contextlib.suppress(InternalError):
        decode(data)


@given(st.sampled_from(CASES), st.integers(0, 10_000), st.integers(1, 255))
def test_a_changed_byte_is_refused_or_decoded(case: tuple[bytes, KernelRecord], at: int, by: int):
    data = bytearray(case[0])
    data[at % len(data)] ^= by
    try:
        values = decode(bytes(data))
    except InternalError:
        return
    assert len(values) == 1
