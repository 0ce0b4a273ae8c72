"""Makes the recorded folders for a replay, as ids of the run, where only it can see them.

Two children for each folder. One is root of a user namespace over the run's ids and nothing else:
it reads the bundle and makes the tree (``hark.workspace.unpack``). The other is the person: files
that the bundle only knows by digest or row, and that still are what they were, are read from the
person's folder and passed through a pipe. Rules: root itself parses nothing of the bundle and
follows no path of it; the person's files are only read.

A folder lies on the disk of runs, where a recording of the same machine has its entries in the same
order by itself; where not, it is made again in memory, which keeps the order they are made in.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import stat
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hark import limits
from hark.errors import BundleInvalid, HarkError, LaunchError
from hark.launcher import removal
from hark.launcher.ids import AGENT_OF_ROOT, BLOCK_IDS, agent_ids, id_maps
from hark.launcher.rundir import UNPACKED
from hark.policy import privileges
from hark.workspace import paths
from hark.workspace.paths import open_below
from hark.workspace.unpack import Tree, Unpacked, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hark.bundle.reader import Bundle
    from hark.launcher.ids import IdMaps, Slot
    from hark.policy.person import Person
    from hark.replay.stored import Stored

__all__ = ["Folder", "Rebuild"]

_SIZE = struct.Struct("=Q")
_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_MEMORY_SPARE_BYTES = 16 << 20  # folders and links of a tmpfs, beside its files
_PAGE = 4096


@dataclass(frozen=True, slots=True)
class Folder:
    """One folder to make. ``fills``: what comes from the person's own, in the order of unpacking.

    ``source``: the person's folder, open; -1: there is none. ``closed``: what nobody has.
    """

    stored: Stored
    fills: tuple[str, ...] = ()
    closed: frozenset[str] = frozenset()
    source: int = -1


@dataclass(slots=True)
class Rebuild:
    """What ``recorder.startup`` calls when the run's folder is there. ``notes``: for the person.

    ``recorded``: uid and gid of the recording's person; ``host``: whose files are read here.
    """

    bundle: Bundle
    folders: Sequence[Folder]
    recorded: tuple[int, int]
    host: Person
    notes: list[str] = field(default_factory=list)

    def make(self, run: Path, slot: Slot) -> dict[str, int]:
        """Return a detached mount for each folder, by the folder's path. Raises HarkError."""
        out: dict[str, int] = {}
        base = run / UNPACKED
        try:
            base.mkdir(mode=0o700)
            for number, folder in enumerate(self.folders):
                out[folder.stored.folder] = self._one(base / str(number), folder, slot)
        except OSError as error:
            raise LaunchError("the workspace cannot be unpacked", error.strerror or "") from error
        finally:
            for folder in self.folders:
                if folder.source >= 0:
                    os.close(folder.source)
        return out

    def _one(self, place: Path, folder: Folder, slot: Slot) -> int:
        place.mkdir(mode=0o700)
        os.chown(place, slot.base, slot.base)
        with _opened(place) as at:
            mount = paths.mount_lower(at)
        done = self._unpacked(mount, folder, slot, newest_first=False)
        size = _memory_size(folder.stored)
        if done.other_order and size <= limits.REPLAY_MEMORY_BYTES:
            os.close(mount)
            removal.remove_tree(place)
            mount = paths.mount_memory(slot.base, size, done.entries + 1024)
            done = self._unpacked(mount, folder, slot, newest_first=_lists_newest_first(mount))
        self._tell(folder, done)
        return mount

    def _tell(self, folder: Folder, done: Unpacked) -> None:
        shown = folder.stored.folder
        if done.other_order:
            self.notes.append(
                f"{shown}: {done.other_order} folders list their entries in another order"
            )
        if done.left_out:
            self.notes.append(f"{shown}: {done.left_out} sockets, devices or links were left out")
        if folder.closed:
            self.notes.append(f"{shown}: {len(folder.closed)} files are there and cannot be read")

    def _unpacked(self, mount: int, folder: Folder, slot: Slot, *, newest_first: bool) -> Unpacked:
        """Run both children; return what the unpacking one says."""
        stored, fills = folder.stored, frozenset(folder.fills)
        reader, writer = os.pipe2(os.O_CLOEXEC)

        def content(path: str) -> Iterator[bytes]:
            return _from_pipe(reader, path) if path in fills else stored.body(self.bundle, path)

        order = (*filter(stored.has, stored.contents), *folder.fills)
        tree = Tree(stored.rows, content, self._owner, folder.closed, newest_first, order)

        def work() -> dict[str, int]:
            done = unpack(mount, tree)
            return {name: getattr(done, name) for name in Unpacked.__slots__}

        keep = (mount, reader, self.bundle.fileno())
        filler = self._filler(folder, writer, reader) if folder.fills else 0
        os.close(writer)
        try:
            maps, _ = id_maps(slot.base, *self.recorded)
            return Unpacked(**_powerless(work, maps, keep))
        finally:
            os.close(reader)
            if filler:
                os.kill(filler, signal.SIGKILL)
                os.waitpid(filler, 0)

    def _owner(self, uid: int, gid: int) -> tuple[int, int]:
        """From stored ids to those inside the run."""
        own = agent_ids(*self.recorded)
        given = zip((uid, gid), self.recorded, own, strict=True)
        out = [_inside(ident, recorded, mine) for ident, recorded, mine in given]
        return out[0], out[1]

    def _filler(self, folder: Folder, writer: int, reader: int) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            os.close(reader)
            privileges.close_all_but([writer, folder.source])
            privileges.kept_apart("hark-files")
            privileges.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            os.setgroups(self.host.groups)
            os.setresgid(self.host.gid, self.host.gid, self.host.gid)
            os.setresuid(self.host.uid, self.host.uid, self.host.uid)
            for path in folder.fills:
                _send_file(folder.source, path, writer)
        finally:
            os._exit(0)


