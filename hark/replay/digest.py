"""The digest of a run in Foata form: what happened between two deliveries is a set.

Pure. The authority is docs/spec/replay.md, "Digest". Rules: ``Foata`` is the streaming form and
holds one interval; ``whole`` is the definition, for tests. Chunk borders on which the agent did not
act are invisible.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hark.replay.identity import framed, keyed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Digests", "Foata", "Mark", "chain_step", "seal", "whole"]

_START = keyed("chain", b"")


@dataclass(frozen=True, slots=True)
class Mark:
    """How far one exchange's response had reached the agent.

    ``exchange`` tells exchanges apart within a run and is not hashed; ``name`` is.
    """

    exchange: int
    name: bytes
    delivered: int
    reason: str = ""

    def hash(self) -> bytes:
        """Return what the chain holds of it."""
        reason = framed(self.reason.encode())
        return keyed("mark", self.name + self.delivered.to_bytes(8, "big") + reason)


@dataclass(frozen=True, slots=True)
class Digests:
    """One digest per level."""

    strict: bytes
    normalised: bytes
    renamed: bytes


def chain_step(chain: bytes, marks: Iterable[Mark], actions: Iterable[bytes]) -> bytes:
    """Return the chain behind one interval."""
    ended = sorted(mark.hash() for mark in marks)
    done = sorted(actions)
    counts = len(ended).to_bytes(4, "big"), len(done).to_bytes(4, "big")
    return keyed("chain", chain + counts[0] + b"".join(ended) + counts[1] + b"".join(done))


def seal(chain: bytes, count: int) -> bytes:
    """Return the digest of a chain over ``count`` actions."""
    return keyed("digest", count.to_bytes(8, "big") + chain)


class Foata:
    """The digest of a stream of marks and actions; one level."""

    def __init__(self) -> None:
        self._chain = _START
        self._marks: dict[int, Mark] = {}
        self._actions: list[bytes] = []
        self.count = 0
        self.intervals = 0

    def deliver(self, mark: Mark) -> None:
        """Take a delivery: it ends the interval, if that has actions."""
        if self._actions:
            self._chain = chain_step(self._chain, self._marks.values(), self._actions)
            self._marks = {}
            self._actions = []
            self.intervals += 1
        self._marks[mark.exchange] = mark

    def act(self, action: bytes) -> None:
        """Take an action's hash."""
        self._actions.append(action)
        self.count += 1

    def digest(self) -> bytes:
        """Return the digest up to here; changes nothing."""
        chain = self._chain
        if self._actions:
            chain = chain_step(chain, self._marks.values(), self._actions)
        return seal(chain, self.count)


def whole(steps: Sequence[Mark | bytes]) -> bytes:
    """Return the digest of a whole run, straight from the definition."""
    groups: list[tuple[dict[int, Mark], list[bytes]]] = [({}, [])]
    for step in steps:
        if isinstance(step, Mark):
            if groups[-1][1]:
                groups.append(({}, []))
            groups[-1][0][step.exchange] = step
        else:
            groups[-1][1].append(step)
    chain = _START
    for marks, actions in groups:
        if actions:
            chain = chain_step(chain, marks.values(), actions)
    return seal(chain, sum(len(actions) for _, actions in groups))
