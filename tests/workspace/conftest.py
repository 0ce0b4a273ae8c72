"""A new project for each test, once as root's and once as another user's."""

from __future__ import annotations

import os
import pwd
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.running import need

from workspace.project import Project

if TYPE_CHECKING:
    from collections.abc import Iterator


def make(person: str) -> Project:
    """A project below /tmp that the person can reach."""
    need("root", os.geteuid() == 0)
    who = pwd.getpwnam(person)
    base = Path(tempfile.mkdtemp(prefix="hark-workspace-"))
    base.chmod(0o755)
    project = Project(base, person, who.pw_uid, who.pw_gid)
    project.root.mkdir()
    project.own(project.root)
    return project


@pytest.fixture(params=["root", "nobody"])
def project(request: pytest.FixtureRequest) -> Iterator[Project]:
    """The same test for root as the person, and for somebody without rights."""
    made = make(request.param)
    yield made
    made.close()


@pytest.fixture
def mine() -> Iterator[Project]:
    """A project of somebody without rights."""
    made = make("nobody")
    yield made
    made.close()
