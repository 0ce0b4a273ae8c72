"""Bytes of a BPF ring into records. Pure: no I/O, no state.

Rules: the layout is ``bpf/hark_abi.h``'s and ``tests/test_abi.py`` holds the two together. Anything
that does not fit the layout is an error of the sensors, never skipped: a skipped record would be a
loss nobody counted.
"""

from __future__ import annotations

import os
from struct import Struct
from typing import TYPE_CHECKING

from hark.errors import InternalError
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
    SocketAct,
    SocketClose,
    SyscallKilled,
    SyscallRefused,
    Task,
    UdpFlow,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from hark.kernel.records import KernelRecord

__all__ = ["COUNT_KEY", "KINDS", "LAYOUTS", "decode"]

TRUNCATED = 1
IA32 = 4
THREAD = 8
AF_UNIX = 1
AF_INET = 2
AF_INET6 = 10

_HEAD = Struct("=IHHQQQ")
_TASK = Struct("=QIIQ")
_EXEC = Struct("=IIQqIIIIQHHI")
_FORK = Struct("=IIQ")
_EXIT = Struct("=II")
_FLOW = Struct("=Q16s16sHHHH")
_CLOSE = Struct("=QQ")
_SYSCALL = Struct("=II")
_LEFT = Struct("=Q")
_SOCKET = Struct("=16s16sHHHHHHI112s")
_FILE = Struct("=QIIHHI")
_CAP = Struct("=II")
_SOCKET_OPS = {1: "bind", 2: "accept", 3: "connect", 4: "use"}
_FILE_OPS = {1: "write", 2: "remove", 3: "rename-from", 4: "rename-to"}

# C struct -> what follows the head and the task in it. For tests/test_abi.py.
LAYOUTS = {
    "hark_rec_exec": _EXEC,
    "hark_rec_fork": _FORK,
    "hark_rec_exit": _EXIT,
    "hark_rec_flow": _FLOW,
    "hark_rec_sock_close": _CLOSE,
    "hark_rec_syscall": _SYSCALL,
    "hark_rec_left": _LEFT,
    "hark_rec_socket": _SOCKET,
    "hark_rec_file": _FILE,
    "hark_rec_cap": _CAP,
}

COUNT_KEY = Struct("=QIHH")  # hark_count_key: start_ns, tgid, nr, err

_FIXED = _HEAD.size + _TASK.size
_KERNEL_MINOR_BITS = 20


class _MalformedError(Exception):
    """Why a record does not fit; becomes InternalError with its place."""


def decode(data: bytes | memoryview) -> list[KernelRecord]:
    """Return the records of ``data``, which must hold whole records and nothing else.

    Raises InternalError when it does not.
    """
    view = memoryview(data)
    records: list[KernelRecord] = []
    at = 0
    while at < len(view):
        try:
            size, record = _one(view[at:])
        except _MalformedError as fault:
            raise InternalError("a kernel record is malformed", f"{fault} at byte {at}") from fault
        records.append(record)
        at += size
    return records


def _one(view: memoryview) -> tuple[int, KernelRecord]:
    if len(view) < _HEAD.size:
        raise _MalformedError("no room for a head")
    size, kind, flags, boot_ns, seq, subject = _HEAD.unpack_from(view)
    if size % 8 or not _FIXED <= size <= len(view):
        raise _MalformedError(f"length {size}")
    entry = KINDS.get(kind)
    if entry is None:
        raise _MalformedError(f"unknown kind {kind:#x}")
    layout, exact, make = entry
    if size < _FIXED + layout.size or (exact and size != _FIXED + layout.size):
        raise _MalformedError(f"length {size} for kind {kind:#x}")
    cgroup, tgid, tid, start_ns = _TASK.unpack_from(view, _HEAD.size)
    head = Head(boot_ns, seq, cgroup, Task(tgid, tid, start_ns))
    return size, make(head, flags, subject, view[_FIXED:size])


def _exec(head: Head, flags: int, _subject: int, body: memoryview) -> Exec:
    parent, dev, ino, ctime_ns, *creds, name_len, argv_len, _ = _EXEC.unpack_from(body)
    uid, gid, euid, egid, caps = creds
    if len(body) != (_EXEC.size + name_len + argv_len + 7) // 8 * 8:
        raise _MalformedError(f"lengths {name_len} and {argv_len} in an exec")
    end = _EXEC.size + name_len
    name, argv = bytes(body[_EXEC.size : end]), bytes(body[end : end + argv_len])
    truncated = bool(flags & TRUNCATED)
    return Exec(
        head=head,
        parent_tgid=parent,
        filename=name,
        argv=_split(argv),
        truncated=truncated,
        exe=ExeId(_user_dev(dev), ino, ctime_ns),
        uid=uid,
        gid=gid,
        euid=euid,
        egid=egid,
        caps=caps,
    )


def _split(argv: bytes) -> tuple[bytes, ...]:
    """Arguments are NUL-ended; a last one without NUL was cut."""
    if not argv:
        return ()
    parts = argv.split(b"\0")
    return tuple(parts[:-1] if argv.endswith(b"\0") else parts)


def _user_dev(dev: int) -> int:
    """Return the kernel's own device number as stat(2) shows it."""
    return os.makedev(dev >> _KERNEL_MINOR_BITS, dev & ((1 << _KERNEL_MINOR_BITS) - 1))


