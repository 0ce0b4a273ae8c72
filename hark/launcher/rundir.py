"""The run's folder below /var/lib/hark/runs: root's alone.

It holds ``run.hark`` while the bundle is written, ``lock``, one folder per writable layer
(``layers/N/{upper,work}``) and the throw-away HOME (``home/{upper,work}``); of a replay also the
recorded folders (``start/N``). hark-launch removes what a finished run leaves; what the agent wrote
to the workspace stays until it is applied or discarded. A crash leaves the folder, and its lock
free: ``hark.launcher.reap`` finds it by that.
"""

from __future__ import annotations

import fcntl
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hark.errors import LaunchError
from hark.launcher import ops
from hark.launcher.ids import stored_id
from hark.launcher.ops import Flag

if TYPE_CHECKING:
    from hark.launcher.plan import LaunchPlan
    from hark.policy.person import Person

__all__ = ["BUNDLE_NAME", "UNPACKED", "RunDir", "create", "make_layers"]

BUNDLE_NAME = "run.hark"
LOCK_NAME = "lock"
UNPACKED = "start"  # of a replay: the recorded folders


@dataclass(frozen=True, slots=True)
class RunDir:
    """An open run folder: descriptors of ``runs``, of its lock, and its path."""

    path: Path
    runs_fd: int
    lock_fd: int

    def close(self) -> None:
        """Close the descriptors; the lock goes with the last holder."""
        os.close(self.runs_fd)
        os.close(self.lock_fd)


def create(runs: Path, run_id: str) -> RunDir:
    """Make and lock a new run's folder. Raises ``LaunchError`` when that is impossible."""
    path = runs / run_id
    try:
        runs.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.mkdir(mode=0o700)
        lock = _new_lock(path)
        folder = os.open(runs, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as exc:
        raise LaunchError(f"the run's folder {path} cannot be made", exc.strerror or "") from exc
    return RunDir(path, folder, lock)


def _new_lock(path: Path) -> int:
    """Make the lock file and hold it: under its name only when it is held, for ``reap`` to see."""
    being_made = path / f".{LOCK_NAME}"
    lock = os.open(being_made, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    being_made.rename(path / LOCK_NAME)
    return lock


def make_layers(plan: LaunchPlan, fds: dict[str, int], person: Person, base: int = 0) -> None:
    """Make ``upper`` and ``work`` of every writable layer the plan names.

    ``upper`` gets the owner and mode of the folder it lies over: it shows as that folder's own.
    ``base``: first id of the run's block, which the owner of an unpacked folder is from.
    """
    for op in plan.ops:
        if not isinstance(op, ops.Workspace):
            continue
        layer = Path(op.layer)
        layer.mkdir(mode=0o700, parents=True)
        (layer / "work").mkdir(mode=0o700)
        upper = layer / "upper"
        upper.mkdir(mode=0o700)
        if op.fd == ops.NO_INDEX:
            uid, gid, mode = person.uid, person.gid, 0o700
        else:
            st = os.fstat(fds[plan.fds[op.fd]])
            uid, gid, mode = st.st_uid, st.st_gid, stat.S_IMODE(st.st_mode)
            if Flag.RUN_IDS in op.flags:
                uid, gid = (
                    stored_id(base, at, own) for at, own in ((uid, person.uid), (gid, person.gid))
                )
        os.chown(upper, uid, gid)
        upper.chmod(mode)
