"""Taking an apply back, and making an interrupted one whole.

Runs as the person. The journal is read backwards; a path is put back only where it is still as the
apply left it, else it is a conflict and stays. Rules: nothing of the person's is deleted: what an
undo takes away is the agent's version, which the run's folder still holds.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hark.workspace.carry import PART, chmod_below, move_entry
from hark.workspace.content import copy_bytes, identity
from hark.workspace.paths import Rename, folder_of, open_below, parent_of, rename, stat_below, sync

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hark.workspace.journal import Journal, Step

__all__ = ["Undone", "recover", "revert"]

_CHANGED = "changed since the apply"
_THERE = "something is there now"
_NEW_FOLDER, _PERMISSIONS = 0o700, 0o777
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Undone:
    """What became of one step; ``conflict``: why the path stays as it is."""

    step: Step
    conflict: str = ""


def revert(journal: Journal, reals: Mapping[int, int]) -> list[Undone]:
    """Undo an apply; ``reals``: layer number to its real folder. All done: it is ``reverted``."""
    recover(journal, reals)
    out: list[Undone] = []
    for step in reversed(journal.steps):
        if step.number in journal.undone:
            continue
        real = reals[step.layer]
        try:
            conflict = _UNDO[step.act](journal, real, step)
            st = stat_below(real, step.path)
        except OSError as error:
            conflict, st = (error.strerror or str(error)).lower(), None
        if not conflict:
            journal.revert(step, step.layer, _row(st))
            journal.flush(disk=False)
        out.append(Undone(step, conflict))
    for real in reals.values():
        sync(real)
    if not any(row.conflict for row in out):
        journal.mark("reverted")
    else:
        journal.flush()
    return out


def _row(st: os.stat_result | None) -> list[int] | None:
    """Return the start row of an entry that was put back: only its change time is another."""
    if st is None or stat.S_ISDIR(st.st_mode):
        return None
    return [st.st_mode, st.st_size, st.st_mtime_ns, st.st_ctime_ns, st.st_ino]


def recover(journal: Journal, reals: Mapping[int, int]) -> None:
    """Bring each step that a crash cut into to its end or its beginning; leave no temporary file.

    A file that was cut in the middle of a write in place gets its old content back; what stood
    there is kept in the store.
    """
    for step in journal.steps:
        if step.number in journal.done or step.number in journal.undone:
            continue
        real = reals[step.layer]
        with contextlib.suppress(OSError):
            _recover(journal, real, step)
    used = {step.temporary for step in journal.steps}
    for layer, path, name in journal.reserved:
        for left in (f"{name}{PART}", *([] if name in used else [name])):
            with contextlib.suppress(OSError), folder_of(reals[layer], path) as (fd, _):
                os.unlink(left, dir_fd=fd)  # cut off while it was made
    journal.flush()


def _recover(journal: Journal, real: int, step: Step) -> None:
    stored = _in_store(journal, step)
    if step.act == "write":
        if stored and identity(real, step.path) != step.after:
            _keep_half(journal, real, step)
            _restore_content(journal, real, step)
            journal.void(step)
        elif stored:
            journal.finish(step)
        return
    if step.temporary:
        _recover_temporary(journal, real, step)
    elif _happened(real, step):
        journal.finish(step)
    else:
        journal.void(step)


def _recover_temporary(journal: Journal, real: int, step: Step) -> None:
    beside = _beside(step)
    left = stat_below(real, beside) is not None
    with folder_of(real, step.path) as (fd, name):
        if step.act == "rm":
            if left:  # moved aside: the removal had begun
                rename(fd, step.temporary, fd, name, Rename.NOREPLACE)
                journal.revert(step, step.layer, _row(stat_below(real, step.path)))
            elif _in_store(journal, step):
                journal.finish(step)
            else:
                journal.void(step)
            return
        placed = identity(real, step.path) == step.after
        if left and identity(real, beside) == step.after and not (step.act == "swap" and placed):
            os.unlink(step.temporary, dir_fd=fd)
            journal.void(step)
        elif left and _in_store(journal, step):  # copied there, to another file system
            os.unlink(step.temporary, dir_fd=fd)
            journal.finish(step)
        elif left:  # exchanged: the old version has the temporary name
            move_entry(fd, step.temporary, journal.store, str(step.number))
            journal.finish(step)
        elif placed and (step.act == "put" or _in_store(journal, step)):
            journal.finish(step)
        else:
            journal.void(step)


def _happened(real: int, step: Step) -> bool:
    st = stat_below(real, step.path)
    if step.act == "rmdir":
        return st is None
    if st is None:
        return False
    if step.act == "mkdir":
        return stat.S_ISDIR(st.st_mode)
    return stat.S_IMODE(st.st_mode) == step.mode_after


def _undo_mode(_journal: Journal, real: int, step: Step) -> str:
    st = stat_below(real, step.path)
    mode = stat.S_IMODE(st.st_mode) if st is not None else -1
    if mode == step.mode_before:
        return ""
    if mode != step.mode_after or step.after not in (None, identity(real, step.path)):
        return _CHANGED
    chmod_below(real, step.path, step.mode_after, step.mode_before)
    return ""


def _undo_write(journal: Journal, real: int, step: Step) -> str:
    if step.number in journal.undoing:
        _keep_half(journal, real, step)
    elif identity(real, step.path) != step.after:
        return _CHANGED
    journal.begin_revert(step)
    _restore_content(journal, real, step)
    return ""


def _undo_mkdir(_journal: Journal, real: int, step: Step) -> str:
    try:
        with folder_of(real, step.path) as (fd, name):
            os.rmdir(name, dir_fd=fd)
    except FileNotFoundError:
        return ""
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return "something is in it"
        raise
    return ""


def _undo_rmdir(_journal: Journal, real: int, step: Step) -> str:
    with folder_of(real, step.path) as (fd, name), contextlib.suppress(FileExistsError):
        os.mkdir(name, _NEW_FOLDER, dir_fd=fd)
    st = stat_below(real, step.path)
    if st is None or not stat.S_ISDIR(st.st_mode):
        return _THERE
    if stat.S_IMODE(st.st_mode) & _PERMISSIONS == _NEW_FOLDER:  # made here, now or before a crash
        chmod_below(real, step.path, stat.S_IMODE(st.st_mode), step.mode_before)
    return ""


def _undo_rm(journal: Journal, real: int, step: Step) -> str:
    with folder_of(real, step.path) as (fd, name):
        if _in_store(journal, step):
            if _is_there(fd, name):
                return _THERE
            _from_store(journal, step, fd)
        elif not _is_there(fd, step.temporary):
            return ""  # put back before
        try:
            rename(fd, step.temporary, fd, name, Rename.NOREPLACE)
        except FileExistsError:
            move_entry(fd, step.temporary, journal.store, str(step.number))
            return _THERE
    return ""


def _undo_put(_journal: Journal, real: int, step: Step) -> str:
    """Take the agent's file away, by way of another name, to see what it was that went."""
    with folder_of(real, step.path) as (fd, name):
        if not _is_there(fd, step.temporary):
            if not _is_there(fd, name):
                return ""
            if identity(real, step.path) != step.after:
                return _CHANGED
            rename(fd, name, fd, step.temporary, Rename.NOREPLACE)
        if identity(real, _beside(step)) != step.after:
            rename(fd, step.temporary, fd, name, Rename.NOREPLACE)
            return _CHANGED
        os.unlink(step.temporary, dir_fd=fd)
    return ""


