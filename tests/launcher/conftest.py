"""Fixtures of the launcher's tests: a place any person can reach, and boxes."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from harness.running import need

from launcher.rig import PROGRAM, Box, new_box

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder outside /tmp, whose parents everyone can pass."""
    path = Path(tempfile.mkdtemp(prefix="hark-test-", dir="/var/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def box(place: Path) -> Iterator[Callable[..., Box]]:
    """Make boxes; whatever a failed test left is ended."""
    need("root", os.geteuid() == 0)
    if not PROGRAM.exists():
        pytest.fail("build/bin/hark-launch is missing: make build")
    Path("/run/hark").mkdir(mode=0o755, exist_ok=True)
    made: list[Box] = []

    def make(argv: list[str], **values: object) -> Box:
        made.append(new_box(place, argv, **values))
        return made[-1]

    yield make
    for one in made:
        one.abandon()
