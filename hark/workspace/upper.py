"""What an overlay's upper folder names: where to look for changes, and the overlay's own marks.

Rules: root reads it, since the marks are ``trusted.*`` attributes that nobody else sees. The tree
was written by the agent: no link is followed, nothing is read but names, types and marks, and depth
costs no stack. The kernel interprets the marks (``paths.mount_merged``); here they only tell which
folders must be compared whole, which files were copied up, and what a renamed folder relies on.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass, field

from hark import limits
from hark.errors import HarkError
from hark.workspace.paths import open_below, too_long

__all__ = ["Touched", "scan"]

_OPAQUE, _REDIRECT, _ORIGIN = (
    f"trusted.overlay.{name}" for name in ("opaque", "redirect", "origin")
)
_METACOPY = "trusted.overlay.metacopy"
_READ_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(slots=True)
class Touched:
    """An upper folder's names. All paths are relative to it.

    ``names``: folder to the names in it. ``whole``: folders that replace or renamed one, so that
    everything below differs. ``copied``: files the kernel copied up, which keep their place among
    hard links. ``sources``: renamed folder to where its content comes from. ``deep``: folders whose
    entries have paths too long for the kernel.
    """

    names: dict[str, list[str]] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    copied: set[str] = field(default_factory=set)
    sources: dict[str, str] = field(default_factory=dict)
    deep: list[str] = field(default_factory=list)

    def origin(self, path: str) -> str | None:
        """Where the content seen at ``path`` lies in the person's folder; None: there, or here.

        Only what a renamed folder brought along lies elsewhere.
        """
        folder, _, name = path.rpartition("/")
        if name in self.names.get(folder, ()) and path not in self.names:
            return None  # a file of the agent's own
        rest = ""
        while path:
            source = self.sources.get(path)
            if source is not None:
                return source + rest
            if path in self.whole:
                return None
            path, _, name = path.rpartition("/")
            rest = f"/{name}{rest}"
        return None


def scan(upper: int) -> Touched:
    """Walk an upper folder. Raises HarkError for one that is too large or not ours to read."""
    found = Touched()
    count = 0
    pending = [("", "")]  # path here, path of what it covers
    while pending:
        path, lower = pending.pop()
        if too_long(f"{path}/{'x' * 255}"):
            found.deep.append(path)
            continue
        fd = open_below(upper, path, _READ_FOLDER)
        try:
            with os.scandir(fd) as entries:
                rows = sorted((e.name, e.stat(follow_symlinks=False).st_mode) for e in entries)
            count += len(rows)
            if count > limits.WORKSPACE_CHANGES_MOST:
                raise HarkError("the agent changed too many files", f"over {count - 1}")
            found.names[path] = [name for name, _ in rows]
            for name, mode in rows:
                inner = f"{path}/{name}" if path else name
                below = f"{lower}/{name}" if lower else name
                if stat.S_ISDIR(mode):
                    pending.append((inner, _folder(found, fd, (inner, lower, below))))
                elif stat.S_ISREG(mode):
                    _file(found, fd, name, inner)
        finally:
            os.close(fd)
    return found


def _folder(found: Touched, fd: int, paths: tuple[str, str, str]) -> str:
    """Note a folder's marks; return the path of what it covers.

    ``paths``: its own, that of what its parent covers, and what it covers if nothing is marked.
    """
    path, parent, lower = paths
    inner = open_below(fd, path.rpartition("/")[2], _READ_FOLDER)
    try:
        redirect = _mark(inner, _REDIRECT)
        if redirect:
            target = os.fsdecode(redirect)
            absolute = target.startswith("/")
            lower = target.strip("/") if absolute else f"{parent}/{target}".lstrip("/")
            found.sources[path] = lower
        if redirect or _mark(inner, _OPAQUE) == b"y":
            found.whole.add(path)
    finally:
        os.close(inner)
    return lower


def _file(found: Touched, fd: int, name: str, path: str) -> None:
    inner = open_below(fd, name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if _mark(inner, _METACOPY) is not None:
            raise HarkError("the agent's changes hold a mark hark did not ask for", _METACOPY)
        if _mark(inner, _ORIGIN) is not None:
            found.copied.add(path)
    finally:
        os.close(inner)


def _mark(fd: int, name: str) -> bytes | None:
    try:
        return os.getxattr(fd, name)
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.EOPNOTSUPP):
            return None
        raise
