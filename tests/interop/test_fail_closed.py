"""Kill any process of hark while the agent runs: the agent is gone, the prefix verifies.

Timing decides nothing: each wait has a generous deadline and asks only whether.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from harness.processes import Process, below, running_with, wait_until_gone
from harness.running import HARK, hark
from harness.world import NEWS, World

if TYPE_CHECKING:
    from collections.abc import Iterator

PARTS = ("hark-recorder", "hark-mediator", "hark-launch", "hark-broker", "hark-signer")
RUNS = Path("/var/lib/hark/runs")
AGENT = f"""
import subprocess, sys, urllib.request
subprocess.Popen(["/bin/sleep", "3600", sys.argv[1]])
stream = urllib.request.urlopen("https://{NEWS}/hold")
print("held", stream.readline(), flush=True)
stream.read()
"""


@contextlib.contextmanager
def started(world: World, marker: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a run whose agent is in the middle of an exchange and has a child with ``marker``."""
    (world.work / "agent.py").write_text(AGENT)
    log = (world.directory / "stderr").open("wb")
    run = subprocess.Popen(
        [str(HARK), *world.words("/usr/bin/python3", "agent.py", marker)],
        cwd=world.work,
        env=world.env(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=log,
    )
    try:
        assert run.stdout is not None
        assert run.stdout.readline().startswith(b"held"), (world.directory / "stderr").read_text()
        yield run
    finally:
        for process in below(run.pid):
            process.kill()
        run.wait()
        log.close()


def bundle_of(world: World, before: set[Path]) -> Path:
    """Where the recording lies now: at its place, or in the run's folder."""
    if world.bundle.exists():
        return world.bundle
    (left,) = set(RUNS.iterdir()) - before
    said = (world.directory / "stderr").read_text()
    assert left.name in said or "recorder" in said, said
    return left / "run.hark"


@pytest.mark.kernel
@pytest.mark.interop
@pytest.mark.parametrize("name", PARTS)
def test_killing_a_part_stops_the_agent_and_keeps_the_prefix(world: World, name: str):
    marker = str(uuid.uuid4().int % 10**9)  # sleep takes it as more seconds
    before = set(RUNS.iterdir()) if RUNS.exists() else set()
    with started(world, marker) as run:
        tree = below(run.pid)
        assert running_with(marker), "positive control: the agent is running"
        victim = one_called(name, tree)
        victim.kill()
        assert not wait_until_gone(tree), "the agent or a part of hark outlived its recorder"
        assert not running_with(marker)
        run.wait(30)
    bundle = bundle_of(world, before)
    verdict = hark("verify", bundle)
    assert verdict.status in {0, 3}, verdict.text + verdict.stderr
    assert re.search("VERIFIED|TRUNCATED", verdict.text)
    shown = hark("inspect", "--json", bundle)
    assert b"/hold" in shown.stdout


def one_called(name: str, tree: list[Process]) -> Process:
    """Return the process of the run with this name."""
    (found,) = [process for process in tree if process.name == name]
    return found
