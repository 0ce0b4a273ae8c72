"""Removing run folders: trees that an agent wrote.

Rules: no link is followed, and depth costs neither stack nor descriptors, because a folder that is
not empty is first moved up into the tree's own top (as ``csrc/launch/remove.c`` does). ``shutil``
recurses, so a deep tree would stop it.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from hark.launcher.rundir import BUNDLE_NAME, LOCK_NAME

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["discard_run", "remove_tree"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: Path) -> None:
    """Remove a folder with all below it; one that is not there is fine. Raises OSError."""
    try:
        top = os.open(path, _FOLDER)
    except FileNotFoundError:
        return
    try:
        moved = 0
        while names := os.listdir(top):  # noqa: PTH208 - by descriptor
            for name in names:
                moved = _remove_or_empty(top, name, moved)
    finally:
        os.close(top)
    path.rmdir()


def _remove_or_empty(top: int, name: str, moved: int) -> int:
    """Remove one entry of the top; of a folder, move its own folders up first."""
    try:
        folder = os.open(name, _FOLDER, dir_fd=top)
    except OSError:
        os.unlink(name, dir_fd=top)
        return moved
    try:
        for inner in os.listdir(folder):  # noqa: PTH208 - by descriptor
            try:
                os.unlink(inner, dir_fd=folder)
            except (IsADirectoryError, PermissionError):
                moved = _move_up(folder, inner, top, moved)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=top)
    return moved


def _move_up(folder: int, name: str, top: int, moved: int) -> int:
    with contextlib.suppress(OSError):
        os.rmdir(name, dir_fd=folder)
        return moved
    moved += 1
    while _taken(top, f".rm{moved}"):
        moved += 1
    os.rename(name, f".rm{moved}", src_dir_fd=folder, dst_dir_fd=top)
    return moved


def _taken(top: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=top, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def discard_run(run: Path) -> Path | None:
    """Remove what is kept of a run, but for an unpublished bundle, whose path is returned."""
    bundle = run / BUNDLE_NAME
    if not bundle.exists():
        remove_tree(run)
        return None
    for entry in run.iterdir():
        if entry.name in (BUNDLE_NAME, LOCK_NAME):
            continue
        if entry.is_dir() and not entry.is_symlink():
            remove_tree(entry)
        else:
            entry.unlink()
    return bundle
