"""The gate says what the judge says, and at the earliest step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from replay_making import Event, Script, steps
from test_verdict import agent, compare, history, moves, play

from hark.replay.gate import Gate
from hark.replay.rules import BUILTIN, Rules

if TYPE_CHECKING:
    from hark.replay.verdict import Divergence


def run(
    left: list[Event], right: list[Event], rules: Rules = BUILTIN
) -> tuple[Gate, Divergence | None, int]:
    """Return the gate, the divergence, and how many steps were fed when it was found."""
    recorded, made = history(left, rules)
    gate = Gate(recorded, lambda number: made[number - 1].identity)
    fed = 0
    for step in steps(right, rules):
        fed += 1
        found = gate.feed(step)
        if found is not None:
            return gate, found, fed
    return gate, gate.finish(), fed


@given(moves, moves)
@settings(max_examples=200, deadline=None)
def test_gate_and_judge_agree(left: list[Any], right: list[Any]) -> None:
    _, found, _ = run(play(left), play(right))
    assert (found is None) is compare(play(left), play(right)).equal
    gate, found, _ = run(play(left), play(left))
    assert found is None
    assert gate.digests() == history(play(left), BUILTIN)[0].digests()
    assert not gate.missing


def test_a_changed_request_is_found_when_it_is_made() -> None:
    changed = agent(b'{"content":"ho"}')
    gate, found, fed = run(agent(), changed)
    assert found is not None
    assert found.number == 3
    assert found.nearest is not None
    assert [item.field for item in found.nearest.differences] == ["body $.content"]
    assert gate.count == 3
    assert fed < len(steps(changed)) - 4  # before the answer to it


def test_what_is_missing_is_known_before_the_next_delivery() -> None:
    recorded, made = history(agent(), BUILTIN)
    gate = Gate(recorded, lambda number: made[number - 1].identity)
    assert [entry.number for entry in gate.missing] == [1, 2]
    script = Script("epoch")
    for step in steps(script.events):
        assert gate.feed(step) is None
    assert [entry.identity.title for entry in gate.missing] == ["POST api.example/v1/chat"]
    found = gate.finish()
    assert found is not None
    assert found.recorded is not None
    assert (found.number, found.now) == (2, None)


def test_a_killed_recording_holds_no_one_to_its_end() -> None:
    script = Script()
    script.answer(script.request("/a", b"x"), b"ok")
    assert run(script.events, [*script.events, *_more(script)])[1] is None


def _more(script: Script) -> list[Event]:
    more = Script()
    more.events, more.exchanges = list(script.events), script.exchanges
    at = len(more.events)
    more.request("/c", b"x")
    return more.finish()[at:]
