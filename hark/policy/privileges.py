"""Give up root: the step each Python process of a run takes before it touches anything hostile.

The recorder, the broker and the signer call ``drop`` once, each for its own user id. Rules: it is
all or nothing, checked by asking the kernel afterwards, and needs a process with one thread, since
capabilities belong to threads. ctypes only where Python has no call of its own.
Sources: capabilities(7), credentials(7), prctl(2), capset(2).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from hark.errors import InternalError, LaunchError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from hark.policy.person import Person

__all__ = [
    "acting_as",
    "close_all_but",
    "drop",
    "enter_network",
    "kept_apart",
    "leave_ids",
    "leave_network",
    "missing_root",
]

_CLONE_NEWNET = 0x40000000
_CLONE_NEWUSER = 0x10000000

_PR_SET_DUMPABLE = 4
_PR_GET_DUMPABLE = 3
_PR_SET_KEEPCAPS = 8
_PR_SET_NAME = 15
_PR_CAPBSET_READ = 23
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_GET_NO_NEW_PRIVS = 39
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4

_CAP_VERSION_3 = 0x20080522  # linux/capability.h
_CAP_LAST = 63  # the kernel says EINVAL above its own last one
_COMM_BYTES = 15  # TASK_COMM_LEN without the NUL

# capability.h numbers of what a run needs of root.
_CAPS = {
    "CHOWN": 0,
    "DAC_OVERRIDE": 1,
    "FOWNER": 3,
    "KILL": 5,
    "SETGID": 6,
    "SETUID": 7,
    "SETPCAP": 8,
    "NET_ADMIN": 12,
    "SYS_PTRACE": 19,
    "SYS_ADMIN": 21,
}

_libc = ctypes.CDLL(None, use_errno=True)


def drop(uid: int, gid: int, keep_caps: Collection[int] = ()) -> None:
    """Become ``uid`` and ``gid`` for ever, with no groups and no capabilities but ``keep_caps``.

    Afterwards: not dumpable, no_new_privs, empty bounding, inheritable and ambient sets, no core
    file. ``keep_caps`` are capability numbers (linux/capability.h), permitted and effective.
    Raises LaunchError with what the kernel said; the process must then end.
    """
    if len(list(Path("/proc/self/task").iterdir())) != 1:
        raise InternalError("privileges are dropped by a process with one thread only")
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        drop_bounding()
        prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
        prctl(_PR_SET_KEEPCAPS, 1 if keep_caps else 0)
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
        prctl(_PR_SET_KEEPCAPS, 0)
        capset(keep_caps)
        prctl(_PR_SET_NO_NEW_PRIVS, 1)
        prctl(_PR_SET_DUMPABLE, 0)  # after the last change of ids, which sets it anew
    except OSError as error:
        raise LaunchError("cannot drop privileges", error.strerror or "") from error
    check(uid, gid, keep_caps)


def check(uid: int, gid: int, keep_caps: Collection[int]) -> None:
    """Ask the kernel whether all of it took hold."""
    status = dict(
        line.split(":\t", 1)
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        if ":\t" in line
    )
    kept = sum(1 << cap for cap in set(keep_caps))
    want = {"CapInh": 0, "CapPrm": kept, "CapEff": kept, "CapBnd": 0, "CapAmb": 0}
    wrong = [name for name, bits in want.items() if int(status[name], 16) != bits]
    if os.getresuid() != (uid, uid, uid) or os.getresgid() != (gid, gid, gid):
        wrong.append("ids")
    if os.getgroups():
        wrong.append("groups")
    if prctl(_PR_GET_NO_NEW_PRIVS) != 1:
        wrong.append("no_new_privs")
    if prctl(_PR_GET_DUMPABLE) != 0:
        wrong.append("dumpable")
    if wrong:
        raise LaunchError("privileges were not dropped", f"still wrong: {', '.join(wrong)}")


def missing_root() -> str:
    """Say what of root this process lacks that a run needs; empty when nothing."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    bits = int(status.split("CapEff:\t")[1].split("\n")[0], 16)
    if os.geteuid() != 0:
        return f"the effective user id is {os.geteuid()}"
    lacking = [name for name, bit in _CAPS.items() if not bits >> bit & 1]
    return f"without CAP_{', CAP_'.join(lacking)}" if lacking else ""


