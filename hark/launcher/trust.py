"""hark runs as root, so nobody but root may be able to change what it runs.

Checked: every folder of ``sys.path``, every module file loaded so far, the executables and BPF
objects in ``libexec``, and every folder above any of them. ``HARK_DEV=1`` lifts the check for a
development tree; the run's first event says so.
"""

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


def _what_runs() -> list[Path]:
    # An editable install puts the name of a path hook there: no folder, and not relative to here.
    found = [Path(entry) for entry in sys.path if entry and not entry.startswith("__editable__.")]
    found += [
        Path(file)
        for module in list(sys.modules.values())
        if isinstance(file := getattr(module, "__file__", None), str)
    ]
    folder = libexec("")
    found += [folder, Path(sys.executable)]
    if folder.is_dir():
        found += list(folder.iterdir())
    return found


def first_untrusted(paths: Iterable[Path]) -> tuple[Path, str] | None:
    """Return the first path that someone but root can change, with the reason.

    A link's own folders and its target's are both looked at. Pure but for stat(2).
    """
    good: set[Path] = set()
    for path in paths:
        for step in (path, path.resolve()):
            for part in (step, *step.parents):
                if part in good:
                    break
                reason = _weakness(part)
                if reason:
                    return part, reason
                good.add(part)
    return None


def _weakness(path: Path) -> str:
    """Say why a file or folder is not root's alone; "" when it is, or is not there."""
    try:
        st = path.lstat()
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
