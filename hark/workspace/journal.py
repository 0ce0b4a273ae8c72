"""The journal of one apply, and the store of what it replaced.

``name`` lines reserve a temporary name before it exists. ``do`` lines are on disk before the step,
``done`` lines come after it, so after a crash each step is known to be before, after, or in
between; ``undo`` reads them backwards. The store holds what was replaced or removed, under the
step's number.
Rules: only root can reach the files; the process that writes them has become the person.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any

from hark import limits
from hark.errors import BundleInvalid

__all__ = ["Journal", "Step", "parse"]


@dataclass(frozen=True, slots=True)
class Step:
    """One act on one path.

    act: ``put`` a new file or link, ``swap`` for a new version, ``write`` in place, ``mode``,
    ``mkdir``, ``rm`` (to the store), ``rmdir``. ``temporary``: the name in the path's folder that
    the step uses. ``after``: ``content.identity`` once it is done; None: gone. Modes are those of
    chmod(2).
    """

    number: int
    act: str
    layer: int
    path: str
    temporary: str = ""
    after: str | None = None
    mode_before: int = 0
    mode_after: int = 0


@dataclass(slots=True)
class Journal:
    """One apply: its open journal file and its store's folder."""

    fd: int
    store: int
    number: int
    steps: list[Step] = field(default_factory=list)
    done: set[int] = field(default_factory=set)
    undone: set[int] = field(default_factory=set)
    undoing: set[int] = field(default_factory=set)
    ended: bool = False  # the apply came to its end
    reverted: bool = False  # the whole of it was undone
    touched: set[tuple[int, int]] = field(default_factory=set)
    reserved: list[tuple[int, str, str]] = field(default_factory=list)
    restored: list[tuple[int, str, list[int]]] = field(default_factory=list)
    _pending: list[bytes] = field(default_factory=list)

    def reserve(self, layer: int, path: str, name: str) -> None:
        """Note a temporary name beside ``path``; ``flush`` before it is made."""
        self.reserved.append((layer, path, name))
        self._line({"name": [layer, path, name]})

    def plan(self, step: Step) -> None:
        """Note a step that comes; ``flush`` brings it to disk."""
        self.steps.append(step)
        self._line({"do": {name: getattr(step, name) for name in Step.__slots__}})

    def finish(self, step: Step, touched: tuple[int, int] | None = None) -> None:
        """Note that a step is done; ``touched``: inode and new change time of what it moved."""
        self.done.add(step.number)
        self._line({"done": step.number, "touched": touched})

    def revert(self, step: Step, layer: int, row: list[int] | None) -> None:
        """Note that a step was undone; ``row``: the restored entry's start row from now on."""
        self.undone.add(step.number)
        if row is not None:
            self.restored.append((layer, step.path, row))
        self._line({"undone": step.number, "layer": layer, "path": step.path, "row": row})

    def void(self, step: Step) -> None:
        """Note that a planned step did not happen."""
        self.revert(step, step.layer, None)

    def begin_revert(self, step: Step) -> None:
        """Note, on disk, that a step's path is about to be written in place."""
        self.undoing.add(step.number)
        self._line({"undoing": step.number})
        self.flush()

    def mark(self, word: str) -> None:
        """Write a line that is only a word: ``ended`` or ``reverted``."""
        self._line({word: True})
        self.flush()

    def flush(self, *, disk: bool = True) -> None:
        """Bring all lines to disk, or only out of this process. Raises OSError."""
        data = memoryview(b"".join(self._pending))
        while data:
            data = data[os.write(self.fd, data) :]
        self._pending.clear()
        if disk:
            os.fdatasync(self.fd)

    def _line(self, value: dict[str, Any]) -> None:
        self._pending.append(json.dumps(value).encode() + b"\n")

    def next_number(self) -> int:
        """Return the number of the next step."""
        return self.steps[-1].number + 1 if self.steps else 0


def parse(fd: int, store: int, number: int) -> Journal:
    """Read a journal; a torn last line is left out. Raises BundleInvalid."""
    out = Journal(fd, store, number)
    with os.fdopen(os.dup(fd), "rb") as file:
        file.seek(0)
        data = file.read(limits.WORKSPACE_JOURNAL_BYTES + 1)
    if len(data) > limits.WORKSPACE_JOURNAL_BYTES:
        raise BundleInvalid("the journal of an apply is too long", f"{len(data)} bytes")
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) != len(data):
        os.ftruncate(fd, len(whole))
    for line in whole.splitlines():
        try:
            _take(out, json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            raise BundleInvalid("the journal of an apply does not hold", str(error)) from None
    return out


def _take(out: Journal, value: dict[str, Any]) -> None:
    if "name" in value:
        layer, path, name = value["name"]
        out.reserved.append((layer, path, name))
    elif "do" in value:
        out.steps.append(Step(**value["do"]))
    elif "done" in value:
        out.done.add(value["done"])
        if value["touched"] is not None:
            inode, ctime_ns = value["touched"]
            out.touched.add((inode, ctime_ns))
    elif "undone" in value:
        out.undone.add(value["undone"])
        if value["row"] is not None:
            out.restored.append((value["layer"], value["path"], value["row"]))
    elif "undoing" in value:
        out.undoing.add(value["undoing"])
    elif "ended" in value:
        out.ended = True
    elif "reverted" in value:
        out.reverted = True
    else:
        raise ValueError("a line of no known kind")
