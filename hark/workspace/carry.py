"""Carrying an agent's changes into the person's workspace.

Runs as the person, below one open folder. What goes: files first to the store, deepest first; then
new folders; then files and links; then permissions. A new version is made beside the old one, is
on disk, and takes its place by one atomic exchange; then it is checked that what came out is what
was judged, and if the person saved in that moment, it goes back. So nothing of theirs is lost, and
a crash leaves each path in its old or its new version. A file with more than one name, or whose
owner only it can keep, is written in place, after its old content was copied to the store.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hark import limits
from hark.workspace.content import copy_bytes, digest_file, identity
from hark.workspace.journal import Journal, Step
from hark.workspace.paths import Rename, folder_of, open_below, parent_of, rename, sync

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hark.workspace.changes import Change, Views
    from hark.workspace.judge import Judged

__all__ = ["PART", "Outcome", "Target", "carry", "chmod_below", "move_entry", "temporary_name"]

_PERMISSIONS = 0o777
_KEPT = 0o7000  # of a folder: what mkdir inherited there
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NO_FLAG = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


PART = ".part"  # ends the name of a copy that is not whole yet


class Stale(OSError):
    """The person changed the path between the judgement and the step."""


@dataclass(frozen=True, slots=True)
class Target:
    """One layer's real folder, and the views that were compared."""

    layer: int
    real: int
    views: Views


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one change; ``failed``: why it was not carried over, "" when it was."""

    target: Target
    judged: Judged
    failed: str = ""


@dataclass(slots=True)
class _Carrier:
    journal: Journal
    run: str
    count: int = 0
    reserved: dict[tuple[int, str], str] = field(default_factory=dict)
    early: dict[tuple[int, str], str] = field(default_factory=dict)
    names: dict[tuple[int, int, int], tuple[str, str]] = field(default_factory=dict)
    moved: set[tuple[int, int]] = field(default_factory=set)  # inodes whose change time we moved
    outcomes: list[Outcome] = field(default_factory=list)

    def batches(
        self,
        rows: Iterable[tuple[Target, Judged]],
        prepare: Callable[[Target, Change], Step],
        act: Callable[[Target, Change, Step], tuple[int, int] | None],
        *,
        temporary: bool = False,
    ) -> None:
        """Prepare, journal and carry out one phase, some changes at a time."""
        for batch in _batched(rows):
            if temporary:
                self._reserve(batch)
            steps: list[tuple[Target, Judged, Step]] = []
            for target, judged in batch:
                try:
                    step = prepare(target, judged.change)
                except OSError as error:
                    self.outcomes.append(Outcome(target, judged, _why(error)))
                    continue
                steps.append((target, judged, step))
                self.journal.plan(step)
            if any(step.temporary for _, _, step in steps):
                for real in {target.real for target, _, _ in steps}:
                    sync(real)
            self.journal.flush()
            for target, judged, step in steps:
                self.outcomes.append(Outcome(target, judged, self._act(act, target, judged, step)))

    def _reserve(self, batch: list[tuple[Target, Judged]]) -> None:
        """Have the names on disk before the files: a crash then leaves none behind for good."""
        self.reserved.clear()
        for target, judged in batch:
            self.count += 1
            name = temporary_name(self.run, self.journal.number, self.count)
            self.reserved[target.layer, judged.change.path] = name
            self.journal.reserve(target.layer, judged.change.path, name)
        self.journal.flush()

    def _act(
        self,
        act: Callable[[Target, Change, Step], tuple[int, int] | None],
        target: Target,
        judged: Judged,
        step: Step,
    ) -> str:
        try:
            touched = act(target, judged.change, step)
        except OSError as error:
            if step.temporary and not self._left_old(target, step):
                with contextlib.suppress(OSError), folder_of(target.real, step.path) as (fd, _):
                    os.unlink(step.temporary, dir_fd=fd)
            self.journal.void(step)
            return _why(error)
        self.journal.finish(step, touched)
        return ""

    def _left_old(self, target: Target, step: Step) -> bool:
        """Whether the temporary name holds the person's version: a step failed half way."""
        try:
            path = _beside(step.path, step.temporary)
            return step.act == "swap" and identity(target.real, path) != step.after
        except OSError:
            return True

    # --- where content comes from -----------------------------------------------------------------

    def copy_early(self, rows: Iterable[tuple[Target, Judged]]) -> None:
        """Copy what renamed folders brought along: their sources are about to change."""
        for target, judged in rows:
            path = judged.change.path
            if judged.change.op == "D" or judged.change.kind not in ("file", "link"):
                continue
            if target.views.touched.origin(path) is not None:
                name = f"early-{len(self.early)}"
                with contextlib.suppress(OSError), folder_of(target.views.merged, path) as (fd, at):
                    _copy_file(fd, at, self.journal.store, name)
                    self.early[target.layer, path] = name

    def drop_early(self) -> None:
        for name in self.early.values():
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=self.journal.store)

    @contextlib.contextmanager
    def source(self, target: Target, path: str) -> Iterator[tuple[int, str]]:
        """The agent's version: a folder's descriptor and a name in it."""
        name = self.early.get((target.layer, path))
        if name is not None:
            yield self.journal.store, name
            return
        with folder_of(target.views.merged, path) as found:
            yield found

    def source_digest(self, target: Target, path: str) -> bytes:
        with self.source(target, path) as (fd, name):
            return digest_file(fd, name)

    def step(self, target: Target, act: str, path: str, **more: object) -> Step:
        number = self.journal.next_number()
        return Step(number=number, act=act, layer=target.layer, path=path, **more)  # type: ignore[arg-type]

    def temporary(self, target: Target, change: Change) -> str:
        return self.reserved[target.layer, change.path]

    # --- deletions --------------------------------------------------------------------------------

    def prepare_removal(self, target: Target, change: Change) -> Step:
        st = _there(change.now)
        mode = stat.S_IMODE(st.st_mode)
        if stat.S_ISDIR(st.st_mode):
            return self.step(target, "rmdir", change.path, mode_before=mode)
        return self.step(target, "rm", change.path, temporary=self.temporary(target, change))

    def remove(self, target: Target, change: Change, step: Step) -> tuple[int, int] | None:
        st = _there(change.now)
        with folder_of(target.real, change.path) as (fd, name):
            if step.act == "rmdir":
                os.rmdir(name, dir_fd=fd)
                return None
            self._check(fd, name, st)
            rename(fd, name, fd, step.temporary)
            if not self._same(os.stat(step.temporary, dir_fd=fd, follow_symlinks=False), st):
                with contextlib.suppress(OSError):
                    _rename_new(fd, step.temporary, name)
                raise Stale(errno.EBUSY, "changed in this moment")
            return self._keep(fd, step.temporary, st, step)

    # --- folders and permissions ------------------------------------------------------------------

    def prepare_folder(self, target: Target, change: Change) -> Step:
        return self.step(target, "mkdir", change.path, after="folder")

    def make_folder(self, target: Target, change: Change, _step: Step) -> None:
        with folder_of(target.real, change.path) as (fd, name):
            os.mkdir(name, 0o700, dir_fd=fd)

    def prepare_mode(self, target: Target, change: Change) -> Step:
        with folder_of(target.real, change.path) as (fd, name):
            st = os.stat(name, dir_fd=fd, follow_symlinks=False)
        before = stat.S_IMODE(st.st_mode)
        kept = before & _KEPT if stat.S_ISDIR(st.st_mode) else 0
        after = stat.S_IMODE(_there(change.new).st_mode) & _PERMISSIONS | kept
        same = None
        if stat.S_ISREG(st.st_mode):
            same = f"file:{digest_file(target.real, change.path).hex()}:{after:o}"
        modes = {"mode_before": before, "mode_after": after}
        return self.step(target, "mode", change.path, after=same, **modes)

    def set_mode(self, target: Target, change: Change, step: Step) -> None:
        chmod_below(target.real, change.path, step.mode_before, step.mode_after)
        if change.now is not None:
            self.moved.add((change.now.st_dev, change.now.st_ino))

    # --- files and links --------------------------------------------------------------------------

    def prepare_file(self, target: Target, change: Change) -> Step:
        new = _there(change.new)
        if change.op == "M" and stat.S_ISREG(new.st_mode):
            if self._only_mode(target, change):
                return self.prepare_mode(target, change)
            if self._in_place(target, change):
                return self._prepare_write(target, change)
        name = self.temporary(target, change)
        act = "put" if change.op == "A" else "swap"
        with folder_of(target.real, change.path) as (fd, _):
            try:
                self._stage(target, change, fd, name)
                after = identity(target.real, _beside(change.path, name))
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=fd)
                raise
        return self.step(target, act, change.path, temporary=name, after=after)

    def place_file(self, target: Target, change: Change, step: Step) -> tuple[int, int] | None:
        if step.act == "mode":
            self.set_mode(target, change, step)
        elif step.act == "write":
            self._write(target, change, step)
        else:
            with folder_of(target.real, change.path) as (fd, name):
                if step.act == "swap":
                    return self._swap(fd, name, _there(change.now), step)
                _rename_new(fd, step.temporary, name)
        return None

    def _swap(self, fd: int, name: str, now: os.stat_result, step: Step) -> tuple[int, int] | None:
        self._check(fd, name, now)
        try:
            rename(fd, step.temporary, fd, name, Rename.EXCHANGE)
        except OSError as error:
            if error.errno not in _NO_FLAG:
                raise
            move_entry(fd, name, self.journal.store, str(step.number))
            _rename_new(fd, step.temporary, name)
            return None
        if not self._same(os.stat(step.temporary, dir_fd=fd, follow_symlinks=False), now):
            rename(fd, step.temporary, fd, name, Rename.EXCHANGE)
            raise Stale(errno.EBUSY, "changed in this moment")
        return self._keep(fd, step.temporary, now, step)

    def _keep(self, fd: int, name: str, old: os.stat_result, step: Step) -> tuple[int, int] | None:
        """Move the old version to the store; return its inode and new change time."""
        move_entry(fd, name, self.journal.store, str(step.number))
        self.moved.add((old.st_dev, old.st_ino))
        st = os.stat(str(step.number), dir_fd=self.journal.store, follow_symlinks=False)
        return (st.st_ino, st.st_ctime_ns) if st.st_ino == old.st_ino else None

    def _only_mode(self, target: Target, change: Change) -> bool:
        old, new = _there(change.now), _there(change.new)
        if old.st_size != new.st_size or not (old.st_mode ^ new.st_mode) & _PERMISSIONS:
            return False
        return digest_file(target.real, change.path) == self.source_digest(target, change.path)

    def _in_place(self, target: Target, change: Change) -> bool:
        """Whether a new file at that name would lose another name, or an owner."""
        old = _there(change.now)
        if change.path not in target.views.touched.copied:
            return False  # the agent itself replaced the file
        foreign = os.geteuid() not in (0, old.st_uid)
        with folder_of(target.real, change.path) as (fd, _):
            closed = not os.access(".", os.W_OK | os.X_OK, dir_fd=fd, effective_ids=True)
        return old.st_nlink > 1 or foreign or closed

    def _prepare_write(self, target: Target, change: Change) -> Step:
        new = _there(change.new)
        step = self.step(
            target,
            "write",
            change.path,
            after=f"file:{self.source_digest(target, change.path).hex()}:"
            f"{new.st_mode & _PERMISSIONS:o}",
            mode_before=stat.S_IMODE(_there(change.now).st_mode),
            mode_after=stat.S_IMODE(new.st_mode) & _PERMISSIONS,
        )
        with folder_of(target.real, change.path) as (fd, name):
            self._check(fd, name, _there(change.now))
            _copy_file(fd, name, self.journal.store, str(step.number))
        return step

    def _write(self, target: Target, change: Change, step: Step) -> None:
        old = _there(change.now)
        with folder_of(target.real, change.path) as (fd, name):
            st = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if (st.st_dev, st.st_ino) in self.moved and identity(
                target.real, change.path
            ) == step.after:
                return  # another name of the same file was written by this apply
            self._check(fd, name, old)
            out = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=fd)
        try:
            self.moved.add((old.st_dev, old.st_ino))
            with self.source(target, change.path) as (fd, name):
                source = os.open(name, _READ, dir_fd=fd)
            try:
                os.ftruncate(out, 0)
                copy_bytes(source, out)
            finally:
                os.close(source)
            if step.mode_after != step.mode_before:
                os.fchmod(out, step.mode_after)
            os.fsync(out)
        finally:
            os.close(out)

    def _stage(self, target: Target, change: Change, fd: int, name: str) -> None:
        """Make the agent's version under a temporary name in the target's folder."""
        new = _there(change.new)
        with self.source(target, change.path) as (source_fd, source_name):
            if stat.S_ISLNK(new.st_mode):
                os.symlink(os.readlink(source_name, dir_fd=source_fd), name, dir_fd=fd)
                return
            if self._linked(target, change, fd, name):
                return
            source = os.open(source_name, _READ, dir_fd=source_fd)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            st = os.fstat(source)
            out = os.open(name, flags, 0o600, dir_fd=fd)
            try:
                copy_bytes(source, out)
                if change.now is not None and change.op == "M":
                    _keep_attributes(target.real, change.path, change.now, out)
                os.fchmod(out, stat.S_IMODE(st.st_mode) & _PERMISSIONS)
                os.utime(out, ns=(st.st_atime_ns, st.st_mtime_ns))
            finally:
                os.close(out)
        finally:
            os.close(source)

    def _linked(self, target: Target, change: Change, fd: int, name: str) -> bool:
        """Make a further name of a file that this apply has made already."""
        new = _there(change.new)
        if new.st_nlink < 2 or change.op != "A":  # noqa: PLR2004 - more than one name
            return False
        if (target.layer, change.path) in self.early:
            return False
        key = (target.layer, new.st_dev, new.st_ino)
        first = self.names.setdefault(key, (_beside(change.path, name), change.path))
        if first[1] == change.path:
            return False
        for path in first:
            with contextlib.suppress(OSError), folder_of(target.real, path) as (at, old):
                if identity(target.real, path) == identity(target.views.merged, change.path):
                    os.link(old, name, src_dir_fd=at, dst_dir_fd=fd, follow_symlinks=False)
                    return True
        return False

    # --- checks -----------------------------------------------------------------------------------

    def _check(self, fd: int, name: str, judged: os.stat_result) -> None:
        st = os.stat(name, dir_fd=fd, follow_symlinks=False)
        moved = (st.st_dev, st.st_ino) in self.moved
        if not self._same(st, judged) or (not moved and st.st_ctime_ns != judged.st_ctime_ns):
            raise Stale(errno.EBUSY, "changed since it was looked at")

    @staticmethod
    def _same(st: os.stat_result, judged: os.stat_result) -> bool:
        wanted = (judged.st_ino, judged.st_mode, judged.st_size, judged.st_mtime_ns)
        return (st.st_ino, st.st_mode, st.st_size, st.st_mtime_ns) == wanted


