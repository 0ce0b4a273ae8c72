"""Whether the folders an agent worked on are still what they were at its start.

Rules: looks as the person, changes nothing. An entry with the same row (type, mode, size, times,
inode) is unchanged; one with another row is the same only where the recording has its digest. What
the recording could not list is said, never taken for unchanged.
"""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from blake3 import blake3

from hark import limits
from hark.bundle.format import MAGIC
from hark.errors import HarkError
from hark.workspace import manifest
from hark.workspace.content import digest_file, digest_link
from hark.workspace.manifest import Mark
from hark.workspace.paths import open_below

if TYPE_CHECKING:
    from hark.replay.parent import Held
    from hark.workspace.manifest import Manifest, Row

__all__ = ["Differences", "look"]

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(slots=True)
class Differences:
    """What a folder holds now and did not then. ``notes``: what cannot be said, or does not count.

    ``bundles``: recordings at the folder's top that were not there: a run leaves one where it was
    called, and a replay hides it.
    """

    changed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    bundles: list[str] = field(default_factory=list)


def look(held: Held) -> Differences:
    """Compare one folder with its start manifest; as the person."""
    folder = os.fsdecode(held.folder)
    found = Differences()
    if held.manifest is None:
        found.changed.append(f"{folder}: too large to be listed in the recording")
        return found
    try:
        root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        found.changed.append(f"{folder}: {error.strerror}")
        return found
    try:
        _compare(root, folder, _loaded(held.manifest, held.digest), _walked(root), found)
    finally:
        os.close(root)
    return found


def _loaded(data: bytes, digest: bytes) -> Manifest:
    fd = os.memfd_create("hark-manifest", os.MFD_CLOEXEC)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        return manifest.load(fd, digest)


def _walked(root: int) -> Manifest:
    fd = os.memfd_create("hark-manifest", os.MFD_CLOEXEC)
    try:
        manifest.walk(root, fd, time.monotonic() + limits.WORKSPACE_WALK_S)
        with os.fdopen(os.dup(fd), "rb") as file:
            file.seek(0)
            return manifest.load(fd, blake3(file.read()).digest())
    finally:
        os.close(fd)


def _compare(root: int, folder: str, then: Manifest, now: Manifest, found: Differences) -> None:
    for path in sorted(then.places):
        shown = f"{folder}/{path}" if path else folder
        row, current = then.row(path), now.row(path)
        if row is None:
            continue
        if Mark.UNLISTED in row.marks:
            found.notes.append(f"{shown} was not listed at the start")
        if current is None:
            found.changed.append(f"removed  {shown}")
        elif not _same(root, path, row, current):
            found.changed.append(f"changed  {shown}")
    for path in sorted(now.places.keys() - then.places.keys()):
        row = now.row(path)
        if row is None or not then.known(path):
            continue
        if "/" not in path and _is_bundle(root, path, row):
            found.bundles.append(path)
        else:
            found.changed.append(f"new      {folder}/{path}")


def _same(root: int, path: str, then: Row, now: Row) -> bool:
    if then.mode != now.mode:
        return False
    if stat.S_ISDIR(then.mode):
        return True
    place = (then.size, then.mtime_ns, then.ctime_ns, then.inode)
    if place == (now.size, now.mtime_ns, now.ctime_ns, now.inode):
        return Mark.UNSURE not in then.marks
    try:
        if then.digest and stat.S_ISREG(then.mode):
            return then.size == now.size and digest_file(root, path) == then.digest
        return bool(then.digest) and digest_link(root, path) == then.digest
    except (OSError, HarkError):
        return False


def _is_bundle(root: int, path: str, row: Row) -> bool:
    if not stat.S_ISREG(row.mode):
        return False
    try:
        fd = open_below(root, path, _READ)
    except OSError:
        return False
    try:
        return os.pread(fd, len(MAGIC), 0) == MAGIC
    finally:
        os.close(fd)
