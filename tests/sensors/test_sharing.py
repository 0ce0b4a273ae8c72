"""One tracing set for all runs: counted once, removed by the last, swept after a kill."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hark.errors import KernelUnsupported
from hark.kernel import syscalls
from hark.kernel.records import Connect, Exec
from hark.kernel.sensors import NoSensors, Place, Sensors, cgroup_level, leave, prepare

from .rig import Cgroup, Run

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.kernel
# Their tracepoints came with Linux 6.13 and 6.3.
OPTIONAL = {"link_hark_capable", "link_hark_sent", "link_hark_received"}


def _sets(place: Place) -> list[str]:
    return sorted(p.name for p in place.pins.iterdir()) if place.pins.exists() else []


def _members(place: Place) -> list[str]:
    return sorted(p.name for p in place.state.iterdir() if p.name != "lock")


def _getppids(run: Run) -> int:
    return sum(c.count for c in run.sensors.counts() if syscalls.name(c.nr) == "getppid")


def test_two_runs_share_one_set_and_see_only_themselves(
    place: Place, new_cgroup: Callable[[], Cgroup], attach: Callable[..., Sensors], workload: Path
):
    groups = [new_cgroup(), new_cgroup()]
    runs = [Run(cgroup, attach(cgroup)) for cgroup in groups]
    assert len(_sets(place)) == 1
    assert len(_members(place)) == 2
    links = [p.name for p in (place.pins / _sets(place)[0]).iterdir() if p.name[:4] == "link"]
    assert len(links) == len(set(links))
    assert len(set(links) - OPTIONAL) == 7
    pids = []
    for run, n in zip(runs, (100, 30), strict=True):
        pid, code = run.cgroup.run(workload, "count", str(n))
        assert code == 0
        pids.append(pid)
    assert [_getppids(run) for run in runs] == [100, 30]
    for run, pid in zip(runs, pids, strict=True):
        assert [r.head.task.tgid for r in run.of(Exec)] == [pid]
    runs[0].sensors.detach()
    assert len(_members(place)) == 1
    assert runs[1].cgroup.run(workload, "count", "5")[1] == 0
    assert _getppids(runs[1]) == 35
    runs[1].sensors.detach()
    assert (_sets(place), _members(place)) == ([], [])
    assert not place.pins.exists()


def test_runs_at_different_depths(
    new_cgroup: Callable[[], Cgroup], attach: Callable[..., Sensors], workload: Path
):
    top = new_cgroup()
    deep = Cgroup(top.path / "deep")
    deeper = Cgroup(deep.path / "deeper")
    assert [cgroup_level(c.fd) for c in (top, deep, deeper)] == [1, 2, 3]
    run = Run(deeper, attach(deeper))
    other = new_cgroup()
    shallow = Run(other, attach(other))
    assert deeper.run(workload, "count", "3")[1] == 0
    assert other.run(workload, "count", "4")[1] == 0
    assert top.run(workload, "count", "5")[1] == 0
    assert (_getppids(run), _getppids(shallow)) == (3, 4)
    os.close(deep.fd)
    os.close(deeper.fd)


def test_a_cgroup_cannot_be_sensed_twice(
    place: Place, new_cgroup: Callable[[], Cgroup], attach: Callable[..., Sensors], workload: Path
):
    cgroup = new_cgroup()
    run = Run(cgroup, attach(cgroup))
    with pytest.raises(KernelUnsupported, match="cannot attach") as caught:
        Sensors.attach(cgroup.fd, cgroup.id, place=place)
    assert "already" in caught.value.cause
    assert cgroup.run(workload, "count", "9")[1] == 0
    assert _getppids(run) == 9


def test_a_run_that_cannot_attach_leaves_nothing(place: Place, tmp_path: Path):
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    with pytest.raises(KernelUnsupported, match="cannot be sensed"):
        Sensors.attach(fd, 1, place=place)
    os.close(fd)
    assert _sets(place) == []


def test_detach_twice_is_harmless(new_cgroup: Callable[[], Cgroup], attach: Callable[..., Sensors]):
    sensors = attach(new_cgroup())
    sensors.detach()
    sensors.detach()


def test_a_root_that_does_not_know_the_run_cannot_stop_its_tracing(
    place: Place,
    new_cgroup: Callable[[], Cgroup],
    attach: Callable[..., Sensors],
    workload: Path,
    tmp_path: Path,
):
    """A container shares the BPF file system, but not /run: it sees pins that nobody owns."""
    run = Run(cgroup := new_cgroup(), attach(cgroup))
    other = new_cgroup()
    stranger = Sensors.attach(
        other.fd, other.id, place=Place(place.pins, _folder(tmp_path / "another run"))
    )
    stranger.detach()
    assert _sets(place) == []  # positive control: the pins are gone
    pid, code = cgroup.run(workload, "count", "12")
    assert code == 0
    assert [r.head.task.tgid for r in run.of(Exec)] == [pid]
    assert _getppids(run) == 12
    # And whoever comes next makes a set of its own, beside the one that is still traced by.
    later = new_cgroup()
    third = Run(later, attach(later))
    pid_third, _ = later.run(workload, "count", "3")
    pid_first, _ = cgroup.run(workload, "count", "4")
    assert [r.head.task.tgid for r in third.of(Exec)] == [pid_third]
    assert [r.head.task.tgid for r in run.of(Exec)] == [pid, pid_first]
    assert (_getppids(third), _getppids(run)) == (3, 16)


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


HOLDER = """
import os, sys, time
from pathlib import Path
from hark.kernel.sensors import Place, Sensors
fd = os.open(sys.argv[1], os.O_RDONLY)
s = Sensors.attach(fd, os.fstat(fd).st_ino, place=Place(Path(sys.argv[2]), Path(sys.argv[3])))
print("attached", flush=True)
time.sleep(60)
"""


def test_a_killed_holder_is_swept(
    place: Place, new_cgroup: Callable[[], Cgroup], attach: Callable[..., Sensors]
):
    dead = new_cgroup()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, dead.path, place.pins, place.state], stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"attached\n"
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    # Its links to the cgroup went with it; the set waits for whoever comes next.
    assert len(_sets(place)) == 1
    cgroup = new_cgroup()
    sensors = attach(cgroup)
    assert _members(place)[0].split("-")[1] == str(cgroup.id)
    assert len(_members(place)) == 1
    sensors.detach()
    assert (_sets(place), _members(place)) == ([], [])


def test_half_built_and_foreign_sets_are_swept(
    place: Place, new_cgroup: Callable[[], Cgroup], attach: Callable[..., Sensors]
):
    place.pins.mkdir(exist_ok=True)
    (place.pins / f"new-{'a' * 64}").mkdir()
    (place.pins / ("b" * 64)).mkdir()
    attach(new_cgroup())
    assert len(_sets(place)) == 1


READER = """
import os, sys, json
from pathlib import Path
from hark.kernel.sensors import Place, Sensors
fd = os.open(sys.argv[1], os.O_RDONLY)
s = Sensors.attach(fd, os.fstat(fd).st_ino, place=Place(Path(sys.argv[2]), Path(sys.argv[3])))
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
status = Path("/proc/self/status").read_text()
assert "CapEff:\\t0000000000000000" in status and "CapPrm:\\t0000000000000000" in status
print("ready", flush=True)
sys.stdin.readline()
records = []
while new := s.poll():
    records += new
