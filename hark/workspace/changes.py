"""The exact list of what differs between a workspace and what the agent left of it.

``compare`` walks the merged view (the agent's) beside the lower one (the person's, as it is now).
It descends where the upper names something, and below replaced and renamed folders everywhere.
Rules: runs as the person. A file that was written but holds the same bytes is no change. A folder
that cannot be read is said, never taken for empty.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hark.workspace.content import digest_file
from hark.workspace.paths import folder_of, rows_of, too_long

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hark.workspace.upper import Touched

__all__ = ["Change", "Kind", "Views", "compare", "kind_of"]

Kind = Literal["file", "folder", "link", "special"]
_PERMISSIONS = 0o777


@dataclass(frozen=True, slots=True)
class Views:
    """Folders of one layer: the person's own view, the agent's, and what the upper names."""

    lower: int
    merged: int
    touched: Touched
    carried: frozenset[str] = frozenset()  # paths that earlier applies changed

    def gone(self, path: str) -> bool:
        """Whether an earlier apply took away what a renamed folder would show at ``path``."""
        return bool(self.carried) and self.touched.origin(path) in self.carried


@dataclass(frozen=True, slots=True)
class Change:
    """One path: added, modified or deleted. ``failed``: why it cannot be told more exactly.

    ``now`` is the person's entry, ``new`` the agent's; None: there is none.
    """

    op: Literal["A", "M", "D"]
    path: str
    now: os.stat_result | None
    new: os.stat_result | None
    failed: str = ""

    @property
    def kind(self) -> Kind:
        """What the entry is; of a deleted one, what it was."""
        st = self.new or self.now
        return kind_of(st.st_mode) if st is not None else "special"

    @property
    def size(self) -> int:
        """Bytes of the file, as the agent left it."""
        st = self.new or self.now
        return st.st_size if st is not None and stat.S_ISREG(st.st_mode) else 0

    @property
    def content_same(self) -> bool:
        """Whether only permissions differ: always so for two folders."""
        return self.op == "M" and self.kind == "folder"


def kind_of(mode: int) -> Kind:
    """Name an entry's type."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "link" if stat.S_ISLNK(mode) else "special"


def compare(views: Views) -> Iterator[Change]:
    """Yield all changes; a folder before what is in it. A changed type is D and then A."""
    pending = [("", False)] if "" in views.touched.names else []
    while pending:
        path, whole = pending.pop()
        try:
            ours, now = rows_of(views.lower, path), rows_of(views.merged, path)
        except OSError as error:
            yield Change("M", path, None, None, error.strerror or "cannot be read")
            continue
        names = sorted(ours.keys() | now.keys() if whole else views.touched.names.get(path, ()))
        inner: list[tuple[str, bool]] = []
        for name in names:
            below = f"{path}/{name}" if path else name
            old, new = ours.get(name), now.get(name)
            yield from _entry(views, below, old, new)
            if old and new and _are_folders(old, new):
                named = below in views.touched.names
                if whole or named or below in views.touched.whole:
                    inner.append((below, whole or not named or below in views.touched.whole))
        pending += reversed(inner)


def _entry(
    views: Views, path: str, old: os.stat_result | None, new: os.stat_result | None
) -> Iterator[Change]:
    """Yield what differs at one path, and below it where only one side has it."""
    if views.gone(path) and not (old and new and _are_folders(old, new)):
        return
    if old is not None and new is not None and _type(old) == _type(new):
        yield from _same_type(views, path, old, new)
        return
    if old is not None:
        yield from _all(views.lower, "D", path, old)
    if new is not None:
        yield from _all(views.merged, "A", path, new)


def _are_folders(old: os.stat_result, new: os.stat_result) -> bool:
    return stat.S_ISDIR(old.st_mode) and stat.S_ISDIR(new.st_mode)


def _type(st: os.stat_result) -> int:
    return stat.S_IFMT(st.st_mode)


def _same_type(
    views: Views, path: str, old: os.stat_result, new: os.stat_result
) -> Iterator[Change]:
    try:
        if _differs(views, path, old, new):
            yield Change("M", path, old, new)
    except OSError as error:
        yield Change("M", path, old, new, error.strerror or "cannot be read")


def _differs(views: Views, path: str, old: os.stat_result, new: os.stat_result) -> bool:
    if stat.S_ISLNK(new.st_mode):
        return _target(views.lower, path) != _target(views.merged, path)
    if not stat.S_ISREG(new.st_mode) and not stat.S_ISDIR(new.st_mode):
        return False  # a special file over one: never carried, so not told
    if (old.st_mode ^ new.st_mode) & _PERMISSIONS:
        return True
    if stat.S_ISDIR(new.st_mode):
        return False
    if old.st_size != new.st_size:
        return True
    return digest_file(views.lower, path) != digest_file(views.merged, path)


def _target(root: int, path: str) -> str:
    with folder_of(root, path) as (fd, name):
        return os.readlink(name, dir_fd=fd)


def _all(root: int, op: Literal["A", "D"], path: str, st: os.stat_result) -> Iterator[Change]:
    """Yield an entry and all below it."""
    pending = [(path, st)]
    while pending:
        at, entry = pending.pop()
        is_folder = stat.S_ISDIR(entry.st_mode)
        failed, rows = "", {}
        if is_folder and not too_long(at):
            try:
                rows = rows_of(root, at)
            except OSError as error:
                failed = error.strerror or "cannot be read"
        yield Change(op, at, entry if op == "D" else None, entry if op == "A" else None, failed)
        pending += [(f"{at}/{name}", rows[name]) for name in sorted(rows, reverse=True)]
