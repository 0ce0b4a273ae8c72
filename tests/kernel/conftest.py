"""Tests of the real kernel need root, and say so."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.running import need


@pytest.fixture(autouse=True)
def _root(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("kernel"):
        need("kernel", os.geteuid() == 0)
