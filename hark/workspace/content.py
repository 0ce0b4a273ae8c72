"""Content of one entry: its digest, and copies that keep holes.

Rules: a file is opened without following a link and without waiting for a fifo's other end; what is
no regular file or link has no content here.
"""

from __future__ import annotations

import errno
import os
import stat

from blake3 import blake3

from hark import limits
from hark.workspace.paths import folder_of, open_below

__all__ = ["copy_bytes", "digest_fd", "digest_file", "digest_link", "identity", "read_some"]

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PERMISSIONS = 0o777


def digest_fd(fd: int) -> bytes:
    """BLAKE3 of a whole open file, 32 bytes."""
    state = blake3()
    at = 0
    while data := os.pread(fd, limits.WORKSPACE_COPY_BYTES, at):
        state.update(data)
        at += len(data)
    return state.digest()


def digest_file(root: int, path: str) -> bytes:
    """BLAKE3 of a regular file. Raises OSError."""
    fd = open_below(root, path, _READ)
    try:
        return digest_fd(fd)
    finally:
        os.close(fd)


def digest_link(root: int, path: str) -> bytes:
    """BLAKE3 of a link's target."""
    with folder_of(root, path) as (fd, name):
        return blake3(os.fsencode(os.readlink(name, dir_fd=fd))).digest()


def identity(root: int, path: str) -> str | None:
    """What an entry is, as one word to compare: type, content and permissions. None: not there.

    Raises OSError when it cannot be read.
    """
    try:
        with folder_of(root, path) as (fd, name):
            st = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if stat.S_ISDIR(st.st_mode):
                return "folder"
            if stat.S_ISLNK(st.st_mode):
                return f"link:{digest_link(root, path).hex()}"
            if not stat.S_ISREG(st.st_mode):
                return "special"
    except (FileNotFoundError, NotADirectoryError):
        return None
    permissions = stat.S_IMODE(st.st_mode) & _PERMISSIONS
    return f"file:{digest_file(root, path).hex()}:{permissions:o}"


def copy_bytes(source: int, target: int) -> int:
    """Copy all content of one open file into an empty one, holes kept; return its size in bytes."""
    size = os.fstat(source).st_size
    at = 0
    while at < size:
        try:
            start = os.lseek(source, at, os.SEEK_DATA)
            end = os.lseek(source, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                break
            raise
        _copy_range(source, target, start, end)
        at = end
    os.ftruncate(target, size)
    return size


def _copy_range(source: int, target: int, at: int, end: int) -> None:
    """Copy by the kernel where it can (it may share blocks), else by hand."""
    while at < end:
        try:
            moved = os.copy_file_range(source, target, end - at, at, at)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            moved = 0
        if moved == 0:
            data = os.pread(source, min(end - at, limits.WORKSPACE_COPY_BYTES), at)
            if not data:
                return  # the file became shorter
            written = 0
            while written < len(data):
                written += os.pwrite(target, data[written:], at + written)
            moved = len(data)
        at += moved


def read_some(root: int, path: str) -> bytes | None:
    """Return a file's content; None when it cannot be read or is too long to be shown."""
    try:
        fd = open_below(root, path, _READ)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        data = file.read(limits.WORKSPACE_DIFF_BYTES + 1)
    return data if len(data) <= limits.WORKSPACE_DIFF_BYTES else None
