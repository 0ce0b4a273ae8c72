"""The runs whose changes are kept, and one of them opened for use.

Rules: root finds and opens everything first (run folder, lock, upper, merged view, journals); then
the process becomes the person for good, and only descriptors are left of root's rights. A run whose
lock is held is going on, or is another command's.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hark.errors import BundleInvalid, InputError, LaunchError
from hark.policy import privileges
from hark.workspace import journal, manifest, paths, state, upper
from hark.workspace.carry import Target
from hark.workspace.changes import Views, compare
from hark.workspace.judge import judge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from hark.workspace.journal import Journal
    from hark.workspace.judge import Judged
    from hark.workspace.state import State

__all__ = [
    "Known",
    "OpenLayer",
    "OpenRun",
    "find_run",
    "folder_bytes",
    "kept_runs",
    "lock_run",
    "open_run",
]

_APPLIES = "applies"
_READ_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 4, 38
_CAPS = (0, 1, 2, 3, 4)  # CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID: of a person root
_LOCK_TRIES, _LOCK_WAIT_S = 20, 0.05  # a starting run looks at all locks for a moment


@dataclass(frozen=True, slots=True)
class Known:
    """A run whose folder holds changes."""

    path: Path
    state: State


@dataclass(slots=True)
class OpenLayer:
    """One layer: the person's folder and, unless nothing is in the upper, both views of it."""

    layer: state.Layer
    real: int
    views: Views | None
    start: manifest.Manifest


@dataclass(slots=True)
class OpenRun:
    """A run that is over and locked by us. ``applies``: those not undone, oldest first."""

    state: State
    folder: int
    lock: int
    layers: list[OpenLayer] = field(default_factory=list)
    applies: list[Journal] = field(default_factory=list)
    _next: int = 1

    def become_person(self) -> None:
        """Give up root for good. For a person who is root: all but the rights over files."""
        who = self.state
        try:
            os.setgroups(who.groups)
            os.setresgid(who.gid, who.gid, who.gid)
            os.setresuid(who.uid, who.uid, who.uid)
            if who.uid == 0:
                privileges.capset(_CAPS)
            privileges.prctl(_PR_SET_NO_NEW_PRIVS, 1)
            privileges.prctl(_PR_SET_DUMPABLE, 1)  # /proc/self belongs to root otherwise
        except OSError as error:
            raise LaunchError(f"cannot become {who.name}", error.strerror or "") from error

    def close(self) -> None:
        """Close what is open of a run without views; the lock goes with it."""
        fds = [layer.real for layer in self.layers]
        fds += [fd for journal in self.applies for fd in (journal.fd, journal.store)]
        for fd in (*fds, self.folder, self.lock):
            os.close(fd)

    def begin_apply(self) -> Journal:
        """Make a new journal and store; needs root."""
        try:
            name = f"{_APPLIES}/{self._next:04d}"
            for path in (_APPLIES, name, f"{name}/store"):
                if not (path == _APPLIES and _exists(self.folder, path)):
                    os.mkdir(path, 0o700, dir_fd=self.folder)
            os.chown(f"{name}/store", self.state.uid, self.state.gid, dir_fd=self.folder)
            return _open_journal(self.folder, self._next, os.O_CREAT | os.O_EXCL)
        except OSError as error:
            raise LaunchError("no journal can be made", error.strerror or "") from error

    def adopt(self, journal: Journal) -> None:
        """Take over the rows of what an undo put back: as it was, but for the change time."""
        by_number = {layer.layer.number: layer for layer in self.layers}
        for item in self.layers:
            item.start.touched |= journal.touched
            item.start.touched |= {(row[4], row[3]) for _, _, row in journal.restored}
        for number, path, (mode, size, mtime, ctime, inode) in journal.restored:
            layer = by_number.get(number)
            if layer is not None and path in layer.start:
                layer.start.newer[path] = manifest.Row(mode, size, mtime, ctime, inode)

    def judged(self) -> Iterator[tuple[Target, Judged]]:
        """Compare and judge all layers; as the person."""
        for layer in self.layers:
            if layer.views is None:
                continue
            number = layer.layer.number
            views = replace(layer.views, carried=self._carried(number))
            target = Target(number, layer.real, views)
            for row in judge(compare(views), views, layer.start):
                yield target, row

    def _carried(self, layer: int) -> frozenset[str]:
        return frozenset(
            step.path
            for journal in self.applies
            for step in journal.steps
            if step.layer == layer and step.number in journal.done - journal.undone
        )

    def reals(self) -> dict[int, int]:
        """Layer number to the person's folder."""
        return {layer.layer.number: layer.real for layer in self.layers}

    def shown(self, layer: int, path: str) -> str:
        """Path for people: below the workspace relative to it, else absolute."""
        if layer == 0:
            return path or "."
        base = next(item.layer.path for item in self.layers if item.layer.number == layer)
        return f"{base}/{path}" if path else base


def kept_runs(runs: Path) -> list[Known]:
    """Return the runs with changes, oldest first. A broken state is left out."""
    out = []
    try:
        names = sorted(entry.name for entry in os.scandir(runs))
    except OSError:
        return []
    for name in names:
        try:
            folder = os.open(runs / name, _READ_FOLDER)
        except OSError:
            continue
        try:
            found = state.read(folder)[0]
            if found.layers:
                out.append(Known(runs / name, found))
        except (OSError, BundleInvalid):
            continue
        finally:
            os.close(folder)
    return out


