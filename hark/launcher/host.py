"""Facts about this host that a launch plan needs, read once and handed on as a value.

Rules: reads only, as root, from /proc, /etc and the root folder; nothing of the person's.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CONTROLLERS", "HostFacts", "LimitPlace", "TopEntry", "read_facts"]

CONTROLLERS = ("memory", "pids", "cpu")  # of cgroups, that a run is limited by
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
    pids: LimitPlace | None  # where tasks, memory and processor time of a run can be limited
    memory: LimitPlace | None
    cpu: LimitPlace | None
    memory_bytes: int  # of the machine, 0: not known
    ipv6: bool
    passwd: bytes
    group: bytes


def read_facts(root: Path = Path("/")) -> HostFacts:
    """Read the facts of this host (``root``: another one's tree, in tests)."""
    mounts = (root / "proc/self/mountinfo").read_text()
    own = (root / "proc/self/cgroup").read_text()
    cgroup = run_parent(own_v2(mounts, own), mount_of_v2(mounts), root)
    places = {name: _limit_place(name, cgroup, mounts, own, root) for name in CONTROLLERS}
    return HostFacts(
        top=tuple(_top_entries(root)),
        submounts=submounts_of(mounts),
        mounts=others_of(mounts),
        cgroup=cgroup,
        pids=places["pids"],
        memory=places["memory"],
        cpu=places["cpu"],
        memory_bytes=memory_of((root / "proc/meminfo").read_text()),
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


def mount_of_v2(mountinfo: str) -> str:
    """Return where cgroup v2 is mounted, "" where it is not."""
    return next((point for _, point, kind, _ in _mounts(mountinfo) if kind == "cgroup2"), "")


def run_parent(own: str, mount: str, root: Path = Path("/")) -> str:
    """Return the nearest cgroup v2, from ``own`` up, whose children have the most controllers.

    The cgroup of a login or a service holds processes, so it can give its children none; the slice
    above it does.
    """
    best, most = own, -1
    folder = own
    while own and folder.startswith(mount):
        offered = sum(_has_v2(name, folder, root) for name in CONTROLLERS)
        if offered > most:
            best, most = folder, offered
        if folder == mount or "/" not in folder:
            break
        folder = folder.rpartition("/")[0]
    return best


def memory_of(meminfo: str) -> int:
    """Bytes of memory of this machine, by the text of /proc/meminfo; 0: not known."""
    found = re.search(r"^MemTotal:\s+(\d+) kB$", meminfo, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _has_v2(controller: str, cgroup: str, root: Path) -> bool:
    folder = root / cgroup.lstrip("/")
    subtree = folder / "cgroup.subtree_control"
    if not cgroup or not subtree.exists() or not os.access(folder, os.W_OK):
        return False
    return controller in subtree.read_text().split()


def _limit_place(
    controller: str, cgroup: str, mountinfo: str, own_cgroup: str, root: Path
) -> LimitPlace | None:
    """Where ``controller`` of a run can be had, if anywhere: in its v2 cgroup, or in one of v1."""
    if _has_v2(controller, cgroup, root):
        return LimitPlace(2)
    for line in own_cgroup.splitlines():
        _, controllers, path = line.split(":", 2)
        if controller not in controllers.split(","):
            continue
        for mounted, point, kind, options in _mounts(mountinfo):
            if kind == "cgroup" and controller in options.split(","):
                folder = _below(mounted, point, path)
                return LimitPlace(1, folder) if _writable(root / folder.lstrip("/")) else None
    return None


def _writable(folder: Path) -> bool:
    return folder.is_dir() and os.access(folder, os.W_OK)
