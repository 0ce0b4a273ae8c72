"""docs/spec/reasons.md against the enum that C and Python share."""

from __future__ import annotations

import re
from pathlib import Path

from hark.mediator.reasons import DENIALS, NAMES, NOTES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spec" / "reasons.md"


def names_below(title: str) -> set[str]:
    section = PAGE.read_text().split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    return set(re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE))


def test_every_reason_stands_on_the_page_once():
    listed = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), flags=re.MULTILINE)
    assert sorted(listed) == sorted(NAMES)


def test_groups():
    assert names_below("Denials") == DENIALS
    assert names_below("Notes") == NOTES
