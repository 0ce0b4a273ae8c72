"""Each record type, on the real kernel, from a workload that is its own witness."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING

import pytest

from hark.kernel import syscalls
from hark.kernel.records import (
    CgroupLeft,
    Connect,
    Exec,
    Exit,
    Fork,
    SocketClose,
    SyscallKilled,
    SyscallRefused,
    UdpFlow,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from .rig import Cgroup, Run

pytestmark = pytest.mark.kernel

COOKIE = Struct("=Q")
GETPPID = syscalls.number("getppid")


def test_exec_tells_name_arguments_and_executable(run: Run):
    arguments = [b"", b"two words", b"\xff\xfe", b"x" * 300]
    pid, code = run.cgroup.run("/bin/true", *[os.fsdecode(a) for a in arguments])
    assert code == 0
    (record,) = run.of(Exec)
    info = Path("/bin/true").stat()
    assert record.filename == b"/bin/true"
    assert record.argv == (b"/bin/true", *arguments)
    assert not record.truncated
    assert (record.exe.dev, record.exe.ino) == (info.st_dev, info.st_ino)
    assert record.exe.ctime_ns == info.st_ctime_ns
    assert record.parent_tgid == os.getpid()
    assert (record.head.task.tgid, record.head.task.tid) == (pid, pid)
    assert record.head.cgroup == run.cgroup.id


def test_ctime_is_the_same_before_and_after_somebody_asked(run: Run, tmp_path: Path):
    """Since Linux 6.13 the inode's nanoseconds carry a bit that says they were queried."""
    program = tmp_path / "true"
    program.write_bytes(Path("/bin/true").read_bytes())
    program.chmod(0o755)
    assert run.cgroup.run(program)[1] == 0
    told = program.stat().st_ctime_ns
    assert run.cgroup.run(program)[1] == 0
    assert [r.exe.ctime_ns for r in run.of(Exec)] == [told, told]


def test_exec_of_a_script_names_the_script_and_its_interpreter(run: Run, tmp_path: Path):
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\nexit 0\n")
    script.chmod(0o755)
    assert run.cgroup.run(script)[1] == 0
    (record,) = run.of(Exec)
    assert record.filename == os.fsencode(script)
    assert record.argv[0] == b"/bin/sh"
    assert record.exe.ino == Path("/bin/sh").stat().st_ino


@pytest.mark.parametrize("size", [8000, 8192, 100_000])
def test_long_arguments_are_cut_and_said_to_be(run: Run, size: int):
    assert run.cgroup.run("/bin/true", "a" * size)[1] == 0
    (record,) = run.of(Exec)
    assert record.truncated == (size + len("/bin/true") + 2 > 8192)
    assert b"a" * min(size, 8000) in record.argv[1]


def test_a_failed_exec_is_counted_and_not_told(run: Run):
    assert run.cgroup.run("/no/such/program")[1] == 127
    assert run.of(Exec) == []
    execve = syscalls.number("execve")
    assert any((c.nr, c.errno) == (execve, errno.ENOENT) for c in run.sensors.counts())


def test_exec_from_an_overlay_is_found_again_by_stat(run: Run, tmp_path: Path):
    """The launcher matches device and inode with an open file: overlays must not break that."""
    for name in ("lower", "upper", "work", "merged"):
        (tmp_path / name).mkdir()
    (tmp_path / "lower" / "true").write_bytes(Path("/bin/true").read_bytes())
    (tmp_path / "lower" / "true").chmod(0o755)
    options = f"lowerdir={tmp_path}/lower,upperdir={tmp_path}/upper,workdir={tmp_path}/work"
    merged = tmp_path / "merged"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, merged], check=True)
    try:
        assert run.cgroup.run(merged / "true")[1] == 0
        (record,) = run.of(Exec)
        info = (merged / "true").stat()
        assert (record.exe.dev, record.exe.ino) == (info.st_dev, info.st_ino)
        assert record.exe.ctime_ns == info.st_ctime_ns
    finally:
        subprocess.run(["umount", merged], check=True)


def test_fork_and_exit_give_the_tree(run: Run):
    pid, code = run.cgroup.run("/bin/sh", "-c", "/bin/true; (exit 7); exit 3")
    assert code == 3
    forks, exits = run.of(Fork), run.of(Exit)
    children = {f.child.tgid for f in forks if not f.thread and f.head.task.tgid == pid}
    assert len(children) == 2
    status = {e.head.task.tgid: e.status for e in exits if e.last}
    assert status[pid] == 3 << 8
    assert sorted(status[c] for c in children) == [0, 7 << 8]
    starts = {f.child.tgid: f.child.start_ns for f in forks}
    assert all(
        e.head.task.start_ns == starts[e.head.task.tgid]
        for e in exits
        if e.head.task.tgid in starts
    )
    assert {x.head.task.tgid for x in run.of(Exec)} <= {pid, *children}


