"""The map of renamed ids, and the rewriting of replies (docs/spec/replay.md, "Renaming").

Pure. Rules: the map is injective in both directions for the whole run; what contradicts it does
not match. Rewriting is a stream: any split gives the same bytes, and only bytes that may begin an
id are held back.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hark.replay.tokens import Token

__all__ = ["Renames", "Replacer", "Rewriter"]


class Renames:
    """Ids of a recording against those of another run, one to one."""

    def __init__(self) -> None:
        self._forward: dict[bytes, bytes] = {}
        self._backward: dict[bytes, bytes] = {}
        self._changed: dict[bytes, bytes] = {}

    def conflict(
        self, recorded: Sequence[Token], now: Sequence[Token]
    ) -> tuple[bytes, bytes] | None:
        """Return the first pair that contradicts the map or another pair, or None."""
        if len(recorded) != len(now):
            return (b"", b"")
        forward: dict[bytes, bytes] = {}
        backward: dict[bytes, bytes] = {}
        for a, b in zip(recorded, now, strict=True):
            known = self._forward.get(a.text, forward.get(a.text, b.text))
            owner = self._backward.get(b.text, backward.get(b.text, a.text))
            if a.kind != b.kind or known != b.text or owner != a.text:
                return (a.text, b.text)
            forward[a.text] = b.text
            backward[b.text] = a.text
        return None

    def add(self, recorded: Sequence[Token], now: Sequence[Token]) -> int:
        """Add pairs that do not conflict; returns how many of them are new renames."""
        before = len(self._changed)
        for a, b in zip(recorded, now, strict=True):
            self._forward[a.text] = b.text
            self._backward[b.text] = a.text
            if a.text != b.text:
                self._changed[a.text] = b.text
        return len(self._changed) - before

    @property
    def changed(self) -> Mapping[bytes, bytes]:
        """The ids that differ: recorded to now."""
        return self._changed

    def __len__(self) -> int:
        return len(self._changed)


class Replacer:
    """Replaces fixed byte strings in a stream; of two at one place the longer one."""

    def __init__(self, table: Mapping[bytes, bytes]) -> None:
        self._held = b""
        self._set(table)

    def _set(self, table: Mapping[bytes, bytes]) -> None:
        self._table = dict(table)
        words = sorted(self._table, key=len, reverse=True)
        self._find = re.compile(b"|".join(map(re.escape, words))) if words else None
        self._starts = {word[:n] for word in words for n in range(1, len(word))}
        self._longest = max(map(len, words), default=0)

    def feed(self, data: bytes) -> bytes:
        """Return what is certain so far."""
        if self._find is None and not self._held:
            return data
        data = self._held + data
        hold = self._hold_from(data, 0)
        out = []
        pos = 0
        for match in self._find.finditer(data) if self._find else ():
            if match.start() >= hold:
                break
            out += [data[pos : match.start()], self._table[match.group()]]
            pos = match.end()
            if pos > hold:
                hold = self._hold_from(data, pos)
        out.append(data[pos:hold])
        self._held = data[hold:]
        return b"".join(out)

    def finish(self) -> bytes:
        """Return the end."""
        held, self._held = self._held, b""
        return self._find.sub(lambda m: self._table[m.group()], held) if self._find else held

    def replace(self, data: bytes) -> bytes:
        """Replace in a whole value; does not touch the stream."""
        return self._find.sub(lambda m: self._table[m.group()], data) if self._find else data

    def _hold_from(self, data: bytes, start: int) -> int:
        """Return the first place from which everything to the end may begin a word."""
        for at in range(max(start, len(data) - self._longest + 1), len(data)):
            if data[at:] in self._starts:
                return at
        return len(data)


class Rewriter(Replacer):
    """Puts the ids of this run into one recorded reply, also those that are mapped meanwhile.

    The reply must have no content coding. Lengths do not change.
    """

    def __init__(self, renames: Renames) -> None:
        self._renames = renames
        super().__init__(renames.changed)

    def feed(self, data: bytes) -> bytes:
        """Return what is certain so far."""
        if len(self._renames) != len(self._table):
            self._set(self._renames.changed)
        return super().feed(data)
