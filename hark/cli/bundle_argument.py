"""The RUN argument: a bundle's path, the start of a run id, or ``latest``.

Rules: a path that exists wins. Else bundles named ``run-ULID.hark`` in the current directory and
runs below ``RUNS`` are looked at; a prefix that fits several runs is an error. ``latest`` is the
newest bundle of the current directory, else the newest run of this host that is over; where a run
that is going on can be used (``--follow``), the newest of all.
"""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from hark.errors import InputError
from hark.locations import RUNS

if TYPE_CHECKING:
    import argparse

__all__ = ["add_bundle_argument", "find_bundle"]

_ULID = re.compile(r"[0-9A-HJKMNP-TV-Z]{1,26}", re.IGNORECASE)


def add_bundle_argument(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """Add the positional RUN."""
    parser.add_argument(
        "run",
        metavar="RUN",
        nargs="?" if optional else None,
        help="a bundle, the start of a run id, or 'latest'",
    )


def find_bundle(
    name: str, *, live: bool = False, here: Path | None = None, runs: Path = RUNS
) -> Path:
    """Return the bundle that ``name`` means; raises ``InputError``. ``live``: see ``latest``."""
    if "/" in name or name.endswith(".hark") or os.path.lexists(name):
        return Path(name)
    published, kept = _published(here or Path()), _kept(runs)
    if name == "latest":
        return _latest(published, kept, live=live)
    if not _ULID.fullmatch(name):
        raise InputError(f"there is no bundle {name}", hint="name a file, a run id or 'latest'")
    found = kept | published
    fits = [run for run in found if run.startswith(name.upper())]
    if not fits:
        raise InputError(f"there is no run {name}", hint="name a file, a run id or 'latest'")
    if len(fits) > 1:
        raise InputError(f"{len(fits)} runs begin with {name}", ", ".join(sorted(fits)[:4]))
    return found[fits[0]]


def _latest(published: dict[str, Path], kept: dict[str, Path], *, live: bool) -> Path:
    if live:
        found = kept | published
    else:
        found = published or {run: path for run, path in kept.items() if not _going_on(path.parent)}
    if not found:
        raise InputError("there is no run here", "neither run-*.hark nor a run of this host")
    return found[max(found)]


def _published(here: Path) -> dict[str, Path]:
    """Run id to bundle; a run id sorts by its time."""
    return {path.stem.removeprefix("run-").upper(): path for path in here.glob("run-*.hark")}


def _kept(runs: Path) -> dict[str, Path]:
    """Run id to a bundle that is being written, or that could not be published."""
    try:
        return {
            path.name.upper(): path / "run.hark"
            for path in runs.iterdir()
            if (path / "run.hark").exists()
        }
    except OSError:
        return {}  # only root may look there


def _going_on(run: Path) -> bool:
    """Whether somebody holds the run's lock."""
    try:
        lock = os.open(run / "lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
