"""The idle count: no false idle in busy work, every real one told, and mutants that must fail.

A workload is busy from its first instruction to its end: it never waits for anything outside of its
cgroup. So the run may become idle once, at the end, however slow the machine is.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from harness.running import ROOT, need, need_program

from hark.kernel.idle import IdleSensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .rig import Cgroup

pytestmark = pytest.mark.kernel

WAIT_S = 60.0
MUTANT_S = 15.0
# A shell that is in the cgroup before it does anything else; nothing outside reads what it writes.
# Who is moved there while it runs is counted from its next switch on: waiting for a child is one.
# (The agent is born in its cgroup, CLONE_INTO_CGROUP.)
INSIDE = 'echo $$ >"$0"/cgroup.procs; /bin/true; exec "$@"'

QUEUE = """
import queue, threading
work, done = queue.Queue(), queue.Queue()
def worker():
    while (n := work.get()) is not None: done.put(n * n)
threads = [threading.Thread(target=worker) for _ in range(4)]
for t in threads: t.start()
for n in range(5000): work.put(n)
for _ in range(5000): done.get()
for _ in threads: work.put(None)
for t in threads: t.join()
"""
PING = """
import os
a, b = os.pipe(), os.pipe()
cpus = sorted(os.sched_getaffinity(0))
if os.fork() == 0:
    os.sched_setaffinity(0, cpus[-1:])
    for _ in range({rounds}): os.read(a[0], 1); os.write(b[1], b"x")
    os._exit(0)
os.sched_setaffinity(0, cpus[:1])
for _ in range({rounds}): os.write(a[1], b"x"); os.read(b[0], 1)
os.wait()
"""
PARALLEL = """
cd "$(mktemp -d)" && i=0
while [ $i -lt 8 ]; do echo "int f$i(void) { return $i; }" >$i.c; i=$((i+1)); done
ls *.c | xargs -P4 -n1 gcc -c; rm -rf "$PWD"
"""
GIT = """
cd "$(mktemp -d)" && export HOME=$PWD && git init -q . && i=0
while [ $i -lt 200 ]; do echo $i >$i; i=$((i+1)); done
git add . && git -c user.name=a -c user.email=a commit -qm m && git status; rm -rf "$PWD"
"""
FORKS = "i=0; while [ $i -lt 200 ]; do /bin/true; i=$((i+1)); done"
PIPELINE = "seq 20000 | sort -R | sort | md5sum"
FILES = "find /usr/share/doc /usr/include -type f -print0 | head -z -n 3000 | xargs -0 cat"

BUSY = {
    "forks": ["/bin/sh", "-c", FORKS],
    "pipeline": ["/bin/sh", "-c", PIPELINE],
    "parallel compilers": ["/bin/sh", "-c", PARALLEL],
    "threads on a queue": ["/usr/bin/python3", "-c", QUEUE],
    "ping-pong": ["/usr/bin/python3", "-c", PING.format(rounds=5000)],
    "node": ["node", "-e", "console.log(require('zlib').gzipSync('x'.repeat(1e6)).length)"],
    "git": ["/bin/sh", "-c", GIT],
    "files": ["/bin/sh", "-c", FILES],
}


@dataclass
class Counted:
    """A cgroup with its idle count."""

    cgroup: Cgroup
    sensor: IdleSensor

    def run(self, *command: str | Path) -> None:
        """Run a command inside to its end, with nothing to wait for outside."""
        words = ["/bin/sh", "-c", INSIDE, self.cgroup.path, *command]
        null = subprocess.DEVNULL
        subprocess.run(words, stdin=null, stdout=null, stderr=null, check=True, timeout=600)

    def settled(self) -> None:
        """Wait until nobody is active: the last task's end is told a moment after wait(2)."""
        end = time.monotonic() + WAIT_S
        while self.sensor.state().active and time.monotonic() < end:
            time.sleep(0.01)
        assert self.sensor.state().active == 0


@pytest.fixture
def count(new_cgroup: Callable[[], Cgroup]) -> Iterator[Callable[..., Counted]]:
    """Makes counted cgroups."""
    made: list[IdleSensor] = []

    def make(**options: object) -> Counted:
        cgroup = new_cgroup()
        sensor = IdleSensor.attach(cgroup.id, **options)  # type: ignore[arg-type]
        made.append(sensor)
        return Counted(cgroup, sensor)

    yield make
    for sensor in made:
        sensor.close()


