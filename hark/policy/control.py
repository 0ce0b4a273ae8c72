"""The messages of ``csrc/hark_control.h`` as values, and one end of a control socket.

Rules. One frozen class per C struct, its fields in the C order and under the C names; a packet that
is not exactly one known message with the next sequence number is refused and its descriptors are
closed. Every wait has a deadline. ``tests/launcher/test_control.py`` compares this file with the
header, so a change begins there.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import time
from array import array
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar, TypeVar

from hark.errors import HarkError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Ca",
    "Channel",
    "Dial",
    "DialEvent",
    "DialStatus",
    "Dialed",
    "Dns",
    "Draws",
    "Durable",
    "Exe",
    "ExitCause",
    "Exited",
    "Failed",
    "Inbound",
    "InboundWhat",
    "Job",
    "Message",
    "MsgType",
    "NetReady",
    "OpenExe",
    "Over",
    "PeerBroken",
    "PeerClosed",
    "Plain",
    "Play",
    "PlayFlag",
    "PlayWanted",
    "PlayWhat",
    "Published",
    "Received",
    "Sealed",
    "SealedFlag",
    "Seed",
    "Sign",
    "Signal",
    "Signed",
    "SignerReady",
    "Started",
    "Unwrap",
    "Unwrapped",
    "Wrap",
    "Wrapped",
    "pack",
    "socket_pair",
    "unpack",
]


class MsgType(IntEnum):
    """``enum hark_msg_type``."""

    NET_READY = 1
    STARTED = 2
    EXITED = 3
    PUBLISHED = 4
    FAILED = 5
    EXE = 6
    JOB = 7
    GO = 20
    SIGNAL = 21
    OPEN_EXE = 22
    SEALED = 23
    KILL = 24
    FDS = 25
    PLAN = 26
    CA = 40
    DRAINED = 41
    PLAY_WANTED = 42
    LISTEN = 60
    DURABLE = 61
    STOP = 62
    PLAY = 63
    DIAL = 80
    DIALED = 81
    DNS = 100
    DIAL_INTENT = 101
    DIAL_RESULT = 102
    BROKER_READY = 103
    RESOLVE_SOCKETS = 120
    DIAL_RECORDED = 121
    INBOUND = 200
    PUBLISHER_READY = 201
    PUBLISH = 220
    INBOUND_RECORDED = 221
    SIGN = 140
    SIGNED = 141
    SIGNER_READY = 142
    WRAP = 143
    WRAPPED = 144
    UNWRAP = 145
    UNWRAPPED = 146
    DRAWS = 160
    SEED = 180


class DialStatus(IntEnum):
    """``enum hark_dial_status``."""

    OK = 0
    DENIED = 1
    RESOLVE = 2
    PRIVATE = 3
    CONNECT = 4
    TIMEOUT = 5
    UNRECORDED = 6
    PROXY_UNREACHABLE = 7
    PROXY_AUTH = 8
    PROXY_REFUSED = 9
    PROXY_FAILED = 10
    PROXY_BROKEN = 11


class SealedFlag(IntEnum):
    """``enum hark_sealed``."""

    PUBLISH = 1
    DISCARD = 2


class PlayWhat(IntEnum):
    """``enum hark_play_what``."""

    INTERIM = 0
    HEAD = 1
    BODY = 2
    TRAILERS = 3
    END = 4
    REFUSE = 5
    CUT = 6


class PlayFlag(IntEnum):
    """``enum hark_play_flag``."""

    MORE = 1
    CLOSE = 2


class ExitCause(IntEnum):
    """``enum hark_exit_cause``."""

    AGENT = 0
    RECORDER = 1
    MEDIATOR = 2
    BROKER = 3
    SIGNER = 4
    KILLED = 5
    INIT = 6
    LAUNCHER = 7
    LIMIT = 8
    METER = 9
    TRACER = 10
    PUBLISHER = 11


class Over(IntEnum):
    """``enum hark_over``."""

    PIDS = 1
    MEMORY = 2
    DISK = 3
    DISK_FULL = 4


class InboundWhat(IntEnum):
    """``enum hark_inbound_what``."""

    OPEN = 0
    COMPLETE = 1
    REFUSED = 2
    HOST_GONE = 3
    AGENT_GONE = 4
    STOPPED = 5


class PeerClosed(HarkError):
    """The other end of a control socket is gone: the run ends the fail-closed way."""

    exit_code = 125


class PeerBroken(HarkError):
    """The other end sent something that is not the next known message."""

    exit_code = 125


@dataclass(frozen=True, slots=True)
class Message:
    """Base of all messages. ``LAYOUT`` is the struct format of what follows the head."""

    TYPES: ClassVar[tuple[MsgType, ...]] = ()
    LAYOUT: ClassVar[str] = ""
    STRUCT: ClassVar[str] = ""

    @property
    def kind(self) -> MsgType:
        """The message type that goes into the head."""
        return self.TYPES[0]


@dataclass(frozen=True, slots=True)
class Plain(Message):
    """A message that is its type alone."""

    TYPES: ClassVar[tuple[MsgType, ...]] = (
        MsgType.GO,
        MsgType.KILL,
        MsgType.FDS,
        MsgType.PLAN,
        MsgType.STOP,
        MsgType.LISTEN,
        MsgType.DRAINED,
        MsgType.RESOLVE_SOCKETS,
        MsgType.DIAL_RECORDED,
        MsgType.BROKER_READY,
        MsgType.PUBLISHER_READY,
        MsgType.PUBLISH,
        MsgType.INBOUND_RECORDED,
    )
    STRUCT: ClassVar[str] = "hark_msg_plain"
    type: MsgType

    @property
    def kind(self) -> MsgType:
        """The message type that goes into the head."""
        return self.type


@dataclass(frozen=True, slots=True)
class NetReady(Message):
    """Descriptors: netns M, tcp4, tcp6, udp4, udp6, nflog, netns A, dns4, dns6, cgroup folder."""

    TYPES: ClassVar[tuple[MsgType, ...]] = (MsgType.NET_READY,)
    LAYOUT: ClassVar[str] = "QQ"
    STRUCT: ClassVar[str] = "hark_msg_net_ready"
    cgroup_id: int
    netns_cookie: int


@dataclass(frozen=True, slots=True)
class Started(Message):
    """The agent was cloned. Descriptor: the terminal's master side, where there is one."""

    TYPES: ClassVar[tuple[MsgType, ...]] = (MsgType.STARTED,)
    LAYOUT: ClassVar[str] = "II"
    STRUCT: ClassVar[str] = "hark_msg_started"
    agent_pid: int
    init_pid: int


