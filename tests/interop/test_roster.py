"""The list of clients says ok only for a client all of whose tests ran and passed."""

from __future__ import annotations

import pytest
from roster import Roster

GOOD = [("a", "passed"), ("a", "passed"), ("b", "passed")]


@pytest.mark.parametrize(
    ("outcomes", "complete", "lines"),
    [
        (GOOD, True, ["a  ok", "b  ok"]),
        ([*GOOD, ("b", "skipped")], False, ["a  ok", "b  skipped"]),
        ([("a", "failed"), *GOOD], False, ["a  failed", "b  ok"]),
        (GOOD[:2], False, ["a  ok", "b  missing"]),
        ([*GOOD, ("c", "passed")], False, ["a  ok", "b  ok", "c  not on the list"]),
    ],
)
def test_roster(outcomes: list[tuple[str, str]], complete: bool, lines: list[str]):
    roster = Roster(names=("a", "b"))
    for name, outcome in outcomes:
        roster.add(name, outcome)
    assert (roster.complete(), roster.lines()) == (complete, lines)
