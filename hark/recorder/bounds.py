"""What a run may use up, and what is said when it did.

Pure. The kernel and hark-launch hold tasks, memory, processor time and disk; the recorder holds
what only it counts: events, the bundle's bytes, time. A run that is over one of them is ended, with
``limit-NAME`` as its reason. What was merely refused (a task, memory) is counted, and told.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from hark.errors import HarkError
from hark.kernel import syscalls
from hark.policy.control import Over

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hark.kernel.records import SyscallCount
    from hark.policy.model import Limits

__all__ = ["MET", "Bounds", "memory_error", "over_error", "refused_tasks"]

MET = {
    "pids": "new tasks were refused",
    "memory": "tasks were killed by the kernel for want of memory",
}
_OVER: dict[int, tuple[str, str, str]] = {
    Over.PIDS: ("pids", "it was refused new tasks again and again", "pids"),
    Over.MEMORY: ("memory", "the kernel killed tasks of it again and again", "memory"),
    Over.DISK: ("disk", "what it wrote takes more disk than it may", "disk"),
    Over.DISK_FULL: ("disk-full", "too little is left of the disk that holds its files", ""),
}
_WORDS = {
    "time": "it took longer than it may",
    "events": "it made more events than its recording may hold",
    "bytes": "its bundle is larger than it may be",
    "memory": "the kernel killed it for want of memory",
}
_TASK_CALLS = frozenset({"clone", "clone3", "fork", "vfork"})


class Bounds:
    """The recorder's own limits. ``limits``: with hark's defaults; None is no bound."""

    def __init__(self, limits: Limits, began_ns: int) -> None:
        self._limits = limits
        self._began_ns = began_ns

    def over(self, now_ns: int, events: int, size: int) -> str:
        """Return the name of a limit that the run is over, or ""."""
        took_s = (now_ns - self._began_ns) / 1e9
        found = (("time", took_s), ("events", events), ("bytes", size))
        for name, value in found:
            most = getattr(self._limits, name)
            if most is not None and value > most:
                return name
        return ""

    def error(self, name: str) -> HarkError:
        """Return what to tell about a limit that the run is over."""
        return _error(_WORDS[name], name, getattr(self._limits, name))


def over_error(what: int, limits: Limits) -> tuple[str, HarkError]:
    """Reason and error for what hark-launch found (``Over``)."""
    reason, words, key = _OVER[what]
    if key:
        return f"limit-{reason}", _error(words, key, getattr(limits, key))
    return f"limit-{reason}", HarkError(f"the run was ended: {words}", "", "free some disk space")


def memory_error(limits: Limits) -> HarkError:
    """Return what to tell about an agent that the kernel killed for want of memory."""
    return _error(_WORDS["memory"], "memory", limits.memory)


def refused_tasks(counts: Iterable[SyscallCount]) -> int:
    """How often a new task was refused, by the counts of system calls: where no cgroup counts."""
    return sum(
        row.count
        for row in counts
        if row.errno == errno.EAGAIN and syscalls.name(row.nr) in _TASK_CALLS
    )


def _error(words: str, key: str, value: int | None) -> HarkError:
    hint = f"raise it: {key} in [limits] of the policy, or --limit {key}=VALUE"
    return HarkError(f"the run was ended: {words}", f"limits.{key} is {value}", hint)
