"""Facts about this host that a launch plan needs, read once and handed on as a value.

Rules: reads only, as root, from /proc, /etc and the root folder; nothing of the person's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["HostFacts", "LimitPlace", "TopEntry", "read_facts"]

_TOP = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_SHARED = ("/usr", "/etc")


@dataclass(frozen=True, slots=True)
class TopEntry:
    """A system folder beside /usr: a link with its target, or a real folder (target "")."""

    name: str
    target: str


@dataclass(frozen=True, slots=True)
class LimitPlace:
    """Where a limit lives: cgroup ``version`` 1 or 2; for 1 the folder below which to make ours."""

    version: int
    folder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What ``compile_plan`` knows of the host. ``cgroup`` is hark's own v2 folder, or ""."""

    top: tuple[TopEntry, ...]
    submounts: tuple[str, ...]  # mount points below /usr and /etc
    mounts: tuple[str, ...]  # all others, without the kernel's own file systems
    cgroup: str
    pids_v2: bool  # a cgroup made below our own can limit tasks
    memory: LimitPlace | None
    ipv6: bool
    passwd: bytes
    group: bytes


def read_facts(root: Path = Path("/")) -> HostFacts:
    """Read the facts of this host (``root``: another one's tree, in tests)."""
    mounts = (root / "proc/self/mountinfo").read_text()
    own = (root / "proc/self/cgroup").read_text()
    cgroup = own_v2(mounts, own)
    return HostFacts(
        top=tuple(_top_entries(root)),
        submounts=submounts_of(mounts),
        mounts=others_of(mounts),
        cgroup=cgroup,
        pids_v2=_has_v2("pids", cgroup, root),
        memory=_memory_place(cgroup, mounts, own, root),
        ipv6=(root / "proc/sys/net/ipv6/conf/default/accept_dad").exists(),
        passwd=(root / "etc/passwd").read_bytes(),
        group=(root / "etc/group").read_bytes(),
    )


def _top_entries(root: Path) -> list[TopEntry]:
    out = []
    for name in _TOP:
        path = root / name
        if path.is_symlink():
            out.append(TopEntry(name, str(path.readlink())))
        elif path.is_dir():
            out.append(TopEntry(name, ""))
    return out


def _mounts(mountinfo: str) -> list[tuple[str, str, str, str]]:
    """(root, mount point, type, super options) of each line of mountinfo, see proc(5)."""
    out = []
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        words, tail = left.split(), right.split(" ")
        out.append((unescape(words[3]), unescape(words[4]), tail[0], tail[-1]))
    return out


def unescape(text: str) -> str:
    r"""Undo mountinfo's octal escapes (``\040`` is a space)."""
    return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), text)


def submounts_of(mountinfo: str) -> tuple[str, ...]:
    """Mount points below the shared trees: a cloned layer does not carry them along."""
    points = {point for _, point, _, _ in _mounts(mountinfo)}
    return tuple(sorted(p for p in points if p.startswith(tuple(s + "/" for s in _SHARED))))


def others_of(mountinfo: str) -> tuple[str, ...]:
    """Mount points that are neither below the shared trees nor the kernel's."""
    away = ("/", *_SHARED, "/proc", "/sys", "/dev", "/run")
    points = {point for _, point, _, _ in _mounts(mountinfo)}
    below = tuple(f"{top}/" for top in away[1:])
    return tuple(sorted(p for p in points if p not in away and not p.startswith(below)))


def own_v2(mountinfo: str, own_cgroup: str) -> str:
    """Return the folder of this process's cgroup v2, "" without one."""
    mount = next((m for m in _mounts(mountinfo) if m[2] == "cgroup2"), None)
    path = next((line[3:] for line in own_cgroup.splitlines() if line.startswith("0::")), None)
    if mount is None or path is None:
        return ""
    return _below(mount[0], mount[1], path)


def _below(mounted: str, point: str, path: str) -> str:
    if mounted != "/" and (path == mounted or path.startswith(mounted + "/")):
        path = path[len(mounted) :]
    return (point.rstrip("/") + path).rstrip("/")


def _has_v2(controller: str, cgroup: str, root: Path) -> bool:
    subtree = root / cgroup.lstrip("/") / "cgroup.subtree_control"
    return bool(cgroup) and subtree.exists() and controller in subtree.read_text().split()


def _memory_place(cgroup: str, mountinfo: str, own_cgroup: str, root: Path) -> LimitPlace | None:
    """Where the memory of a cgroup made below our own can be limited, if anywhere."""
    if _has_v2("memory", cgroup, root):
        return LimitPlace(2)
    for line in own_cgroup.splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" not in controllers.split(","):
            continue
        for mounted, point, kind, options in _mounts(mountinfo):
            if kind == "cgroup" and "memory" in options.split(","):
                return LimitPlace(1, _below(mounted, point, path))
    return None