def _fork(head: Head, flags: int, _subject: int, body: memoryview) -> Fork:
    tgid, tid, start_ns = _FORK.unpack(body)
    return Fork(head=head, child=Task(tgid, tid, start_ns), thread=bool(flags & THREAD))


def _exit(head: Head, flags: int, _subject: int, body: memoryview) -> Exit:
    status, _ = _EXIT.unpack(body)
    return Exit(head=head, status=status, last=not flags & THREAD)


def _connect(head: Head, _flags: int, subject: int, body: memoryview) -> Connect:
    netns, src, sport, dst, dport = _flow(body)
    return Connect(
        head=head, cookie=subject, src=src, sport=sport, dst=dst, dport=dport, netns=netns
    )


def _udp_flow(head: Head, _flags: int, subject: int, body: memoryview) -> UdpFlow:
    netns, src, sport, dst, dport = _flow(body)
    return UdpFlow(
        head=head, cookie=subject, src=src, sport=sport, dst=dst, dport=dport, netns=netns
    )


def _flow(body: memoryview) -> tuple[int, bytes, int, bytes, int]:
    netns, src, dst, sport, dport, family, _ = _FLOW.unpack(body)
    if family == AF_INET:
        return netns, src[:4], sport, dst[:4], dport
    if family == AF_INET6:
        return netns, src, sport, dst, dport
    raise _MalformedError(f"address family {family}")


def _close(head: Head, _flags: int, subject: int, body: memoryview) -> SocketClose:
    tx_bytes, rx_bytes = _CLOSE.unpack(body)
    return SocketClose(head=head, cookie=subject, tx_bytes=tx_bytes, rx_bytes=rx_bytes)


def _refused(head: Head, flags: int, _subject: int, body: memoryview) -> SyscallRefused:
    nr, err = _SYSCALL.unpack(body)
    return SyscallRefused(head=head, nr=nr, errno=err, ia32=bool(flags & IA32))


def _killed(head: Head, flags: int, _subject: int, body: memoryview) -> SyscallKilled:
    nr, _ = _SYSCALL.unpack(body)
    return SyscallKilled(head=head, nr=nr, ia32=bool(flags & IA32))


def _left(head: Head, _flags: int, _subject: int, body: memoryview) -> CgroupLeft:
    (to_cgroup,) = _LEFT.unpack(body)
    return CgroupLeft(head=head, to_cgroup=to_cgroup)


def _socket(head: Head, _flags: int, subject: int, body: memoryview) -> SocketAct:
    src, dst, sport, dport, family, op, kind, name_len, _, name = _SOCKET.unpack(body)
    size = {AF_UNIX: 0, AF_INET: 4, AF_INET6: 16}.get(family)
    if size is None or op not in _SOCKET_OPS or name_len > len(name):
        raise _MalformedError(f"socket operation {op} of family {family}")
    return SocketAct(
        head=head,
        op=_SOCKET_OPS[op],
        family=family,
        type=kind,
        cookie=subject,
        src=src[:size],
        sport=sport,
        dst=dst[:size],
        dport=dport,
        name=_unix_name(name[:name_len]),
    )


def _unix_name(name: bytes) -> bytes:
    """Return a path up to its NUL; an abstract name, which begins with one, whole."""
    return name if name.startswith(b"\0") else name.split(b"\0", 1)[0]


def _file(head: Head, flags: int, _subject: int, body: memoryview) -> FileAct:
    ino, dev, op, path_len, name_len, _ = _FILE.unpack_from(body)
    if len(body) != (_FILE.size + path_len + name_len + 7) // 8 * 8 or op not in _FILE_OPS:
        raise _MalformedError(f"file operation {op}, lengths {path_len} and {name_len}")
    end = _FILE.size + path_len
    names = bytes(body[_FILE.size : end]).split(b"\0")[:-1]
    return FileAct(
        head=head,
        op=_FILE_OPS[op],
        path=b"/" + b"/".join(reversed(names)),
        name=bytes(body[end : end + name_len]),
        dev=_user_dev(dev),
        ino=ino,
        truncated=bool(flags & TRUNCATED),
    )


def _cap(head: Head, flags: int, _subject: int, body: memoryview) -> CapRefused:
    cap, nr = _CAP.unpack(body)
    return CapRefused(head=head, cap=cap, nr=nr, ia32=bool(flags & IA32))


# kind -> (fixed part, nothing follows it, maker)
KINDS: dict[int, tuple[Struct, bool, Callable[[Head, int, int, memoryview], KernelRecord]]] = {
    0x201: (_EXEC, False, _exec),
    0x202: (_FORK, True, _fork),
    0x203: (_EXIT, True, _exit),
    0x204: (_FLOW, True, _connect),
    0x205: (_FLOW, True, _udp_flow),
    0x206: (_CLOSE, True, _close),
    0x207: (_SYSCALL, True, _refused),
    0x208: (_SYSCALL, True, _killed),
    0x209: (_LEFT, True, _left),
    0x20A: (_SOCKET, True, _socket),
    0x20B: (_FILE, False, _file),
    0x20C: (_CAP, True, _cap),
}
