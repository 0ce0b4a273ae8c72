"""Look-up of a request among recorded ones, each given once (docs/spec/replay.md, "Look-up").

Pure. Rules: strict, normalised, renamed, else nothing; the nearest one is named and never given.
What is used stays used, also when everything is.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from hark import limits
from hark.replay.identity import Difference, differences, ignored
from hark.replay.renaming import Renames
from hark.replay.spawn import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hark.replay.identity import Identity

__all__ = ["Entry", "Found", "Level", "Matcher", "Missing", "Nearest", "Pool", "Tally", "nearest"]


class Level(IntEnum):
    """How close two actions are."""

    STRICT = 0
    NORMALISED = 1
    RENAMED = 2


@dataclass(frozen=True, slots=True)
class Entry:
    """A recorded action that can be matched once.

    ``number`` is its number among the actions; ``path`` the spawn path. For an exchange: events
    ``begin`` to ``end``, and a digest of the answer, by which ambiguous ones are known.
    """

    number: int
    identity: Identity
    lineage: bytes | None = None
    path: str = UNKNOWN
    exchange: int | None = None
    begin: int = 0
    end: int = 0
    answer: bytes = b""


def _hash_at(identity: Identity, level: Level) -> bytes:
    return (identity.strict, identity.normalised, identity.renamed)[level]


@dataclass(slots=True)
class Tally:
    """What equal actions needed to be equal."""

    matched: int = 0
    normalised: int = 0
    telemetry: int = 0
    volatile: int = 0
    times: int = 0
    ambiguous: int = 0
    rules: Counter[str] = field(default_factory=Counter)

    def add(self, recorded: Identity, now: Identity, level: Level) -> None:
        """Count one pair."""
        self.matched += 1
        if now.telemetry:
            self.telemetry += 1
            return
        if level == Level.STRICT:
            return
        needed = ignored(recorded, now)
        has_times = False
        if level == Level.RENAMED:
            # Where an id or a time differs, the form differs too, and that is no rule's doing.
            needed = tuple(rule for rule in needed if "-form" not in rule)
            has_times = bool(now.times)
        self.rules.update(needed)
        self.volatile += len(now.volatile)
        self.times += has_times
        self.normalised += bool(needed) or has_times


class Pool:
    """Recorded actions that are not yet matched, found by hash."""

    def __init__(self, entries: Iterable[Entry], renames: Renames) -> None:
        self.renames = renames
        self.conflict: tuple[bytes, bytes] | None = None
        self._left: dict[int, Entry] = {}
        self._by_hash: tuple[dict[bytes, list[Entry]], ...] = ({}, {}, {})
        for entry in entries:
            self._left[entry.number] = entry
            for level in Level:
                key = _hash_at(entry.identity, level)
                self._by_hash[level].setdefault(key, []).append(entry)

    @property
    def left(self) -> Sequence[Entry]:
        """What is not matched, in recorded order."""
        return list(self._left.values())

    def take(
        self,
        now: Identity,
        lineage: bytes | None = None,
        path: str = UNKNOWN,
        levels: Iterable[Level] = Level,
    ) -> tuple[Entry, Level, bool] | None:
        """Take the entry that ``now`` is: returns it, the level, and whether it was ambiguous.

        Ids that contradict the map make an entry unfit; ``conflict`` then holds the pair.
        """
        self.conflict = None
        for level in levels:
            waiting = self._waiting(now, level)
            fit = [entry for entry in waiting if self._fits(entry, now)]
            if fit:
                # Of actions that look alike the one of the same thread has the same ids.
                here = [entry for entry in fit if path != UNKNOWN and entry.path == path]
                same = [entry for entry in fit if lineage and entry.lineage == lineage]
                entry = (here or same or fit)[0]
                self.renames.add(entry.identity.tokens, now.tokens)
                del self._left[entry.number]
                return entry, level, any(_overlaps(entry, other) for other in fit)
        return None

    def _waiting(self, now: Identity, level: Level) -> list[Entry]:
        key = _hash_at(now, level)
        found = self._by_hash[level].get(key, [])
        waiting = [entry for entry in found if entry.number in self._left]
        if len(waiting) != len(found):
            self._by_hash[level][key] = waiting
        return waiting[: limits.REPLAY_CANDIDATES_MAX]

    def _fits(self, entry: Entry, now: Identity) -> bool:
        pair = self.renames.conflict(entry.identity.tokens, now.tokens)
        if pair is not None and self.conflict is None:
            self.conflict = pair
        return pair is None


def _overlaps(entry: Entry, other: Entry) -> bool:
    """Whether two exchanges were open at once and had different answers."""
    is_other = other.number != entry.number and other.answer != entry.answer
    return is_other and other.begin < entry.end and entry.begin < other.end


@dataclass(frozen=True, slots=True)
class Nearest:
    """The recorded action most like one that has no partner."""

    number: int
    title: str
    same_fields: int
    differences: tuple[Difference, ...]


def nearest(
    now: Identity, candidates: Iterable[Entry], load: Callable[[int], Identity]
) -> Nearest | None:
    """Return the most alike of ``candidates``; ``load`` gives an identity with its fields."""
    same_kind = [entry for entry in candidates if entry.identity.kind == now.kind]
    same_kind.sort(key=lambda entry: (entry.identity.title != now.title, entry.number))
    best: tuple[float, Nearest] | None = None
    for entry in same_kind[: limits.REPLAY_NEAREST_MAX]:
        full = load(entry.number)
        found = differences(full, now)
        real = [item for item in found if not item.own_ids]
        same = max(0, len(full.fields) - sum(item.recorded is not None for item in real))
        score = same / max(1, same + len(real))
        if best is None or score > best[0]:
            near = Nearest(entry.number, full.title, same, tuple(found))
            best = (score, near)
    return best[1] if best else None


@dataclass(frozen=True, slots=True)
class Found:
    """A recorded exchange to be given. ``rules``: what did not count."""

    entry: Entry
    level: Level
    rules: tuple[str, ...]
    is_ambiguous: bool


@dataclass(frozen=True, slots=True)
class Missing:
    """No recorded exchange is this request.

    ``used``: as many equal ones were recorded and all were given. ``conflict``: the recorded and
    the present id that cannot be one.
    """

    used: int
    conflict: tuple[bytes, bytes] | None
    nearest: Nearest | None


class Matcher:
    """The exchanges of a recording, looked up as requests come."""

    def __init__(
        self,
        recorded: Sequence[Entry],
        load: Callable[[int], Identity],
        renames: Renames | None = None,
    ) -> None:
        self.renames = renames or Renames()
        self.tally = Tally()
        self._load = load
        self._pool = Pool(recorded, self.renames)
        self._used: Counter[bytes] = Counter()

    @property
    def left(self) -> Sequence[Entry]:
        """What has not been asked for."""
        return self._pool.left

    def look_up(
        self, now: Identity, lineage: bytes | None = None, path: str = UNKNOWN
    ) -> Found | Missing:
        """Give the recorded exchange that ``now`` asks for, or say that there is none."""
        taken = self._pool.take(now, lineage, path)
        if taken is None:
            found = nearest(now, self._pool.left, self._load)
            return Missing(self._used[now.renamed], self._pool.conflict, found)
        entry, level, is_ambiguous = taken
        self._used[now.renamed] += 1
        self.tally.add(entry.identity, now, level)
        self.tally.ambiguous += is_ambiguous
        return Found(entry, level, ignored(entry.identity, now), is_ambiguous)
