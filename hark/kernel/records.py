"""What the kernel's sensors report, as values.

Rules: frozen, decoded once (``decode.py``), no I/O. Times are CLOCK_BOOTTIME nanoseconds. Process
and thread ids are those of the initial pid namespace. Addresses are 4 or 16 raw bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "CapRefused",
    "CgroupLeft",
    "Connect",
    "ExeId",
    "Exec",
    "Exit",
    "FileAct",
    "Fork",
    "Head",
    "KernelRecord",
    "RefusedPacket",
    "RingStats",
    "SocketAct",
    "SocketClose",
    "SyscallCount",
    "SyscallKilled",
    "SyscallRefused",
    "Task",
    "UdpFlow",
]


@dataclass(frozen=True, slots=True)
class Task:
    """One thread. ``(tgid, start_ns)`` names a process uniquely on one boot."""

    tgid: int
    tid: int
    start_ns: int


@dataclass(frozen=True, slots=True)
class Head:
    """Common to every record of a BPF ring."""

    boot_ns: int
    seq: int
    cgroup: int
    task: Task


@dataclass(frozen=True, slots=True)
class ExeId:
    """The executable as the kernel opened it; the key of the digest cache."""

    dev: int
    ino: int
    ctime_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Exec:
    """A successful execve: ``argv`` is read from the new image, cut at a limit.

    ``uid`` and so on: as the initial user namespace knows them. ``caps``: effective capabilities, a
    bit each, in the process's own user namespace.
    """

    head: Head
    parent_tgid: int
    filename: bytes
    argv: tuple[bytes, ...]
    truncated: bool
    exe: ExeId
    uid: int = 0
    gid: int = 0
    euid: int = 0
    egid: int = 0
    caps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """``head.task`` made ``child``; ``thread`` when they share a thread group."""

    head: Head
    child: Task
    thread: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """A thread ended; ``last`` when its whole process did. ``status`` is a wait(2) status."""

    head: Head
    status: int
    last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Connect:
    """A TCP connect whose local port is known, before its SYN leaves.

    ``netns`` is the cookie of the socket's network namespace, 0 where it is not known. A head whose
    task is all zero has no known owner.
    """

    head: Head
    cookie: int
    src: bytes
    sport: int
    dst: bytes
    dport: int
    netns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UdpFlow:
    """The first datagram of a (socket, tuple).

    ``netns`` is the cookie of the socket's network namespace, 0 where it is not known. A head whose
    task is all zero has no known owner.
    """

    head: Head
    cookie: int
    src: bytes
    sport: int
    dst: bytes
    dport: int
    netns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketClose:
    """A TCP socket closed; bytes as the kernel counted them."""

    head: Head
    cookie: int
    tx_bytes: int
    rx_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SyscallRefused:
    """sys_exit without sys_enter: seccomp refused call ``nr`` with ``errno``."""

    head: Head
    nr: int
    errno: int
    ia32: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SyscallKilled:
    """seccomp killed the task with SIGSYS at call ``nr``."""

    head: Head
    nr: int
    ia32: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupLeft:
    """A task of the run was moved to another cgroup by somebody."""

    head: Head
    to_cgroup: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketAct:
    """A thread bound or accepted a socket, or connected one by a unix name, or now also uses it.

    ``op``: ``bind``, ``accept``, ``connect`` or ``use``. ``name``: of a unix socket; it begins with
    a NUL when it is an abstract one. ``type``: SOCK_STREAM and so on. ``cookie`` 0: not known.
    """

    head: Head
    op: str
    family: int
    type: int
    cookie: int
    src: bytes = b""
    sport: int = 0
    dst: bytes = b""
    dport: int = 0
    name: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAct:
    """A regular file was opened for writing, or a name was removed or renamed.

    ``op``: ``write``, ``remove``, ``rename-from`` or ``rename-to``. ``path`` is the kernel's: of
    the file for ``write``, else of the folder that the call began in. ``name``: the text that the
    call was given, which its caller may have changed since.
    """

    head: Head
    op: str
    path: bytes
    name: bytes
    dev: int
    ino: int
    truncated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CapRefused:
    """The kernel refused a thread capability ``cap`` for the first time, in call ``nr``."""

    head: Head
    cap: int
    nr: int
    ia32: bool


KernelRecord = (
    Exec
    | Fork
    | Exit
    | Connect
    | UdpFlow
    | SocketClose
    | SyscallRefused
    | SyscallKilled
    | CgroupLeft
    | SocketAct
    | FileAct
    | CapRefused
)


@dataclass(frozen=True, slots=True)
class SyscallCount:
    """How often a process made call ``nr`` with result ``errno`` (0 = success)."""

    tgid: int
    start_ns: int
    nr: int
    errno: int
    count: int


@dataclass(frozen=True, slots=True)
class RingStats:
    """Counters of one BPF ring; ``produced == emitted + dropped`` or the sensor is broken."""

    name: str
    produced: int
    emitted: int
    dropped: int


@dataclass(frozen=True, slots=True)
class RefusedPacket:
    """A packet the run's nft rules refused, from nflog. ``proto`` is an IP protocol number."""

    boot_ns: int
    prefix: str
    proto: int
    src: bytes
    sport: int
    dst: bytes
    dport: int
