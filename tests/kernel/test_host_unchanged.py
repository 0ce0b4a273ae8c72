"""A run changes nothing of the host: not while it lasts, not after it, not after a SIGKILL of all.

Positive control in each test: while the run lasts, the same look shows what belongs to it.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from harness.counts import COUNTS
from harness.host import NO_RUN, Host, RunNames, difference, look
from harness.processes import Process, below, run_folder, wait_until_gone
from harness.running import HARK, environment, hark

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.kernel

SETTLE_S = 20
OWN = {"cgroup", "pins", "run", "sensors"}  # what a run makes outside of itself while it lasts


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "notes").write_text("mine\n")
    # The first run of a host makes its key and its folders; that is not what is tested here.
    hark("run", "-o", tmp_path / "first.hark", "--", "/bin/true", cwd=folder)
    return folder


@contextlib.contextmanager
def going(work: Path) -> Iterator[tuple[subprocess.Popen[bytes], list[Process]]]:
    """Start a run that waits for the end of its input; yield it with all of its processes."""
    run = subprocess.Popen(
        [HARK, "run", "-o", work.parent / "run.hark", "--", "/bin/sh", "-c", "echo on; cat"],
        cwd=work,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert run.stdout is not None
        assert run.stdout.readline() == b"on\n"
        yield run, below(run.pid)
    finally:
        for process in below(run.pid):
            process.kill()
        run.communicate()


def names_of(tree: list[Process]) -> RunNames:
    ulid = run_folder(tree).name
    (cgroup, *_) = Path("/sys/fs/cgroup").rglob(f"hark-{ulid}")
    return RunNames(ulid, cgroup.stat().st_ino)


def settled(before: Host, run: RunNames, work: Path, allowed: set[str]) -> list[str]:
    """Return what stays different but for facts that begin with ``allowed``.

    The end of the command is not the end of what the kernel does for it.
    """
    end = time.monotonic() + SETTLE_S
    while True:
        lines = difference(before, look(run, work))
        left = [line for line in lines if line.split()[0].rstrip(":") not in allowed]
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.2)


def test_a_run_leaves_nothing_and_changes_nothing(work: Path):
    before = look(NO_RUN, work)
    with going(work) as (process, tree):
        run = names_of(tree)
        during = {line.split()[0].rstrip(":") for line in difference(before, look(run, work))}
        assert during >= OWN - {"pins"}, "positive control"  # others may use the pins too
        assert not settled(before, run, work, OWN)
        COUNTS["facts of the host equal before, during and after a run"] = len(before)
        process.communicate(b"")
        assert process.returncode == 0
        assert not wait_until_gone(tree)
    assert not settled(before, run, work, set())
    assert (work.parent / "run.hark").exists()


def test_after_a_kill_of_everything_the_next_run_takes_the_rest_away(work: Path):
    before = look(NO_RUN, work)
    with going(work) as (process, tree):
        run = names_of(tree)
        for name in ("hark-launch", "hark-recorder"):  # nobody is left to clean up
            next(part for part in tree if part.name == name).kill()
        for part in tree:
            part.kill()
        process.communicate()
        assert not wait_until_gone(tree)
    left = {line.split()[0] for line in difference(before, look(run, work))}
    assert left >= {"cgroup", "run"}, "positive control: it was left over"
    again = hark("run", "-o", work.parent / "second.hark", "--", "/bin/true", cwd=work)
    assert again.status == 0
    folder = Path("/var/lib/hark/runs", run.ulid)
    assert not settled(before, run, work, {"run"})
    assert sorted(p.name for p in folder.iterdir() if p.is_file())[:2] == ["lock", "run.hark"]
    shutil.rmtree(folder)  # evidence, which stays until somebody has looked at it
    assert not settled(before, run, work, set())
    COUNTS["facts equal after every process was killed and the next run cleaned up"] = len(before)
