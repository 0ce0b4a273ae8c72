"""Whether two runs did the same, and where not (docs/spec/replay.md, "Verdict").

Pure. Rules: intervals in order, actions of one as sets, close level first. The words of the first
line are fixed. Everything an agent made is shown escaped and cut.
"""

from __future__ import annotations

from collections import Counter
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hark import limits
from hark.replay.actions import Action, Delivered, InputSeen
from hark.replay.digest import Digests, Foata
from hark.replay.match import Entry, Level, Nearest, Pool, Tally, nearest
from hark.replay.renaming import Renames

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hark.replay.actions import Step
    from hark.replay.digest import Mark
    from hark.replay.identity import Difference, Identity

__all__ = ["Court", "Divergence", "History", "Interval", "Side", "Verdict"]
__all__ += ["entry_of", "interval_at", "judge"]

_LEVELS = ("strict", "normalised", "renamed")


@dataclass(slots=True)
class Interval:
    """What the agent had been given since its last action, and the actions until the next gift."""

    marks: dict[int, Mark] = field(default_factory=dict)
    actions: list[Action] = field(default_factory=list)
    given: str = ""

    def mark_hashes(self) -> Counter[bytes]:
        """Return the marks as the digest has them."""
        return Counter(mark.hash() for mark in self.marks.values())


class History:
    """One run, step by step, without the fields of its actions."""

    def __init__(self) -> None:
        self.intervals = [Interval()]
        self.inputs: dict[str, list[bytes]] = {}
        self.lost: Mapping[str, int] = {}
        self.is_complete = False
        self._foata = (Foata(), Foata(), Foata())

    def add(self, step: Step) -> None:
        """Take the next step."""
        if isinstance(step, InputSeen):
            self.inputs.setdefault(step.label, []).append(step.digest)
        elif isinstance(step, Delivered):
            if self.intervals[-1].actions:
                self.intervals.append(Interval())
            self.intervals[-1].marks[step.mark.exchange] = step.mark
            self.intervals[-1].given = step.title
            for foata in self._foata:
                foata.deliver(step.mark)
        else:
            identity = step.identity
            self.intervals[-1].actions.append(step.light())
            hashes = (identity.strict, identity.normalised, identity.renamed)
            for foata, value in zip(self._foata, hashes, strict=True):
                foata.act(value)

    @property
    def count(self) -> int:
        """Actions so far."""
        return self._foata[0].count

    def digests(self) -> Digests:
        """Return the digests up to here."""
        return Digests(*(foata.digest() for foata in self._foata))

    def as_set(self) -> History:
        """Return the same run as one interval without deliveries; digests stay."""
        found = copy(self)
        found.intervals = [Interval(actions=self.actions())]
        return found

    def actions(self) -> list[Action]:
        """Return all actions, in bundle order."""
        return [action for interval in self.intervals for action in interval.actions]