@pytest.mark.parametrize("name", BUSY)
def test_busy_work_is_idle_only_at_its_end(count: Callable[..., Counted], name: str):
    command = list(BUSY[name])
    for program in {"parallel compilers": ["gcc"], "node": ["node"], "git": ["git"]}.get(name, []):
        need_program(program)
    command[0] = shutil.which(command[0], path="/usr/bin:/bin") or command[0]
    counted = count()
    counted.run(*command)
    counted.settled()
    state = counted.sensor.state()
    assert state.missed == 0
    assert state.edges == 1, state


def test_the_mutant_without_wake_ups_under_way_fails(count: Callable[..., Counted]):
    """Needs a waker that sleeps before the other processor has queued whom it woke.

    That is chance, and rare where others keep both processors busy: then nothing was shown.
    """
    need("two processors", len(os.sched_getaffinity(0)) > 1)
    counted = count(program=ROOT / "build/bpf/idle-no-waking.bpf.o")
    end = time.monotonic() + MUTANT_S
    rounds = 0
    while counted.sensor.state().edges <= rounds and time.monotonic() < end:
        counted.run("/usr/bin/python3", "-c", PING.format(rounds=5000))
        rounds += 1
        counted.settled()
    need("a wake-up across processors", counted.sensor.state().edges > rounds)


DISK = """
import mmap, os, sys, tempfile
fd, path = tempfile.mkstemp(dir=sys.argv[1])
os.unlink(path)
block = mmap.mmap(-1, 1 << 16)
for _ in range(50): os.write(fd, block); os.fsync(fd)
"""


def test_the_mutant_that_takes_a_disk_for_idle_fails(count: Callable[..., Counted], tmp_path: Path):
    words = ["/usr/bin/python3", "-c", DISK, tmp_path]
    right = count()
    right.run(*words)
    right.settled()
    assert right.sensor.state().edges == 1, "positive control: waiting for a disk is work"
    mutant = count(program=ROOT / "build/bpf/idle-disk-is-idle.bpf.o")
    mutant.run(*words)
    assert mutant.sensor.state().edges > 1, "this file system lets nobody wait"


def _bell(counted: Counted) -> bool:
    found = select.select([counted.sensor], [], [], WAIT_S)[0]
    counted.sensor.hush()
    return bool(found)


def test_each_idle_time_has_a_number_and_rings_once(count: Callable[..., Counted]):
    counted = count()
    words = ["/bin/sh", "-c", INSIDE, counted.cgroup.path, "/bin/cat"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as cat:
        assert cat.stdin is not None
        assert cat.stdout is not None
        seen = []
        for n in range(20):
            counted.sensor.arm()
            line = f"{n}\n".encode()
            cat.stdin.write(line)
            cat.stdin.flush()
            assert cat.stdout.readline() == line
            assert _bell(counted), "idle, and nobody said so"
            counted.settled()
            seen.append(counted.sensor.state().seq)
            assert counted.sensor.is_idle(seen[-1])
            assert not counted.sensor.is_idle(seen[-1] - 1)
        assert seen == sorted(set(seen)), "each time is another"
        cat.stdin.close()
    assert not select.select([counted.sensor], [], [], 0)[0], "not armed, and rang"


def test_a_stopped_task_is_idle_and_a_traced_one_is_not(count: Callable[..., Counted]):
    counted = count()
    words = ["/bin/sh", "-c", INSIDE, counted.cgroup.path, "/bin/sh", "-c", "while :; do :; done"]
    with subprocess.Popen(words) as loop:
        try:
            end = time.monotonic() + WAIT_S
            while not counted.sensor.state().active and time.monotonic() < end:
                time.sleep(0.01)
            assert counted.sensor.state().active == 1
            loop.send_signal(signal.SIGSTOP)
            counted.settled()
            loop.send_signal(signal.SIGCONT)
            while not counted.sensor.state().active and time.monotonic() < end:
                time.sleep(0.01)
            assert counted.sensor.state().active == 1
        finally:
            loop.kill()
    counted.settled()


def test_work_of_a_server_counts_as_the_runs(
    count: Callable[..., Counted], new_cgroup: Callable[[], Cgroup]
):
    server = new_cgroup()
    counted = count(server_id=server.id)
    other = Counted(server, counted.sensor)
    other.run("/usr/bin/python3", "-c", "sum(range(1000))")
    counted.settled()
    assert counted.sensor.state().edges == 1
    stranger = Counted(new_cgroup(), counted.sensor)
    stranger.run("/usr/bin/python3", "-c", "sum(range(1000))")
    assert counted.sensor.state().edges == 1, "another cgroup is nobody's business"
