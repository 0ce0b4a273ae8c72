"""The processes of a run as /proc shows them: the witness of who lives and who is gone.

Rules. A process is (pid, start time), since a pid alone may be somebody else a moment later.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Process", "below", "run_folder", "running_with", "wait_until_gone"]

_RUNS = Path("/var/lib/hark/runs")

_PPID, _START = 3, 21  # proc_pid_stat(5), counted from 0


@dataclass(frozen=True, slots=True)
class Process:
    """One process; ``name`` is its comm."""

    pid: int
    parent: int
    start: int
    name: str

    def alive(self) -> bool:
        """Whether it exists and is no zombie; who its parent is now does not matter."""
        now = _read(self.pid)
        return now is not None and now[0].start == self.start and now[1] not in "ZX"

    def kill(self) -> None:
        """SIGKILL it, if it is still the same process."""
        if self.alive():
            os.kill(self.pid, signal.SIGKILL)


def _read(pid: int) -> tuple[Process, str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    name = text[text.index("(") + 1 : text.rindex(")")]
    rest = ["", "", *text[text.rindex(")") + 2 :].split()]
    return Process(pid, int(rest[_PPID]), int(rest[_START]), name), rest[2]


def _all() -> list[Process]:
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [found[0] for pid in pids if (found := _read(pid)) is not None]


def below(pid: int) -> list[Process]:
    """Return ``pid`` and everything that descends from it now."""
    everything = _all()
    wanted = {pid}
    grown = True
    while grown:
        more = {p.pid for p in everything if p.parent in wanted} | wanted
        grown = more != wanted
        wanted = more
    return [p for p in everything if p.pid in wanted]


def run_folder(tree: list[Process]) -> Path:
    """Return the run's folder: hark-launch holds its lock file open."""
    (launch,) = [process for process in tree if process.name == "hark-launch"]
    for entry in Path(f"/proc/{launch.pid}/fd").iterdir():
        target = entry.readlink()
        if target.name == "lock" and target.parent.parent == _RUNS:
            return target.parent
    raise AssertionError("hark-launch holds no lock of a run")


def running_with(marker: str) -> list[Process]:
    """Return the processes with ``marker`` as one of their arguments."""
    found = []
    for process in _all():
        try:
            words = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if marker.encode() in words:
            found.append(process)
    return found


def wait_until_gone(processes: list[Process], seconds: float = 30.0) -> list[Process]:
    """Wait for all to end; return those that did not within a generous deadline."""
    end = time.monotonic() + seconds
    left = processes
    while left and time.monotonic() < end:
        left = [process for process in left if process.alive()]
        time.sleep(0.02)
    return left
