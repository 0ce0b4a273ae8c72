"""Makes a recorded folder anew: names, contents, permissions, times, owners and order of entries.

Runs in a process of its own that is root of the run's user namespace alone: to the host it has an
id that nobody else has, no capability, and one open folder. Rules: the tree comes from a bundle and
is hostile; every path goes through ``openat2`` below that folder, no link is followed, nothing that
exists is opened for writing, and no file gets set-id bits. Sockets and devices are left out.
"""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hark import limits
from hark.errors import BundleInvalid, HarkError
from hark.workspace.paths import folder_of, open_below

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hark.workspace.manifest import Manifest, Row

__all__ = ["Tree", "Unpacked", "children_of", "regular_files", "unpack"]

_BAD = "the recorded workspace does not hold"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE_MODE = 0o777
_FOLDER_MODE = 0o3777  # a folder's set-group-id and sticky bits give nobody a right


@dataclass(frozen=True, slots=True)
class Tree:
    """What to make. ``content``: the parts of a file, or of a link's target, by path.

    ``owner``: from a recorded uid and gid to those inside. ``closed``: files whose content nobody
    has: they are made, and nobody may read them; links are left out. ``newest_first``: how the
    folder's file system lists what was made in it. ``order``: in which files are filled, as their
    contents stand in the bundle; what is not in it comes last.
    """

    rows: Manifest
    content: Callable[[str], Iterable[bytes]]
    owner: Callable[[int, int], tuple[int, int]]
    closed: frozenset[str] = frozenset()
    newest_first: bool = False
    order: tuple[str, ...] = ()


@dataclass(slots=True)
class Unpacked:
    """How it went. ``other_order``: folders whose entries have another order than recorded."""

    entries: int = 0
    bytes: int = 0
    left_out: int = 0
    other_order: int = 0


def children_of(rows: Manifest) -> dict[str, list[str]]:
    """Return the names in each folder, in recorded order."""
    places: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for path in rows.places:
        row = rows.row(path)
        if path and row is not None:
            folder, _, name = path.rpartition("/")
            places[folder].append((row.place, name))
    return {folder: [name for _, name in sorted(found)] for folder, found in places.items()}


def regular_files(rows: Manifest) -> list[str]:
    """Return the regular files in the order in which ``unpack`` asks for their contents.

    Of several names of one file the first stands for all.
    """
    return [path for path, row, first in _in_order(rows) if stat.S_ISREG(row.mode) and not first]


def _in_order(rows: Manifest, *, backwards: bool = False) -> list[tuple[str, Row, str]]:
    """Return path, row, and the earlier name of the same file; a folder before what is in it."""
    inside = children_of(rows)
    seen: dict[tuple[int, int, int], str] = {}
    out = []
    pending = [""]
    for folder in pending:
        names = inside.get(folder, [])
        for name in reversed(names) if backwards else names:
            path = f"{folder}/{name}" if folder else name
            row = rows.row(path)
            if row is None:
                continue
            first = ""
            if stat.S_ISDIR(row.mode):
                pending.append(path)
            elif stat.S_ISREG(row.mode):
                first = seen.setdefault((row.inode, row.size, row.mode), path)
            out.append((path, row, "" if first == path else first))
    return out


def unpack(root: int, tree: Tree) -> Unpacked:
    """Make the tree in the empty folder ``root``. Raises HarkError, OSError."""
    work = _Work(root, tree)
    work.make()
    return work.done