@dataclass(frozen=True, slots=True)
class Exited(Message):
    """The agent's tree is gone; ``wait_status`` as wait(2) gives it.

    ``limit``: an ``Over``, where that is the cause.
    """

    TYPES: ClassVar[tuple[MsgType, ...]] = (MsgType.EXITED,)
    LAYOUT: ClassVar[str] = "IIIIQQ"
    STRUCT: ClassVar[str] = "hark_msg_exited"
    wait_status: int
    stragglers: int
    cause: int
    limit: int = 0
    refused_tasks: int = 0
    killed_tasks: int = 0


@dataclass(frozen=True, slots=True)
class Published(Message):
    """The bundle is at its place when ``err`` is 0, else it still lies in the run folder."""

    TYPES: ClassVar[tuple[MsgType, ...]] = (MsgType.PUBLISHED,)
    LAYOUT: ClassVar[str] = "I4x"
    STRUCT: ClassVar[str] = "hark_msg_published"
    err: int


@dataclass(frozen=True, slots=True)
class Failed(Message):
    """Set-up failed at plan op ``op``; nothing of the run exists any more."""

    TYPES: ClassVar[tuple[MsgType, ...]] = (MsgType.FAILED,)
    LAYOUT: ClassVar[str] = "II256s256s"
    STRUCT: ClassVar[str] = "hark_msg_failed"
    err: int
    op: int
    what: str
    hint: str


@dataclass(frozen=True, slots=True)
class Exe(Message):
    """Answer to ``OpenExe``. Descriptor: the executable, when ``err`` is 0."""

    TYPES: ClassVar[tuple[MsgType, ...]] = (MsgType.EXE,)
    LAYOUT: ClassVar[str] = "I4x"
    STRUCT: ClassVar[str] = "hark_msg_exe"
    err: int


