"""Sixteen runs at once, begun and ended in any order: each has its own record and no other's."""

from __future__ import annotations

import contextlib
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from harness.counts import COUNTS
from harness.processes import below
from harness.recording import Recording, raw
from harness.running import HARK, environment, hark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Also on a machine that is ten times slower: hark itself has the deadlines.
pytestmark = [pytest.mark.kernel, pytest.mark.timeout(900)]

AT_ONCE = 16
# Which ends when: neither the order of the starts nor its reverse. Before the steps named here
# another run begins.
ENDS = (7, 0, 15, 3, 12, 1, 9, 14, 4, 11, 2, 8, 13, 5, 10, 6)
BEGINS_BEFORE = {2: 16, 5: 17, 9: 18}


@dataclass
class Going:
    """One run that waits for the end of its input."""

    name: str
    bundle: Path
    process: subprocess.Popen[bytes]

    def wait_on(self) -> None:
        """Return when the agent runs."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"on {self.name}\n".encode()

    def end(self) -> None:
        """Let it end; it must end well."""
        out, err = self.process.communicate(b"")
        assert self.process.returncode == 0, err
        assert out == f"off {self.name}\n".encode()


@contextlib.contextmanager
def runs() -> Iterator[list[Going]]:
    """A list of runs; whatever is left of them is ended."""
    made: list[Going] = []
    try:
        yield made
    finally:
        for run in made:
            if run.process.returncode is None:
                for part in below(run.process.pid):
                    part.kill()
                run.process.communicate()


def begin(folder: Path, number: int) -> Going:
    name = f"run-{number}"
    work = folder / name
    work.mkdir()
    bundle = folder / f"{name}.hark"
    script = f"echo on {name}; /bin/true {name}; cat; echo off {name}"
    process = subprocess.Popen(
        [HARK, "run", "-o", bundle, "--", "/bin/sh", "-c", script],
        cwd=work,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    return Going(name, bundle, process)


def assert_own_record(run: Going) -> None:
    """The record holds this run's programs and output, complete, and those of no other."""
    assert hark("verify", run.bundle).status == 0
    recording = Recording.read(run.bundle)
    (end,) = recording.kind("run_end")
    assert (end["reason"], end["exit_code"]) == ("exited", 0)
    for name, produced, emitted, dropped in end["rings"]:
        assert (produced, dropped) == (emitted, 0), (run.name, name)
    programs = [[raw(word) for word in event["argv"]] for event in recording.kind("exec")]
    assert [words[1:] for words in programs if words[0] == b"/bin/true"] == [[run.name.encode()]]
    assert len(programs) == 3, "sh, true and cat"
    shown = b"".join(raw(e["data"]) for e in recording.kind("stdio") if e.fields.get("data"))
    assert shown == f"on {run.name}\noff {run.name}\n".encode()


def test_sixteen_runs_at_once_in_any_order(tmp_path: Path):
    with runs() as made:
        made += [begin(tmp_path, number) for number in range(AT_ONCE)]
        for run in made:
            run.wait_on()  # all are there at once
        for step, number in enumerate(ENDS):
            if (fresh := BEGINS_BEFORE.get(step)) is not None:
                made.append(begin(tmp_path, fresh))
            made[number].end()
        for run in made[AT_ONCE:]:
            run.wait_on()
            run.end()
        assert len(made) == AT_ONCE + len(BEGINS_BEFORE)
        for run in made:
            assert_own_record(run)
    COUNTS["runs, 16 of them at once, each with its own complete record"] = len(made)
