"""docs/cases.md: each report about recording and replaying has a test that exists, or a reason."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "cases.md").read_text()
ROWS = re.findall(r"^\| R(\d+) \|.*\| (.*) \|$", PAGE, re.MULTILINE)
REPORTED = [1, 3, 4, 5, 7, 8, 10, 11, 12, 14, 15, 17, 19, 20, 21, 23, 24, 25, 26, 28, 29, 30, 32]
REPORTED += [33, 35, 36, 37, 38, 40, 41, 42, 43, 45]


def test_every_report_once_with_a_test_or_a_reason() -> None:
    assert [int(number) for number, _ in ROWS] == REPORTED
    assert not [row for row in ROWS if "tests/" not in row[1] and "not apply" not in row[1]]


def test_each_named_test_exists() -> None:
    named = [re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text) for _, text in ROWS]
    for file, name in {pair for pairs in named for pair in pairs}:
        text = (ROOT / file).read_text()
        assert re.search(rf"^(?:async )?def {name}\(", text, re.MULTILINE), (file, name)