def carry(
    rows: list[tuple[Target, Judged]], journal: Journal, run: str, *, hooks: bool
) -> list[Outcome]:
    """Carry over all that is not stopped; return what became of it, in no order."""
    carrier = _Carrier(journal, run)
    going = [(t, j) for t, j in rows if not j.stopped(hooks=hooks)]
    added = [(t, j) for t, j in going if j.change.op == "A" and j.change.kind == "folder"]
    folders = [(t, j) for t, j in going if j.change.op == "M" and j.change.kind == "folder"]
    carrier.copy_early(going)
    carrier.batches(
        [(t, j) for t, j in reversed(going) if j.change.op == "D"],
        carrier.prepare_removal,
        carrier.remove,
        temporary=True,
    )
    carrier.batches(added, carrier.prepare_folder, carrier.make_folder)
    carrier.batches(
        [(t, j) for t, j in going if j.change.op != "D" and j.change.kind in ("file", "link")],
        carrier.prepare_file,
        carrier.place_file,
        temporary=True,
    )
    count = len(carrier.outcomes)
    carrier.batches(reversed([*added, *folders]), carrier.prepare_mode, carrier.set_mode)
    made = {(o.target.layer, o.judged.change.path) for o in carrier.outcomes[:count]}
    carrier.outcomes[count:] = [
        o
        for o in carrier.outcomes[count:]
        if o.failed or (o.target.layer, o.judged.change.path) not in made
    ]
    for real in {target.real for target, _ in going}:
        sync(real)
    journal.mark("ended")
    carrier.drop_early()
    return carrier.outcomes