kinds = [type(r).__name__ for r in records]
s.detach()
"""
READER = READER.replace(
    "s.detach()",
    "counts = sum(c.count for c in s.counts() if c.nr == 110)\n"
    "stats = [(r.name, r.produced, r.emitted, r.dropped) for r in s.stats()]\n"
    "print(json.dumps([kinds, counts, stats]), flush=True)\n"
    "s.detach()",
)


def test_reading_needs_no_privilege(
    place: Place, new_cgroup: Callable[[], Cgroup], attach: Callable[..., Sensors], workload: Path
):
    """The recorder attaches as root, drops everything, and reads on."""
    import json  # noqa: PLC0415

    cgroup = new_cgroup()
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, cgroup.path, place.pins, place.state],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert reader.stdout is not None
    assert reader.stdout.readline() == "ready\n"
    assert Path("/proc/sys/kernel/unprivileged_bpf_disabled").read_text().strip() in "12"
    pid, code = cgroup.run(workload, "count", "42")
    assert code == 0
    out, _ = reader.communicate("go\n", timeout=20)
    assert reader.returncode == 0
    kinds, counts, stats = json.loads(out)
    assert kinds == ["Exec", "Exit"]
    assert counts == 42
    assert stats[:2] == [["control", 2, 2, 0], ["bulk", 0, 0, 0]]
    assert pid
    # It could not take the set down; the next root does (the launcher calls hark_pins_leave).
    attach(new_cgroup()).detach()
    assert (_sets(place), _members(place)) == ([], [])


def test_the_verifier_has_little_to_do(
    place: Place, new_cgroup: Callable[[], Cgroup], attach: Callable[..., Sensors]
):
    """Load time is the first run's start-up: a loop in a program can multiply it by ten."""
    attach(new_cgroup())
    libbpf = ctypes.CDLL("libbpf.so.1")
    seen = {}
    for pin in (place.pins / _sets(place)[0]).glob("link_*"):
        link = libbpf.bpf_obj_get(os.fsencode(pin))
        program = libbpf.bpf_prog_get_fd_by_id(_fdinfo(link)["prog_id"])
        seen[pin.name] = _fdinfo(program)["verified_insns"]
        os.close(program)
        os.close(link)
    assert len(seen.keys() - OPTIONAL) == 7
    assert max(seen.values()) < 25_000, seen  # Linux 6.12 walks callbacks twice as often as 6.18


