"""docs/cases.md: every number is there once, and every test it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hark.mediator.reasons import NAMES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "cases.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if re.match(r"\| C?\d+ \|", line)
]
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


def test_every_number_once():
    numbers = [int(row[0]) for row in ROWS if row[0].isdigit()]
    assert numbers == list(range(1, 56))
    reported = [row[0] for row in ROWS if not row[0].isdigit()]
    assert len(reported) == len(set(reported))


def test_every_row_has_a_test_or_says_why_not():
    assert not [row for row in ROWS if "tests/" not in row[-1] and "not apply" not in row[-1]]


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_it_exists(file: str, name: str):
    assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE)


def test_reasons_are_reasons():
    named = {word for row in ROWS if len(row) == 4 for word in re.findall(r"`(\w+)`", row[2])}
    assert named <= set(NAMES)
