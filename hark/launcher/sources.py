"""Opening the person's paths as the person.

A child becomes the person wholly, opens the paths without following a link in any component, and
passes the descriptors back. So root's rights never meet a path of theirs, and what was opened is
what the plan shows: a link swapped in later changes nothing.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from typing import TYPE_CHECKING

from hark import limits
from hark.errors import InputError, LaunchError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hark.policy.person import Person

__all__ = ["open_folder", "open_sources"]

_SYS_OPENAT2 = 437
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_NO_MAGICLINKS = 0x02
_AT_FDCWD = -100


def open_sources(paths: Sequence[str], person: Person) -> list[int]:
    """Open real paths (no link in them) with O_PATH, in order, close-on-exec.

    Raises ``InputError`` for a path the person cannot reach.
    """
    return _as_person(person, paths, lambda path: _open_real(path, os.O_PATH))


def open_folder(path: str, person: Person) -> int:
    """Open a folder the person names, links allowed, for making a file in it later."""
    flags = os.O_RDONLY | os.O_DIRECTORY
    return _as_person(person, [path], lambda p: os.open(p, flags | os.O_CLOEXEC))[0]


def _open_real(path: str, flags: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    how = struct.pack(
        "=QQQ", flags | os.O_CLOEXEC, 0, _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS
    )
    fd = int(
        libc.syscall(
            ctypes.c_long(_SYS_OPENAT2),
            _AT_FDCWD,
            os.fsencode(path),
            how,
            ctypes.c_size_t(len(how)),
        )
    )
    if fd < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return fd


def _as_person(person: Person, paths: Sequence[str], opener: Callable[[str], int]) -> list[int]:
    """One child for all paths; one packet for each: an errno, and the descriptor with 0.

    Without a child for root, who stays root.
    """
    if person.uid == 0 and os.geteuid() == 0 and person.gid == os.getegid():
        return _open_all(person, paths, opener)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        _child(theirs, person, paths, opener)
    theirs.close()
    out: list[int] = []
    try:
        for path in paths:
            out.append(_receive(ours, path, person))  # noqa: PERF401 - closed one by one on error
    except BaseException:
        for fd in out:
            os.close(fd)
        raise
    finally:
        ours.close()
        os.waitpid(pid, 0)
    return out


def _open_all(person: Person, paths: Sequence[str], opener: Callable[[str], int]) -> list[int]:
    out: list[int] = []
    try:
        for path in paths:
            try:
                out.append(opener(path))
            except OSError as exc:
                what = f"{path} cannot be opened as {person.name}"
                raise InputError(what, exc.strerror or "") from exc
    except BaseException:
        for fd in out:
            os.close(fd)
        raise
    return out


def _child(
    sock: socket.socket, person: Person, paths: Sequence[str], opener: Callable[[str], int]
) -> None:
    """Never returns: whatever happens, this copy of the process ends here."""
    try:
        os.setgroups(person.groups)
        os.setresgid(person.gid, person.gid, person.gid)
        os.setresuid(person.uid, person.uid, person.uid)
        for path in paths:
            try:
                fd = opener(path)
            except OSError as exc:
                sock.send(struct.pack("=i", exc.errno or 5))
                continue
            socket.send_fds(sock, [struct.pack("=i", 0)], [fd])
            os.close(fd)
    finally:
        os._exit(0)


def _receive(sock: socket.socket, path: str, person: Person) -> int:
    sock.settimeout(limits.LAUNCH_OPEN_S)
    try:
        # not recv_fds: CPython 3.11 drops its flags, and the descriptor would cross an exec
        data, anc, _, _ = sock.recvmsg(4, socket.CMSG_LEN(4), socket.MSG_CMSG_CLOEXEC)
    except TimeoutError as exc:
        raise LaunchError(
            f"opening {path} takes too long", "is it on a dead network share?"
        ) from exc
    if len(data) != 4:  # noqa: PLR2004 - one packed int
        raise LaunchError(f"{path} cannot be opened as {person.name}", "the helper process died")
    (code,) = struct.unpack("=i", data)
    if code:
        raise InputError(f"{path} cannot be opened as {person.name}", os.strerror(code))
    return int(struct.unpack("=i", anc[0][2])[0])
