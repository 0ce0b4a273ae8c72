"""Counts and counters: a known number of calls, a ring that is too small, many processes."""

from __future__ import annotations

import errno
from collections import Counter
from struct import Struct
from typing import TYPE_CHECKING

import pytest
from hark._native import ffi, lib
from harness.counts import COUNTS

from hark.kernel import syscalls
from hark.kernel.records import (
    CapRefused,
    CgroupLeft,
    Connect,
    Exit,
    FileAct,
    Fork,
    SocketAct,
    SocketClose,
    SyscallRefused,
    UdpFlow,
)

from .rig import Run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hark.kernel.records import KernelRecord
    from hark.kernel.sensors import Sensors

    from .rig import Cgroup

pytestmark = pytest.mark.kernel

PAGE = 4096
HEAD = Struct("=IHHQQQ")  # struct hark_rec_head
REFUSED = 0x207
STRACE_UNSEEN = {
    *("close", "getpid", "kill", "tgkill", "geteuid", "prctl", "exit_group", "set_robust_list"),
    *("rt_sigprocmask", "rseq", "gettid", "rt_sigaction"),
}


def _rows(run: Run, pid: int) -> Counter[tuple[str, int]]:
    return Counter(
        {(syscalls.name(c.nr), c.errno): c.count for c in run.sensors.counts() if c.tgid == pid}
    )


def test_counts_are_exact(run: Run, workload: Path):
    base_pid, _ = run.cgroup.run(workload, "count", "0")
    base = _rows(run, base_pid)
    for mode, row in (
        ("count", ("getppid", 0)),
        ("fail", ("close", errno.EBADF)),
        ("refuse", ("getppid", errno.EACCES)),
    ):
        pid, code = run.cgroup.run(workload, mode, "12345")
        assert code == 0
        got = _rows(run, pid)
        assert got[row] == 12345
        extra = got - base
        del extra[row]
        assert extra.total() <= 2  # the filter's own prctl and seccomp


def test_counts_agree_with_strace(run: Run, tmp_path: Path):
    """An independent witness of every call of a program, by name."""
    log = tmp_path / "strace"
    run.cgroup.run("/usr/bin/strace", "-f", "-c", "-U", "name,calls", "-o", log, "/bin/ls", "/")
    if not log.exists():
        pytest.skip("strace is not installed: counts were not compared with it")
    told = {}
    for line in log.read_text().splitlines()[2:-2]:
        name, calls = line.split()
        told[name] = int(calls)
    (child,) = [f.child.tgid for f in run.of(Fork) if not f.thread][-1:]
    got: Counter[str] = Counter()
    for (name, _), count in _rows(run, child).items():
        got[name] += count
    # Before its exec the child of strace stops itself, unseen by strace; exit_group never returns.
    unseen = {name: n - told.get(name, 0) for name, n in got.items() if n != told.get(name, 0)}
    assert set(unseen) <= STRACE_UNSEEN
    assert all(n <= 2 for n in unseen.values())


def test_threads_of_a_process_are_counted_together(run: Run, workload: Path):
    pid, code = run.cgroup.run(workload, "threads", "40")
    assert code == 0
    rows = _rows(run, pid)
    assert rows[("getppid", 0)] == 40
    assert rows[("exit", 0)] == 40
    assert rows[("exit_group", 0)] == 1


MOVER = """
import os, sys
[os.getppid() for _ in range(100)]
open(sys.argv[1], "w").write("0")
[os.getppid() for _ in range(50)]
open(sys.argv[2], "w").write("0")
[os.getppid() for _ in range(7)]
open(sys.argv[1], "w").write("0")
"""


def test_calls_made_outside_are_not_the_runs(run: Run, new_cgroup: Callable[[], Cgroup]):
    outside = new_cgroup()
    procs = [group.path / "cgroup.procs" for group in (outside, run.cgroup)]
    pid, code = run.cgroup.run("/usr/bin/python3", "-c", MOVER, *procs)
    assert code == 0
    assert _rows(run, pid)[("getppid", 0)] == 107
    assert ("exit_group", 0) not in _rows(run, pid)
    left = [r.head.task.tgid for r in run.of(CgroupLeft)]
    assert left == [pid, pid]


def test_every_process_has_its_exit_call_counted(run: Run):
    pid, code = run.cgroup.run("/bin/true")
    assert code == 0
    assert _rows(run, pid)[("exit_group", 0)] == 1


def test_numbers_no_kernel_gives_are_one_row(run: Run):
    script = (
        "import ctypes\n"
        "call = ctypes.CDLL(None).syscall\n"
        "[call(n) for n in [*range(2000, 2100), -1, 2**31 - 1]]\n"
    )
    pid, code = run.cgroup.run("/usr/bin/python3", "-c", script)
    assert code == 0
    rows = _rows(run, pid)
    assert rows[("unknown numbers", errno.ENOSYS)] == 102
    assert run.of(SyscallRefused) == []


