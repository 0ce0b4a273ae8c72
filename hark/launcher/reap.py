"""Cleaning up after runs whose parties were all killed.

hark-launch removes what a run made. When it is killed too, the kernel ends the agent's tree (its
init dies with the launcher) and frees the locks; a cgroup folder and a run folder stay. Whatever
carries the name of a run whose lock is free is left over, and is removed at the next start. Where
the run folder is gone too (by `hark gc` or by hand), the lock on the cgroup itself tells. Run
folders with a bundle or with changes of the agent are evidence: they stay, unlocked.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hark.launcher.removal import remove_tree
from hark.launcher.resources import CGROUP_PREFIX
from hark.launcher.rundir import BUNDLE_NAME, LOCK_NAME, UNPACKED
from hark.locations import RUNS

if TYPE_CHECKING:
    from hark.launcher.host import HostFacts

__all__ = ["Reaped", "reap"]

_KILL_WAIT_S = 2.0
_KILL_STEP_S = 0.005
_RUN_ID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}\Z")  # a ULID


@dataclass(frozen=True, slots=True)
class Reaped:
    """What a look found: removed paths, and run folders kept as evidence."""

    removed: tuple[Path, ...]
    kept: tuple[Path, ...]


def reap(host: HostFacts, runs: Path = RUNS) -> Reaped:
    """Remove what dead runs left. Never touches a run whose lock is held."""
    left = _dead_cgroups(host, runs)
    removed = [path for path in left if _remove_cgroup(path)]
    kept: list[Path] = []
    for run in sorted(runs.iterdir()) if runs.is_dir() else []:
        if not _is_dead(run):
            continue
        _trim(run)
        if _is_evidence(run):
            kept.append(run)
        else:
            with contextlib.suppress(OSError):
                remove_tree(run)
                removed.append(run)
    return Reaped(tuple(removed), tuple(kept))


def _dead_cgroups(host: HostFacts, runs: Path) -> list[Path]:
    """Return the cgroup folders of dead runs, those below limits of v1 too."""
    out = []
    for folder in _cgroup_folders(host):
        for path in sorted(folder.glob(CGROUP_PREFIX + "*")):
            run = runs / path.name.removeprefix(CGROUP_PREFIX)
            if _is_dead(run) or (not run.exists() and _is_forgotten(path.name, host)):
                out.append(path)
    return out


def _is_forgotten(name: str, host: HostFacts) -> bool:
    """Whether a cgroup without a run folder belonged to a run, and nobody holds its lock.

    hark-launch locks the v2 folder, which is the first to be made and the first to go. Without v2
    nothing is known.
    """
    if not host.cgroup or not _RUN_ID.match(name.removeprefix(CGROUP_PREFIX)):
        return False
    path = Path(host.cgroup, name)
    return not path.exists() or _is_free(path, os.O_RDONLY | os.O_DIRECTORY)


def _cgroup_folders(host: HostFacts) -> list[Path]:
    found = [host.cgroup] if host.cgroup else []
    places = (host.pids, host.memory, host.cpu)
    found += [place.folder for place in places if place and place.folder]
    return [Path(folder) for folder in dict.fromkeys(found)]


def _is_dead(run: Path) -> bool:
    """Whether nobody holds the run's lock.

    Without a lock file it is not known: the folder is being made, or the run is another tree's.
    """
    return _is_free(run / LOCK_NAME, os.O_RDWR)


def _is_free(path: Path, flags: int) -> bool:
    """Whether nobody holds the lock on what lies there."""
    try:
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


def _remove_cgroup(path: Path) -> bool:
    with contextlib.suppress(OSError):
        (path / "cgroup.kill").write_text("1")
    end = time.monotonic() + _KILL_WAIT_S
    while True:
        try:
            path.rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            if time.monotonic() > end:
                return False
            time.sleep(_KILL_STEP_S)
        else:
            return True


def _trim(run: Path) -> None:
    """Remove the throw-away HOME, what a replay unpacked, and the overlays' scratch folders."""
    for folder in (run / "home", run / UNPACKED, *(layer / "work" for layer in _layers(run))):
        with contextlib.suppress(OSError):
            remove_tree(folder)


def _layers(run: Path) -> list[Path]:
    try:
        return list((run / "layers").iterdir())
    except OSError:
        return []


def _is_evidence(run: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        if (run / BUNDLE_NAME).stat().st_size:  # an empty one: the run ended before it began
            return True
    return any(_has_entries(layer / "upper") for layer in _layers(run))


def _has_entries(folder: Path) -> bool:
    try:
        return any(folder.iterdir())
    except FileNotFoundError:
        return False
