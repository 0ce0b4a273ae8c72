"""``hark apply``: carry what the agent changed into the person's workspace.

Rules: done as the person who ran the agent. What the person changed since the run began stays; what
programs outside hark would execute is held back unless ``--hooks`` says so. Exit status: 0 all was
carried over, 1 something was held, in conflict, left out or failed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from hark.cli.diff import covers
from hark.cli.workspace_argument import add_run_argument, chosen, counts, lift, open_named, row
from hark.workspace.carry import carry
from hark.workspace.undo import recover

if TYPE_CHECKING:
    import argparse

    from hark.workspace.carry import Outcome, Target
    from hark.workspace.judge import Judged
    from hark.workspace.runs import OpenRun

__all__ = ["configure", "run"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``hark apply``."""
    add_run_argument(parser)
    parser.add_argument("path", nargs="*", metavar="PATH", help="only these files and folders")
    parser.add_argument("--hooks", action="store_true", help="also what is held back")
    parser.add_argument("--dry-run", action="store_true", help="print what would be done")


def run(args: argparse.Namespace) -> int:
    """Apply; print what was done and what was not."""
    opened = open_named(args.run)
    paths = chosen(opened, args.path)
    journal = None if args.dry_run else opened.begin_apply()
    opened.become_person()
    if journal is not None:
        settle(opened)
    rows = selected(list(opened.judged()), paths)
    if args.hooks:
        rows = [(target, lift(item)) for target, item in rows]
    if journal is None:
        for target, item in rows:
            print(row(opened, target.layer, item))
        print(counts(item for _, item in rows) if rows else "no changes")
        return 0
    outcomes = carry(rows, journal, opened.state.run, hooks=args.hooks)
    return report(opened, rows, outcomes)


def settle(opened: OpenRun) -> None:
    """Finish what an interrupted apply left in between."""
    for journal in opened.applies:
        if not journal.ended:
            recover(journal, opened.reals())
            journal.mark("ended")


def selected(
    rows: list[tuple[Target, Judged]], paths: list[tuple[int, str]]
) -> list[tuple[Target, Judged]]:
    """Keep what PATH names, and the new folders above it."""
    if not paths:
        return rows
    kept = []
    for target, item in rows:
        path = item.change.path
        above = item.change.op == "A" and item.change.kind == "folder"
        for layer, name in paths:
            inside = covers((layer, name), target.layer, path)
            if inside or (above and layer == target.layer and name.startswith(f"{path}/")):
                kept.append((target, item))
                break
    return kept


def report(opened: OpenRun, rows: list[tuple[Target, Judged]], outcomes: list[Outcome]) -> int:
    """Print one line for each change; return the exit status."""
    failed = {(o.target.layer, id(o.judged)): o.failed for o in outcomes if o.failed}
    done = {(o.target.layer, id(o.judged)) for o in outcomes if not o.failed}
    clean = True
    for target, item in rows:
        key = (target.layer, id(item))
        why = failed.get(key, "")
        if why or key not in done:
            clean = False
        print(row(opened, target.layer, item, why))
    if not rows:
        print("no changes")
        return 0
    applied = len(done - failed.keys())
    print(f"applied {applied} of {len(rows)}: {counts(item for _, item in rows)}")
    if applied:
        sys.stderr.write(f"hark: `hark undo {opened.state.run}` takes it back\n")
    return 0 if clean else 1
