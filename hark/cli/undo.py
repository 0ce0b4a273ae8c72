"""``hark undo``: take the last apply of a run back.

Rules: a path that was changed since the apply stays as it is. Exit status: 0 all was taken back, 1
something stays.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hark.cli.printable import printable
from hark.cli.workspace_argument import add_run_argument, open_named
from hark.errors import InputError
from hark.workspace.undo import revert

if TYPE_CHECKING:
    import argparse

__all__ = ["configure", "run"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the argument of ``hark undo``."""
    add_run_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Undo; print what stays."""
    opened = open_named(args.run, views=False)
    applies = [journal for journal in opened.applies if journal.steps]
    if not applies:
        raise InputError(f"nothing of run {opened.state.run} is applied")
    opened.become_person()
    rows = revert(applies[-1], opened.reals())
    stays = [row for row in rows if row.conflict]
    for row in stays:
        path = printable(os.fsencode(opened.shown(row.step.layer, row.step.path)))
        print(f"conflict  {path}  ({row.conflict})")
    print(f"undone {len(rows) - len(stays)} of {len(rows)} steps")
    return 1 if stays else 0
