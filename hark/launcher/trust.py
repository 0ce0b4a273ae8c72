"""hark runs as root, so nobody but root may be able to change what it runs.

Checked: every folder of ``sys.path``, every module file loaded so far, the executables and BPF
objects in ``libexec``, and every folder above any of them. ``HARK_DEV=1`` lifts the check for a
development tree; the run's first event says so.
"""

# ruff: noqa: PTH112, PTH114, PTH118, PTH120, PTH208
# Strings: 500 paths at each start, and Path objects would cost 10 ms.
from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hark.errors import LaunchError
from hark.locations import libexec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["check_tree", "first_untrusted", "is_development"]

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def is_development(environment: Mapping[str, str]) -> bool:
    """Whether the ownership check is lifted."""
    return environment.get("HARK_DEV") == "1"


def check_tree(environment: Mapping[str, str] | None = None) -> bool:
    """Refuse to go on as root from files that another user can write.

    Returns whether the check was lifted (``HARK_DEV=1``), for the record. Raises ``LaunchError``.
    """
    if is_development(os.environ if environment is None else environment):
        return True
    if os.geteuid() != 0:
        return False
    bad = first_untrusted(_what_runs())
    if bad is not None:
        raise LaunchError(
            f"hark would run as root from {bad[0]}, which others can change",
            bad[1],
            "install it with `make install`, or set HARK_DEV=1 in a development tree",
        )
    return False


def _what_runs() -> list[str]:
    # An editable install puts the name of a path hook there: no folder, and not relative to here.
    found = [entry for entry in sys.path if entry and not entry.startswith("__editable__.")]
    for module in list(sys.modules.values()):
        for name in ("__file__", "__cached__"):
            file = getattr(module, name, None)
            if isinstance(file, str):
                found.append(file)
    folder = str(libexec(""))
    found += [folder, sys.executable]
    if os.path.isdir(folder):
        found += [os.path.join(folder, name) for name in os.listdir(folder)]
    return found


def first_untrusted(paths: Iterable[Path | str]) -> tuple[Path, str] | None:
    """Return the first path that someone but root can change, with the reason.

    A link's own folders and its target's are both looked at. Pure but for stat(2).
    """
    good: set[str] = set()
    folders: dict[str, str] = {}  # without links, by their names
    for path in map(os.path.abspath, paths):
        folder, name = os.path.split(path)
        if folder not in folders:
            folders[folder] = os.path.realpath(folder)
        for step in (path, os.path.join(folders[folder], name), *_target(path)):
            if bad := _first_weak(step, good):
                return bad
    return None


def _target(path: str) -> list[str]:
    """Return where a link leads in the end; nothing for what is no link."""
    return [os.path.realpath(path)] if os.path.islink(path) else []


def _first_weak(path: str, good: set[str]) -> tuple[Path, str] | None:
    """Look at a path and the folders above it, up to one that is known to be good."""
    while path not in good:
        if reason := _weakness(path):
            return Path(path), reason
        good.add(path)
        path = os.path.dirname(path)
    return None


def _weakness(path: str) -> str:
    """Say why a file or folder is not root's alone; "" when it is, or is not there."""
    try:
        st = os.lstat(path)
    except OSError:
        return ""
    if stat.S_ISLNK(st.st_mode):
        return "" if st.st_uid == 0 else f"it is owned by uid {st.st_uid}"
    if st.st_uid != 0:
        return f"it is owned by uid {st.st_uid}"
    sticky = stat.S_ISDIR(st.st_mode) and st.st_mode & stat.S_ISVTX
    if st.st_mode & _OTHERS_WRITE and not sticky:
        return f"its mode is {stat.filemode(st.st_mode)}"
    return ""