def temporary_name(run: str, apply: int, number: int) -> str:
    """Name of a file in the making: unique to this run, apply and change."""
    return f".hark-{run}-{apply}-{number}"


def _batched(
    rows: Iterable[tuple[Target, Judged]],
) -> Iterator[list[tuple[Target, Judged]]]:
    batch: list[tuple[Target, Judged]] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += row[1].change.size
        full = len(batch) >= limits.WORKSPACE_BATCH
        if full or size >= limits.WORKSPACE_BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _there(st: os.stat_result | None) -> os.stat_result:
    if st is None:
        raise Stale(errno.ENOENT, "not there")
    return st


def _why(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _beside(path: str, name: str) -> str:
    folder = parent_of(path)[0]
    return f"{folder}/{name}" if folder else name


def _rename_new(fd: int, name: str, new: str) -> None:
    """Rename within a folder, never over anything."""
    try:
        rename(fd, name, fd, new, Rename.NOREPLACE)
    except OSError as error:
        if error.errno == errno.EEXIST:
            raise Stale(errno.EEXIST, "made in this moment") from None
        if error.errno not in _NO_FLAG:
            raise
        os.link(name, new, src_dir_fd=fd, dst_dir_fd=fd, follow_symlinks=False)
        os.unlink(name, dir_fd=fd)


def move_entry(fd: int, name: str, to_fd: int, new: str) -> None:
    """Move an entry between a folder and the store; copied where they lie on two file systems."""
    try:
        os.rename(name, new, src_dir_fd=fd, dst_dir_fd=to_fd)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        part = f"{new}{PART}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part, dir_fd=to_fd)
        _copy_file(fd, name, to_fd, part)
        os.rename(part, new, src_dir_fd=to_fd, dst_dir_fd=to_fd)
        os.unlink(name, dir_fd=fd)


def _copy_file(fd: int, name: str, to_fd: int, new: str) -> None:
    """Copy a file or link with its permissions and times; on disk when this returns."""
    st = os.stat(name, dir_fd=fd, follow_symlinks=False)
    if stat.S_ISLNK(st.st_mode):
        os.symlink(os.readlink(name, dir_fd=fd), new, dir_fd=to_fd)
        return
    if not stat.S_ISREG(st.st_mode):
        raise OSError(errno.EINVAL, "a special file")
    source = os.open(name, _READ, dir_fd=fd)
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        out = os.open(new, flags, 0o600, dir_fd=to_fd)
        try:
            copy_bytes(source, out)
            os.fchmod(out, stat.S_IMODE(st.st_mode))
            os.utime(out, ns=(st.st_atime_ns, st.st_mtime_ns))
            os.fsync(out)
        finally:
            os.close(out)
    finally:
        os.close(source)


def _keep_attributes(real: int, path: str, now: os.stat_result, out: int) -> None:
    """Give a new version the owner, access list and user attributes of the old one."""
    st = os.fstat(out)
    if (st.st_uid, st.st_gid) != (now.st_uid, now.st_gid):
        with contextlib.suppress(OSError):
            os.fchown(out, now.st_uid if os.geteuid() == 0 else -1, now.st_gid)
    with contextlib.suppress(OSError):
        old = open_below(real, path, _READ)
        try:
            for name in os.listxattr(old):
                if name.startswith("user.") or name == "system.posix_acl_access":
                    os.setxattr(out, name, os.getxattr(old, name))
        finally:
            os.close(old)


def chmod_below(root: int, path: str, before: int, after: int) -> None:
    """Set an entry's permissions, which must be ``before``; never those of a link's target."""
    fd = open_below(root, path, os.O_PATH | os.O_NOFOLLOW)
    try:
        st = os.fstat(fd)
        if stat.S_ISLNK(st.st_mode) or stat.S_IMODE(st.st_mode) != before:
            raise Stale(errno.EBUSY, "changed since it was looked at")
        os.chmod(f"/proc/self/fd/{fd}", after)  # noqa: PTH101 - an O_PATH descriptor has no fchmod
    finally:
        os.close(fd)