@dataclass(frozen=True, slots=True)
class Side:
    """One action as a person sees it."""

    number: int
    event: int
    title: str
    path: str
    program: str
    thread: tuple[int, int] | None = None

    @classmethod
    def of(cls, action: Action) -> Side:
        """Return what is shown of an action."""
        title = action.identity.title
        return cls(action.number, action.seq, title, action.path, action.program, action.thread)

    def text(self) -> str:
        """Return one line."""
        who = self.path if self.path != "-" else ""
        program = f" ({self.program})" if self.program and who else ""
        ids = "process {}, thread {}".format(*self.thread) if self.thread else ""
        where = ", ".join(part for part in (f"event {self.event}", f"{who}{program}", ids) if part)
        return f"{_shown(self.title, limits.REPLAY_SHOWN_CHARS)}  [{_shown(where, 200)}]"


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where two runs part. ``moved``: where the same action stands on the other side."""

    number: int
    recorded: Side | None
    now: Side | None
    nearest: Nearest | None
    moved: str
    conflict: tuple[bytes, bytes] | None
    path: str
    program: str
    last_input: str
    before: tuple[Side, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a comparison. ``inputs``: what the two runs were given differently.

    ``lost``: records that either recording lost, so that actions may be missing on both sides.
    """

    actions: int
    tally: Tally
    renames: tuple[tuple[bytes, bytes], ...]
    recorded: Digests
    now: Digests
    divergence: Divergence | None
    inputs: tuple[str, ...]
    notes: tuple[str, ...]
    ordered: bool = True
    lost: int = 0

    @property
    def equal(self) -> bool:
        """Whether nothing differs that counts."""
        return self.divergence is None

    @property
    def exact(self) -> bool:
        """Whether nothing differs at all in what the agent did."""
        is_whole = self.ordered and not self.lost and not self.tally.telemetry
        return self.equal and is_whole and self.grade() == "exact"

    def holds(self, *, strict: bool = False) -> bool:
        """Whether the verdict is good enough."""
        return self.exact if strict else self.equal

    def grade(self) -> str:
        """Return ``exact``, or what was needed instead."""
        counts = (("normalised", self.tally.normalised), ("renamed", len(self.renames)))
        weaker = [f"{name} {count}" for name, count in counts if count]
        return ", ".join(weaker) or "exact"

    def first_line(self) -> str:
        """Return the line that is a claim."""
        if self.divergence is not None:
            return f"REPLAY-DIVERGED at action {self.divergence.number}"
        more = (
            (self.tally.telemetry, "telemetry not compared"),
            (self.tally.volatile, "volatile fields"),
            (self.tally.times, "with times"),
        )
        parts = [f"{count} {text}" for count, text in more if count]
        if self.grade() != "exact" or not self.lost:
            parts.insert(0, self.grade())
        parts += [f"{self.lost} records lost"] if self.lost else []
        parts += [] if self.ordered else ["order not compared"]
        return f"REPLAY-EQUAL {', '.join(parts)}"

    def lines(self) -> list[str]:
        """Return everything for a person, escaped."""
        out = [self.first_line()]
        if self.divergence is None:
            out.append(f"  {self.actions} actions, digest {self.now.renamed.hex()}")
        else:
            out += _divergence_lines(self.divergence)
        out += [
            f"  renamed    {_shown(a, 80)} -> {_shown(b, 80)}"
            for a, b in self.renames[: limits.REPLAY_SHOWN_ROWS]
        ]
        out += [
            f"  ignored    {_shown(rule, 80)} ({count})"
            for rule, count in sorted(self.tally.rules.items())
        ]
        out += [f"  input      {_shown(text, 200)}" for text in self.inputs]
        return [*out, *(f"  note       {_shown(text, 200)}" for text in self.notes)]

    def to_json(self) -> dict[str, Any]:
        """Return everything for a machine; bytes as text, digests in hex."""
        tally = self.tally
        return {
            "verdict": self.first_line(),
            "equal": self.equal,
            "exact": self.exact,
            "ordered": self.ordered,
            "records_lost": self.lost,
            "actions": self.actions,
            "matched": tally.matched,
            "normalised": tally.normalised,
            "telemetry_not_compared": tally.telemetry,
            "volatile_fields": tally.volatile,
            "with_times": tally.times,
            "ignored": dict(sorted(tally.rules.items())),
            "renamed": [[_shown(a, None), _shown(b, None)] for a, b in self.renames],
            "digests": {"recorded": _hex(self.recorded), "now": _hex(self.now)},
            "inputs_that_differ": list(self.inputs),
            "notes": list(self.notes),
            "divergence": _divergence_json(self.divergence),
        }


def _hex(digests: Digests) -> dict[str, str]:
    return {name: getattr(digests, name).hex() for name in _LEVELS}


def _shown(value: str | bytes, most: int | None) -> str:
    text = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
    if most is not None and len(text) > most:
        text = text[: most - 1] + "…"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _both(difference: Difference) -> tuple[str, str]:
    """Return both values, long ones cut around the first place where they differ."""
    left, right = difference.recorded, difference.now
    if left is None or right is None:
        return tuple("(absent)" if v is None else _shown(v, 100) for v in (left, right))  # type: ignore[return-value]
    pairs = enumerate(zip(left, right, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(left), len(right)))
    start = max(0, at - 40) if max(len(left), len(right)) > 100 else 0  # noqa: PLR2004 - a line
    lead = "…" if start else ""
    return lead + _shown(left[start:], 100), lead + _shown(right[start:], 100)


def _divergence_lines(d: Divergence) -> list[str]:
    out = [
        f"  recorded   {d.recorded.text() if d.recorded else 'nothing'}",
        f"  now        {d.now.text() if d.now else 'nothing'}",
    ]
    if d.moved:
        out.append(f"  moved      {_shown(d.moved, 200)}")
    if d.conflict:
        out.append(f"  ids        {_shown(d.conflict[0], 80)} is not {_shown(d.conflict[1], 80)}")
    if d.nearest is not None:
        real = [item for item in d.nearest.differences if not item.own_ids]
        total = d.nearest.same_fields + len(real)
        out.append(
            f"  nearest    recorded action {d.nearest.number}: {len(real)} of {total} fields differ"
        )
        for item in real[: limits.REPLAY_SHOWN_ROWS]:
            left, right = _both(item)
            out.append(f"    {_shown(item.field, 100)}: {left}  ->  {right}")
        if more := len(real) - limits.REPLAY_SHOWN_ROWS:
            out += [f"    and {more} more (--json has all)"] if more > 0 else []
        if ids := len(d.nearest.differences) - len(real):
            out.append(f"    and {ids} that differ in ids of the agent's own alone")
    who = d.path + (f" ({d.program})" if d.program else "")
    out.append(f"  by         {_shown(who, 200)}")
    out.append(f"  last input {_shown(d.last_input or 'none', 200)}")
    return [*out, *(f"  before     action {side.number}: {side.text()}" for side in d.before)]