def _fdinfo(fd: int) -> dict[str, int]:
    lines = Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines()
    pairs = [line.split(":\t") for line in lines]
    return {name: int(value) for name, value in pairs if value.isdecimal()}


def test_a_set_can_be_prepared_ahead(
    place: Place, new_cgroup: Callable[[], Cgroup], attach: Callable[..., Sensors], workload: Path
):
    preparation = prepare(place)
    deadline = time.monotonic() + 20
    while not [name for name in _sets(place) if not name.startswith("new-")]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    made = place.pins / _sets(place)[0]
    inode = made.stat().st_ino
    cgroup = new_cgroup()
    run = Run(cgroup, attach(cgroup))
    preparation.close()
    preparation.close()
    assert made.stat().st_ino == inode  # found, not made again
    assert cgroup.run(workload, "count", "8")[1] == 0
    assert _getppids(run) == 8
    run.sensors.detach()
    assert (_sets(place), _members(place)) == ([], [])


def test_a_preparation_nobody_used_is_swept(
    place: Place, new_cgroup: Callable[[], Cgroup], attach: Callable[..., Sensors]
):
    prepare(place).close()
    attach(new_cgroup()).detach()
    assert (_sets(place), _members(place)) == ([], [])


def test_leaving_what_one_is_not_in_is_harmless():
    leave(2**62)


def test_no_sensors_say_nothing():
    none = NoSensors()
    assert (none.poll(), none.counts(), none.stats()) == ([], [], [])
    poller = select.epoll()
    poller.register(none.fileno(), select.EPOLLIN)
    assert poller.poll(0) == []
    poller.close()
    none.detach()


def test_records_wake_a_poller(run: Run):
    poller = select.epoll()
    poller.register(run.sensors.fileno(), select.EPOLLIN)
    assert poller.poll(0) == []
    assert run.cgroup.run("/bin/true")[1] == 0
    assert poller.poll(10)
    run.poll()
    assert poller.poll(0) == []
    poller.close()


def test_a_socket_made_outside_is_not_the_runs(run: Run):
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()
    assert run.of(Connect) == []