def _inside(ident: int, recorded: int, mine: int) -> int:
    if ident in (recorded, -1):
        return mine
    if ident == mine:  # the id that the agent has in its place
        return recorded if recorded < BLOCK_IDS else 0
    return ident if ident < BLOCK_IDS - 1 else AGENT_OF_ROOT + 1


def _send_file(root: int, path: str, writer: int) -> None:
    """Send size and content of one file; ends early when it cannot be read."""
    fd = open_below(root, path, _READ)
    with os.fdopen(fd, "rb", buffering=0) as file:
        size = os.fstat(fd).st_size
        _write_all(writer, _SIZE.pack(size))
        while size > 0 and (part := file.read(min(size, limits.REPLAY_PIECE_BYTES))):
            size -= len(part)
            _write_all(writer, part)
        if size:
            raise LaunchError("changed", path)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _from_pipe(reader: int, path: str) -> Iterator[bytes]:
    (size,) = _SIZE.unpack(_exactly(reader, _SIZE.size, path))
    while size:
        part = os.read(reader, min(size, limits.REPLAY_PIECE_BYTES))
        if not part:
            raise HarkError("a file changed while it was read", path)
        size -= len(part)
        yield part


def _exactly(reader: int, size: int, path: str) -> bytes:
    out = b""
    while len(out) < size:
        part = os.read(reader, size - len(out))
        if not part:
            raise HarkError("a file changed while it was read", path)
        out += part
    return out


def _powerless(
    work: Callable[[], dict[str, int]], maps: IdMaps, keep: Sequence[int]
) -> dict[str, int]:
    """Run ``work`` in a child that is root of a user namespace alone; return what it returns.

    Raises HarkError with what went wrong there.
    """
    asks, told = os.pipe2(os.O_CLOEXEC)
    go, begin = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        _child(work, (told, go), keep)
    os.close(told)
    os.close(go)
    try:
        first = os.read(asks, 1)
        if first == b"+":  # it is in its namespace
            first = b""
            _write_maps(pid, maps)
            os.write(begin, b"+")
        answer = _answer(asks, first)
    finally:
        os.close(asks)
        os.close(begin)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    if "what" in answer:
        kind = BundleInvalid if answer.pop("hostile") else LaunchError
        raise kind(**answer)
    return answer


def _answer(asks: int, data: bytes) -> dict[str, Any]:
    poll = select.poll()
    poll.register(asks, select.POLLIN)
    ends = time.monotonic() + limits.REPLAY_UNPACK_S
    while (left := ends - time.monotonic()) > 0 and poll.poll(left * 1000):
        part = os.read(asks, 65536)
        if not part:
            break
        data += part
    try:
        answer: dict[str, Any] = json.loads(data)
    except ValueError:
        raise LaunchError("the workspace cannot be unpacked", "no answer in time") from None
    return answer


def _write_maps(pid: int, maps: IdMaps) -> None:
    for name, ranges in (("uid_map", maps.uids), ("gid_map", maps.gids)):
        lines = "".join(f"{r.inside} {r.outside} {r.count}\n" for r in ranges)
        Path(f"/proc/{pid}/{name}").write_text(lines)


def _child(work: Callable[[], dict[str, int]], ends: tuple[int, int], keep: Sequence[int]) -> None:
    """Never returns."""
    told, go = ends
    try:
        privileges.close_all_but([told, go, *keep])
        privileges.kept_apart("hark-unpack")
        privileges.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setgroups([])
        privileges.leave_ids()
        os.write(told, b"+")
        if os.read(go, 1) == b"+":
            os.setresgid(0, 0, 0)
            os.setresuid(0, 0, 0)
            privileges.prctl(_PR_SET_NO_NEW_PRIVS, 1)
            os.write(told, json.dumps(work()).encode())
    except BaseException as error:  # noqa: BLE001 - told to the parent, who raises it
        with contextlib.suppress(OSError):
            os.write(told, json.dumps(_told(error)).encode())
    finally:
        os._exit(0)


def _told(error: BaseException) -> dict[str, Any]:
    hostile = isinstance(error, BundleInvalid)
    if isinstance(error, HarkError):
        return {"what": error.what, "cause": error.cause, "hint": error.hint, "hostile": hostile}
    cause = error.strerror if isinstance(error, OSError) else repr(error)
    return {"what": "the workspace cannot be unpacked", "cause": str(cause), "hostile": hostile}


def _memory_size(stored: Stored) -> int:
    rows = (stored.rows.row(path) for path in stored.rows.places)
    files = [row.size for row in rows if row is not None and stat.S_ISREG(row.mode)]
    return sum(-(-size // _PAGE) * _PAGE for size in files) + _MEMORY_SPARE_BYTES


def _lists_newest_first(mount: int) -> bool:
    """Whether this kernel's tmpfs lists what was made last first (before 6.6, and again 6.14)."""
    with _opened(mount) as at:
        for name in ("1", "2"):
            os.mkdir(name, dir_fd=at)
        found = os.listdir(at)  # noqa: PTH208 - by descriptor
        for name in found:
            os.rmdir(name, dir_fd=at)
    return found == ["2", "1"]


@contextlib.contextmanager
def _opened(folder: Path | int) -> Iterator[int]:
    if isinstance(folder, int):
        fd = os.open(".", _FOLDER, dir_fd=folder)
    else:
        fd = os.open(folder, _FOLDER | os.O_NOFOLLOW)
    try:
        yield fd
    finally:
        os.close(fd)
