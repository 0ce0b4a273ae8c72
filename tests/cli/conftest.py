"""A new world for each test of the command line."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.running import need
from harness.world import API, EVIL, NEWS, POLICY, World
from stub import Stub

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    need("root", os.geteuid() == 0)
    (tmp_path / "work").mkdir()
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    with Stub(tmp_path / "stub", (API, NEWS, EVIL)) as stub:
        yield World(stub, tmp_path, policy)