@dataclass(frozen=True, slots=True)
class Job(Message):
    """The agent's job stopped (1) or went on (0)."""

    TYPES: ClassVar[tuple[MsgType, ...]] = (MsgType.JOB,)
    LAYOUT: ClassVar[str] = "I4x"
    STRUCT: ClassVar[str] = "hark_msg_job"
    stopped: int


@dataclass(frozen=True, slots=True)
class Signal(Message):
    """Forward a signal to the agent."""

    TYPES: ClassVar[tuple[MsgType, ...]] = (MsgType.SIGNAL,)
    LAYOUT: ClassVar[str] = "I4x"
    STRUCT: ClassVar[str] = "hark_msg_signal"
    signo: int


@dataclass(frozen=True, slots=True)
class OpenExe(Message):
    """Open the executable that a kernel record named."""

    TYPES: ClassVar[tuple[MsgType, ...]] = (MsgType.OPEN_EXE,)
    LAYOUT: ClassVar[str] = "QQII4096s"
    STRUCT: ClassVar[str] = "hark_msg_open_exe"
    start_ns: int
    ino: int
    tgid: int
    dev: int
    path: bytes


@dataclass(frozen=True, slots=True)
class Sealed(Message):
    """The bundle is complete; ``publish``: bits of ``SealedFlag``."""

    TYPES: ClassVar[tuple[MsgType, ...]] = (MsgType.SEALED,)
    LAYOUT: ClassVar[str] = "I4x"
    STRUCT: ClassVar[str] = "hark_msg_sealed"
    publish: int


@dataclass(frozen=True, slots=True)
class Ca(Message):
    """The run CA's certificate."""

    TYPES: ClassVar[tuple[MsgType, ...]] = (MsgType.CA,)
    LAYOUT: ClassVar[str] = "2048s"
    STRUCT: ClassVar[str] = "hark_msg_ca"
    pem: bytes


@dataclass(frozen=True, slots=True)
class Durable(Message):
    """Every ring record below this sequence number is on disk."""

    TYPES: ClassVar[tuple[MsgType, ...]] = (MsgType.DURABLE,)
    LAYOUT: ClassVar[str] = "Q"
    STRUCT: ClassVar[str] = "hark_msg_durable"
    below: int


@dataclass(frozen=True, slots=True)
class PlayWanted(Message):
    """A replay's request is complete, and in the ring: it waits for ``Play``."""

    TYPES: ClassVar[tuple[MsgType, ...]] = (MsgType.PLAY_WANTED,)
    LAYOUT: ClassVar[str] = "Q"
    STRUCT: ClassVar[str] = "hark_msg_play_wanted"
    exchange: int


@dataclass(frozen=True, slots=True)
class Play(Message):
    """One piece of a recorded answer; ``data`` is filled up with zeros to its 4096 bytes."""

    TYPES: ClassVar[tuple[MsgType, ...]] = (MsgType.PLAY,)
    LAYOUT: ClassVar[str] = "QQIHHHHH2x4096s"
    STRUCT: ClassVar[str] = "hark_msg_play"
    exchange: int
    length: int
    size: int
    what: int
    flags: int
    status: int
    framing: int
    reason: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Dial(Message):
    """Connect to host ``host`` (an index) and ``port``."""

    TYPES: ClassVar[tuple[MsgType, ...]] = (MsgType.DIAL,)
    LAYOUT: ClassVar[str] = "IH2xQ"
    STRUCT: ClassVar[str] = "hark_msg_dial"
    host: int
    port: int
    conn: int


@dataclass(frozen=True, slots=True)
class Dialed(Message):
    """Answer to ``Dial``. Descriptor: the connected socket, when ``status`` is OK."""

    TYPES: ClassVar[tuple[MsgType, ...]] = (MsgType.DIALED,)
    LAYOUT: ClassVar[str] = "IIHH4x16s"
    STRUCT: ClassVar[str] = "hark_msg_dialed"
    status: int
    err: int
    family: int
    port: int
    addr: bytes


