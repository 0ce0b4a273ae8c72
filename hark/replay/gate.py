"""A run against its recording while it happens: the first difference is known at once.

Pure. The authority is docs/spec/replay.md, "Verdict". Rules: an action is compared when it is made,
what is missing when the next delivery or the end comes. The grade can be weaker than that of
``judge``, which sees a whole interval before it pairs; equal and diverged are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hark.replay.actions import Action, Delivered
from hark.replay.match import Pool
from hark.replay.verdict import Court, Divergence, History, entry_of, interval_at

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hark.replay.actions import Step
    from hark.replay.digest import Digests
    from hark.replay.identity import Identity
    from hark.replay.match import Entry, Tally
    from hark.replay.renaming import Renames

__all__ = ["Gate"]


class Gate:
    """Feed it the steps of the present run. After a divergence it is done."""

    def __init__(self, recorded: History, load: Callable[[int], Identity]) -> None:
        self._recorded = recorded
        self._now = History()
        self._current: Identity | None = None
        self._court = Court(recorded, self._now, load, self._load_now)
        self._index = 0
        self._has_acted = False
        self._pool = self._pool_at(0)

    @property
    def renames(self) -> Renames:
        """The map of ids so far."""
        return self._court.renames

    @property
    def tally(self) -> Tally:
        """What equal actions needed so far."""
        return self._court.tally

    @property
    def missing(self) -> Sequence[Entry]:
        """Recorded actions that must come before the next delivery."""
        return self._pool.left

    @property
    def count(self) -> int:
        """Actions so far."""
        return self._now.count

    def digests(self) -> Digests:
        """Return the digests of what happened so far."""
        return self._now.digests()

    def feed(self, step: Step) -> Divergence | None:
        """Take the next step; return the divergence it is, if it is one."""
        divergence = None
        if isinstance(step, Delivered) and self._has_acted:
            divergence = self._close()
        self._now.add(step)
        if divergence is None and isinstance(step, Action):
            divergence = self._act(step)
        return divergence

    def finish(self) -> Divergence | None:
        """Take the end of the run."""
        if not self._recorded.is_complete:
            return None
        if self._pool.left:
            return self._court.explain(self._index, list(self._pool.left), [], None)
        following = interval_at(self._recorded, self._index + 1)
        missing = [entry_of(action) for action in following.actions]
        return self._court.explain(self._index + 1, missing, [], None) if missing else None

    def _act(self, action: Action) -> Divergence | None:
        self._current = action.identity
        taken = self._pool.take(action.identity, action.lineage, action.path)
        if taken is None:
            if not self._recorded.is_complete and self._index >= len(self._recorded.intervals) - 1:
                return None
            surplus = [self._now.intervals[-1].actions[-1]]
            left = list(self._pool.left)
            return self._court.explain(self._index, left, surplus, self._pool.conflict)
        self.tally.add(taken[0].identity, action.identity, taken[1])
        if self._has_acted:
            return None
        self._has_acted = True
        before, now = interval_at(self._recorded, self._index), self._now.intervals[-1]
        is_same = before.mark_hashes() == now.mark_hashes()
        return None if is_same else self._court.given(before, now)

    def _close(self) -> Divergence | None:
        if self._pool.left:
            return self._court.explain(self._index, list(self._pool.left), [], None)
        self._index += 1
        self._has_acted = False
        self._pool = self._pool_at(self._index)
        return None

    def _pool_at(self, index: int) -> Pool:
        actions = interval_at(self._recorded, index).actions
        return Pool((entry_of(action) for action in actions), self._court.renames)

    def _load_now(self, _number: int) -> Identity:
        if self._current is None:
            raise LookupError("no action yet")
        return self._current
