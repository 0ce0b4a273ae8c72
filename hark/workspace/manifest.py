"""What the workspace held before the agent existed: one row for every entry.

A row is the entry's type, mode, size, times, inode, owner, its place in its folder as readdir(3)
gave it, and for links and for files changed within the last seconds a content digest. The kernel
sets the change time itself, so an entry with the same row later is unchanged; only a change within
one tick of the row's own time could hide, and such rows carry the digest (Git calls them racily
clean). Times are those of the file system's clock.

Rules: the walk runs as the person, in a process of its own, and has ended before the agent starts.
What it could not list (no permission, too many entries, no time) is marked so, and later counts as
unknown.
"""

from __future__ import annotations

import os
import stat
import struct
import time
from dataclasses import dataclass, field, replace
from enum import IntFlag
from typing import TYPE_CHECKING

import zstandard
from blake3 import blake3

from hark import limits
from hark.errors import BundleInvalid
from hark.workspace.content import digest_file, digest_link
from hark.workspace.paths import open_below, too_long

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["Manifest", "Mark", "Row", "check", "load", "parse", "row_of", "walk"]

# path length, marks, mode, size, mtime, ctime, inode; from version 2 on also place, uid, gid
_ROW_1 = struct.Struct("<HHIQqqQ")
_ROW = struct.Struct("<HHIQqqQIII")
_MAGIC = b"hark-manifest-2\n"
_LAYOUTS = {b"hark-manifest-1\n": _ROW_1, _MAGIC: _ROW}
_HEAD = struct.Struct("<HH")
_DIGEST = 32
_CHECKED = struct.Struct("<HHI")
_U32 = 0xFFFFFFFF
_BAD = "the start manifest does not hold"
_NAME_BYTES = 255  # NAME_MAX of every file system
_READ_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Mark(IntFlag):
    """What is special about a row."""

    NONE = 0
    DIGEST = 1  # 32 bytes of content digest follow
    UNLISTED = 2  # a folder whose entries are not known
    UNSURE = 4  # changed too recently, and not digested: never taken for unchanged


_PLAIN, _HAS_DIGEST, _UNLISTED, _UNSURE = (int(mark) for mark in Mark.__members__.values())


@dataclass(frozen=True, slots=True)
class Row:
    """One entry. ``mode`` holds the type too; times in nanoseconds.

    ``place``: its number among the entries of its folder; of an old manifest, and with owners not
    known, -1.
    """

    mode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    digest: bytes = b""
    marks: Mark = Mark.NONE
    place: int = field(default=-1, compare=False)
    uid: int = field(default=-1, compare=False)
    gid: int = field(default=-1, compare=False)

    def same_stat(self, st: os.stat_result, touched: Collection[tuple[int, int]] = ()) -> bool:
        """Whether an entry has this row's type, mode, size, times and inode, and that proves it.

        ``touched``: (inode, change time) as our own renames left them; these count as unchanged.
        """
        now = row_of(st, self.digest, self.marks)
        if (st.st_ino, st.st_ctime_ns) in touched:
            now = replace(now, ctime_ns=self.ctime_ns)
        return Mark.UNSURE not in self.marks and self == now


def row_of(st: os.stat_result, digest: bytes = b"", marks: Mark = Mark.NONE) -> Row:
    """Return the row of one lstat(2)."""
    return Row(st.st_mode, st.st_size, st.st_mtime_ns, st.st_ctime_ns, st.st_ino, digest, marks)