@contextlib.contextmanager
def acting_as(person: Person) -> Iterator[None]:
    """Open files as ``person``, and be root again afterwards. Does nothing when not root.

    What the person may not open, hark does not open for them: every path of theirs, from argv,
    policy or environment, is opened inside this. Needs a process with one thread.
    """
    if os.geteuid() != 0 or person.uid == 0:
        yield
        return
    before = os.getegid(), os.getgroups()
    os.setgroups(person.groups)
    os.setegid(person.gid)
    os.seteuid(person.uid)  # last: it clears the effective capabilities
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(before[0])
        os.setgroups(before[1])


def drop_bounding() -> None:
    """Empty the bounding set: nothing this process executes could gain a capability."""
    for cap in range(_CAP_LAST + 1):
        with contextlib.suppress(OSError):  # EINVAL: this kernel has no such capability
            if prctl(_PR_CAPBSET_READ, cap) == 1:
                prctl(_PR_CAPBSET_DROP, cap)


def capset(caps: Iterable[int]) -> None:
    """Set permitted and effective to ``caps``, inheritable to nothing (capset(2), version 3)."""
    bits = sum(1 << cap for cap in set(caps))
    low, high = bits & 0xFFFFFFFF, bits >> 32
    head = struct.pack("=Ii", _CAP_VERSION_3, 0)
    data = struct.pack("=6I", low, low, 0, high, high, 0)
    if _libc.capset(head, data) != 0:
        raise last_error()


def kept_apart(name: str) -> None:
    """Name the process for ``ps`` and give it a process group of its own.

    A Ctrl-C at the terminal then reaches the agent and the recorder, not this process. Handlers
    that a fork left over from its parent are gone: they belong to the parent's work.
    """
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    prctl_name(name.encode())
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)


def leave_network() -> None:
    """Move into a new network namespace without any interface up. Needs root."""
    if _libc.unshare(ctypes.c_int(_CLONE_NEWNET)) != 0:
        raise last_error()


def enter_network(fd: int) -> None:
    """Move into the network namespace ``fd``. Needs root."""
    if _libc.setns(ctypes.c_int(fd), ctypes.c_int(_CLONE_NEWNET)) != 0:
        raise last_error()


def leave_ids() -> None:
    """Move into a new user namespace, whose id maps the parent must write. One thread only."""
    if _libc.unshare(ctypes.c_int(_CLONE_NEWUSER)) != 0:
        raise last_error()


def close_all_but(keep: Iterable[int]) -> None:
    """Close every other descriptor, and point 0, 1 and 2 (unless kept) at /dev/null."""
    kept = sorted({fd for fd in keep if fd >= 0})
    low = 0
    for fd in kept:
        os.closerange(low, fd)
        low = fd + 1
    os.closerange(low, max_descriptors())
    null = [fd for fd in range(3) if fd not in kept]
    for _ in null:  # the lowest free numbers are exactly these
        os.open(os.devnull, os.O_RDWR)


def max_descriptors() -> int:
    """One more than the highest descriptor open now."""
    return max(int(entry.name) for entry in Path("/proc/self/fd").iterdir()) + 1


def prctl(option: int, value: int = 0) -> int:
    """Ask the kernel for one process attribute or set it; raises OSError."""
    zero = ctypes.c_ulong(0)
    result = int(_libc.prctl(option, ctypes.c_ulong(value), zero, zero, zero))
    if result < 0:
        raise last_error()
    return result


def prctl_name(name: bytes) -> None:
    """PR_SET_NAME."""
    buffer = ctypes.create_string_buffer(name[:_COMM_BYTES])
    if _libc.prctl(_PR_SET_NAME, buffer, 0, 0, 0) != 0:
        raise last_error()


def last_error() -> OSError:
    """Make the OSError of the libc call that just failed."""
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