def test_an_exit_by_signal_has_its_status(run: Run):
    pid, code = run.cgroup.run("/bin/sh", "-c", "kill -TERM $$")
    assert code == -signal.SIGTERM
    (record,) = [e for e in run.of(Exit) if e.head.task.tgid == pid]
    assert os.WTERMSIG(record.status) == signal.SIGTERM
    assert record.last


def test_threads_are_told_as_threads(run: Run, workload: Path):
    pid, code = run.cgroup.run(workload, "threads", "5")
    assert code == 0
    threads = [f for f in run.of(Fork) if f.head.task.tgid == pid]
    assert len(threads) == 5
    assert all(f.thread and f.child.tgid == pid and f.child.tid != pid for f in threads)
    exits = [e for e in run.of(Exit) if e.head.task.tgid == pid]
    # Which of them the kernel counts out last is its own affair: a joined thread may still be on
    # its way when the process ends.
    assert sorted(e.head.task.tid for e in exits) == sorted([pid, *(f.child.tid for f in threads)])
    assert [e.last for e in exits].count(True) == 1


def test_threads_that_leave_together_have_one_last(run: Run, workload: Path):
    for _ in range(30):
        pid, code = run.cgroup.run(workload, "together", "8")
        assert code == 0
        exits = [e for e in run.of(Exit) if e.head.task.tgid == pid]
        assert len(exits) == 9
        assert sum(e.last for e in exits) == 1


@pytest.mark.parametrize(
    ("address", "count"), [("127.0.0.1", 1000), ("::1", 300), ("::ffff:127.0.0.1", 300)]
)
def test_every_connect_is_told_before_it_is_accepted(
    run: Run, workload: Path, address: str, count: int
):
    """The tuple that accept gives must already be in the ring, with the right socket and thread."""
    family = socket.AF_INET6 if address == "::1" else socket.AF_INET
    server = socket.create_server(
        ("::1" if address == "::1" else "127.0.0.1", 0), family=family, backlog=64
    )
    port = server.getsockname()[1]
    process = run.cgroup.popen(workload, "connect", address, str(port), str(count))
    known: dict[tuple[bytes, int, bytes, int], Connect] = {}
    matched = 0
    with server:
        for _ in range(count):
            client, peer = server.accept()
            while new := run.sensors.poll():
                run.records += new
                known |= {
                    (r.src, r.sport, r.dst, r.dport): r for r in new if isinstance(r, Connect)
                }
            source = socket.inet_pton(family, peer[0])
            record = known.pop((source, peer[1], source, port))
            with client:
                cookie = client.recv(COOKIE.size, socket.MSG_WAITALL)
            matched += (record.cookie, record.head.task.tgid) == (
                COOKIE.unpack(cookie)[0],
                process.pid,
            )
            assert record.netns
    assert process.wait(20) == 0
    process.communicate()
    assert matched == count