@dataclass(slots=True)
class _Work:
    root: int
    tree: Tree
    done: Unpacked = field(default_factory=Unpacked)
    files: dict[str, Row] = field(default_factory=dict)

    def make(self) -> None:
        folders: list[tuple[str, Row | None]] = [("", self.tree.rows.row(""))]
        for path, row, first in _in_order(self.tree.rows, backwards=self.tree.newest_first):
            self.done.entries += 1
            if self.done.entries > limits.WORKSPACE_ENTRIES_MOST:
                raise BundleInvalid("the recorded workspace is too large", "too many entries")
            if stat.S_ISDIR(row.mode):
                with folder_of(self.root, path) as (at, name):
                    os.mkdir(name, 0o700, dir_fd=at)
                folders.append((path, row))
            else:
                self.entry(path, row, first)
        for path in dict.fromkeys((*self.tree.order, *self.files)):
            if path in self.files:
                self.fill(path, self.files[path])
        for path, folder in reversed(folders):
            if folder is not None:
                self.finish_folder(path, folder)

    def entry(self, path: str, row: Row, first: str) -> None:
        with folder_of(self.root, path) as (at, name):
            if first:
                with folder_of(self.root, first) as (source, source_name):
                    os.link(
                        source_name, name, src_dir_fd=source, dst_dir_fd=at, follow_symlinks=False
                    )
            elif stat.S_ISREG(row.mode):
                os.close(os.open(name, _NEW, 0o600, dir_fd=at))
                self.files[path] = row
            elif stat.S_ISLNK(row.mode) and path not in self.tree.closed:
                target = b"".join(self.tree.content(path))
                if not target or b"\0" in target or len(target) >= limits.WORKSPACE_PATH_BYTES:
                    raise BundleInvalid(_BAD, f"{path!r} is a link to nothing")
                os.symlink(target, os.fsencode(name), dir_fd=at)
                self.attributes(at, name, row)
            elif stat.S_ISFIFO(row.mode):
                os.mkfifo(name, 0o600, dir_fd=at)
                os.chmod(name, row.mode & _FILE_MODE, dir_fd=at)
                self.attributes(at, name, row)
            else:
                self.done.left_out += 1

    def fill(self, path: str, row: Row) -> None:
        fd = open_below(self.root, path, os.O_WRONLY | os.O_NOFOLLOW)
        try:
            closed = path in self.tree.closed
            if closed:
                os.ftruncate(fd, row.size)
            else:
                self.write(fd, path, row)
            os.fchown(fd, *self.tree.owner(row.uid, row.gid))
            os.fchmod(fd, 0 if closed else row.mode & _FILE_MODE)
            os.utime(fd, ns=(row.mtime_ns, row.mtime_ns))
        finally:
            os.close(fd)

    def write(self, fd: int, path: str, row: Row) -> None:
        size = 0
        for part in self.tree.content(path):
            size += len(part)
            self.done.bytes += len(part)
            if size > row.size or self.done.bytes > limits.REPLAY_UNPACK_BYTES:
                raise BundleInvalid(_BAD, f"{path!r} is longer")
            view = memoryview(part)
            while view:
                view = view[os.write(fd, view) :]
        if size != row.size:
            raise BundleInvalid(_BAD, f"{path!r} is shorter")

    def attributes(self, at: int, name: str, row: Row) -> None:
        os.chown(name, *self.tree.owner(row.uid, row.gid), dir_fd=at, follow_symlinks=False)
        times = (row.mtime_ns, row.mtime_ns)
        os.utime(name, ns=times, dir_fd=at, follow_symlinks=False)

    def finish_folder(self, path: str, row: Row) -> None:
        fd = open_below(self.root, path, _READ_FOLDER)
        try:
            self.check_order(fd, path)
            os.fchown(fd, *self.tree.owner(row.uid, row.gid))
            os.fchmod(fd, row.mode & _FOLDER_MODE)
            os.utime(fd, ns=(row.mtime_ns, row.mtime_ns))
        finally:
            os.close(fd)

    def check_order(self, fd: int, path: str) -> None:
        rows = self.tree.rows
        found = os.listdir(fd)
        places = []
        for name in found:
            row = rows.row(f"{path}/{name}" if path else name)
            if row is None:
                raise HarkError("the recorded workspace cannot be made", "an entry nobody made")
            places.append(row.place)
        self.done.other_order += places != sorted(places)
