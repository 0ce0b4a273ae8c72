"""Look-up: once each, close level first, never the nearest; ids fit one map."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from replay_making import head, identify

from hark.replay.match import Entry, Found, Level, Matcher, Missing
from hark.replay.rules import Rules, Telemetry

if TYPE_CHECKING:
    from hark.replay.identity import Identity

JSON = "Content-Type: application/json"
ONE, TWO = "550e8400-e29b-41d4-a716-446655440000", "6fa459ea-ee8a-3ca4-894e-db77e160355e"
THREE = "7c9e6679-7425-40de-944b-e07fc1f90ae7"


def call(value: Any, *lines: str, target: str = "/x", **more: Any) -> Identity:
    return identify(head(target, JSON, *lines), json.dumps(value).encode(), **more)


def matcher(*recorded: Identity, **entry: Any) -> Matcher:
    rows = [Entry(i + 1, identity, **entry) for i, identity in enumerate(recorded)]
    return Matcher(rows, lambda number: recorded[number - 1])


def number(found: Found | Missing) -> int:
    assert isinstance(found, Found), found
    return found.entry.number


def test_each_is_given_once_and_then_nothing() -> None:
    found = matcher(call(1), call(1))
    assert [number(found.look_up(call(1))) for _ in range(2)] == [1, 2]
    for _ in range(3):
        missing = found.look_up(call(1))
        assert isinstance(missing, Missing)
        assert missing.used == 2
        assert missing.nearest is None
    assert not found.left


def test_the_close_level_comes_first() -> None:
    recorded = [call(1, "User-Agent: a"), call(1, "User-Agent: b")]
    found = matcher(*recorded)
    result = found.look_up(call(1, "User-Agent: b"))
    assert (number(result), result.level) == (2, Level.STRICT)  # type: ignore[union-attr]
    result = found.look_up(call(1, "User-Agent: c"))
    assert isinstance(result, Found)
    assert (result.entry.number, result.level) == (1, Level.NORMALISED)
    assert result.rules == ("header:client user-agent",)
    assert found.tally.rules == {"header:client user-agent": 1}


def test_the_nearest_is_named_and_never_given() -> None:
    found = matcher(call({"a": 1, "b": 2}), call({"a": 1, "c": 3}), call(9, target="/other"))
    missing = found.look_up(call({"a": 1, "b": 3}))
    assert isinstance(missing, Missing)
    assert missing.nearest is not None
    assert missing.nearest.number == 1
    (difference,) = missing.nearest.differences
    assert (difference.field, difference.recorded, difference.now) == ("body $.b", "2", "3")
    assert len(found.left) == 3
    assert number(found.look_up(call({"a": 1, "b": 2}))) == 1


def test_an_id_is_renamed_once_for_the_whole_run() -> None:
    found = matcher(call({"id": ONE}), call({"id": ONE, "n": 1}), call({"id": ONE, "n": 2}))
    result = found.look_up(call({"id": TWO}))
    assert isinstance(result, Found)
    assert result.level == Level.RENAMED
    assert found.renames.changed == {ONE.encode(): TWO.encode()}
    assert number(found.look_up(call({"id": TWO, "n": 1}))) == 2
    missing = found.look_up(call({"id": THREE, "n": 2}))
    assert isinstance(missing, Missing)
    assert missing.conflict == (ONE.encode(), THREE.encode())
    assert found.renames.changed == {ONE.encode(): TWO.encode()}


def test_two_ids_cannot_become_one() -> None:
    found = matcher(call({"id": ONE}), call({"other": TWO}))
    assert number(found.look_up(call({"id": THREE}))) == 1
    assert isinstance(found.look_up(call({"other": THREE})), Missing)


def test_an_id_cannot_change_after_it_was_equal() -> None:
    found = matcher(call({"id": ONE}), call({"n": ONE}))
    assert number(found.look_up(call({"id": ONE}))) == 1
    assert isinstance(found.look_up(call({"n": TWO})), Missing)


def test_of_equal_requests_the_one_of_the_same_lineage_comes_first() -> None:
    rows = [Entry(1, call(1), b"a" * 32), Entry(2, call(1), b"b" * 32)]
    found = Matcher(rows, lambda _: call(1))
    assert number(found.look_up(call(1), b"b" * 32)) == 2
    assert number(found.look_up(call(1), b"c" * 32)) == 1


def test_ambiguity_is_counted_only_when_it_matters() -> None:
    def run(*rows: tuple[int, int, bytes]) -> int:
        entries = [
            Entry(i, call(1), begin=begin, end=end, answer=answer)
            for i, (begin, end, answer) in enumerate(rows)
        ]
        found = Matcher(entries, lambda _: call(1))
        for _ in rows:
            found.look_up(call(1))
        return found.tally.ambiguous

    assert run((1, 9, b"a"), (2, 8, b"b")) == 1
    assert run((1, 9, b"a"), (2, 8, b"a")) == 0
    assert run((1, 2, b"a"), (3, 4, b"b")) == 0


def test_telemetry_is_matched_in_order_and_counted() -> None:
    rules = Rules(telemetry=(Telemetry("log", "api.example", "/log"),))
    found = matcher(*(call(n, target="/log", rules=rules) for n in range(2)))
    assert number(found.look_up(call(7, target="/log", rules=rules))) == 1
    assert number(found.look_up(call(0, target="/log", rules=rules))) == 2
    assert isinstance(found.look_up(call(0, target="/log", rules=rules)), Missing)
    assert (found.tally.telemetry, found.tally.normalised) == (2, 0)


@given(st.permutations(range(8)))
def test_any_order_of_different_requests_is_found(order: list[int]) -> None:
    found = matcher(*(call(n) for n in range(8)))
    assert [number(found.look_up(call(n))) - 1 for n in order] == order
    assert not found.left


def test_many_equal_requests_cost_little() -> None:
    same = call(1)
    found = Matcher([Entry(n, same) for n in range(3000)], lambda _: same)
    assert [number(found.look_up(same)) for _ in range(3000)] == list(range(3000))


@pytest.mark.parametrize("level", list(Level))
def test_levels_are_ordered(level: Level) -> None:
    assert list(Level).index(level) == level