@dataclass(frozen=True, slots=True)
class Dns(Message):
    """One answered question; ``answer`` is 8 slots of 16 bytes, ``answers`` of them set."""

    TYPES: ClassVar[tuple[MsgType, ...]] = (MsgType.DNS,)
    LAYOUT: ClassVar[str] = "Q16s16sHHHHII128s256s64sI4x"
    STRUCT: ClassVar[str] = "hark_msg_dns"
    boot_ns: int
    src: bytes
    dst: bytes
    family: int
    sport: int
    qtype: int
    rcode: int
    allowed: int
    answers: int
    answer: bytes
    qname: str
    rule: str
    tcp: int = 0


@dataclass(frozen=True, slots=True)
class DialEvent(Message):
    """The broker is about to connect (DIAL_INTENT) or has tried (DIAL_RESULT)."""

    TYPES: ClassVar[tuple[MsgType, ...]] = (MsgType.DIAL_INTENT, MsgType.DIAL_RESULT)
    LAYOUT: ClassVar[str] = "QQIIIHH16sI4x"
    STRUCT: ClassVar[str] = "hark_msg_dial_intent"
    type: MsgType
    boot_ns: int
    conn: int
    host: int
    status: int
    err: int
    port: int
    family: int
    addr: bytes
    proxied: int = 0

    @property
    def kind(self) -> MsgType:
        """The message type that goes into the head."""
        return self.type


@dataclass(frozen=True, slots=True)
class Inbound(Message):
    """A connection of the host's loopback to a port of the agent: it begins, or has ended."""

    TYPES: ClassVar[tuple[MsgType, ...]] = (MsgType.INBOUND,)
    LAYOUT: ClassVar[str] = "QQQ16s16sIHHHH4x"
    STRUCT: ClassVar[str] = "hark_msg_inbound"
    boot_ns: int
    rx_bytes: int
    tx_bytes: int
    src: bytes
    dst: bytes
    what: int
    family: int
    sport: int
    port: int
    host_port: int


@dataclass(frozen=True, slots=True)
class Sign(Message):
    """Sign this head statement."""

    TYPES: ClassVar[tuple[MsgType, ...]] = (MsgType.SIGN,)
    LAYOUT: ClassVar[str] = "128s"
    STRUCT: ClassVar[str] = "hark_msg_sign"
    statement: bytes


@dataclass(frozen=True, slots=True)
class Signed(Message):
    """Answer to ``Sign``."""

    TYPES: ClassVar[tuple[MsgType, ...]] = (MsgType.SIGNED,)
    LAYOUT: ClassVar[str] = "I4x64s"
    STRUCT: ClassVar[str] = "hark_msg_signed"
    err: int
    signature: bytes


@dataclass(frozen=True, slots=True)
class SignerReady(Message):
    """The signer holds its key."""

    TYPES: ClassVar[tuple[MsgType, ...]] = (MsgType.SIGNER_READY,)
    LAYOUT: ClassVar[str] = "32s"
    STRUCT: ClassVar[str] = "hark_msg_signer_ready"
    public_key: bytes


@dataclass(frozen=True, slots=True)
class Wrap(Message):
    """Seal 32 bytes for who holds the signing key. Once, before the first ``Sign``."""

    TYPES: ClassVar[tuple[MsgType, ...]] = (MsgType.WRAP,)
    LAYOUT: ClassVar[str] = "32s"
    STRUCT: ClassVar[str] = "hark_msg_wrap"
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Wrapped(Message):
    """``err`` 0: ``sealed`` opens with the private key of ``recipient`` (X25519)."""

    TYPES: ClassVar[tuple[MsgType, ...]] = (MsgType.WRAPPED,)
    LAYOUT: ClassVar[str] = "I4x32s80s"
    STRUCT: ClassVar[str] = "hark_msg_wrapped"
    err: int
    recipient: bytes
    sealed: bytes


@dataclass(frozen=True, slots=True)
class Unwrap(Message):
    """Open what another signer sealed. Once, before the first ``Sign``."""

    TYPES: ClassVar[tuple[MsgType, ...]] = (MsgType.UNWRAP,)
    LAYOUT: ClassVar[str] = "80s"
    STRUCT: ClassVar[str] = "hark_msg_unwrap"
    sealed: bytes


