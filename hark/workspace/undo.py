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

from hark.workspace.carry import chmod_below, move_entry
from hark.workspace.content import copy_bytes, identity
from hark.workspace.paths import Rename, folder_of, open_below, parent_of, rename, stat_below, sync

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hark.workspace.journal import Journal, Step

__all__ = ["Undone", "recover", "revert"]

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
            conflict = _undo(journal, real, step)
            st = stat_below(real, step.path)
        except OSError as error:
            conflict, st = (error.strerror or str(error)).lower(), None
        if not conflict:
            row = None
            if st is not None and not stat.S_ISDIR(st.st_mode):
                row = [st.st_mode, st.st_size, st.st_mtime_ns, st.st_ctime_ns, st.st_ino]
            journal.revert(step, step.layer, row)
        out.append(Undone(step, conflict))
    for real in reals.values():
        sync(real)
    if not any(row.conflict for row in out):
        journal.mark("reverted")
    else:
        journal.flush()
    return out


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
                journal.void(step)
            elif _in_store(journal, step):
                journal.finish(step)
            else:
                journal.void(step)
            return
        placed = identity(real, step.path) == step.after
        if left and identity(real, beside) == step.after and not (step.act == "swap" and placed):
            os.unlink(step.temporary, dir_fd=fd)
            journal.void(step)
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


def _undo(journal: Journal, real: int, step: Step) -> str:
    """Undo one step; return why not, "" when it was, or was not needed."""
    if step.act in ("put", "swap", "write") and identity(real, step.path) != step.after:
        return "changed since the apply"
    return _UNDO[step.act](journal, real, step)


def _undo_mode(_journal: Journal, real: int, step: Step) -> str:
    st = stat_below(real, step.path)
    if st is None or stat.S_IMODE(st.st_mode) != step.mode_after:
        return "changed since the apply"
    chmod_below(real, step.path, step.mode_after, step.mode_before)
    return ""


def _undo_write(journal: Journal, real: int, step: Step) -> str:
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
    with folder_of(real, step.path) as (fd, name):
        try:
            os.mkdir(name, 0o700, dir_fd=fd)
        except FileExistsError:
            return "something is there now"
    st = stat_below(real, step.path)
    if st is not None:
        chmod_below(real, step.path, stat.S_IMODE(st.st_mode), step.mode_before)
    return ""


def _undo_rm(journal: Journal, real: int, step: Step) -> str:
    with folder_of(real, step.path) as (fd, name):
        try:
            os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            pass
        else:
            return "something is there now"
        _from_store(journal, step, fd)
        try:
            rename(fd, step.temporary, fd, name, Rename.NOREPLACE)
        except FileExistsError:
            move_entry(fd, step.temporary, journal.store, str(step.number))
            return "something is there now"
    return ""


def _undo_put(_journal: Journal, real: int, step: Step) -> str:
    """Take the agent's file away, by way of another name, to see what it was that went."""
    with folder_of(real, step.path) as (fd, name):
        rename(fd, name, fd, step.temporary, Rename.NOREPLACE)
        if identity(real, _beside(step)) != step.after:
            rename(fd, step.temporary, fd, name, Rename.NOREPLACE)
            return "changed in this moment"
        os.unlink(step.temporary, dir_fd=fd)
    return ""


def _undo_swap(journal: Journal, real: int, step: Step) -> str:
    with folder_of(real, step.path) as (fd, name):
        _from_store(journal, step, fd)
        rename(fd, step.temporary, fd, name, Rename.EXCHANGE)
        if identity(real, _beside(step)) != step.after:
            rename(fd, step.temporary, fd, name, Rename.EXCHANGE)
            move_entry(fd, step.temporary, journal.store, str(step.number))
            return "changed in this moment"
        os.unlink(step.temporary, dir_fd=fd)
    return ""


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
    try:
        os.stat(str(step.number), dir_fd=journal.store, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _from_store(journal: Journal, step: Step, fd: int) -> None:
    """Bring what the store holds of a step beside its place. The same move, the other way."""
    move_entry(journal.store, str(step.number), fd, step.temporary)


def _keep_half(journal: Journal, real: int, step: Step) -> None:
    source = open_below(real, step.path, _READ)
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
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
            os.utime(out, ns=(st.st_atime_ns, st.st_mtime_ns))
        finally:
            os.close(out)
    finally:
        os.close(source)
