"""The person a run belongs to: whose files, whose environment, who owns the bundle.

``--as USER``, else the one who called sudo, else the user that hark runs as. Rules: reads the user
database and /proc, changes nothing, executes nothing of the person's.
"""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hark.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Person", "find_person", "person_path"]

DEFAULT_PATH = b"/usr/local/bin:/usr/bin:/bin"
DEFAULT_SHELL = "/bin/sh"  # passwd(5): what an empty field means
ANCESTORS_MOST = 64  # a loop in /proc cannot be; a bound costs nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """One entry of the user database. ``groups``: all of its groups, ascending. ``path``: PATH."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    name: str
    home: str
    shell: str
    path: bytes = DEFAULT_PATH


def find_person(chosen: str | None, outer: Mapping[bytes, bytes]) -> Person:
    """Look the person up. Raises InputError for a name or id that the host does not know.

    SUDO_UID is believed only because hark then runs as root: who can set it is root already.
    """
    entry = find_entry(chosen, outer)
    if not entry.pw_dir.startswith("/"):
        raise InputError(f"the user {entry.pw_name} has no home", f"it is {entry.pw_dir!r}")
    return Person(
        uid=entry.pw_uid,
        gid=entry.pw_gid,
        groups=tuple(sorted(set(os.getgrouplist(entry.pw_name, entry.pw_gid)))),
        name=entry.pw_name,
        home=entry.pw_dir,
        shell=entry.pw_shell or DEFAULT_SHELL,
        path=person_path(entry.pw_uid, outer),
    )


def find_entry(chosen: str | None, outer: Mapping[bytes, bytes]) -> pwd.struct_passwd:
    """Return the user database's entry."""
    if chosen is not None:
        try:
            return pwd.getpwuid(int(chosen)) if chosen.isdecimal() else pwd.getpwnam(chosen)
        except (KeyError, OverflowError, ValueError) as error:
            raise InputError(f"there is no user {chosen!r}", "", "see `getent passwd`") from error
    sudo = outer.get(b"SUDO_UID", b"")
    uid = int(sudo) if sudo.isdigit() and os.geteuid() == 0 else os.getuid()
    try:
        return pwd.getpwuid(uid)
    except (KeyError, OverflowError) as error:
        hint = "name a person with --as USER"
        raise InputError(f"user id {uid} is not in the user database", "", hint) from error


def person_path(uid: int, outer: Mapping[bytes, bytes]) -> bytes:
    """PATH as the person had it.

    sudo replaces PATH, but its own process still holds the one it was called with: that is read
    from /proc. Without sudo it is hark's own, when hark runs as that person; else the default.
    """
    if b"SUDO_UID" in outer:
        return path_of_sudo(Path("/proc"), os.getppid()) or DEFAULT_PATH
    return outer.get(b"PATH", b"") or DEFAULT_PATH if os.getuid() == uid else DEFAULT_PATH


def path_of_sudo(proc: Path, pid: int) -> bytes:
    """PATH in the environment of the nearest process above ``pid`` called sudo; else empty."""
    for _ in range(ANCESTORS_MOST):
        try:
            name = (proc / str(pid) / "comm").read_bytes().strip()
            stat = (proc / str(pid) / "stat").read_bytes()
            if name == b"sudo":
                environ = (proc / str(pid) / "environ").read_bytes()
                pairs = dict(item.split(b"=", 1) for item in environ.split(b"\0") if b"=" in item)
                return pairs.get(b"PATH", b"")
            pid = int(stat.rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return b""
        if pid <= 1:
            return b""
    return b""
