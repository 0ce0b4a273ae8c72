"""``hark discard``: throw away what is kept of a run's changes.

Rules: the person's workspace is not touched; what was applied stays applied and can no longer be
undone. A bundle that could not be published stays in the run's folder. ``latest`` is refused when a
newer run of the folder keeps nothing, so that saying it twice throws away one run's changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hark.cli.workspace_argument import add_run_argument, named_to_discard
from hark.launcher.removal import discard_run
from hark.workspace.runs import lock_run

if TYPE_CHECKING:
    import argparse

__all__ = ["configure", "run"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the argument of ``hark discard``."""
    add_run_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Discard one run's changes."""
    known = named_to_discard(args.run)
    with lock_run(known.path):
        bundle = discard_run(known.path)
    print(f"discarded the changes of run {known.state.run}")
    if bundle is not None:
        print(f"its bundle stays at {bundle}")
    return 0
