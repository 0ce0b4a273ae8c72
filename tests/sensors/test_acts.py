"""What a run's threads did to sockets and files, as the kernel has it: names, ports, owners."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from harness.running import need

from hark.kernel.records import CapRefused, Connect, Exec, Exit, FileAct, Fork, SocketAct

from .rig import WAIT_S, Run

if TYPE_CHECKING:
    from collections.abc import Callable

    from hark.kernel.sensors import Sensors

    from .rig import Cgroup

pytestmark = pytest.mark.kernel

PYTHON = "/usr/bin/python3"
PAGE = 4096
SERVE = """
import os, socket, sys, threading
family, host = (socket.AF_INET, "127.0.0.1") if sys.argv[1] == "4" else (socket.AF_INET6, "::1")
server = socket.socket(family)
server.bind((host, 0))
server.listen()
client = socket.create_connection(server.getsockname()[:2])
there, _ = server.accept()
print(server.getsockname()[1], client.getsockname()[1])
"""


def script(run: Run, text: str, *words: str) -> tuple[int, list[str]]:
    """Run a script in the cgroup to its end: its pid and the words it printed."""
    process = run.cgroup.popen(PYTHON, "-I", "-S", "-c", text, *words)
    out, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, err
    return process.pid, out.decode().split()


def release() -> tuple[int, ...]:
    return tuple(int(n) for n in os.uname().release.split("-")[0].split(".")[:2])


def acts(run: Run, pid: int, op: str) -> list[SocketAct]:
    return [r for r in run.of(SocketAct) if r.head.task.tgid == pid and r.op == op]


@pytest.mark.parametrize(
    ("word", "family", "address"),
    [
        ("4", socket.AF_INET, socket.inet_pton(socket.AF_INET, "127.0.0.1")),
        ("6", socket.AF_INET6, socket.inet_pton(socket.AF_INET6, "::1")),
    ],
)
def test_a_server_is_bound_and_accepts(run: Run, word: str, family: int, address: bytes):
    pid, (port, peer) = script(run, SERVE, word)
    (bound,) = acts(run, pid, "bind")
    assert (bound.family, bound.type, bound.src) == (family, socket.SOCK_STREAM, address)
    assert bound.sport == int(port), "the port that the kernel chose"
    (accepted,) = acts(run, pid, "accept")
    assert (accepted.src, accepted.sport) == (address, int(port))
    assert (accepted.dst, accepted.dport) == (address, int(peer))
    (connected,) = [c for c in run.of(Connect) if c.head.task.tgid == pid]
    assert accepted.cookie not in (0, connected.cookie), "a socket of its own"


def test_datagram_sockets_are_bound(run: Run):
    text = "import socket as s; u = s.socket(type=s.SOCK_DGRAM); u.bind(('0.0.0.0', 0)); "
    pid, (port,) = script(run, text + "print(u.getsockname()[1])")
    (bound,) = acts(run, pid, "bind")
    assert (bound.type, bound.sport) == (socket.SOCK_DGRAM, int(port))


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_unix_sockets_by_name(run: Run, tmp_path: Path, kind: str):
    name = str(tmp_path / "s") if kind == "path" else f"\\0hark-{os.getpid()}"
    text = (
        "import socket as s, sys; n = sys.argv[1].replace(chr(92) + '0', chr(0)); "
        "a = s.socket(s.AF_UNIX); a.bind(n); a.listen(); b = s.socket(s.AF_UNIX); b.connect(n); "
        "a.accept()"
    )
    pid, _ = script(run, text, name)
    wanted = os.fsencode(name.replace("\\0", "\0"))
    for op in ("bind", "accept", "connect"):
        (act,) = acts(run, pid, op)
        assert (act.family, act.name) == (socket.AF_UNIX, wanted), op


def test_a_failed_call_is_no_act(run: Run):
    text = (
        "import socket as s\n"
        "for call in (lambda: s.socket(s.AF_UNIX).connect('/nowhere'),"
        " lambda: s.socket().bind(('192.0.2.1', 1)), lambda: open('/nowhere/x', 'w')):\n"
        "  try: call()\n"
        "  except OSError: pass\n"
    )
    pid, _ = script(run, text)
    assert [r for r in run.of(SocketAct, FileAct) if r.head.task.tgid == pid] == []


WRITE = """
import os, sys
base = sys.argv[1]
os.chdir(base)
open("read").close()
open("/dev/null", "w").close()
open("sub/../sub/new", "w").close()
open("link", "a").close()
os.close(os.open("read", os.O_RDWR))
d = os.open("sub", os.O_RDONLY)
os.rename("sub/new", "newer")
os.unlink("newer")
os.unlink("old", dir_fd=d)
os.rmdir("empty")
"""


def test_files_written_and_removed(run: Run, tmp_path: Path):
    for name in ("sub", "empty"):
        (tmp_path / name).mkdir()
    for name in ("read", "target", "sub/old"):
        (tmp_path / name).write_text("x")
    (tmp_path / "link").symlink_to("target")
    pid, _ = script(run, WRITE, str(tmp_path))
    base = os.fsencode(tmp_path.resolve())
    found = [r for r in run.of(FileAct) if r.head.task.tgid == pid]
    written = [r.path for r in found if r.op == "write"]
    assert written == [base + b"/sub/new", base + b"/target", base + b"/read"]
    inode = (tmp_path / "target").stat()
    (target,) = [r for r in found if r.path == base + b"/target"]
    assert (target.ino, target.dev) == (inode.st_ino, inode.st_dev)
    named = [(r.op, r.path, r.name) for r in found if r.op != "write"]
    assert named == [
        ("rename-from", base, b"sub/new"),
        ("rename-to", base, b"newer"),
        ("remove", base, b"newer"),
        ("remove", base + b"/sub", b"old"),
        ("remove", base, b"empty"),
    ]
    assert not any(r.truncated for r in found)


def test_paths_cross_mounts_and_deep_ones_say_that_they_are_cut(run: Run, tmp_path: Path):
    pid, _ = script(run, "open('/dev/shm/hark-test-acts', 'w').close()")
    Path("/dev/shm/hark-test-acts").unlink()
    (shm,) = [r for r in run.of(FileAct) if r.head.task.tgid == pid]
    assert shm.path == b"/dev/shm/hark-test-acts"
    text = (
        "import os, sys; os.chdir(sys.argv[1])\n"
        "for _ in range(100): os.mkdir('d'); os.chdir('d')\n"
        "open('x', 'w').close()\n"
    )
    pid, _ = script(run, text, str(tmp_path))
    (deep,) = [r for r in run.of(FileAct) if r.head.task.tgid == pid]
    assert deep.truncated
    assert deep.path.endswith(b"/d/d/x")


def test_credentials_of_an_exec(run: Run):
    need("setpriv", Path("/usr/bin/setpriv").exists())
    words = ("--reuid=4321", "--regid=4322", "--clear-groups", "--bounding-set=-all")
    run.cgroup.run("/usr/bin/setpriv", *words, "/bin/true")
    execs = {e.filename: e for e in run.of(Exec)}
    as_root, dropped = execs[b"/usr/bin/setpriv"], execs[b"/bin/true"]
    assert (as_root.uid, as_root.euid, as_root.gid) == (0, 0, 0)
    assert as_root.caps, "positive control"
    assert (dropped.uid, dropped.euid, dropped.gid, dropped.egid) == (4321, 4321, 4322, 4322)
    assert dropped.caps == 0


def test_a_refused_capability_is_told_once_with_its_call(run: Run):
    text = (
        "import os\n"
        "os.setresuid(4321, 4321, 4321)\n"
        "for _ in range(3):\n"
        "  try: os.chroot('/')\n"
        "  except OSError: pass\n"
    )
    pid, _ = script(run, text)
    found = [r for r in run.of(CapRefused) if r.head.task.tgid == pid]
    need("cap_capable", bool(found) or release() >= (6, 13))
    assert [(r.cap, r.nr) for r in found if r.nr == 161] == [(18, 161)]  # CAP_SYS_CHROOT, chroot


def test_a_flood_of_connects_takes_no_ring_but_its_own(
    new_cgroup: Callable[[], Cgroup], attach: Callable[..., Sensors]
):
    cgroup = new_cgroup()
    run = Run(cgroup, attach(cgroup, socket_bytes=PAGE, bulk_bytes=PAGE))
    text = (
        "import socket as s\n"
        "for _ in range(500):\n"
        "  with s.socket() as c: c.connect_ex(('127.0.0.1', 1))\n"
        "  open('/dev/shm/hark-test-flood', 'w').close()\n"
    )
    pid, _ = script(run, text)
    Path("/dev/shm/hark-test-flood").unlink()
    stats = {s.name: s for s in run.sensors.stats()}
    assert stats["socket"].dropped > 0, "positive control"
    assert stats["bulk"].dropped > 0, "positive control"
    assert all(s.produced == s.emitted + s.dropped for s in stats.values())
    assert stats["control"].dropped == 0
    assert [e.head.task.tgid for e in run.of(Exit)] == [pid]


FORK = """
import os, socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
there, _ = server.accept()
for word in (b"one", b"two"):
    if os.fork() == 0:
        client.send(word)
        client.send(word)
        os._exit(0)
    os.wait()
client.send(b"own")
there.recv(99)
print(client.getsockname()[1])
"""


def test_everyone_who_uses_a_socket_is_told_once(run: Run):
    pid, _ = script(run, FORK)
    (connected,) = [c for c in run.of(Connect) if c.head.task.tgid == pid]
    (accepted,) = acts(run, pid, "accept")
    used = [(r.cookie, r.head.task.tgid) for r in run.of(SocketAct) if r.op == "use"]
    need("sock_send_length", bool(used) or release() >= (6, 3))
    children = [f.child.tgid for f in run.of(Fork)]
    assert len(children) == 2
    assert used == [
        *((connected.cookie, child) for child in children),
        (accepted.cookie, pid),
    ]
