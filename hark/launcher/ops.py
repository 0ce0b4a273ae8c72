"""The ops of a launch plan, as values, and their bytes.

One frozen class per op of ``csrc/launch/hark_plan.h``; ``FORMAT`` is the payload in the letters
that ``csrc/launch/plan.c`` explains: b h w q integers of 1, 2, 4, 8 bytes; A and S raw addresses;
s text; B bytes; f F descriptor index (F: or none); u user namespace index; (...) a counted group.
Rules: pure; the same values always give the same bytes.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, fields
from enum import IntEnum, IntFlag
from typing import ClassVar

__all__ = [
    "NO_INDEX",
    "OPS",
    "CGroup",
    "Cover",
    "Creds",
    "Cwd",
    "Deadlines",
    "Dev",
    "Direct",
    "Env",
    "Exec",
    "Flag",
    "Hold",
    "Hostname",
    "IdRange",
    "Landlock",
    "LimitV1",
    "LimitV2",
    "Link",
    "Listen",
    "Mask",
    "Meter",
    "NetNs",
    "NfLog",
    "OneFile",
    "Op",
    "OpCode",
    "PathRule",
    "Personality",
    "Pivot",
    "Proc",
    "Publish",
    "Rlimit",
    "Root",
    "RunDir",
    "Seccomp",
    "StageDir",
    "StageFile",
    "Stdio",
    "TmpFs",
    "Trace",
    "Tree",
    "Tty",
    "UserNs",
    "View",
    "Watch",
    "Workspace",
    "encode",
]

MAGIC = 0x4E4C5048
VERSION = 1
NO_INDEX = 0xFFFF


class OpCode(IntEnum):
    """``enum hark_op``."""

    DEADLINES = 0x001
    HOLD = 0x002
    WATCH = 0x003
    RUN_DIR = 0x004
    PUBLISH = 0x005
    METER = 0x006
    NETNS = 0x101
    LISTEN = 0x102
    NFLOG = 0x103
    CGROUP = 0x104
    LIMIT_V2 = 0x105
    LIMIT_V1 = 0x106
    USERNS = 0x107
    VIEW = 0x108
    TRACE = 0x109
    HOSTNAME = 0x201
    ROOT = 0x202
    LINK = 0x203
    STAGE_DIR = 0x204
    STAGE_FILE = 0x205
    TREE = 0x206
    ONE_FILE = 0x207
    TMPFS = 0x208
    DEV = 0x209
    PROC = 0x20A
    WORKSPACE = 0x20B
    DIRECT = 0x20C
    COVER = 0x20D
    PIVOT = 0x20E
    MASK = 0x20F
    TTY = 0x301
    STDIO = 0x302
    RLIMIT = 0x303
    CREDS = 0x304
    CWD = 0x305
    LANDLOCK = 0x306
    SECCOMP = 0x307
    ENV = 0x308
    EXEC = 0x309
    PERSONALITY = 0x30A


class Flag(IntFlag):
    """``enum hark_op_flag``."""

    NONE = 0
    OPTIONAL = 1
    IDMAP_OPTIONAL = 2
    STAGED = 4
    NO_SOURCE = 8
    OPAQUE = 16
    NOTIFY = 32
    RUN_IDS = 64


@dataclass(frozen=True, slots=True)
class IdRange:
    """One line of an id map: ``count`` ids from ``inside`` are those from ``outside``."""

    inside: int
    outside: int
    count: int


@dataclass(frozen=True, slots=True)
class PathRule:
    """One Landlock rule: the rights (a bit mask) below one path."""

    access: int
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """Base of all ops; ``flags`` is ``enum hark_op_flag``."""

    CODE: ClassVar[OpCode]
    FORMAT: ClassVar[str] = ""
    flags: Flag = Flag.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines(Op):
    """How long hark-launch waits for set-up steps, for GO, and for SEALED; milliseconds."""

    CODE: ClassVar[OpCode] = OpCode.DEADLINES
    FORMAT: ClassVar[str] = "www"
    setup_ms: int
    go_ms: int
    seal_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold(Op):
    """Keep this descriptor, a lock, until everything is cleaned up."""

    CODE: ClassVar[OpCode] = OpCode.HOLD
    FORMAT: ClassVar[str] = "f"
    fd: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch(Op):
    """Any event on this descriptor is the death of a party; ``cause`` is an ``ExitCause``."""

    CODE: ClassVar[OpCode] = OpCode.WATCH
    FORMAT: ClassVar[str] = "wf"
    cause: int
    fd: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDir(Op):
    """The run's folder: ``name`` below the folder ``fd``."""

    CODE: ClassVar[OpCode] = OpCode.RUN_DIR
    FORMAT: ClassVar[str] = "fs"
    fd: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish(Op):
    """Where the bundle goes: ``name`` below the folder ``fd`` the person opened, as that person."""

    CODE: ClassVar[OpCode] = OpCode.PUBLISH
    FORMAT: ClassVar[str] = "fsww(w)"
    fd: int
    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter(Op):
    """What the run may use up, looked at every ``tick_ms``; 0: not bounded.

    disk: bytes of its layers. reserve, reserve_files: bytes and files that must stay free where
    they lie. tasks: refusals of a new task. kills: tasks that the kernel ended for want of memory.
    """

    CODE: ClassVar[OpCode] = OpCode.METER
    FORMAT: ClassVar[str] = "wqqqqq"
    tick_ms: int
    disk: int
    reserve: int
    reserve_files: int
    tasks: int
    kills: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NetNs(Op):
    """The pair of network namespaces: addresses of M's and of the agent's end."""

    CODE: ClassVar[OpCode] = OpCode.NETNS
    FORMAT: ClassVar[str] = "AAbSSbb"
    m4: bytes
    a4: bytes
    len4: int
    m6: bytes
    a6: bytes
    len6: int
    ipv6: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen(Op):
    """Listeners in M: TCP and DNS port, backlog."""

    CODE: ClassVar[OpCode] = OpCode.LISTEN
    FORMAT: ClassVar[str] = "hhh"
    tcp_port: int
    dns_port: int
    backlog: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NfLog(Op):
    """The socket that receives refused packets, ``copy_bytes`` of each."""

    CODE: ClassVar[OpCode] = OpCode.NFLOG
    FORMAT: ClassVar[str] = "hw"
    group: int
    copy_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CGroup(Op):
    """The run's cgroup v2 folder, made by hark-launch."""

    CODE: ClassVar[OpCode] = OpCode.CGROUP
    FORMAT: ClassVar[str] = "s"
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitV2(Op):
    """A limit in the run's own cgroup v2 folder."""

    CODE: ClassVar[OpCode] = OpCode.LIMIT_V2
    FORMAT: ClassVar[str] = "ss"
    file: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitV1(Op):
    """A limit in a cgroup v1 hierarchy; the folder is made by hark-launch."""

    CODE: ClassVar[OpCode] = OpCode.LIMIT_V1
    FORMAT: ClassVar[str] = "sss"
    path: str
    file: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UserNs(Op):
    """A user namespace of kernel id ``owner``, by its two id maps.

    Later ops name it by its place among these ops.
    """

    CODE: ClassVar[OpCode] = OpCode.USERNS
    FORMAT: ClassVar[str] = "w(www)(www)"
    owner: int
    uids: tuple[IdRange, ...]
    gids: tuple[IdRange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace(Op):
    """The socket ``fd`` to hark-trace, which gives up all but the user namespace ``userns``."""

    CODE: ClassVar[OpCode] = OpCode.TRACE
    FORMAT: ClassVar[str] = "fu"
    fd: int
    userns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class View(Op):
    """Id maps under which the recorder sees what the layers hold: the person's ids are its own."""

    CODE: ClassVar[OpCode] = OpCode.VIEW
    FORMAT: ClassVar[str] = "w(www)(www)"
    owner: int
    uids: tuple[IdRange, ...]
    gids: tuple[IdRange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hostname(Op):
    """The run's host name."""

    CODE: ClassVar[OpCode] = OpCode.HOSTNAME
    FORMAT: ClassVar[str] = "s"
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Root(Op):
    """The private root: a tmpfs mounted on ``scratch``, its files owned by kernel id ``owner``."""

    CODE: ClassVar[OpCode] = OpCode.ROOT
    FORMAT: ClassVar[str] = "swq"
    scratch: str
    owner: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Link(Op):
    """A symbolic link in the root."""

    CODE: ClassVar[OpCode] = OpCode.LINK
    FORMAT: ClassVar[str] = "ss"
    target: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StageDir(Op):
    """A folder that lies over (or below) what a later op shows; ids are the kernel's."""

    CODE: ClassVar[OpCode] = OpCode.STAGE_DIR
    FORMAT: ClassVar[str] = "swww"
    path: str
    mode: int
    uid: int
    gid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFile(Op):
    """A file of given content that lies over what a later op shows."""

    CODE: ClassVar[OpCode] = OpCode.STAGE_FILE
    FORMAT: ClassVar[str] = "swwwB"
    path: str
    mode: int
    uid: int
    gid: int
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree(Op):
    """A folder shown read-only: an overlay over an idmapped layer."""

    CODE: ClassVar[OpCode] = OpCode.TREE
    FORMAT: ClassVar[str] = "Fuss"
    fd: int = NO_INDEX
    userns: int = NO_INDEX
    source: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OneFile(Op):
    """A single file shown read-only."""

    CODE: ClassVar[OpCode] = OpCode.ONE_FILE
    FORMAT: ClassVar[str] = "Fuss"
    fd: int = NO_INDEX
    userns: int = NO_INDEX
    source: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TmpFs(Op):
    """A private tmpfs; ids are the kernel's."""

    CODE: ClassVar[OpCode] = OpCode.TMPFS
    FORMAT: ClassVar[str] = "swwwq"
    path: str
    mode: int
    uid: int
    gid: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dev(Op):
    """A minimal /dev with its own devpts; ``shm_size`` bytes of /dev/shm."""

    CODE: ClassVar[OpCode] = OpCode.DEV
    FORMAT: ClassVar[str] = "q"
    shm_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Proc(Op):
    """/proc of the run's pid namespace, others' processes hidden, /proc/sys read-only."""

    CODE: ClassVar[OpCode] = OpCode.PROC


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace(Op):
    """A writable overlay; ``layer`` holds ``upper`` and ``work``. ``mask``: of a Mask, or ""."""

    CODE: ClassVar[OpCode] = OpCode.WORKSPACE
    FORMAT: ClassVar[str] = "Fussss"
    fd: int = NO_INDEX
    userns: int = NO_INDEX
    source: str
    path: str
    layer: str
    mask: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mask(Op):
    """A staged folder that hides these names where it lies over another one."""

    CODE: ClassVar[OpCode] = OpCode.MASK
    FORMAT: ClassVar[str] = "s(s)"
    path: str
    names: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Direct(Op):
    """A folder shown writable as it is, idmapped."""

    CODE: ClassVar[OpCode] = OpCode.DIRECT
    FORMAT: ClassVar[str] = "Fuss"
    fd: int = NO_INDEX
    userns: int = NO_INDEX
    source: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cover(Op):
    """A staged file mounted over an existing file."""

    CODE: ClassVar[OpCode] = OpCode.COVER
    FORMAT: ClassVar[str] = "ss"
    staged: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pivot(Op):
    """Switch to the private root and make it read-only."""

    CODE: ClassVar[OpCode] = OpCode.PIVOT


@dataclass(frozen=True, slots=True, kw_only=True)
class Tty(Op):
    """A terminal from the run's own devpts; its master side goes to the recorder."""

    CODE: ClassVar[OpCode] = OpCode.TTY
    FORMAT: ClassVar[str] = "hhww"
    rows: int
    columns: int
    uid: int
    gid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stdio(Op):
    """Descriptors 0, 1 and 2 of the agent; pipes become ``uid``'s, so /dev/stdout can be opened."""

    CODE: ClassVar[OpCode] = OpCode.STDIO
    FORMAT: ClassVar[str] = "fffww"
    stdin: int
    stdout: int
    stderr: int
    uid: int
    gid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rlimit(Op):
    """A resource limit; never above what hark itself has."""

    CODE: ClassVar[OpCode] = OpCode.RLIMIT
    FORMAT: ClassVar[str] = "wqq"
    resource: int
    soft: int
    hard: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Personality(Op):
    """Bits that are added to the agent's execution domain (personality(2))."""

    CODE: ClassVar[OpCode] = OpCode.PERSONALITY
    FORMAT: ClassVar[str] = "w"
    bits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Creds(Op):
    """Enter the user namespace, become this id inside it, and drop every privilege."""

    CODE: ClassVar[OpCode] = OpCode.CREDS
    FORMAT: ClassVar[str] = "hww"
    userns: int
    uid: int
    gid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cwd(Op):
    """The agent's working folder."""

    CODE: ClassVar[OpCode] = OpCode.CWD
    FORMAT: ClassVar[str] = "s"
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Landlock(Op):
    """The Landlock ruleset: handled rights, scopes, restrict flags, rules."""

    CODE: ClassVar[OpCode] = OpCode.LANDLOCK
    FORMAT: ClassVar[str] = "qqqw(qs)"
    fs: int
    net: int
    scoped: int
    restrict: int
    rules: tuple[PathRule, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seccomp(Op):
    """The compiled filter: ``struct sock_filter[]``."""

    CODE: ClassVar[OpCode] = OpCode.SECCOMP
    FORMAT: ClassVar[str] = "B"
    blob: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Env(Op):
    """The agent's whole environment, ``NAME=value``."""

    CODE: ClassVar[OpCode] = OpCode.ENV
    FORMAT: ClassVar[str] = "(s)"
    strings: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exec(Op):
    """The program and its arguments."""

    CODE: ClassVar[OpCode] = OpCode.EXEC
    FORMAT: ClassVar[str] = "s(s)"
    file: str
    argv: tuple[bytes, ...]


OPS: tuple[type[Op], ...] = (
    Deadlines,
    Hold,
    Watch,
    RunDir,
    Publish,
    Meter,
    NetNs,
    Listen,
    NfLog,
    CGroup,
    LimitV2,
    LimitV1,
    UserNs,
    View,
    Trace,
    Hostname,
    Root,
    Link,
    StageDir,
    StageFile,
    Mask,
    Tree,
    OneFile,
    TmpFs,
    Dev,
    Proc,
    Workspace,
    Direct,
    Cover,
    Pivot,
    Tty,
    Stdio,
    Rlimit,
    Personality,
    Creds,
    Cwd,
    Landlock,
    Seccomp,
    Env,
    Exec,
)

_INTEGERS = {"b": "=B", "h": "=H", "w": "=I", "q": "=Q", "f": "=H", "F": "=H", "u": "=H"}
_ADDRESSES = {"A": 4, "S": 16}


def values(op: Op) -> list[tuple[str, object]]:
    """Names and values of an op's own fields, in payload order."""
    return [(f.name, getattr(op, f.name)) for f in fields(op) if f.name != "flags"]


def encode(ops: tuple[Op, ...]) -> bytes:
    """Bytes of a whole plan, as ``csrc/launch/plan.c`` reads them."""
    out = [struct.pack("=III", MAGIC, VERSION, len(ops))]
    for op in ops:
        body = payload(op)
        out.append(struct.pack("=HHI", op.CODE, op.flags, len(body)) + body)
    return b"".join(out)


def payload(op: Op) -> bytes:
    """Bytes of one op. Raises ``ValueError`` for a value that its letter cannot hold."""
    out: list[bytes] = []
    letters = op.FORMAT
    items = iter(value for _, value in values(op))
    while letters:
        value = next(items)
        if letters[0] == "(":
            group, letters = letters[1:].split(")", 1)
            out.append(_group(group, value))
        else:
            out.append(_one(letters[0], value))
            letters = letters[1:]
    return b"".join(out)


def _group(letters: str, value: object) -> bytes:
    if not isinstance(value, tuple):
        raise TypeError("a counted group is a tuple")
    out = [struct.pack("=I", len(value))]
    for row in value:
        cells = [row] if len(letters) == 1 else [getattr(row, f.name) for f in fields(row)]
        out += [_one(letter, cell) for letter, cell in zip(letters, cells, strict=True)]
    return b"".join(out)


def _one(letter: str, value: object) -> bytes:
    if letter in _INTEGERS and isinstance(value, int):
        try:
            return struct.pack(_INTEGERS[letter], value)
        except struct.error as exc:
            raise ValueError(str(exc)) from exc
    if letter in _ADDRESSES and isinstance(value, bytes) and len(value) == _ADDRESSES[letter]:
        return value
    if letter == "B" and isinstance(value, bytes):
        return struct.pack("=I", len(value)) + value
    if letter == "s" and isinstance(value, str | bytes):
        data = os.fsencode(value)
        if b"\0" in data:
            raise ValueError("a text holds a NUL byte")
        return struct.pack("=I", len(data)) + data + b"\0"
    raise ValueError(f"{value!r} does not fit payload letter {letter}")