def test_a_refused_connect_is_told_and_closed(run: Run, workload: Path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert run.cgroup.run(workload, "connect", "127.0.0.1", str(port), "1")[1] == 1
    run.until(lambda records: any(isinstance(r, SocketClose) for r in records))
    (connect,), (close,) = run.of(Connect), run.of(SocketClose)
    assert connect.dport == port
    assert (close.cookie, close.tx_bytes, close.rx_bytes) == (connect.cookie, 0, 0)


@pytest.mark.parametrize("first", ["agent", "server"])
def test_a_closed_socket_tells_its_bytes(run: Run, first: str):
    """Payload bytes both ways, whoever closes first: the kernel counts a FIN, we do not."""
    script = (
        "import socket, sys\n"
        "s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
        "s.sendall(b'x' * 100000)\n"
        "got = s.recv(3000, socket.MSG_WAITALL)\n"
        "if sys.argv[2] == 'server': s.recv(1)\n"
        "s.close()\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        process = run.cgroup.popen("/usr/bin/python3", "-c", script, str(port), first)
        client, _ = server.accept()
        with client:
            assert len(client.recv(100000, socket.MSG_WAITALL)) == 100000
            client.sendall(b"y" * 3000)
            if first == "agent":
                assert client.recv(1) == b""
        assert process.wait(20) == 0
        process.communicate()
    run.until(lambda records: any(isinstance(r, SocketClose) for r in records))
    (connect,), (close,) = run.of(Connect), run.of(SocketClose)
    assert close.cookie == connect.cookie
    assert (close.tx_bytes, close.rx_bytes) == (100000, 3000)
    assert close.head.task.tgid == process.pid


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_udp_flow_is_told_once(run: Run, address: str):
    script = (
        "import socket, sys\n"
        "s = socket.socket(socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET, 2)\n"
        "s.bind((sys.argv[1], 0))\n"
        "for i in range(5): s.sendto(b'1', (sys.argv[1], 4001))\n"
        "c = s.dup(); c.connect((sys.argv[1], 4002)); [c.send(b'2') for i in range(1)]\n"
        "print(s.getsockname()[1])\n"
    )
    process = run.cgroup.popen("/usr/bin/python3", "-c", script, address)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 0, err
    flows = run.of(UdpFlow)
    raw = socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    assert [(f.src, f.sport, f.dst, f.dport) for f in flows] == [
        (raw, int(out), raw, 4001),
        (raw, int(out), raw, 4002),
    ]
    assert {f.cookie for f in flows} == {flows[0].cookie}
    assert all(f.head.task.tgid == process.pid and f.netns for f in flows)


def test_a_udp_port_that_changes_hands_is_told_each_time(run: Run):
    """Two sockets of one port by turns, and one socket of two processes."""
    script = (
        "import os, socket\n"
        "def bound():\n"
        "    s = socket.socket(socket.AF_INET, 2)\n"
        "    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n"
        "    s.bind(('127.0.0.1', 4003))\n"
        "    return s\n"
        "def say(s): s.sendto(b'1', ('127.0.0.1', 4004))\n"
        "a, b = bound(), bound()\n"
        "say(a); say(a); say(b); say(b); say(a)\n"
        "child = os.fork()\n"
        "say(a) if not child else os.waitpid(child, 0)\n"
        "os._exit(0) if not child else say(a)\n"
    )
    process = run.cgroup.popen("/usr/bin/python3", "-c", script)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 0, err
    flows = run.of(UdpFlow)
    first, second = flows[0].cookie, flows[1].cookie
    assert first != second
    assert [f.cookie for f in flows] == [first, second, first, first, first]
    mine = [f.head.task.tgid == process.pid for f in flows]
    assert mine == [True, True, True, False, True]


def test_refusals_are_told_and_their_absence_too(run: Run, workload: Path):
    pid, code = run.cgroup.run(workload, "refuse", "25")
    assert code == 0
    refused = run.of(SyscallRefused)
    assert [(r.head.task.tgid, r.nr, r.errno) for r in refused] == [
        (pid, GETPPID, errno.EACCES)
    ] * 25
    assert not any(r.ia32 for r in refused)
    # The same call without the filter, and much that fails for other reasons.
    assert run.cgroup.run(workload, "count", "25")[1] == 0
    assert run.cgroup.run(workload, "fail", "25")[1] == 0
    assert run.cgroup.run(workload, "innocent")[1] == 0
    assert run.cgroup.run("/bin/sh", "-c", "for i in 1 2 3; do /bin/ls /nope; done; true")[1] == 0
    assert len(run.of(SyscallRefused)) == 25


@pytest.mark.parametrize("mode", ["kill", "trap"])
def test_a_kill_by_seccomp_names_the_call(run: Run, workload: Path, mode: str):
    pid, code = run.cgroup.run(workload, mode)
    assert code == -signal.SIGSYS
    killed = [(r.head.task.tgid, r.nr, r.ia32) for r in run.of(SyscallKilled)]
    assert killed == [(pid, GETPPID, False)]
    assert run.of(SyscallRefused) == []
    assert not any(c.nr == GETPPID for c in run.sensors.counts())


def test_a_killed_i386_call_says_that_it_is_one(run: Run, workload: Path):
    pid, code = run.cgroup.run(workload, "ia32-kill")
    assert code == -signal.SIGSYS
    killed = [(r.head.task.tgid, r.nr, r.ia32) for r in run.of(SyscallKilled)]
    assert killed == [(pid, GETPPID, True)]


def test_an_i386_call_is_counted_as_one(run: Run, workload: Path):
    assert run.cgroup.run(workload, "ia32")[1] == 0
    (row,) = [c for c in run.sensors.counts() if c.nr & syscalls.IA32]
    assert (row.nr, row.errno, row.count) == (syscalls.IA32 | 20, 0, 1)


def test_leaving_the_cgroup_is_told(run: Run, new_cgroup: Callable[[], Cgroup]):
    elsewhere = new_cgroup()
    process = run.cgroup.popen("/bin/sleep", "60")
    try:
        run.until(lambda records: any(isinstance(r, Exec) for r in records))
        inside = run.cgroup.path / "inside"
        inside.mkdir()
        (inside / "cgroup.procs").write_text(str(process.pid))
        assert run.of(CgroupLeft) == []  # deeper is not out
        (elsewhere.path / "cgroup.procs").write_text(str(process.pid))
        (record,) = run.of(CgroupLeft)
        assert (record.head.task.tgid, record.to_cgroup) == (process.pid, elsewhere.id)
        (run.cgroup.path / "cgroup.procs").write_text(str(process.pid))
    finally:
        process.kill()
        process.communicate()


def test_nested_cgroups_of_the_run_count(run: Run, workload: Path):
    nested = run.cgroup.path / "a" / "b"
    nested.mkdir(parents=True)
    pid, code = run.cgroup.run(workload, "count", "77", cgroup=nested)
    assert code == 0
    (record,) = run.of(Exec)
    assert record.head.cgroup == nested.stat().st_ino
    rows = [c for c in run.sensors.counts() if (c.tgid, c.nr) == (pid, GETPPID)]
    assert [c.count for c in rows] == [77]


def test_what_is_outside_is_not_sensed(run: Run, workload: Path):
    subprocess.run([workload, "count", "10"], check=True)
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    assert run.poll() == []
    assert run.sensors.counts() == []