@dataclass(frozen=True, slots=True)
class Unwrapped(Message):
    """``err`` EKEYREJECTED: it was sealed for another key."""

    TYPES: ClassVar[tuple[MsgType, ...]] = (MsgType.UNWRAPPED,)
    LAYOUT: ClassVar[str] = "I4x32s"
    STRUCT: ClassVar[str] = "hark_msg_unwrapped"
    err: int
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Seed(Message):
    """The run's randomness. Descriptor: the map of ``struct hark_spawn``, where there is one."""

    TYPES: ClassVar[tuple[MsgType, ...]] = (MsgType.SEED,)
    LAYOUT: ClassVar[str] = "32s"
    STRUCT: ClassVar[str] = "hark_msg_seed"
    seed: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Draws(Message):
    """What the thread of ``path`` has drawn in all; ids are 0 where no thread is known."""

    TYPES: ClassVar[tuple[MsgType, ...]] = (MsgType.DRAWS,)
    LAYOUT: ClassVar[str] = "QQQQII"
    STRUCT: ClassVar[str] = "hark_msg_draws"
    path: int
    calls: int
    bytes: int
    start_ns: int
    tgid: int
    tid: int


CLASSES: tuple[type[Message], ...] = (
    Plain,
    NetReady,
    Started,
    Exited,
    Published,
    Failed,
    Exe,
    Job,
    Signal,
    OpenExe,
    Sealed,
    Ca,
    Durable,
    PlayWanted,
    Play,
    Dial,
    Dialed,
    Dns,
    DialEvent,
    Inbound,
    Sign,
    Signed,
    SignerReady,
    Wrap,
    Wrapped,
    Unwrap,
    Unwrapped,
    Seed,
    Draws,
)
_BY_TYPE = {kind: cls for cls in CLASSES for kind in cls.TYPES}
_HEAD = struct.Struct("=HHIQ")
_TEXT = frozenset({"what", "hint", "qname", "rule"})  # str in Python, zero-filled in C
_TRIMMED = frozenset({"path", "pem"})  # bytes in Python, zero-filled in C
_FDS_MAX = 16  # HARK_CHAN_FDS
SECRET_BYTES = 32  # HARK_MSG_SECRET
_PACKET_MAX = 8192


def field_names(cls: type[Message]) -> list[str]:
    """Names of the fields that travel, in order."""
    return [f.name for f in fields(cls) if f.name != "type"]


def _codec(cls: type[Message]) -> struct.Struct:
    return struct.Struct("=HHIQ" + cls.LAYOUT)


_CODECS = {cls: _codec(cls) for cls in CLASSES}
_NAMES = {cls: field_names(cls) for cls in CLASSES}


def pack(msg: Message, *, ident: int = 0, seq: int = 0) -> bytes:
    """Bytes of one packet. Raises ``ValueError`` for a text longer than its field."""
    codec = _CODECS[type(msg)]
    values = []
    for name in _NAMES[type(msg)]:
        value = getattr(msg, name)
        values.append(value.encode() if isinstance(value, str) else value)
    data = codec.pack(msg.kind, codec.size, ident, seq, *values)
    if _fields_of(type(msg), codec.unpack(data)[4:]) != [
        getattr(msg, n) for n in _NAMES[type(msg)]
    ]:
        raise ValueError(f"{type(msg).__name__} does not fit its fields")
    return data


def _fields_of(cls: type[Message], raw: Sequence[object]) -> list[object]:
    out: list[object] = []
    for name, value in zip(_NAMES[cls], raw, strict=True):
        if isinstance(value, bytes) and name in _TEXT:
            out.append(value.rstrip(b"\0").decode("utf-8", "replace"))
        elif isinstance(value, bytes) and name in _TRIMMED:
            out.append(value.rstrip(b"\0"))
        else:
            out.append(value)
    return out


