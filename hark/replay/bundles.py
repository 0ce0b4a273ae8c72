"""Two bundles against each other.

Rules: reads, and decides nothing: ``verdict`` does. Whether a bundle is true is for ``hark verify``
to say, and for the caller to ask first where it matters. Fields of actions are read again only for
the ones that a divergence shows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hark.bundle.events import Kind
from hark.bundle.reader import Bundle
from hark.errors import InputError
from hark.policy.parse import parse_layer
from hark.replay.actions import Action, Extractor
from hark.replay.rules import BUILTIN, Rules, is_real_clock
from hark.replay.verdict import History, Verdict, judge

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from hark.replay.actions import Step
    from hark.replay.identity import Identity

__all__ = ["Compared", "compare", "history", "rules_of", "steps"]


def rules_of(recorded: Bundle, *others: Bundle, rules: Rules | None = None) -> Rules:
    """Return ``rules``, else the built-in ones and those of the recorded policy.

    The clock is that of the bundles: real when it was real in one of them.
    """
    starts = [_start(bundle) for bundle in (recorded, *others)]
    if rules is None:
        text = str(starts[0].get(6) or "").encode()
        layer = parse_layer(text, source="the recorded policy", folder="/")
        rules = BUILTIN.with_policy(layer.policy)
    modes = [str(start.get(11, "off")) for start in starts]
    return replace(rules, real_times=any(is_real_clock(mode) for mode in modes))


def _start(bundle: Bundle) -> dict[int, Any]:
    for event in bundle.events(Kind.RUN_START):
        if event.payload is not None:
            return event.payload
    raise InputError("this recording cannot be compared", "it has no start")


def steps(bundle: Bundle, rules: Rules) -> Iterator[tuple[Extractor, Step]]:
    """Yield what the events of a bundle mean, with the extractor that knows the rest."""
    extractor = Extractor(bundle.read_body, rules)
    for event in bundle.events():
        for step in extractor.feed(event):
            yield extractor, step
    for step in extractor.finish():
        yield extractor, step


def history(bundle: Bundle, rules: Rules) -> History:
    """Read a bundle into what is compared."""
    found = History()
    for extractor, step in steps(bundle, rules):
        found.add(step)
        found.lost = extractor.lost
        found.is_complete = extractor.is_complete
    return found


def _loader(bundle: Bundle, rules: Rules) -> Callable[[int], Identity]:
    kept: dict[int, Identity] = {}

    def load(number: int) -> Identity:
        if number not in kept:
            for _, step in steps(bundle, rules):
                if isinstance(step, Action) and step.number == number:
                    kept[number] = step.identity
                    break
        return kept[number]

    return load


def compare(
    recorded: Bundle | str | os.PathLike[str],
    now: Bundle | str | os.PathLike[str],
    *,
    rules: Rules | None = None,
    order: bool = True,
) -> Verdict:
    """Say whether two recordings did the same; ``order`` as ``verdict.judge`` has it.

    ``rules``: instead of the built-in ones and the recorded policy's.

    Raises ``BundleInvalid`` for a file that cannot be read, ``InputError`` for one that cannot be
    compared (redacted, or with kinds of a later version).
    """
    if not isinstance(recorded, Bundle):
        with Bundle.open(recorded) as opened:
            return compare(opened, now, rules=rules, order=order)
    if not isinstance(now, Bundle):
        with Bundle.open(now) as opened:
            return compare(recorded, opened, rules=rules, order=order)
    return Compared(recorded, now, rules).verdict(order=order)


class Compared:
    """Two open bundles, each read once, and the verdicts on them."""

    def __init__(self, recorded: Bundle, now: Bundle, rules: Rules | None = None) -> None:
        self.rules = rules_of(recorded, now, rules=rules)
        self.recorded = history(recorded, self.rules)
        self.now = history(now, self.rules)
        self._load_recorded = _loader(recorded, self.rules)
        self._load_now = _loader(now, self.rules)

    def verdict(self, *, order: bool = True) -> Verdict:
        """Judge, as ``verdict.judge`` has it."""
        return judge(
            self.recorded,
            self.now,
            load_recorded=self._load_recorded,
            load_now=self._load_now,
            order=order,
        )
