"""What bounds a run's tasks, memory, processor time and disk, as ops of its plan.

Pure. Each limit is had from the strongest place this host offers: the run's own cgroup v2, a cgroup
of a v1 hierarchy, an rlimit. ``enforced`` says which; what is weaker than a cgroup, or missing, is
a ``Missing``, which the plan makes a downgrade of.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hark import limits
from hark.launcher import ops
from hark.launcher.ops import Flag, Op
from hark.policy.compile import effective_limits

if TYPE_CHECKING:
    from hark.launcher.host import HostFacts, LimitPlace
    from hark.policy.model import Limits

__all__ = ["CGROUP_PREFIX", "Enforced", "Missing", "Resources"]

CGROUP_PREFIX = "hark-"
_V2 = 2  # LimitPlace.version


@dataclass(frozen=True, slots=True)
class Enforced:
    """One limit in force. ``by``: ``cgroup2``, ``cgroup1``, ``rlimit``, ``tmpfs`` or ``hark``."""

    name: str
    value: int
    by: str


@dataclass(frozen=True, slots=True)
class Missing:
    """A limit that this host cannot hold as it should. ``asked``: the policy itself states it."""

    feature: str
    cause: str
    effect: str
    asked: bool


class Resources:
    """The limits of one run on one host. ``stated``: as the policy has them, without defaults."""

    def __init__(self, stated: Limits, host: HostFacts, run_id: str) -> None:
        self.stated = stated
        self.bounds = effective_limits(stated)
        self.host = host
        self._folder = CGROUP_PREFIX + run_id

    @property
    def memory(self) -> int:
        """Bytes; hark's own default gives way to a small host, what the policy states does not."""
        value = self.bounds.memory or 0
        if self.stated.memory is not None or not self.host.memory_bytes:
            return value
        return min(value, self.host.memory_bytes * limits.MEMORY_HOST_QUARTERS // 4)

    def meter(self) -> ops.Meter:
        """Return what hark-launch itself watches while the agent lives."""
        return ops.Meter(
            tick_ms=limits.METER_TICK_MS,
            disk=self.bounds.disk or 0,
            reserve=limits.DISK_RESERVE_BYTES,
            reserve_files=limits.DISK_RESERVE_FILES,
            tasks=limits.TASKS_REFUSED_MOST,
            kills=limits.OOM_KILLS_MOST,
        )

    def cgroups(self) -> list[Op]:
        """Return the settings of the run's cgroups."""
        return [*self._pids(), *self._memory(), *self._cpu()]

    def rlimits(self) -> list[Op]:
        """Return what is had from the kernel's limits of a process, or of a user."""
        found: list[tuple[int, int]] = []
        if n := self.bounds.open_files:
            found.append((resource.RLIMIT_NOFILE, n))
        if (n := self.bounds.pids) and not self.host.pids:
            # Refuses as well as a cgroup: nobody else has the agent's id, and it has no other.
            found.append((resource.RLIMIT_NPROC, n))
        if self.memory and not self.host.memory:
            # Not the address space: Go, Java and JavaScript reserve more of that than there is.
            found.append((resource.RLIMIT_DATA, self.memory))
        return [ops.Rlimit(resource=what, soft=n, hard=n) for what, n in found]

    def missing(self) -> list[Missing]:
        """Return the limits that are weaker than stated, or none."""
        out = []
        if self.memory and not self.host.memory:
            effect = "each process is limited by itself, the run as a whole is not"
            cause = "no memory controller of cgroups for us"
            out.append(Missing("memory-limit", cause, effect, self.stated.memory is not None))
        if self.bounds.cpu and not self.host.cpu:
            cause = "no cpu controller of cgroups for us"
            out.append(Missing("cpu-limit", cause, "processor time is not limited", True))
        return out

    def enforced(self) -> tuple[Enforced, ...]:
        """Return every limit in force, by name."""
        bounds, host = self.bounds, self.host
        found = {
            "pids": (bounds.pids, _by(host.pids) or "rlimit"),
            "memory": (self.memory, _by(host.memory) or "rlimit"),
            "cpu": (bounds.cpu, _by(host.cpu)),
            "disk": (bounds.disk, "hark"),
            "tmp": (bounds.tmp, "tmpfs"),
            "open_files": (bounds.open_files, "rlimit"),
            "events": (bounds.events, "hark"),
            "bytes": (bounds.bytes, "hark"),
            "time": (bounds.time, "hark"),
        }
        return tuple(Enforced(name, n, by) for name, (n, by) in sorted(found.items()) if n and by)

    def _pids(self) -> list[Op]:
        if not self.bounds.pids:
            return []
        return self._set(self.host.pids, "pids.max", "pids.max", str(self.bounds.pids))

    def _memory(self) -> list[Op]:
        place, value = self.host.memory, str(self.memory)
        if not self.memory or not place:
            return []
        # v1 counts memory and swap in one number, v2 swap alone. Many kernels do not count swap.
        swap = "0" if place.version == _V2 else value
        return [
            *self._set(place, "memory.max", "memory.limit_in_bytes", value),
            *self._set(
                place, "memory.swap.max", "memory.memsw.limit_in_bytes", swap, Flag.OPTIONAL
            ),
        ]

    def _cpu(self) -> list[Op]:
        place, period = self.host.cpu, limits.CPU_PERIOD_US
        if not self.bounds.cpu or not place:
            return []
        quota = self.bounds.cpu * period // 100
        if place.version == _V2:
            return self._set(place, "cpu.max", "", f"{quota} {period}")
        return [
            *self._set(place, "", "cpu.cfs_period_us", str(period)),
            *self._set(place, "", "cpu.cfs_quota_us", str(quota)),
        ]

    def _set(
        self, place: LimitPlace | None, v2: str, v1: str, value: str, flags: Flag = Flag.NONE
    ) -> list[Op]:
        if place is None:
            return []
        if place.version == _V2:
            return [ops.LimitV2(file=v2, value=value, flags=flags)]
        folder = f"{place.folder}/{self._folder}"
        return [ops.LimitV1(path=folder, file=v1, value=value, flags=flags)]


def _by(place: LimitPlace | None) -> str:
    return f"cgroup{place.version}" if place else ""
