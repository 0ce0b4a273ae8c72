"""The RUN argument of verbs about a workspace: a run's id or its start, ``latest``, or a bundle.

Rules: root opens the run, the person's folders are opened as the person, and then the process
becomes the person for good.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hark.bundle.reader import Bundle
from hark.cli.printable import json_value, printable, size_text, ulid_text
from hark.errors import InputError, KernelUnsupported
from hark.launcher.sources import open_sources
from hark.locations import RUNS
from hark.policy.person import Person
from hark.workspace.runs import find_run, open_run

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from hark.workspace.judge import Judged
    from hark.workspace.runs import Known, OpenRun

__all__ = [
    "add_run_argument",
    "chosen",
    "counts",
    "covers",
    "json_row",
    "must_be_changed",
    "named",
    "named_to_discard",
    "open_named",
    "row",
]


def add_run_argument(parser: argparse.ArgumentParser) -> None:
    """Add the positional RUN."""
    parser.add_argument(
        "run", metavar="RUN", help="the start of a run id, 'latest' for this folder, or a bundle"
    )


def named(name: str) -> Known:
    """Find the run; raises HarkError."""
    if os.geteuid() != 0:
        raise KernelUnsupported(
            "this verb needs root", "only root can look into a run's folder", "sudo hark ..."
        )
    if "/" in name or name.endswith(".hark"):
        with Bundle.open(name) as bundle:
            name = ulid_text(bundle.header.run_id)
    return find_run(name, RUNS, os.getcwd())  # noqa: PTH109 - compared as text


def named_to_discard(name: str) -> Known:
    """Find the run whose changes are to go; raises HarkError.

    ``latest`` said twice must not reach the run before: a newer bundle in the folder says that the
    last run here keeps nothing any more.
    """
    known = named(name)
    if name == "latest":
        newer = newest_bundle(Path(known.state.layers[0].path))
        if newer > known.state.run:
            raise InputError(
                f"the latest run here, {newer}, keeps no changes",
                "they were discarded, or none were made",
                f"name the one you mean: hark discard {known.state.run}",
            )
    return known


def newest_bundle(folder: Path) -> str:
    """Return the id of the newest run whose bundle lies in the folder; empty: none."""
    return max((path.stem.removeprefix("run-") for path in folder.glob("run-*.hark")), default="")


def covers(path: tuple[int, str], layer: int, changed: str) -> bool:
    """Whether a PATH argument names ``changed`` or a folder above it."""
    at, name = path
    return at == layer and (not name or changed == name or changed.startswith(f"{name}/"))


def must_be_changed(
    words: Sequence[str], paths: Sequence[tuple[int, str]], changed: Sequence[tuple[int, str]]
) -> None:
    """Raise InputError for the first PATH argument that names no change, as a typing error does."""
    for word, path in zip(words, paths, strict=True):
        if not any(covers(path, layer, name) for layer, name in changed):
            raise InputError(f"the run did not change {word}", hint="`hark diff RUN` lists all")


def open_named(name: str, *, views: bool = True) -> OpenRun:
    """Find, lock and open a run."""
    known = named(name)
    who = known.state
    person = Person(  # noqa: S604 - a field of passwd(5), not subprocess's
        uid=who.uid,
        gid=who.gid,
        groups=who.groups,
        name=who.name,
        home="/",
        shell="/bin/sh",
    )
    return open_run(known, lambda folders: open_sources(folders, person), views=views)


def chosen(run: OpenRun, words: Sequence[str]) -> list[tuple[int, str]]:
    """Turn PATH arguments into (layer, path below it). Raises InputError."""
    out = []
    for word in words:
        path = os.path.normpath(os.path.join(run.state.layers[0].path, word))  # noqa: PTH118
        fits = [
            (len(layer.path), layer.number, path[len(layer.path) :].strip("/"))
            for layer in run.state.layers
            if path == layer.path or path.startswith(layer.path.rstrip("/") + "/")
        ]
        if not fits:
            raise InputError(f"{word} is in no folder that the run could write")
        out.append(max(fits)[1:])
    return out


def counts(rows: Iterable[Judged]) -> str:
    """Return the line that sums up a write set."""
    number = dict.fromkeys(("A", "M", "D", "held", "conflict", "never"), 0)
    for item in rows:
        number[item.change.op] += 1
        for name in ("conflict", "held", "never"):
            if getattr(item, name):
                number[name] += 1
                break
    shown = [f"{name} {number[name]}" for name in ("A", "M", "D")]
    shown += [f"{name} {number[name]}" for name in ("held", "conflict") if number[name]]
    if number["never"]:
        shown.append(f"left out {number['never']}")
    return "  ".join(shown)


def row(run: OpenRun, layer: int, item: Judged, failed: str = "") -> str:
    """Return one line for people."""
    change = item.change
    word, reason = "", failed
    if failed:
        word = "failed"
    elif item.conflict:
        word, reason = "conflict", item.conflict
    elif item.never:
        word, reason = "left out", item.never
    elif item.held:
        word, reason = "held", f"{item.held}; --hooks takes it"
    size = size_text(change.size) if change.kind == "file" and change.op != "D" else ""
    path = printable(os.fsencode(run.shown(layer, change.path)))
    path += "/" if change.kind == "folder" else ""
    notes = "; ".join(filter(None, (reason, *item.notes)))
    line = f"{change.op}  {word:<8}  {size:>10}  {path}"
    return f"{line}  ({notes})" if notes else line


def json_row(run: OpenRun, layer: int, item: Judged) -> dict[str, object]:
    """Return one change as a JSON object."""
    change = item.change
    new = change.new
    return {
        "change": change.op,
        "path": json_value(os.fsencode(run.shown(layer, change.path))),
        "kind": change.kind,
        "size": change.size if change.kind == "file" else None,
        "mode": f"{new.st_mode & 0o7777:o}" if new is not None else None,
        "held": item.held or None,
        "conflict": item.conflict or None,
        "left_out": item.never or None,
        "notes": list(item.notes),
    }


def lift(item: Judged) -> Judged:
    """Return the change as it counts with ``--hooks``."""
    return replace(item, held="")
