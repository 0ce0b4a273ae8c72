"""Tests of the real kernel need root, and say so."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.counts import pytest_terminal_summary
from harness.running import need

__all__ = ["pytest_terminal_summary"]


@pytest.fixture(autouse=True)
def _root(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("kernel"):
        need("kernel", os.geteuid() == 0)
