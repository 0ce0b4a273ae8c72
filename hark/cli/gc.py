"""``hark gc``: remove what dead runs left, and list what is kept and why.

Rules: nothing of a run that is going on is touched. Changes of an agent are removed only with
``--older-than``, bundles never.
"""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING

from hark.cli.printable import printable, size_text, time_text
from hark.errors import InputError
from hark.kernel import sensors
from hark.launcher.host import read_facts
from hark.launcher.reap import reap
from hark.launcher.removal import discard_run
from hark.locations import RUNS
from hark.recorder.ahead import require_root
from hark.workspace.runs import folder_bytes, kept_runs, lock_run

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

__all__ = ["configure", "run"]

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_RUN_ID = re.compile(f"[{_CROCKFORD}]{{26}}")
_UNITS = {"": 86400, "d": 86400, "h": 3600, "m": 60, "s": 1, "w": 604800}
_AGE = re.compile(r"(\d{1,9})([smhdw]?)")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``hark gc``."""
    parser.add_argument(
        "--older-than",
        metavar="AGE",
        help="discard changes of runs older than this: 30d, 12h, ...; a bare number is days",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def run(args: argparse.Namespace) -> int:
    """Clean up and list."""
    require_root()
    before_ns = time.time_ns() - age_ns(args.older_than) if args.older_than else None
    reaped = reap(read_facts())
    removed = [str(path) for path in reaped.removed]
    sensors.leave(0)  # no run has this id: only the sets that nobody holds go
    folders = {known.path: known for known in kept_runs(RUNS)}
    for path in sorted(p for p in {*folders, *reaped.kept} if _RUN_ID.fullmatch(p.name)):
        known = folders.get(path)
        where = known.state.layers[0].path if known else ""
        if not path.exists():
            continue  # another command has removed it
        try:
            with lock_run(path):
                old = before_ns is not None and born_ns(path) < before_ns
                if old and known is not None and discard_run(path) is None:
                    removed.append(str(path))
                    continue
        except InputError:
            show(args, {"running": str(path), "folder": where})
            continue
        what = "changes" if known else "bundle"
        if known and (path / "run.hark").exists():
            what = "changes and bundle"
        row = {"kept": str(path), "what": what, "folder": where}
        show(args, row | {"began": time_text(born_ns(path)), "bytes": folder_bytes(path)})
    for name in removed:
        show(args, {"removed": name})
    return 0


def show(args: argparse.Namespace, row: dict[str, object]) -> None:
    """Print one row."""
    if args.json:
        print(json.dumps(row))
        return
    (word, path), *rest = row.items()
    values = dict(rest)
    size = values.pop("bytes", None)
    words = [word, str(path), *(printable(str(v)) for v in values.values() if v)]
    if isinstance(size, int):
        words.append(size_text(size))
    print("  ".join(words))


def age_ns(text: str) -> int:
    """Read an age, in nanoseconds. Raises InputError."""
    found = _AGE.fullmatch(text)
    if found is None:
        raise InputError(f"--older-than {text}: not an age", "", "30d, 12h, 45m; a number is days")
    return int(found[1]) * _UNITS[found[2]] * 1_000_000_000


def born_ns(path: Path) -> int:
    """Return when a run began, as its id says: a ULID's first ten characters."""
    milliseconds = 0
    for character in path.name[:10]:
        milliseconds = milliseconds * 32 + _CROCKFORD.index(character)
    return milliseconds * 1_000_000
