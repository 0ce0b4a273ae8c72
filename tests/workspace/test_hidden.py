"""The next agent in a folder does not see what earlier runs recorded there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from harness.running import environment, hark

if TYPE_CHECKING:
    from workspace.project import Project

pytestmark = pytest.mark.kernel

TRY = """
import os
names = sorted(os.listdir("."))
print(names)
for name in ("run-%s.hark", "kept.hark", "plain.hark"):
    try:
        print(name, len(open(name, "rb").read()) > 0)
    except OSError as error:
        print(name, error.errno)
"""


def test_recordings_are_out_of_sight_and_stay_where_they_are(project: Project):
    project.write("a", "x")
    project.write("plain.hark", "no recording")
    first = project.agent("print(open('a').read())")
    bundle = project.root / f"run-{first}.hark"
    (project.root / "kept.hark").write_bytes(bundle.read_bytes())
    project.own(project.root / "kept.hark")
    size = bundle.stat().st_size
    run, printed = project.printed(TRY % first)
    assert printed.decode().splitlines() == [
        "['a', 'plain.hark']",
        f"run-{first}.hark 2",
        "kept.hark 2",
        "plain.hark True",
    ]
    assert bundle.stat().st_size == size
    assert "workspace:" not in project.said  # hiding is no change of the agent's
    shown = hark("inspect", "--json", project.root / f"run-{run}.hark").stdout.decode()
    assert "write_set" not in shown
    replayed = hark("replay", project.root / f"run-{run}.hark", cwd="/", env=environment())
    assert replayed.status == 0, (replayed.stdout, replayed.stderr)


def test_an_agent_may_use_the_name_and_apply_does_not_touch_ours(mine: Project):
    first = mine.agent("1")
    bundle = mine.root / f"run-{first}.hark"
    before = bundle.read_bytes()
    run = mine.agent(f"open('run-{first}.hark', 'w').write('the agent was here')")
    row = mine.diff(run)
    assert [path for _, path in row] == [bundle.name]
    done = mine.hark("apply", run)
    assert done.status == 1, done.stdout
    assert "conflict" in done.stdout.decode()
    assert bundle.read_bytes() == before


def test_a_recording_that_the_command_names_is_shown(mine: Project):
    first = mine.agent("1")
    name = f"run-{first}.hark"
    words = ["run", "--as", mine.person, "-o", mine.root / "second.hark", "--"]
    env = environment(HOME="/nonexistent")
    done = hark(*words, "/usr/bin/wc", "-c", name, cwd=mine.root, env=env)
    assert done.status == 0, done.stderr
    assert done.stdout.decode().split() == [str((mine.root / name).stat().st_size), name]
