"""A new place for each test."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ulid import ULID

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.running import hark, need

from hark.bundle.reader import Bundle
from hark.errors import HarkError
from hark.locations import RUNS

from .rig import Place

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    need("root", os.geteuid() == 0)
    yield Place(tmp_path)
    for path in tmp_path.rglob("*.hark"):  # what the recorded agents wrote is kept until then
        with contextlib.suppress(HarkError), Bundle.open(path) as bundle:
            run = ULID(bundle.header.run_id)
            if (RUNS / str(run)).exists():
                assert hark("discard", str(run)).status == 0
