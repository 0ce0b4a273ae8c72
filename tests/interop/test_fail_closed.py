"""Kill any process of hark while the agent runs: the agent is gone, the prefix verifies.

Timing decides nothing: each wait has a generous deadline and asks only whether.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import uuid
from typing import TYPE_CHECKING

import pytest
from harness.processes import below, run_folder, running_with, wait_until_gone
from harness.recording import Recording, raw
from harness.running import HARK, hark
from harness.world import NEWS, World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PARTS = (
    "hark-recorder",
    "hark-mediator",
    "hark-launch",
    "hark-broker",
    "hark-signer",
    "hark-trace",
)
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


@pytest.mark.kernel
@pytest.mark.interop
@pytest.mark.parametrize("name", PARTS)
def test_killing_a_part_stops_the_agent_and_keeps_the_prefix(world: World, name: str):
    marker = str(uuid.uuid4().int % 10**9)  # sleep takes it as more seconds
    with started(world, marker) as run:
        tree = below(run.pid)
        folder = run_folder(tree)
        assert running_with(marker), "positive control: the agent is running"
        (victim,) = [process for process in tree if process.name == name]
        victim.kill()
        assert not wait_until_gone(tree), "the agent or a part of hark outlived its recorder"
        assert not running_with(marker)
        assert run.wait(30) == (-9 if name == "hark-recorder" else 125)
    said = (world.directory / "stderr").read_text()
    bundle = world.bundle
    if name == "hark-launch":  # nobody was left to publish: the operator is told where it lies
        bundle = folder / "run.hark"
        assert not world.bundle.exists()
        assert str(bundle) in said
    assert_prefix(bundle, name)
    shutil.rmtree(folder, ignore_errors=True)  # kept as evidence; this test has looked at it


def assert_prefix(bundle: Path, killed: str) -> None:
    """What was recorded until then is there, signed, and says how it ended."""
    verdict = hark("verify", bundle)
    last = verdict.text.splitlines()[-1].split()[0]
    # Without a signer the end stays unsigned; a recorder that dies leaves none.
    sealed = killed not in ("hark-recorder", "hark-signer")
    recording = Recording.read(bundle, sealed=sealed)
    assert (verdict.status, last) == ((0, "VERIFIED") if sealed else (3, "TRUNCATED")), verdict.text
    # Written ahead: on disk before the dial, whoever dies afterwards.
    assert recording.kind("dial")[0]["host"] == NEWS
    if killed == "hark-recorder":
        return
    (held,) = recording.exchanges(NEWS)
    assert raw(held.request["target"]) == b"/hold"
    assert held.response_body == b"data: held\n\n"
    (end,) = recording.kind("run_end")
    known = {"hark-launch": "launcher", "hark-trace": "tracer"}
    part = known.get(killed, killed.removeprefix("hark-"))
    # Also when a follower was noticed first: the broker ends when the mediator does.
    assert end["reason"] == f"{part}-died"
