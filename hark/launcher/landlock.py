"""Landlock rules as data: rights by ABI, and the ruleset of a run.

``hark-launch`` makes the three system calls; here the masks are chosen. Rights and the ABI that
brought them: Documentation/userspace-api/landlock.rst of Linux. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from hark.launcher.ops import Landlock, PathRule

__all__ = ["ABI_FULL", "Access", "Grant", "compile_ruleset", "handled_fs"]


class Access:
    """File rights (``LANDLOCK_ACCESS_FS_*``) and the ABI from which each exists."""

    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15


_FIRST_ABI = {Access.REFER: 2, Access.TRUNCATE: 3, Access.IOCTL_DEV: 5}
_ALL = (1 << 16) - 1
_SCOPE_ABI = 6  # abstract unix sockets and signals
_LOG_ABI = 7
_SCOPE_ABSTRACT_UNIX = 1
_SCOPE_SIGNAL = 2
_LOG_NEW_EXEC_ON = 2  # else denials of exec'd children are missing from the audit stream
ABI_FULL = 7

READ = Access.EXECUTE | Access.READ_FILE | Access.READ_DIR
DEVICE = Access.READ_FILE | Access.WRITE_FILE | Access.READ_DIR | Access.IOCTL_DEV
_NEVER = Access.MAKE_CHAR | Access.MAKE_BLOCK
WRITE = _ALL & ~_NEVER
PROC = Access.READ_FILE | Access.READ_DIR | Access.WRITE_FILE


@dataclass(frozen=True, slots=True)
class Grant:
    """Rights below one path inside the run."""

    path: str
    access: int


def handled_fs(abi: int) -> int:
    """Every file right that a kernel of this ABI can handle; what is handled is denied by default.

    ABI 0 (no Landlock) handles nothing.
    """
    if abi < 1:
        return 0
    return _ALL & ~sum(right for right, first in _FIRST_ABI.items() if abi < first)


def compile_ruleset(grants: tuple[Grant, ...], abi: int) -> Landlock | None:
    """Return the ruleset for these grants on a kernel of this ABI, or None without Landlock.

    TCP ports are not handled: every connection reaches the mediator anyway, and servers of the
    agent on its own loopback keep working.
    """
    handled = handled_fs(abi)
    if not handled:
        return None
    rules = [PathRule(g.access & handled, g.path) for g in grants if g.access & handled]
    return Landlock(
        fs=handled,
        net=0,
        scoped=_SCOPE_ABSTRACT_UNIX | _SCOPE_SIGNAL if abi >= _SCOPE_ABI else 0,
        restrict=_LOG_NEW_EXEC_ON if abi >= _LOG_ABI else 0,
        rules=tuple(rules),
    )
