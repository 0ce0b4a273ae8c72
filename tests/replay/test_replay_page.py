"""docs/spec/replay.md against the code: vectors, kinds, header rules, rule names."""

from __future__ import annotations

import re
from pathlib import Path

from replay_making import head, identify

from hark.bundle.events import Kind
from hark.replay.digest import Mark, whole
from hark.replay.identity import ActionKind, _key
from hark.replay.rules import header_rule

PAGE = (Path(__file__).parents[2] / "docs/spec/replay.md").read_text()


def rows(heading: str) -> list[list[str]]:
    part = PAGE.split(heading, 1)[1]
    table = re.search(r"(?:^\|.*\n)+", part, re.MULTILINE)
    assert table
    lines = table.group().splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_vectors_hold() -> None:
    lines = ("User-Agent: t", "Content-Type: application/json", "Content-Length: 53")
    body = b'{"id": "550e8400-e29b-41d4-a716-446655440000", "n": 1}'
    found = identify(head("/v1/x?b=2&a=1", *lines), body)
    values = [
        _key("chain"),
        found.strict,
        found.normalised,
        found.renamed,
        found.name,
        whole([]),
        whole([found.renamed, Mark(1, found.name, 5), found.renamed]),
    ]
    assert [row[1].strip("`") for row in rows("## Vectors")] == [value.hex() for value in values]


def test_the_kinds_of_actions_are_those_of_the_page() -> None:
    named = {row[0]: int(row[1]) for row in rows("A refusal and a missing end")}
    assert named == {kind.name.lower(): int(kind) for kind in ActionKind}


def test_every_kind_of_event_is_on_the_page() -> None:
    words = set(re.findall(r"[a-z_]+", " ".join(row[0] for row in rows("## Events"))))
    assert not {kind.name.lower() for kind in Kind} - words


def test_the_header_rules_are_those_of_the_page() -> None:
    for rule, names in rows("**Header fields**"):
        for name in names.split("(")[0].split(","):
            word = name.strip().replace("…", "zz")
            if re.fullmatch(r"[a-z0-9-]+", word):
                assert header_rule(word) == rule.strip("`"), word
    kept = PAGE.split("Kept are ", 1)[1].split("\n\n")[0]
    for word in re.findall(
        r"[a-z_][a-z0-9_…-]*[a-z0-9…]", kept.split("version or an operation:")[1]
    ):
        assert header_rule(word.replace("…", "zz")) is None, word
