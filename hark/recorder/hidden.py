"""Finished recordings in a workspace, which the next agent there does not see.

They hold what earlier agents were told and did. Rules: looks as the person, at the folder's own
entries only; a recording is known by its name's ending and by a bundle's first bytes; one that the
command names is shown.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from hark import limits
from hark.bundle.format import MAGIC

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["hidden_recordings"]

_RECORDING = re.compile(r"[A-Za-z0-9_.@+=-]{1,200}\.hark")


def hidden_recordings(cwd: str, command: Sequence[bytes]) -> tuple[str, ...]:
    """Return their names, sorted."""
    words = {os.fsdecode(word) for word in command}
    found = []
    try:
        with os.scandir(cwd) as entries:
            for entry in entries:
                path = f"{cwd.rstrip('/')}/{entry.name}"
                is_named = not words.isdisjoint((entry.name, f"./{entry.name}", path))
                if _RECORDING.fullmatch(entry.name) and not is_named and _is_bundle(path):
                    found.append(entry.name)
    except OSError:
        return ()
    return tuple(sorted(found)[: limits.HIDDEN_MOST])


def _is_bundle(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.pread(fd, len(MAGIC), 0) == MAGIC
    except OSError:
        return False
    finally:
        os.close(fd)