def test_a_tiny_ring_loses_and_says_so(
    new_cgroup: Callable[[], Cgroup], attach: Callable[..., Sensors], workload: Path
):
    cgroup = new_cgroup()
    run = Run(cgroup, attach(cgroup, control_bytes=PAGE, bulk_bytes=PAGE))
    assert cgroup.run(workload, "refuse", "5000")[1] == 0
    assert cgroup.run("/bin/sh", "-c", "for i in $(seq 100); do /bin/true; done")[1] == 0
    stats = {s.name: s for s in run.sensors.stats()}
    records = run.poll()
    for name, ours in (("control", False), ("bulk", True)):
        ring = stats[name]
        got = [r for r in records if (ring_of(r) == "bulk") == ours]
        assert ring.produced == ring.emitted + ring.dropped
        assert ring.dropped > 0
        assert len(got) == ring.emitted
        # What was lost is a gap in the numbers.
        numbers = [r.head.seq for r in got]
        assert len(set(numbers)) == len(numbers)
        assert max(numbers) < ring.produced
    assert stats["bulk"].produced >= 5000
    # The counts lost nothing.
    assert sum(c.count for c in run.sensors.counts() if c.errno == errno.EACCES) == 5000


def test_a_flood_of_refusals_does_not_take_the_control_ring(
    new_cgroup: Callable[[], Cgroup], attach: Callable[..., Sensors], workload: Path
):
    cgroup = new_cgroup()
    run = Run(cgroup, attach(cgroup, bulk_bytes=PAGE))
    pid, code = cgroup.run(workload, "refuse", "20000")
    assert code == 0
    assert [e.head.task.tgid for e in run.of(Exit)] == [pid]
    assert {s.name: s.dropped for s in run.sensors.stats()}["control"] == 0


BULK = (SyscallRefused, UdpFlow, SocketAct, FileAct, CapRefused)


def ring_of(record: KernelRecord) -> str:
    """The ring that a record of this kind comes by."""
    if isinstance(record, BULK):
        return "bulk"
    return "socket" if isinstance(record, Connect | SocketClose) else "control"


def test_an_honest_run_loses_nothing(run: Run):
    assert run.cgroup.run("/bin/sh", "-c", "for i in $(seq 300); do /bin/true; done")[1] == 0
    run.poll()
    for ring in run.sensors.stats():
        assert (ring.dropped, ring.produced) == (0, ring.emitted)
        if ring.name != "counts":
            assert sum(ring_of(r) == ring.name for r in run.records) == ring.emitted


def test_rows_of_ended_processes_leave_the_kernel_and_stay_counted(
    run: Run, monkeypatch: pytest.MonkeyPatch
):
    from hark import limits  # noqa: PLC0415

    monkeypatch.setattr(limits, "KERNEL_ENDED_PROCESSES_HELD", 50)
    pids = set()
    for _ in range(4):
        assert run.cgroup.run("/bin/sh", "-c", "for i in $(seq 60); do /bin/true; done")[1] == 0
        run.poll()
        pids |= {e.head.task.tgid for e in run.of(Exit) if e.last}
    counts = run.sensors.counts()
    exits = sum(c.count for c in counts if syscalls.name(c.nr) == "exit_group")
    assert exits == len(pids) > 4 * 60
    assert run.sensors._ended
    counted = {s.name: s for s in run.sensors.stats()}["counts"]
    assert counted.produced == sum(c.count for c in run.sensors.counts())


RECORDS = 4_000_000


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_four_million_records_are_all_accounted_for(run: Run, workload: Path):
    """Read as the recorder reads, in whole buffers; what is lost is known to the record."""
    process = run.cgroup.popen(workload, "refuse", str(RECORDS))
    got = bytearray(RECORDS)  # by sequence number in the bulk ring
    while True:
        ended = process.poll() is not None
        if not (data := raw_batch(run.sensors)):
            if ended:
                break
            continue
        at = 0
        while at < len(data):
            size, kind, _, _, seq, _ = HEAD.unpack_from(data, at)
            at += size
            if kind == REFUSED:
                got[seq] += 1
    assert process.wait() == 0
    process.communicate()
    bulk = {s.name: s for s in run.sensors.stats()}["bulk"]
    assert bulk.produced == bulk.emitted + bulk.dropped == RECORDS
    assert sum(got) == bulk.emitted
    assert max(got) == 1, "no record twice"
    (counted,) = [
        c.count for c in run.sensors.counts() if (c.tgid, c.errno) == (process.pid, errno.EACCES)
    ]
    assert counted == RECORDS, "counts never lose"
    COUNTS["records produced by one program"] = bulk.produced
    COUNTS["of them lost, and counted as lost"] = bulk.dropped


def raw_batch(sensors: Sensors) -> bytes:
    """Return one read of the rings, as the kernel wrote it."""
    size = lib.hark_sensors_read(sensors._open(), sensors._buffer, len(sensors._buffer))
    assert size >= 0
    return bytes(ffi.buffer(sensors._buffer, size))
