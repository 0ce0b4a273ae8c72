"""The event table in the code is the one in docs/spec/records.md."""

from __future__ import annotations

import re
from pathlib import Path

from hark.bundle.events import COMMON, FIELDS, Key, Kind

SPEC = Path(__file__).resolve().parents[2] / "docs" / "spec" / "records.md"


def rows(heading: str) -> list[list[str]]:
    text = SPEC.read_text().split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_kinds_and_keys():
    table = rows("Kinds")
    assert len(table) == len(Kind)
    for number, name, keys, *_ in table:
        kind = Kind(int(number))
        assert kind.name.lower() == name
        fields = {int(k): v for k, v in re.findall(r"(\d+) (\w+)", keys)}
        assert FIELDS[kind] == fields, name


def test_common_keys():
    assert {int(key): name for key, name, _ in rows("Keys every event may carry")} == COMMON
    assert {key.value: key.name.lower() for key in Key} == COMMON


def test_kinds_stay_in_their_ranges():
    assert all(1 <= kind <= 62 for kind in Kind)
    for fields in FIELDS.values():
        assert not set(fields) & set(COMMON)
        assert list(fields) == sorted(fields)