def _undo_swap(journal: Journal, real: int, step: Step) -> str:
    """Exchange the two versions back, from each state that a cut-off undo can leave."""
    with folder_of(real, step.path) as (fd, name):
        if _in_store(journal, step):
            if identity(real, step.path) != step.after:
                return _CHANGED
            _from_store(journal, step, fd)
        elif not _is_there(fd, step.temporary):
            return ""  # put back before
        if identity(real, _beside(step)) != step.after:
            rename(fd, step.temporary, fd, name, Rename.EXCHANGE)
        if identity(real, _beside(step)) != step.after:
            rename(fd, step.temporary, fd, name, Rename.EXCHANGE)
            move_entry(fd, step.temporary, journal.store, str(step.number))
            return _CHANGED
        os.unlink(step.temporary, dir_fd=fd)
    return ""


def _is_there(fd: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


_UNDO: Mapping[str, Callable[[Journal, int, Step], str]] = {
    "put": _undo_put,
    "swap": _undo_swap,
    "write": _undo_write,
    "mode": _undo_mode,
    "mkdir": _undo_mkdir,
    "rmdir": _undo_rmdir,
    "rm": _undo_rm,
}


def _beside(step: Step) -> str:
    folder = parent_of(step.path)[0]
    return f"{folder}/{step.temporary}" if folder else step.temporary


def _in_store(journal: Journal, step: Step) -> bool:
    return _is_there(journal.store, str(step.number))


def _from_store(journal: Journal, step: Step, fd: int) -> None:
    """Bring what the store holds of a step beside its place. The same move, the other way.

    What stands there while the store still has its own is a copy that an undo was cut off in.
    """
    if _in_store(journal, step):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(step.temporary, dir_fd=fd)
    move_entry(journal.store, str(step.number), fd, step.temporary)


def _keep_half(journal: Journal, real: int, step: Step) -> None:
    source = open_below(real, step.path, _READ)
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        out = os.open(f"{step.number}.half", flags, 0o600, dir_fd=journal.store)
        try:
            copy_bytes(source, out)
        finally:
            os.close(out)
    finally:
        os.close(source)


def _restore_content(journal: Journal, real: int, step: Step) -> None:
    """Write a stored file's content, times and permissions back in place."""
    source = os.open(str(step.number), _READ, dir_fd=journal.store)
    try:
        st = os.fstat(source)
        out = open_below(real, step.path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            os.ftruncate(out, 0)
            copy_bytes(source, out)
            if stat.S_IMODE(os.fstat(out).st_mode) != step.mode_before:
                os.fchmod(out, step.mode_before)
            os.fsync(out)
            with contextlib.suppress(PermissionError):  # another's file, open to the person
                os.utime(out, ns=(st.st_atime_ns, st.st_mtime_ns))
        finally:
            os.close(out)
    finally:
        os.close(source)
