"""``hark apply``: carry what the agent changed into the person's workspace.

Rules: done as the person who ran the agent. What the person changed since the run began stays; what
programs outside hark would execute is held back unless ``--hooks`` says so. Exit status: 0 all was
carried over, 1 something was held, in conflict, left out or failed.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from hark import limits
from hark.cli.workspace_argument import (
    add_run_argument,
    chosen,
    counts,
    covers,
    lift,
    must_be_changed,
    open_named,
    row,
)
from hark.workspace.carry import carry
from hark.workspace.judge import keep_sources
from hark.workspace.undo import revert

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
    settle(args.run)
    opened = open_named(args.run)
    paths = chosen(opened, args.path)
    journal = None if args.dry_run else opened.begin_apply()
    opened.become_person()
    everything = list(opened.judged())
    must_be_changed(args.path, paths, [(t.layer, item.change.path) for t, item in everything])
    rows = going(everything, paths, hooks=args.hooks)
    if journal is None:
        for target, item in rows:
            print(row(opened, target.layer, item))
        print(counts(item for _, item in rows) if rows else "no changes")
        return 0
    outcomes = carry(rows, journal, opened.state.run, hooks=args.hooks)
    return report(opened, rows, outcomes)


def settle(name: str) -> None:
    """Take an apply back that was cut off, so that all is compared with the tree as it was.

    In a process of its own, which becomes the person; nothing is compared in it.
    """
    opened = open_named(name, views=False)
    broken = [journal for journal in opened.applies if not journal.ended]
    if broken:
        pid = os.fork()
        if pid == 0:
            try:
                opened.become_person()
                for journal in reversed(broken):
                    revert(journal, opened.reals())
                    journal.mark("ended")
                os._exit(0)
            finally:
                os._exit(limits.EXIT_BUG)
        os.waitpid(pid, 0)
        sys.stderr.write("hark: an apply that was cut off was taken back first\n")
    opened.close()


def going(
    rows: list[tuple[Target, Judged]], paths: list[tuple[int, str]], *, hooks: bool
) -> list[tuple[Target, Judged]]:
    """Choose the changes that PATH names, and judge them anew for what is left behind."""
    out = []
    for layer in dict.fromkeys(target.layer for target, _ in rows):
        own = [(target, lift(item) if hooks else item) for target, item in rows]
        own = [(target, item) for target, item in own if target.layer == layer]
        target = own[0][0]
        picked = [item for _, item in selected(own, paths)]
        everything = [item for _, item in own]
        kept = keep_sources(everything, picked, target.views, hooks=hooks)
        out += [(target, item) for item in kept]
    return out


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