def unpack(data: bytes) -> tuple[Message, int, int]:
    """Value, id and sequence number of one packet. Raises ``PeerBroken`` for anything else."""
    if len(data) < _HEAD.size:
        raise PeerBroken("control message cut short")
    kind, length, ident, seq = _HEAD.unpack_from(data)
    cls = _BY_TYPE.get(kind)
    if cls is None or length != len(data) or length != _CODECS[cls].size:
        raise PeerBroken(f"malformed control message, type {kind}")
    values = _fields_of(cls, _CODECS[cls].unpack(data)[4:])
    if "type" in cls.__slots__:
        values.insert(0, MsgType(kind))
    return cls(*values), ident, seq


@dataclass(frozen=True, slots=True)
class Received:
    """One message with its id; ``fds`` are the receiver's to close."""

    msg: Message
    ident: int
    fds: tuple[int, ...]

    def close(self) -> None:
        """Close the descriptors that came along."""
        for fd in self.fds:
            os.close(fd)


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a new control socket, close-on-exec."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


M = TypeVar("M", bound=Message)


class Channel:
    """One end of a control socket, counting its messages in both directions."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._tx = 0
        self._rx = 0

    def fileno(self) -> int:
        """Descriptor to poll for input."""
        return self.sock.fileno()

    def close(self) -> None:
        """Close this end; the peer sees end of file."""
        self.sock.close()

    def send(
        self, msg: Message, *, ident: int = 0, fds: Sequence[int] = (), timeout_s: float = 5.0
    ) -> None:
        """Send one message with copies of ``fds``. Raises ``PeerClosed`` when the peer is gone."""
        data = pack(msg, ident=ident, seq=self._tx)
        anc = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))] if fds else []
        end = time.monotonic() + timeout_s
        while True:
            try:
                self.sock.sendmsg([data], anc, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except BlockingIOError:
                if not _wait(self.sock, select.POLLOUT, end):
                    raise PeerClosed("a control socket does not take messages any more") from None
            except OSError as exc:
                raise PeerClosed("a control socket is closed", exc.strerror or "") from exc
            else:
                break
        self._tx += 1

    def recv(self, timeout_s: float | None = 0.0) -> Received | None:
        """Next message, or ``None`` when none came in time (0: do not wait, None: no deadline).

        Raises ``PeerClosed`` at end of file and ``PeerBroken`` for a malformed packet.
        """
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            try:
                data, anc, flags, _ = self.sock.recvmsg(
                    _PACKET_MAX,
                    socket.CMSG_SPACE(4 * _FDS_MAX),
                    socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC,
                )
                break
            except BlockingIOError:
                if not _wait(self.sock, select.POLLIN, end):
                    return None
            except OSError as exc:
                raise PeerClosed("a control socket is closed", exc.strerror or "") from exc
        fds = _descriptors(anc)
        try:
            return self._accept(data, flags, fds)
        except HarkError:
            for fd in fds:
                with contextlib.suppress(OSError):
                    os.close(fd)
            raise

    def expect(self, cls: type[M], timeout_s: float | None) -> tuple[M, tuple[int, ...]]:
        """Wait for one message of class ``cls``; silence or anything else is ``PeerBroken``."""
        got = self.recv(timeout_s)
        if got is None:
            raise PeerBroken(f"no {cls.__name__} message within {timeout_s} s")
        if isinstance(got.msg, cls):
            return got.msg, got.fds
        got.close()
        raise PeerBroken(f"{type(got.msg).__name__} message where {cls.__name__} was due")

    def _accept(self, data: bytes, flags: int, fds: tuple[int, ...]) -> Received:
        if not data and not fds:
            raise PeerClosed("a control socket is closed")
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise PeerBroken("control message cut short")
        msg, ident, seq = unpack(data)
        if seq != self._rx:
            raise PeerBroken(f"control message {seq} where {self._rx} was due")
        self._rx += 1
        return Received(msg, ident, fds)


def _wait(sock: socket.socket, events: int, end: float | None) -> bool:
    poller = select.poll()
    poller.register(sock, events)
    left = None if end is None else max(0.0, end - time.monotonic()) * 1000
    return bool(poller.poll(left))


def _descriptors(anc: list[tuple[int, int, bytes]]) -> tuple[int, ...]:
    out = array("i")
    for level, kind, data in anc:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            out.frombytes(data[: len(data) - len(data) % out.itemsize])
    return tuple(out)
