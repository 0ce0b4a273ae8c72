"""stdin, stdout, stderr and exit statuses pass through unchanged, and are in the bundle."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest
from harness.recording import raw
from stub.apis import pattern

if TYPE_CHECKING:
    from harness.world import World

BIG = 3_000_000


@pytest.mark.kernel
@pytest.mark.interop
def test_bytes_pass_both_ways_and_are_recorded(world: World):
    given = pattern(BIG)
    done = world.run("/bin/cat", stdin=given)
    assert done.status == 0, done.stderr
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(given).digest()
    recording = world.recording()
    for stream in (0, 1):
        parts = [raw(e["data"]) for e in recording.kind("stdio") if e["stream"] == stream]
        assert b"".join(parts) == given


@pytest.mark.kernel
@pytest.mark.interop
def test_standard_streams_can_be_opened_by_name(world: World):
    """`tee /dev/stderr` and `cat /dev/stdin` ask for permission on the pipe itself."""
    script = "echo one >/dev/stdout; echo two | tee /dev/stderr >/dev/null; cat /dev/stdin"
    done = world.run("/bin/sh", "-ec", script, stdin=b"three\n")
    assert done.status == 0, done.stderr
    assert done.stdout == b"one\nthree\n"
    assert done.stderr.startswith("two\n")


@pytest.mark.kernel
@pytest.mark.interop
@pytest.mark.parametrize(
    ("script", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143)]
)
def test_exit_status_is_the_agents(world: World, script: str, status: int):
    assert world.run("/bin/sh", "-c", script).status == status
    (end,) = world.recording().kind("run_end")
    assert (end["exit_code"], end["reason"]) == (status, "exited")