@dataclass(slots=True)
class Manifest:
    """All rows by path; "" is the folder itself. Rows are made when they are asked for."""

    text: bytes = b""
    places: dict[str, int] = field(default_factory=dict)  # of rows in the text
    newer: dict[str, Row] = field(default_factory=dict)
    touched: set[tuple[int, int]] = field(default_factory=set)
    layout: struct.Struct = _ROW

    def __contains__(self, path: str) -> bool:
        return path in self.places

    def row(self, path: str) -> Row | None:
        """Return the row of ``path``; None: it was not there, or is not known."""
        if path in self.newer:
            return self.newer[path]
        at = self.places.get(path)
        if at is None:
            return None
        values: tuple[int, ...] = self.layout.unpack_from(self.text, at)
        length, marks, mode, entry_size, mtime, ctime, inode = values[:7]
        place, uid, gid = values[7:] or (-1, -1, -1)
        at += self.layout.size + length
        digest = self.text[at : at + _DIGEST] if marks & _HAS_DIGEST else b""
        known = Mark(marks & int(Mark.UNLISTED | Mark.UNSURE))
        times = (mtime, ctime)
        return Row(mode, entry_size, *times, inode, digest, known, place, uid, gid)

    def known(self, path: str) -> bool:
        """Whether the walk would have listed ``path``: no folder above it is unlisted."""
        while path:
            path = path.rpartition("/")[0]
            at = self.places.get(path)
            if at is not None:
                return not _HEAD.unpack_from(self.text, at)[1] & _UNLISTED
        return False


def walk(root: int, out: int, ends: float, hidden: Collection[str] = ()) -> int:
    """Write the manifest of the folder ``root`` to the descriptor ``out``; return its entries.

    ``ends``: when to leave the rest unlisted, by time.monotonic(). ``hidden``: names in ``root``
    itself that the agent does not see. Never raises for what the tree holds. Mounts inside the tree
    are rows without entries.
    """
    recent_ns = time.time_ns() - limits.WORKSPACE_RACY_NS
    walker = _Walk(root, os.fstat(root).st_dev, recent_ns, frozenset(hidden))
    compressor = zstandard.ZstdCompressor(level=1)
    with os.fdopen(os.dup(out), "wb") as raw, compressor.stream_writer(raw) as file:
        file.write(_MAGIC)
        pending = [("", os.fstat(root), 0)]
        while pending:
            folder = pending.pop()
            file.write(walker.folder(folder, pending, late=time.monotonic() > ends))
    return walker.count


@dataclass(slots=True)
class _Walk:
    """A walk under way. Half of a second per 100,000 entries: no object is made for a row."""

    root: int
    device: int
    recent_ns: int  # a change time from here on proves nothing by itself
    hidden: frozenset[str]
    room: int = limits.WORKSPACE_RACY_TOTAL_BYTES
    count: int = 0

    def folder(
        self,
        folder: tuple[str, os.stat_result, int],
        pending: list[tuple[str, os.stat_result, int]],
        *,
        late: bool,
    ) -> bytes:
        """Return the rows of a folder and of what is in it; its folders come to ``pending``.

        ``folder`` and ``pending``: path, lstat(2) and place.
        """
        path, st, place = folder
        known = not late and st.st_dev == self.device
        entries = _entries(self.root, path, self.count) if known else None
        if entries and not path and self.hidden:
            entries = [entry for entry in entries if entry[0] not in self.hidden]
        rows = [_packed(path, st, b"", _PLAIN if entries is not None else _UNLISTED, place)]
        prefix = f"{path}/" if path else ""
        for at, (name, below) in enumerate(entries or ()):
            inner = prefix + name
            if stat.S_ISDIR(below.st_mode):
                pending.append((inner, below, at))
            elif below.st_ctime_ns < self.recent_ns and not stat.S_ISLNK(below.st_mode):
                rows.append(_packed(inner, below, b"", _PLAIN, at))
            else:
                digest = self.digest(inner, below)
                sure = digest or below.st_ctime_ns < self.recent_ns
                rows.append(_packed(inner, below, digest, _PLAIN if sure else _UNSURE, at))
        self.count += len(entries or ())
        return b"".join(rows)

    def digest(self, path: str, st: os.stat_result) -> bytes:
        """Digest a link, or a file that changed too recently for its times to be trusted."""
        try:
            if stat.S_ISLNK(st.st_mode):
                return digest_link(self.root, path)
            if not stat.S_ISREG(st.st_mode) or st.st_size > self.room:
                return b""
            self.room -= st.st_size
            return digest_file(self.root, path)
        except OSError:
            return b""


