"""A run that uses up what it may: it is ended as the policy says, and says so in both places.

Each attack has its positive control: the same program under a limit that it fits into. What decides
is how much was used, never how fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from harness.recording import Recording
from harness.running import PYTHON, Finished, environment, hark, need

from hark.launcher.host import read_facts

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.kernel

KILLED = 128 + 9
WAIT = "import time\ntime.sleep(60)\n"  # far longer than any look; a run that is ended never waits
FORKS = """
import os
made = []
try:
    for _ in range(60):
        pid = os.fork()
        if not pid:
            os.read(0, 1)
            os._exit(0)
        made.append(pid)
except BlockingIOError:
    print("refused", flush=True)
"""
BOMB = """
import os
while True:
    try:
        if os.fork() == 0:
            pass
    except BlockingIOError:
        pass
"""
MEMORY = """
import os, sys
pid = os.fork()
if pid == 0:
    held = bytearray(200 << 20)
    os._exit(0)
print("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""
HOG = "held = bytearray(200 << 20)\nprint('held')\n"
FILL = """
import os, sys
with open("fill", "wb") as file:
    for _ in range(int(sys.argv[1])):
        file.write(bytes(1 << 20))
    file.flush()
    os.fsync(file.fileno())
print("written", flush=True)
"""
DEEP = """
import os
for _ in range(400):
    os.mkdir("d")
    os.chdir("d")
print("made", flush=True)
"""
RECORDS = """
import socket, sys
for _ in range(int(sys.argv[1])):
    with socket.socket() as s:
        s.connect_ex(("127.0.0.1", 1))
print("done", flush=True)
"""
LOG = """
import os, sys
for _ in range(int(sys.argv[1])):
    os.write(1, os.urandom(65536))
os.write(2, b"done")
"""
ENDLESS = 1 << 40


class Run:
    """One run of a script under some limits, and its bundle."""

    def __init__(self, folder: Path, script: str, *limits: str, argument: int = 0) -> None:
        work = folder / "work"
        work.mkdir(exist_ok=True)
        self.bundle = folder / f"run-{len(list(folder.iterdir()))}.hark"
        options = [f"--limit={limit}" for limit in limits]
        self.done: Finished = hark(
            *("run", *options, "-o", self.bundle, "--"),
            *("/usr/bin/python3", "-I", "-S", "-c", script, str(argument)),
            cwd=work,
            env=environment(),
        )
        self.recording = Recording.read(self.bundle)
        assert hark("verify", self.bundle).status == 0
        self.start = self.recording.kind("run_start")[0]
        self.end = self.recording.kind("run_end")[0]

    @property
    def met(self) -> dict[str, int]:
        return dict(self.end.fields.get("limits_met", []))

    def assert_ended(self, name: str) -> None:
        """It was ended for this limit, and says so on stderr and in the record."""
        assert self.end["reason"] == f"limit-{name}", (self.end.fields, self.done)
        assert (self.done.status, self.end["exit_code"]) == (KILLED, KILLED)
        assert "hark: error: the run was ended: " in self.done.stderr
        assert "hark: hint: " in self.done.stderr
        assert self.end["detail"]

    def assert_fits(self) -> None:
        assert (self.done.status, self.end["reason"]) == (0, "exited"), self.done.stderr
        assert "the run was ended" not in self.done.stderr


def need_controller(name: str) -> None:
    need(f"{name} controller", getattr(read_facts(), name) is not None)


def test_every_limit_in_force_is_on_record(tmp_path: Path):
    run = Run(tmp_path, "pass", "cpu=150", "time=1h", "pids=99", "open_files=64")
    told = {name: value for name, value, _ in run.start["limits"]}
    assert {"pids": 99, "cpu": 150, "time": 3600, "open_files": 64}.items() <= told.items()
    assert {"memory", "disk", "tmp", "events", "bytes"} <= set(told), "defaults are told too"


def test_time(tmp_path: Path):
    run = Run(tmp_path, WAIT, "time=1")
    run.assert_ended("time")
    Run(tmp_path, "pass", "time=300").assert_fits()


def test_tasks_are_refused_and_counted(tmp_path: Path):
    run = Run(tmp_path, FORKS, "pids=20")
    run.assert_fits()
    assert run.done.stdout == b"refused\n"
    assert run.met["pids"] >= 1
    assert "hark: limit: pids is 20: " in run.done.stderr
    run = Run(tmp_path, FORKS, "pids=200")
    run.assert_fits()
    assert (run.done.stdout, run.met) == (b"", {})


def test_a_fork_bomb_is_ended(tmp_path: Path):
    need_controller("pids")
    run = Run(tmp_path, BOMB, "pids=30", "time=60")
    run.assert_ended("pids")
    assert run.met["pids"] > 10_000


def test_a_child_without_memory_is_killed_and_counted(tmp_path: Path):
    need_controller("memory")
    run = Run(tmp_path, MEMORY, "memory=100M")
    run.assert_fits()
    assert run.done.stdout == b"child -9\n"
    assert run.met == {"memory": 1}
    assert "hark: limit: memory is " in run.done.stderr
    run = Run(tmp_path, MEMORY, "memory=1G")
    assert (run.done.stdout, run.met) == (b"child 0\n", {})


def test_an_agent_without_memory_is_ended(tmp_path: Path):
    need_controller("memory")
    Run(tmp_path, HOG, "memory=100M").assert_ended("memory")
    Run(tmp_path, HOG, "memory=1G").assert_fits()


def test_a_full_workspace_ends_the_run(tmp_path: Path):
    run = Run(tmp_path, FILL + WAIT, "disk=8M", argument=32)
    run.assert_ended("disk")
    run = Run(tmp_path, FILL, "disk=256M", argument=32)
    run.assert_fits()
    assert run.done.stdout == b"written\n"


def test_folders_too_deep_to_measure_end_the_run(tmp_path: Path):
    Run(tmp_path, DEEP + WAIT, "disk=1G").assert_ended("disk")


def test_a_flood_of_records_ends_the_run(tmp_path: Path):
    run = Run(tmp_path, RECORDS, "events=2000", argument=ENDLESS)
    run.assert_ended("events")
    assert len(run.recording.events) > 2000
    run = Run(tmp_path, RECORDS, "events=20000", argument=50)
    run.assert_fits()
    assert run.done.stdout == b"done\n"


def test_a_flood_of_output_ends_the_run(tmp_path: Path):
    run = Run(tmp_path, LOG, "bytes=4M", argument=ENDLESS)
    run.assert_ended("bytes")
    assert run.bundle.stat().st_size > 4 << 20
    assert run.bundle.stat().st_size < 64 << 20, "what was on its way, and no more"
    run = Run(tmp_path, LOG, "bytes=64M", argument=16)
    run.assert_fits()
    assert run.done.stderr.startswith("done")


def test_processor_time_is_shared_out(tmp_path: Path):
    """The kernel's own count of periods in which the run had to wait is the witness."""
    need_controller("cpu")
    spin = "import time\nwhile time.process_time() < 0.5: pass\nprint(time.monotonic() - began)"
    script = f"import time\nbegan = time.monotonic()\n{spin}\n"
    run = Run(tmp_path, script, "cpu=20")
    run.assert_fits()
    assert float(run.done.stdout) > 1.5, "half a second of work takes 2.5 s of a fifth"


def test_an_option_that_is_no_limit_is_refused(tmp_path: Path):
    done = hark("run", "--limit=speed=3", "--", str(PYTHON), cwd=tmp_path, env=environment())
    assert done.status != 0
    assert "names: pids, memory, cpu" in done.stderr
