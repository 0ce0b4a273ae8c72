"""``hark diff``: what the agent changed in its workspace, and would be applied.

Rules: the list is exact: a file written with the same bytes is not in it. The work is done as the
person; names and lines the agent made are escaped. Exit status 0, also when there is
nothing; a PATH that names no change is an error.
"""

from __future__ import annotations

import difflib
import json
import os
import sys
from typing import TYPE_CHECKING

from hark import limits
from hark.cli.printable import printable
from hark.cli.workspace_argument import (
    add_run_argument,
    chosen,
    counts,
    covers,
    json_row,
    must_be_changed,
    open_named,
    row,
)
from hark.workspace.content import read_some

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from hark.workspace.carry import Target
    from hark.workspace.judge import Judged
    from hark.workspace.runs import OpenRun

__all__ = ["configure", "run"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``hark diff``."""
    add_run_argument(parser)
    parser.add_argument("path", nargs="*", metavar="PATH", help="show these files line by line")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def run(args: argparse.Namespace) -> int:
    """Print the list, or the lines of the files named."""
    opened = open_named(args.run)
    paths = chosen(opened, args.path)
    opened.become_person()
    everything = list(opened.judged())
    must_be_changed(args.path, paths, [(t.layer, item.change.path) for t, item in everything])
    rows = [
        (target, item)
        for target, item in everything
        if not paths or any(covers(path, target.layer, item.change.path) for path in paths)
    ]
    for target, item in rows:
        if args.json:
            print(json.dumps(json_row(opened, target.layer, item)))
        elif args.path and item.change.kind == "file":
            sys.stdout.write("".join(f"{line}\n" for line in text_diff(opened, target, item)))
        else:
            print(row(opened, target.layer, item))
    if not args.json:
        print(counts(item for _, item in rows) if rows else "no changes")
    return 0


def text_diff(opened: OpenRun, target: Target, item: Judged) -> Iterator[str]:
    """Yield a unified diff (POSIX diff -u), each line printable; or say why there is none."""
    change = item.change
    name = printable(os.fsencode(opened.shown(target.layer, change.path)))
    yield row(opened, target.layer, item)
    views = target.views
    old = b"" if change.op == "A" else read_some(views.lower, change.path)
    new = b"" if change.op == "D" else read_some(views.merged, change.path)
    if old is None or new is None:
        yield f"{name}: cannot be read, or longer than {limits.WORKSPACE_DIFF_BYTES} bytes"
        return
    if b"\0" in old or b"\0" in new:
        yield f"{name}: binary"
        return
    lines = difflib.unified_diff(
        old.decode("utf-8", "backslashreplace").splitlines(),
        new.decode("utf-8", "backslashreplace").splitlines(),
        "/dev/null" if change.op == "A" else f"a/{name}",
        "/dev/null" if change.op == "D" else f"b/{name}",
        lineterm="",
    )
    for line in lines:
        yield "\t".join(printable(part) for part in line.split("\t"))