def _divergence_json(d: Divergence | None) -> dict[str, Any] | None:
    if d is None:
        return None

    def side(s: Side | None) -> dict[str, Any] | None:
        if s is None:
            return None
        return {
            "action": s.number,
            "event": s.event,
            "title": _shown(s.title, None),
            "path": s.path,
            "program": _shown(s.program, None),
            "process": s.thread[0] if s.thread else None,
            "thread": s.thread[1] if s.thread else None,
        }

    near = None
    if d.nearest is not None:
        near = {
            "action": d.nearest.number,
            "title": _shown(d.nearest.title, None),
            "same_fields": d.nearest.same_fields,
            "differences": [
                {
                    "field": _shown(item.field, None),
                    "recorded": None if item.recorded is None else _shown(item.recorded, None),
                    "now": None if item.now is None else _shown(item.now, None),
                    "own_ids": item.own_ids,
                }
                for item in d.nearest.differences
            ],
        }
    return {
        "action": d.number,
        "recorded": side(d.recorded),
        "now": side(d.now),
        "nearest": near,
        "moved": d.moved,
        "ids": [_shown(text, None) for text in d.conflict] if d.conflict else None,
        "path": d.path,
        "program": _shown(d.program, None),
        "last_input": _shown(d.last_input, None),
        "before": [side(s) for s in d.before],
    }


# --- judging --------------------------------------------------------------------------------------


class Court:
    """Two runs, and the map of their ids. ``load_…`` give an identity with its fields."""

    def __init__(
        self,
        recorded: History,
        now: History,
        load_recorded: Callable[[int], Identity],
        load_now: Callable[[int], Identity],
    ) -> None:
        self.recorded = recorded
        self.now = now
        self.load_recorded = load_recorded
        self.load_now = load_now
        self.renames = Renames()
        self.tally = Tally()

    def divergence(self) -> Divergence | None:
        """Compare interval by interval; return the first difference."""
        is_prefix = not self.recorded.is_complete
        count = len(self.recorded.intervals)
        if not is_prefix:
            count = max(count, len(self.now.intervals))
        for index in range(count):
            left = interval_at(self.recorded, index)
            right = interval_at(self.now, index)
            missing, surplus, conflict = self._pair(left, right)
            if is_prefix and index == count - 1:
                surplus = []
            if missing or surplus:
                return self.explain(index, missing, surplus, conflict)
            if left.mark_hashes() != right.mark_hashes():
                return self.given(left, right)
        return None

    def is_same_set(self) -> bool:
        """Whether the runs' actions are the same when order does not count."""
        left, right = self.recorded.as_set(), self.now.as_set()
        return Court(left, right, self.load_recorded, self.load_now).divergence() is None

    def _pair(
        self, left: Interval, right: Interval
    ) -> tuple[list[Entry], list[Action], tuple[bytes, bytes] | None]:
        pool = Pool((entry_of(action) for action in left.actions), self.renames)
        waiting = list(right.actions)
        conflict = None
        for level in Level:
            still = []
            for action in waiting:
                taken = pool.take(action.identity, action.lineage, action.path, (level,))
                if taken is None:
                    conflict = pool.conflict or conflict
                    still.append(action)
                else:
                    self.tally.add(taken[0].identity, action.identity, level)
            waiting = still
        return list(pool.left), waiting, conflict

    def explain(
        self,
        index: int,
        missing: list[Entry],
        surplus: list[Action],
        conflict: tuple[bytes, bytes] | None,
    ) -> Divergence:
        """Tell the first difference of interval ``index``."""
        left, right = interval_at(self.recorded, index), interval_at(self.now, index)
        recorded, now = _first(left, right, missing, surplus)
        near = None
        if now is not None:
            later = [entry_of(a) for i in self.recorded.intervals[index + 1 :] for a in i.actions]
            near = nearest(self.load_now(now.number), [*missing, *later], self.load_recorded)
        before = sum(len(i.actions) for i in self.recorded.intervals[:index])
        number = recorded.number if recorded else before + 1 + _place(right, now)
        moved = ""
        if recorded is not None and (found := _find(self.now, index + 1, recorded)):
            now, near = found[1], None
            moved = f"it comes later now, after {found[0].given or 'nothing'}"
        elif now is not None and (found := _find(self.recorded, index + 1, now)):
            recorded, near = found[1], None
            moved = f"it came later when recorded, after {found[0].given or 'nothing'}"
        return self._divergence(number, recorded, now, near=near, moved=moved, conflict=conflict)

    def given(self, left: Interval, right: Interval) -> Divergence:
        """The actions are the same, what the agent had been given before them is not."""
        recorded = left.actions[0] if left.actions else None
        now = right.actions[0] if right.actions else None
        moved = f"the same actions, but after {right.given or 'nothing'}"
        moved += f" instead of {left.given or 'nothing'}"
        number = recorded.number if recorded else self.recorded.count + 1
        return self._divergence(number, recorded, now, moved=moved)

    def _divergence(
        self,
        number: int,
        recorded: Action | None,
        now: Action | None,
        *,
        near: Nearest | None = None,
        moved: str = "",
        conflict: tuple[bytes, bytes] | None = None,
    ) -> Divergence:
        who = now or recorded
        earlier = [action for action in self.recorded.actions() if action.number < number]
        return Divergence(
            number=number,
            recorded=Side.of(recorded) if recorded else None,
            now=Side.of(now) if now else None,
            nearest=near,
            moved=moved,
            conflict=conflict,
            path=who.path if who else "-",
            program=who.program if who else "",
            last_input=who.last_input if who else "",
            before=tuple(Side.of(action) for action in earlier[-limits.REPLAY_SHOWN_BEFORE :]),
        )


