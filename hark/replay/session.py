"""One replay: the recorded run carried out again, against its recording, and judged.

It is a run like any other (launcher, sensors, mediator, recorder, bundle), with three differences:
answers come from ``player``, the services have no network, and what the agent wrote is thrown away.
Rules: verified first; nothing is ever dialled; the person's files are not touched.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hark.bundle.events import Kind
from hark.bundle.reader import Bundle
from hark.errors import LaunchError
from hark.policy.model import Determinism
from hark.recorder import startup as runs
from hark.recorder.inputs import Replay
from hark.replay import startup
from hark.replay.actions import Action, Delivered
from hark.replay.bundles import Compared, steps
from hark.replay.gate import Gate
from hark.replay.match import nearest
from hark.replay.player import Player
from hark.replay.verdict import Side

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from hark.errors import HarkError
    from hark.launcher.ids import Slot
    from hark.recorder.inputs import RunResult
    from hark.replay.match import Entry
    from hark.replay.parent import Parent
    from hark.replay.startup import ReplayOptions
    from hark.replay.verdict import Divergence, Verdict

__all__ = ["Outcome", "replay"]

UNTRACED = "untraced: the agent's clock and randomness are real"
NEW_SEED = "light: the agent's clock and randomness are real"
SEEDED = "light: the agent's randomness is the recorded, its clock is real"
_ORDERLY = ("exited", "replay-diverged")


@dataclass(slots=True, kw_only=True)
class Outcome:
    """How a replay ended. ``live``: what stopped the agent while it ran, if anything did.

    ``prefix``: the recording has no orderly end, and was followed as far as it goes.
    """

    verdict: Verdict
    live: HarkError | None
    prefix: bool
    result: RunResult
    mode: str = UNTRACED
    notes: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """Whether the runs did the same, as far as the recording goes."""
        return self.verdict.equal and (self.live is None or self.prefix)

    def holds(self, *, strict: bool) -> bool:
        """Whether that is good enough."""
        return self.equal and self.verdict.holds(strict=strict)

    def first_line(self) -> str:
        """Return the claim, with the mode it was made in."""
        claim = self.verdict.first_line()
        if self.verdict.equal and not self.equal:
            claim = f"REPLAY-DIVERGED at action {self.verdict.actions + 1}"
        if self.equal and self.prefix:
            claim += " (the recorded prefix)"
        return f"{claim}  [{self.mode}]"

    def lines(self) -> list[str]:
        """Return everything for a person, escaped."""
        out = [self.first_line(), *self.verdict.lines()[1:]]
        if self.live is not None and not self.equal:
            out.append(f"  stopped    {_plain(self.live)}")
        return [*out, *(f"  note       {text}" for text in self.notes)]

    def to_json(self) -> dict[str, Any]:
        """Return everything for a machine."""
        return self.verdict.to_json() | {
            "verdict": self.first_line().partition("  [")[0],
            "equal": self.equal,
            "mode": self.mode,
            "prefix": self.prefix,
            "stopped": _plain(self.live) if self.live is not None else None,
            "replay_notes": self.notes,
            "bundle": self.result.path or None if self.result.published else None,
        }


def _plain(error: HarkError) -> str:
    text = ": ".join(part for part in (error.what, error.cause) if part)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _judged(parent: Parent, child: Bundle, player: Player) -> Verdict:
    """Return the verdict; what it names is the agent's doing and not chance's.

    Answers are given in recorded order, but nothing holds back what the agent does: which action of
    a concurrent one stands before a delivery is chance. So what differs also without an order is
    told first, and where nothing does, the order is not compared.
    """
    both = Compared(parent.bundle, child, parent.rules)
    verdict = both.verdict()
    if player.diverged is not None and not player.gone_beyond:
        first = _first(parent, both, child, player.left)
        return replace(verdict, divergence=first or verdict.divergence)
    if verdict.equal:
        return verdict
    loose = both.verdict(order=False)
    return loose if loose.equal else replace(verdict, divergence=loose.divergence)


def _first(
    parent: Parent, both: Compared, child: Bundle, left: Sequence[Entry]
) -> Divergence | None:
    """Return the first action without a partner, in the order things happened.

    The agent was stopped at it, so what else is missing or cut short is hark's own doing.
    """
    gate = Gate(both.recorded.as_set(), parent.identity)
    for _, step in steps(child, both.rules):
        if isinstance(step, Delivered):
            continue
        found = gate.feed(step)
        if found is None:
            continue
        if not isinstance(step, Action) or found.now is not None:
            return found
        return replace(  # what is there now is known; what is missing may only be late
            found,
            now=Side.of(step),
            nearest=found.nearest or nearest(step.identity, left, parent.identity),
            path=step.path,
            program=step.program,
            last_input=step.last_input,
        )
    return None


def _mode(determinism: Determinism, *, has_seed: bool) -> str:
    if determinism is Determinism.OFF:
        return UNTRACED
    return SEEDED if has_seed else NEW_SEED


def draws_of(bundle: Bundle) -> Counter[bytes]:
    """Return how many random bytes each stream gave; without a name, those of the rest."""
    found: Counter[bytes] = Counter()
    for event in bundle.events(Kind.RANDOM):
        if event.payload is not None:
            found[event.payload.get(7, b"")] += event.payload[6]
    return found


def draw_notes(recorded: Counter[bytes], now: Counter[bytes]) -> list[str]:
    """Say that threads have drawn more or less than recorded: from there their numbers differ."""
    differ = sum(recorded[stream] != now[stream] for stream in recorded.keys() | now.keys())
    if not differ:
        return []
    threads = "a thread has" if differ == 1 else f"{differ} threads have"
    total = f"{recorded.total()} bytes in all then, {now.total()} now"
    return [f"{threads} drawn another number of random bytes than recorded ({total})"]


def _say(notes: Sequence[str]) -> None:
    """Say what is other than it was, before anything runs."""
    sys.stderr.write("".join(f"hark: note: {note}\n" for note in notes))
    sys.stderr.flush()


def _unpack(plan: startup.Plan) -> Callable[[Path, Slot], Mapping[str, int]] | None:
    rebuild = plan.rebuild
    if rebuild is None:
        return None

    def make(folder: Path, slot: Slot) -> Mapping[str, int]:
        mounts = rebuild.make(folder, slot)
        _say(rebuild.notes)
        plan.notes += rebuild.notes
        return mounts

    return make


def _events(parent: Parent) -> Iterator[tuple[Kind, dict[int, Any]]]:
    """Yield what the recording says of its folders, for a replay that can itself be replayed."""
    for event in parent.bundle.events(Kind.WORKSPACE_CONTENT):
        payload = event.payload or {}
        rows = [
            [*row[:3], row[3] if row[3] is None else parent.bundle.read_body(row[3])]
            for row in payload.get(5, [])
        ]
        yield Kind.WORKSPACE_CONTENT, payload | {5: rows}


def replay(
    parent: Parent,
    options: ReplayOptions,
    outer: Mapping[bytes, bytes],
    outputs: tuple[int, int] = (1, 2),
) -> Outcome:
    """Carry a verified recording out again and compare. Raises HarkError when hark failed.

    Root before, and only the recorder's own user afterwards.
    """
    plan = startup.plan(parent, options, outer)
    run = plan.run
    player = Player(
        parent,
        tuple(host.name for host in run.policy.hosts),
        tuple(secret.binding.name for secret in run.secrets),
    )
    record = Replay(
        player=player,
        stdin=startup.standard_input(parent),
        outputs=outputs,
        parent=str(parent.run),
        keep=options.out is not None,
        start=plan.start,
        sealed_seed=parent.sealed_seed if not options.untrusted else None,
        unpack=_unpack(plan),
        events=_events(parent) if options.out is not None and plan.rebuild is not None else (),
    )
    _say(plan.notes)
    result = runs.record(run, record)
    if result.reason not in _ORDERLY:
        raise LaunchError("the replay failed", "; ".join(result.lines) or result.reason)
    notes = list(plan.notes)
    if player.passed:
        notes.append(f"{player.passed} answers did not wait for what was recorded before them")
    with os.fdopen(record.bundle, "rb") as file, Bundle.open(file.fileno()) as child:
        verdict = _judged(parent, child, player)
        if record.has_seed and player.diverged is None:
            notes += draw_notes(parent.draws, draws_of(child))
    return Outcome(
        verdict=verdict,
        live=player.diverged,
        prefix=not parent.is_complete,
        result=result,
        mode=_mode(run.determinism, has_seed=record.has_seed),
        notes=notes,
    )
