"""What the workspace held before the agent existed: one row for every entry.

A row is the entry's type, mode, size, times, inode, and for links and for files changed within the
last seconds a content digest. The kernel sets the change time itself, so an entry with the same row
later is unchanged; only a change within one tick of the row's own time could hide, and such rows
carry the digest (Git calls them racily clean). Times are those of the file system's clock.

Rules: the walk runs as the person, in a process of its own, and has ended before the agent starts.
What it could not list (no permission, too many entries, no time) is marked so, and later counts as
unknown.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
import time
from enum import IntFlag

import zstandard
from blake3 import blake3

from hark import limits
from hark.errors import BundleInvalid
from hark.values import dataclass, field
from hark.workspace.content import digest_file, digest_link
from hark.workspace.paths import open_below, too_long

__all__ = ["Manifest", "Mark", "Row", "load", "row_of", "walk"]

_MAGIC = b"hark-manifest-1\n"
_ROW = struct.Struct("<HHIQqqQ")  # path length, marks, mode, size, mtime, ctime, inode
_DIGEST = 32
_READ_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Mark(IntFlag):
    """What is special about a row."""

    NONE = 0
    DIGEST = 1  # 32 bytes of content digest follow
    UNLISTED = 2  # a folder whose entries are not known
    UNSURE = 4  # changed too recently, and not digested: never taken for unchanged


@dataclass(frozen=True, slots=True)
class Row:
    """One entry. ``mode`` holds the type too; times in nanoseconds."""

    mode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    digest: bytes = b""
    marks: Mark = Mark.NONE

    def same_stat(self, st: os.stat_result) -> bool:
        """Whether an entry has this row's type, mode, size, times and inode, and that proves it."""
        return Mark.UNSURE not in self.marks and self == row_of(st, self.digest, self.marks)


def row_of(st: os.stat_result, digest: bytes = b"", marks: Mark = Mark.NONE) -> Row:
    """Return the row of one lstat(2)."""
    return Row(st.st_mode, st.st_size, st.st_mtime_ns, st.st_ctime_ns, st.st_ino, digest, marks)


@dataclass(slots=True)
class Manifest:
    """All rows by path; "" is the folder itself."""

    rows: dict[str, Row] = field(default_factory=dict)

    def known(self, path: str) -> bool:
        """Whether the walk would have listed ``path``: no folder above it is unlisted."""
        while path:
            path = path.rpartition("/")[0]
            row = self.rows.get(path)
            if row is not None:
                return Mark.UNLISTED not in row.marks
        return False


def walk(root: int, out: int, ends: float) -> int:
    """Write the manifest of the folder ``root`` to the descriptor ``out``; return its entries.

    ``ends``: when to leave the rest unlisted, by time.monotonic(). Never raises for what the tree
    holds. Mounts inside the tree are rows without entries.
    """
    began_ns = time.time_ns()
    count = 0
    compressor = zstandard.ZstdCompressor(level=1)
    with os.fdopen(os.dup(out), "wb") as raw, compressor.stream_writer(raw) as file:
        file.write(_MAGIC)
        device = os.fstat(root).st_dev
        room = [limits.WORKSPACE_RACY_TOTAL_BYTES]
        pending = [("", os.fstat(root))]
        while pending:
            path, st = pending.pop()
            late = time.monotonic() > ends
            entries = None if late else _entries(root, path, st.st_dev == device, count)
            marks = Mark.NONE if entries is not None else Mark.UNLISTED
            file.write(_packed(path, row_of(st, marks=marks)))
            for name, below in entries or ():
                count += 1
                inner = f"{path}/{name}" if path else name
                if stat.S_ISDIR(below.st_mode):
                    pending.append((inner, below))
                else:
                    recent = below.st_ctime_ns >= began_ns - limits.WORKSPACE_RACY_NS
                    digest = _digest(root, inner, below, recent, room)
                    marks = Mark.UNSURE if recent and not digest else Mark.NONE
                    file.write(_packed(inner, row_of(below, digest, marks)))
    return count


def _entries(
    root: int, path: str, same: bool, count: int
) -> list[tuple[str, os.stat_result]] | None:
    """List a folder; None when it cannot be, or must not."""
    if not same or too_long(path):
        return None
    try:
        fd = open_below(root, path, _READ_FOLDER)
    except OSError:
        return None
    out: list[tuple[str, os.stat_result]] = []
    try:
        with os.scandir(fd) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # removed in this moment
                    out.append((entry.name, entry.stat(follow_symlinks=False)))
                if count + len(out) > limits.WORKSPACE_ENTRIES_MOST:
                    return None
    except OSError:
        return None
    finally:
        os.close(fd)
    return out


def _digest(root: int, path: str, st: os.stat_result, recent: bool, room: list[int]) -> bytes:
    """Digest a link, or a file that changed too recently for its times to be trusted."""
    try:
        if stat.S_ISLNK(st.st_mode):
            return digest_link(root, path)
        if not recent or not stat.S_ISREG(st.st_mode) or st.st_size > room[0]:
            return b""
        room[0] -= st.st_size
        return digest_file(root, path)
    except OSError:
        return b""


def _packed(path: str, row: Row) -> bytes:
    name = os.fsencode(path)
    marks = row.marks | (Mark.DIGEST if row.digest else Mark.NONE)
    head = _ROW.pack(len(name), marks, row.mode, row.size, row.mtime_ns, row.ctime_ns, row.inode)
    return head + name + row.digest


def load(fd: int, digest: bytes) -> Manifest:
    """Read a manifest back; ``digest`` is BLAKE3 of the file. Raises BundleInvalid."""
    with os.fdopen(os.dup(fd), "rb") as file:
        file.seek(0)
        data = file.read()
    if blake3(data).digest() != digest:
        raise BundleInvalid("the start manifest does not hold", "its digest is another")
    text = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    if not text.startswith(_MAGIC):
        raise BundleInvalid("the start manifest does not hold", "it is of another version")
    out = Manifest()
    at = len(_MAGIC)
    while at < len(text):
        length, marks, mode, size, mtime, ctime, inode = _ROW.unpack_from(text, at)
        at += _ROW.size
        path = os.fsdecode(text[at : at + length])
        at += length
        end = at + (_DIGEST if marks & Mark.DIGEST else 0)
        kept = Mark(marks & ~Mark.DIGEST)
        out.rows[path] = Row(mode, size, mtime, ctime, inode, text[at:end], kept)
        at = end
    return out
