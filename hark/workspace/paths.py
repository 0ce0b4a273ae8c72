"""System calls on paths below one open folder, and mounts that only this process sees.

Rules: a path is relative, goes through ``openat2`` from a folder's descriptor and never leaves it:
no link in any component, no other file system, no ``..``. Constants are the kernel's
(linux/openat2.h, linux/mount.h, linux/fs.h); numbers of system calls above 424 are the same on
every architecture.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from typing import TYPE_CHECKING

from hark import limits
from hark.errors import HarkError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "FOLDER",
    "Rename",
    "folder_of",
    "mount_lower",
    "mount_memory",
    "mount_merged",
    "open_below",
    "parent_of",
    "rename",
    "rows_of",
    "stat_below",
    "sync",
]

FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_READ_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

_SYS_OPEN_TREE = 428
_SYS_FSOPEN = 430
_SYS_FSCONFIG = 431
_SYS_FSMOUNT = 432
_SYS_OPENAT2 = 437

_RESOLVE = 0x01 | 0x02 | 0x04 | 0x08  # NO_XDEV, NO_MAGICLINKS, NO_SYMLINKS, BENEATH
_OPEN_TREE = 0x01 | os.O_CLOEXEC | 0x1000  # OPEN_TREE_CLONE, AT_EMPTY_PATH
_FSOPEN_CLOEXEC = 1
_FSMOUNT_CLOEXEC = 1
_SET_STRING, _CREATE = 1, 6
_ATTR = 0x01 | 0x02 | 0x04 | 0x08  # MOUNT_ATTR_RDONLY, NOSUID, NODEV, NOEXEC

_ATTR_WRITABLE = 0x02 | 0x04  # NOSUID, NODEV

_libc = ctypes.CDLL(None, use_errno=True)


class Rename:
    """Flags of renameat2(2)."""

    PLAIN = 0
    NOREPLACE = 1
    EXCHANGE = 2


def _check(result: int, path: str = "") -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)
    return result


def _call(number: int, *args: object) -> int:
    return _check(int(_libc.syscall(ctypes.c_long(number), *args)))


def open_below(root: int, path: str, flags: int = FOLDER) -> int:
    """Open ``path`` below the folder ``root``; "" is the folder itself. Raises OSError."""
    how = struct.pack("=QQQ", flags | os.O_CLOEXEC, 0, _RESOLVE)
    name = os.fsencode(path or ".")
    size = ctypes.c_size_t(len(how))
    return _check(int(_libc.syscall(ctypes.c_long(_SYS_OPENAT2), root, name, how, size)), path)


def parent_of(path: str) -> tuple[str, str]:
    """Split into the folder's path and the last name."""
    folder, _, name = path.rpartition("/")
    return folder, name


@contextlib.contextmanager
def folder_of(root: int, path: str) -> Iterator[tuple[int, str]]:
    """Open the folder that holds ``path``; gives its descriptor and the last name."""
    folder, name = parent_of(path)
    fd = open_below(root, folder)
    try:
        yield fd, name
    finally:
        os.close(fd)


def stat_below(root: int, path: str) -> os.stat_result | None:
    """Return lstat(2) of ``path``; None when it, or a folder above it, is not there."""
    try:
        with folder_of(root, path) as (fd, name):
            return os.stat(name or ".", dir_fd=fd, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None


def rows_of(root: int, path: str) -> dict[str, os.stat_result]:
    """Return name to lstat(2) of all entries of a folder. Raises OSError."""
    fd = open_below(root, path, _READ_FOLDER)
    try:
        out: dict[str, os.stat_result] = {}
        with os.scandir(fd) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    out[entry.name] = entry.stat(follow_symlinks=False)
        return out
    finally:
        os.close(fd)


def rename(from_fd: int, name: str, to_fd: int, new: str, flags: int = Rename.PLAIN) -> None:
    """renameat2(2). Raises OSError; EINVAL where the file system lacks the flag."""
    old_b, new_b = os.fsencode(name), os.fsencode(new)
    _check(int(_libc.renameat2(from_fd, old_b, to_fd, new_b, ctypes.c_uint(flags))), name)


def sync(root: int) -> None:
    """Wait until the whole file system of a folder is on disk (syncfs(2))."""
    fd = open_below(root, "", _READ_FOLDER)
    try:
        _check(int(_libc.syncfs(fd)))
    finally:
        os.close(fd)


def mount_lower(folder: int) -> int:
    """Return a view of one folder without the mounts inside it, seen by nobody else. Needs root."""
    try:
        return _call(_SYS_OPEN_TREE, folder, b"", ctypes.c_uint(_OPEN_TREE))
    except OSError as error:
        raise HarkError("the workspace cannot be looked at", error.strerror or "") from error


def mount_memory(owner: int, size: int, entries: int) -> int:
    """Return an empty folder in memory (tmpfs) that only its descriptor leads to. Needs root."""
    options = {"mode": "0700", "uid": owner, "gid": owner, "size": size, "nr_inodes": entries}
    try:
        fs = _call(_SYS_FSOPEN, b"tmpfs", _FSOPEN_CLOEXEC)
        try:
            for key, value in options.items():
                _call(_SYS_FSCONFIG, fs, _SET_STRING, key.encode(), str(value).encode(), 0)
            _call(_SYS_FSCONFIG, fs, _CREATE, None, None, 0)
            return _call(_SYS_FSMOUNT, fs, _FSMOUNT_CLOEXEC, ctypes.c_uint(_ATTR_WRITABLE))
        finally:
            os.close(fs)
    except OSError as error:
        raise HarkError("no folder in memory can be made", error.strerror or "") from error


def mount_merged(upper: int, folder: int) -> int:
    """Return the workspace as the agent left it: its changes over ``folder``, read-only.

    The kernel reads the overlay's own marks (removed, replaced and renamed folders), not we. The
    descriptors go in as paths of /proc, so that no character of a real path meets an option string.
    """
    layers = f"lowerdir=/proc/self/fd/{upper}:/proc/self/fd/{folder}".partition("=")
    try:
        fs = _call(_SYS_FSOPEN, b"overlay", _FSOPEN_CLOEXEC)
        try:
            for key, value in ((layers[0], layers[2]), ("redirect_dir", "follow")):
                _call(_SYS_FSCONFIG, fs, _SET_STRING, key.encode(), value.encode(), 0)
            _call(_SYS_FSCONFIG, fs, _CREATE, None, None, 0)
            return _call(_SYS_FSMOUNT, fs, _FSMOUNT_CLOEXEC, ctypes.c_uint(_ATTR))
        finally:
            os.close(fs)
    except OSError as error:
        raise HarkError(
            "the agent's changes cannot be shown over the workspace", error.strerror or ""
        ) from error


def too_long(path: str) -> bool:
    """Whether the kernel would refuse the path for its length."""
    return len(os.fsencode(path)) >= limits.WORKSPACE_PATH_BYTES
