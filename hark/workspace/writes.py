"""The write set as evidence: what the agent's layers hold when its tree is gone.

The recorder reads it through a read-only view that hark-launch opened, under its own powerless ids.
One row for each entry of an upper folder: its path, whether it is new, changed or removed against
the start manifest, type, size, permissions and content digest. Rules: the tree is hostile; nothing
of it is followed, and names are bytes. Bounded in entries, bytes and time: what is beyond is said.
A renamed folder is a new folder and a removed one: its content was not written.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from hark import limits
from hark.bundle import cbor
from hark.bundle.events import Kind
from hark.errors import HarkError
from hark.workspace import manifest
from hark.workspace.content import digest_file, digest_link
from hark.workspace.judge import held_reason
from hark.workspace.paths import rows_of, too_long

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["WriteSet", "Written", "summary", "write_set", "write_set_events"]

_ROWS_PER_EVENT = 512  # with the longest paths 2 MiB, a quarter of a section
_FILE, _FOLDER, _LINK, _SPECIAL = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class Written:
    """One layer's folder, and its start manifest as an open file with its BLAKE3 digest.

    ``hidden``: what hark itself took out of the agent's sight before it began.
    """

    folder: str
    manifest: int
    digest: bytes
    hidden: frozenset[str] = frozenset()


@dataclass(slots=True)
class WriteSet:
    """Rows of one layer, by path: [path, change, type, size, permissions, digest or None].

    change: A, M, D, or W where the start is not known. ``complete``: no bound was met.
    """

    folder: str
    rows: list[list[Any]] = field(default_factory=list)
    complete: bool = True


@dataclass(slots=True)
class _Budget:
    ends: float
    entries: int = limits.WRITE_SET_ENTRIES_MOST
    bytes: int = limits.WRITE_SET_DIGEST_BYTES


def write_set(layers: Sequence[Written], uppers: Sequence[int]) -> list[WriteSet]:
    """List all layers; ``uppers`` are their folders, in the same order."""
    budget = _Budget(time.monotonic() + limits.WRITE_SET_S)
    return [_layer(layer, upper, budget) for layer, upper in zip(layers, uppers, strict=False)]


def _layer(layer: Written, upper: int, budget: _Budget) -> WriteSet:
    start = manifest.Manifest()
    with contextlib.suppress(HarkError, OSError):
        if rows_of(upper, ""):
            start = manifest.load(layer.manifest, layer.digest)
    lister = _Lister(upper, start, budget, WriteSet(layer.folder), layer.hidden)
    lister.walk()
    lister.out.rows.sort()
    return lister.out


@dataclass(slots=True)
class _Lister:
    upper: int
    start: manifest.Manifest
    budget: _Budget
    out: WriteSet
    hidden: frozenset[str]

    def walk(self) -> None:
        pending = [""]
        while pending:
            path = pending.pop()
            try:
                if too_long(path) or time.monotonic() > self.budget.ends:
                    raise TimeoutError
                entries = rows_of(self.upper, path)
            except OSError:
                self.out.complete = False
                continue
            for name, st in entries.items():
                self.budget.entries -= 1
                if self.budget.entries < 0:
                    self.out.complete = False
                    break
                inner = f"{path}/{name}" if path else name
                if stat.S_ISDIR(st.st_mode):
                    pending.append(inner)
                row = self.row(inner, st)
                if row is not None:
                    self.out.rows.append(row)

    def row(self, path: str, st: os.stat_result) -> list[Any] | None:
        name = os.fsencode(path)
        if stat.S_ISCHR(st.st_mode) and st.st_rdev == 0:  # overlayfs' mark of a removed entry
            return None if path in self.hidden else [name, "D", _SPECIAL, 0, 0, None]
        change = ("M" if path in self.start else "A") if self.start.known(path) else "W"
        mode = stat.S_IMODE(st.st_mode)
        if stat.S_ISDIR(st.st_mode):
            return None if change == "M" else [name, change, _FOLDER, 0, mode, None]
        if stat.S_ISLNK(st.st_mode) or stat.S_ISREG(st.st_mode):
            kind = _LINK if stat.S_ISLNK(st.st_mode) else _FILE
            return [name, change, kind, st.st_size, mode, self.digest(path, st)]
        return [name, change, _SPECIAL, 0, mode, None]

    def digest(self, path: str, st: os.stat_result) -> bytes | None:
        if st.st_size <= self.budget.bytes and time.monotonic() < self.budget.ends:
            self.budget.bytes -= st.st_size
            with contextlib.suppress(OSError):  # a file the person could not read either
                if stat.S_ISLNK(st.st_mode):
                    return digest_link(self.upper, path)
                return digest_file(self.upper, path)
        self.out.complete = False
        return None


def write_set_events(sets: Sequence[WriteSet]) -> Iterator[tuple[Kind, dict[int, Any]]]:
    """Yield write_set events (docs/spec/records.md, kind 28); the last of a layer has its root."""
    for item in sets:
        if not item.rows and item.complete:
            continue
        folder = os.fsencode(item.folder)
        root = blake3()
        for row in item.rows:
            root.update(cbor.encode(row))
        for at in range(0, max(1, len(item.rows)), _ROWS_PER_EVENT):
            payload: dict[int, Any] = {4: folder, 5: item.rows[at : at + _ROWS_PER_EVENT]}
            if at + _ROWS_PER_EVENT >= len(item.rows):
                payload |= {6: len(item.rows), 7: root.digest(), 8: item.complete}
            yield Kind.WRITE_SET, payload


def summary(sets: Sequence[WriteSet], run: str) -> list[str]:
    """Return the operator's line about what the agent wrote; none when it wrote nothing."""
    changes = [row[1] for item in sets for row in item.rows]
    if not changes:
        return []
    held = sum(
        bool(held_reason(os.fsdecode(row[0])))
        for item in sets
        for row in item.rows
        if row[1] != "D" and row[2] != _FOLDER
    )
    counts = {
        "new": changes.count("A"),
        "written": changes.count("M") + changes.count("W"),
        "removed": changes.count("D"),
        "held": held,
    }
    words = [f"{name} {count}" for name, count in counts.items() if count]
    words += [] if all(item.complete for item in sets) else ["and more"]
    return [f"hark: workspace: {'  '.join(words)} -- hark diff {run}"]
