"""The RUN argument: a bundle's path, the start of a run id, or ``latest``.

Rules: a path that exists wins. Else bundles named ``run-ULID.hark`` in the current directory and
runs below ``RUNS`` are looked at; a prefix that fits several runs is an error.
"""

from __future__ import annotations

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


def find_bundle(name: str, *, here: Path | None = None, runs: Path = RUNS) -> Path:
    """Return the bundle that ``name`` means; raises ``InputError``."""
    if "/" in name or name.endswith(".hark") or os.path.lexists(name):
        return Path(name)
    found = _known(here or Path(), runs)
    if name == "latest":
        if not found:
            raise InputError("there is no run here", "neither run-*.hark nor a run of this host")
        return found[max(found)]
    if not _ULID.fullmatch(name):
        raise InputError(f"there is no bundle {name}", hint="name a file, a run id or 'latest'")
    fits = [run for run in found if run.startswith(name.upper())]
    if not fits:
        raise InputError(f"there is no run {name}", hint="name a file, a run id or 'latest'")
    if len(fits) > 1:
        raise InputError(f"{len(fits)} runs begin with {name}", ", ".join(sorted(fits)[:4]))
    return found[fits[0]]


def _known(here: Path, runs: Path) -> dict[str, Path]:
    """Run id to bundle; a run id sorts by its time."""
    found: dict[str, Path] = {}
    try:
        for path in runs.iterdir():
            if (path / "run.hark").exists():
                found[path.name.upper()] = path / "run.hark"
    except OSError:
        pass  # only root may look there
    for path in here.glob("run-*.hark"):
        found[path.stem.removeprefix("run-").upper()] = path
    return found