def entry_of(action: Action) -> Entry:
    """Return what can be matched of an action."""
    return Entry(action.number, action.identity, action.lineage, action.path, action.exchange)


def interval_at(history: History, index: int) -> Interval:
    """Return an interval; an empty one behind the end."""
    return history.intervals[index] if index < len(history.intervals) else Interval()


def _place(interval: Interval, action: Action | None) -> int:
    return interval.actions.index(action) if action in interval.actions else 0


def _first(
    left: Interval, right: Interval, missing: list[Entry], surplus: list[Action]
) -> tuple[Action | None, Action | None]:
    """Return the first difference: both sides where one stands for the other, else one."""
    numbers = {entry.number for entry in missing}
    gone = [action for action in left.actions if action.number in numbers]
    recorded = gone[0] if gone else None
    now = surplus[0] if surplus else None
    if recorded is None or now is None:
        return recorded, now
    if _place(right, now) < _place(left, recorded):
        return _like(now, gone), now
    return recorded, _like(recorded, surplus)


def _like(action: Action, others: list[Action]) -> Action | None:
    """Return the one of ``others`` that stands for an action: same title, else same kind."""
    same = [a for a in others if a.identity.title == action.identity.title]
    same = same or [a for a in others if a.identity.kind == action.identity.kind]
    return same[0] if same else None


def _find(history: History, start: int, action: Action) -> tuple[Interval, Action] | None:
    for interval in history.intervals[start:]:
        for other in interval.actions:
            if other.identity.renamed == action.identity.renamed:
                return interval, other
    return None


def judge(
    recorded: History,
    now: History,
    *,
    load_recorded: Callable[[int], Identity],
    load_now: Callable[[int], Identity],
    order: bool = True,
) -> Verdict:
    """Compare two runs. ``load_…`` give the identity of action ``number`` with its fields.

    ``order``: false for runs whose deliveries nothing held back, where it is chance which action of
    a concurrent agent comes before a chunk. The verdict says so.
    """
    pair = (recorded, now) if order else (recorded.as_set(), now.as_set())
    court = Court(*pair, load_recorded, load_now)
    divergence = court.divergence()
    notes = _notes(recorded, now)
    if order and divergence is not None and court.is_same_set():
        notes.append("all actions are the same; where they stand between deliveries is not")
    return Verdict(
        actions=recorded.count,
        tally=court.tally,
        renames=tuple(court.renames.changed.items()),
        recorded=recorded.digests(),
        now=now.digests(),
        divergence=divergence,
        inputs=tuple(_inputs(recorded.inputs, now.inputs)),
        notes=tuple(notes),
        ordered=order,
        lost=sum(recorded.lost.values()) + sum(now.lost.values()),
    )


def _inputs(left: Mapping[str, Sequence[bytes]], right: Mapping[str, Sequence[bytes]]) -> list[str]:
    out = []
    for label in [*left, *(label for label in right if label not in left)]:
        a, b = Counter(left.get(label, ())), Counter(right.get(label, ()))
        # The digest of a large program can be late; what one run does not know is no difference.
        if label.startswith("program ") and not (a and b):
            continue
        if a != b:
            out.append(f"{label}: {(a - b).total()} recorded, {(b - a).total()} now differ")
    return out


def _notes(recorded: History, now: History) -> list[str]:
    out = []
    for name, history in (("the recording", recorded), ("this run", now)):
        if not history.is_complete:
            out.append(f"{name} is incomplete: it has no orderly end")
        if history.lost:
            total = sum(history.lost.values())
            out.append(f"{name} lost {total} records ({', '.join(sorted(history.lost))})")
    return out