def find_run(name: str, runs: Path, cwd: str) -> Known:
    """Find the run ``name`` means: the start of its id, or ``latest``, the last one of this folder.

    Raises InputError.
    """
    known = kept_runs(runs)
    if name == "latest":
        here = [run for run in known if _inside(cwd, run.state.layers[0].path)]
        if not here:
            raise InputError(
                f"no run has changes for {cwd}",
                "they were discarded, or none were made",
                "`hark gc` lists the runs that are kept",
            )
        return here[-1]
    fits = [run for run in known if run.state.run.startswith(name.upper())]
    if not fits:
        raise InputError(
            f"no changes are kept of a run {name}",
            "it changed nothing, they were discarded, or it worked on the folder itself",
            "`hark gc` lists the runs that are kept",
        )
    if len(fits) > 1:
        ids = ", ".join(run.state.run for run in fits[:4])
        raise InputError(f"{len(fits)} runs begin with {name}", ids)
    return fits[0]


def folder_bytes(path: Path) -> int:
    """Bytes on disk of all files below a folder; what cannot be looked at counts nothing."""
    total = 0
    try:
        root = os.open(path, _READ_FOLDER)
    except OSError:
        return 0  # another command has removed it
    try:
        pending = [""]
        while pending:
            folder = pending.pop()
            with contextlib.suppress(OSError):
                for name, st in paths.rows_of(root, folder).items():
                    total += st.st_blocks * 512
                    if stat.S_ISDIR(st.st_mode):
                        pending.append(f"{folder}/{name}" if folder else name)
    finally:
        os.close(root)
    return total


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def open_run(
    known: Known, open_folders: Callable[[Sequence[str]], list[int]], *, views: bool = True
) -> OpenRun:
    """Lock and open a run. ``open_folders`` opens the person's folders as the person.

    ``views=False`` leaves out what only a comparison needs. Raises HarkError.
    """
    try:
        folder = os.open(known.path, _READ_FOLDER)
        lock = os.open("lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        raise InputError(f"run {known.state.run} is gone", error.strerror or "") from error
    _take_lock(lock, known.state.run)
    out = OpenRun(state.read(folder)[0], folder, lock)
    reals = open_folders([layer.path for layer in out.state.layers])
    for layer, real in zip(out.state.layers, reals, strict=True):
        out.layers.append(_open_layer(out, layer, real, views))
    numbers = _numbers(folder)
    out._next = max(numbers, default=0) + 1  # noqa: SLF001 - made here
    for number in numbers:
        try:
            found = _open_journal(folder, number, 0)
        except FileNotFoundError:
            continue  # cut off while it was made: nothing was applied
        out.adopt(found)
        if not found.reverted:
            out.applies.append(found)
    return out


@contextlib.contextmanager
def lock_run(path: Path) -> Iterator[None]:
    """Hold a run's lock. Raises InputError when another has it."""
    try:
        lock = os.open(path / "lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise InputError(f"run {path.name} is gone", error.strerror or "") from error
    try:
        _take_lock(lock, path.name)
        yield
    finally:
        os.close(lock)


def _take_lock(lock: int, run: str) -> None:
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_WAIT_S)
        else:
            return
    raise InputError(f"run {run} is in use", "it is still going, or another hark command has it")


def _open_layer(out: OpenRun, layer: state.Layer, real: int, views: bool) -> OpenLayer:
    if os.fstat(real).st_ino != layer.inode:
        raise InputError(
            f"{layer.path} is not the folder that run {out.state.run} worked on",
            "it was replaced since",
            "the run's own version is in its folder below /var/lib/hark/runs",
        )
    if not views:
        return OpenLayer(layer, real, None, manifest.Manifest())
    top = os.open(f"layers/{layer.number}/upper", _READ_FOLDER, dir_fd=out.folder)
    touched = upper.scan(top)
    if not touched.names.get(""):
        return OpenLayer(layer, real, None, manifest.Manifest())
    both = Views(paths.mount_lower(real), paths.mount_merged(top, real), touched)
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(state.manifest_name(layer.number), flags, dir_fd=out.folder)
    except OSError as error:
        raise BundleInvalid("the start manifest is gone", error.strerror or "") from error
    try:
        start = manifest.load(fd, bytes.fromhex(layer.manifest))
    finally:
        os.close(fd)
    return OpenLayer(layer, real, both, start)


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _numbers(folder: int) -> list[int]:
    try:
        fd = os.open(_APPLIES, _READ_FOLDER, dir_fd=folder)
    except FileNotFoundError:
        return []
    try:
        with os.scandir(fd) as entries:
            return sorted(int(entry.name) for entry in entries if entry.name.isdigit())
    finally:
        os.close(fd)


def _open_journal(folder: int, number: int, flags: int) -> Journal:
    name = f"{_APPLIES}/{number:04d}"
    mode = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | flags
    fd = os.open(f"{name}/journal", mode, 0o600, dir_fd=folder)
    store = os.open(f"{name}/store", _READ_FOLDER, dir_fd=folder)
    return journal.parse(fd, store, number)