def _entries(root: int, path: str, count: int) -> list[tuple[str, os.stat_result]] | None:
    """List a folder; None when it cannot be, or must not."""
    if too_long(path):
        return None
    out: list[tuple[str, os.stat_result]] = []
    try:
        fd = open_below(root, path, _READ_FOLDER)
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    try:
                        out.append((entry.name, entry.stat(follow_symlinks=False)))
                    except FileNotFoundError:  # removed in this moment
                        continue
        finally:
            os.close(fd)
    except OSError:
        return None
    return out if count + len(out) <= limits.WORKSPACE_ENTRIES_MOST else None


def _packed(path: str, st: os.stat_result, digest: bytes, marks: int, place: int) -> bytes:
    name = os.fsencode(path)
    if digest:
        marks |= _HAS_DIGEST
    times = st.st_mtime_ns, st.st_ctime_ns
    owner = st.st_uid, st.st_gid
    head = _ROW.pack(
        len(name), marks, st.st_mode, st.st_size, *times, st.st_ino, place & _U32, *owner
    )
    return head + name + digest


def load(fd: int, digest: bytes) -> Manifest:
    """Read a manifest back; ``digest`` is BLAKE3 of the file. Raises BundleInvalid."""
    with os.fdopen(os.dup(fd), "rb") as file:
        file.seek(0)
        return parse(file.read(), digest)


def parse(data: bytes, digest: bytes) -> Manifest:
    """Read the bytes of a manifest. Raises BundleInvalid for anything but whole rows of its paths.

    A path may stand in it once. Whether it makes sense as a tree is ``check``'s question.
    """
    if blake3(data).digest() != digest:
        raise BundleInvalid(_BAD, "its digest is another")
    text = _unpacked(data)
    layout = _LAYOUTS.get(text[: len(_MAGIC)])
    if layout is None:
        raise BundleInvalid(_BAD, "it is of another version")
    out = Manifest(text, layout=layout)
    at, end, size = len(_MAGIC), len(text), layout.size
    rows = 0
    while at + size <= end:
        length, marks = _HEAD.unpack_from(text, at)
        path = at + size
        out.places[os.fsdecode(text[path : path + length])] = at
        at = path + length + (_DIGEST if marks & _HAS_DIGEST else 0)
        rows += 1
    if at != end or rows != len(out.places):
        raise BundleInvalid(_BAD, "a row is cut, or a path stands in it twice")
    return out


def _unpacked(data: bytes) -> bytes:
    """Decompress within the bound that the writer has."""
    most = limits.WORKSPACE_MANIFEST_BYTES
    try:
        unpacker = zstandard.ZstdDecompressor(max_window_size=limits.BUNDLE_WINDOW_MAX_BYTES)
        with unpacker.stream_reader(data) as reader:
            text = reader.read(most + 1)
    except zstandard.ZstdError as error:
        raise BundleInvalid(_BAD, str(error)) from None
    if len(text) > most:
        raise BundleInvalid(_BAD, f"it is larger than {most} bytes")
    return text


def check(manifest: Manifest) -> None:
    """Check that the rows are one tree below "". Raises BundleInvalid.

    Each path goes down from "", each part is a name a folder can hold, and what is above an entry
    is a folder of the manifest that was listed.
    """
    root = manifest.row("")
    if root is None or not stat.S_ISDIR(root.mode):
        raise BundleInvalid(_BAD, "the folder itself is not in it")
    for path in manifest.places:
        if not path:
            continue
        above, _, name = path.rpartition("/")
        raw = os.fsencode(name)
        if name in {"", ".", ".."} or b"\0" in raw or len(raw) > _NAME_BYTES or too_long(path):
            raise BundleInvalid(_BAD, f"{path!r} is not a path below the folder")
        at = manifest.places.get(above)
        if at is None:
            raise BundleInvalid(_BAD, f"{path!r} is in no folder")
        _, marks, mode = _CHECKED.unpack_from(manifest.text, at)
        if not stat.S_ISDIR(mode) or marks & _UNLISTED:
            raise BundleInvalid(_BAD, f"{path!r} is in no listed folder")
