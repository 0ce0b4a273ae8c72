"""A session with the real sensors: the kernel's word reaches the bundle with the right names."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import blake3
import pytest

from hark.bundle.events import Kind
from hark.bundle.verify import Verdict
from hark.kernel.sensors import Place, Sensors
from hark.mediator import records as m
from hark.policy import control

from .rig import WAIT_S, Rig, boot_ns

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.kernel

CLIENT = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as s:
    s.recv(1)
"""


def _cgroup2() -> Path:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if " - cgroup2 " in line:
            return Path(line.split(" ")[4])
    pytest.fail("no cgroup v2 is mounted")


@pytest.fixture
def cgroup() -> Iterator[Path]:
    path = _cgroup2() / f"hark-test-{uuid.uuid4().hex[:12]}"
    path.mkdir()
    yield path
    path.rmdir()


@pytest.fixture
def sensors(cgroup: Path, tmp_path: Path) -> Iterator[Sensors]:
    mount = tmp_path / "bpffs"
    mount.mkdir()
    subprocess.run(["mount", "-t", "bpf", "bpf", mount], check=True)
    fd = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY)
    try:
        made = Sensors.attach(fd, cgroup.stat().st_ino, place=Place(mount / "p", tmp_path / "s"))
        yield made
        made.detach()
    finally:
        os.close(fd)
        subprocess.run(["umount", mount], check=True)


class KernelRig(Rig):
    """The agent runs in the sensed cgroup, and executables are opened as hark-launch does."""

    cgroup: Path

    def serve_launch(self) -> None:
        self.start_agent()
        while self.process.poll() is None:
            got = self.launch.channel.recv(0.02)
            if got is not None:
                self.answer(got)
        while (got := self.launch.channel.recv(0.2)) is not None:
            self.answer(got)
        self.end_agent()

    def answer(self, got: control.Received) -> None:
        if isinstance(got.msg, control.OpenExe):
            try:
                fd = os.open(os.fsdecode(got.msg.path), os.O_RDONLY)
            except OSError as error:
                self.launch.send(control.Exe(error.errno), ident=got.ident)
                return
            self.launch.send(control.Exe(0), ident=got.ident, fds=[fd])
            os.close(fd)


def test_an_exchange_is_tied_to_thread_and_executable(
    cgroup: Path, sensors: Sensors, tmp_path: Path
):
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(WAIT_S)
    port = listener.getsockname()[1]
    client = tmp_path / "client.py"
    client.write_text(CLIENT)
    python = Path(sys.executable).resolve()
    rig = KernelRig(tmp_path)
    rig.cgroup = cgroup
    rig.sensors = sensors
    rig.agent = f"echo $$ >{cgroup}/cgroup.procs; {python} {client} {port}; /bin/true; exit 4"

    def mediator() -> None:
        sock, (address, sport) = listener.accept()
        opened = m.ConnOpen(
            head=m.Head(boot_ns(), 0),
            conn=1,
            src=socket.inet_aton(address),
            sport=sport,
            dst=socket.inet_aton("127.0.0.1"),
            dport=port,
        )
        raw = b"GET / HTTP/1.1\r\nHost: api.example\r\n\r\n"
        request = m.RequestHead(head=m.Head(boot_ns(), 1), exchange=1, conn=1, host=0, raw=raw)
        rig.ring.put(opened, request)
        sock.sendall(b".")
        sock.close()
        rig.serve_mediator()

    result = rig.run(mediator, ordinary="broker launch")
    listener.close()
    assert (result.exit_code, result.lines) == (4, ())
    assert rig.verify().verdict is Verdict.VERIFIED

    digest = blake3.blake3(python.read_bytes()).digest()
    execs = {p[4]: p for p in rig.writer.of(Kind.EXEC)}
    started = execs[os.fsencode(python)]
    assert (started[7], started[8]) == (digest, "read")
    assert started[5][1:] == [os.fsencode(client), b"%d" % port]
    request = rig.writer.of(Kind.REQUEST)[0]
    assert request[1] == started[1]
    assert request[1][3] == digest
    connect = next(p for p in rig.writer.of(Kind.CONNECT) if p[7] == port)
    assert connect[3] == rig.writer.of(Kind.CONN)[0][3]  # the cookie
    assert execs[b"/bin/true"][7] == blake3.blake3(Path("/bin/true").read_bytes()).digest()
    end = rig.writer.of(Kind.RUN_END)[0]
    assert [ring[0] for ring in end[9]] == [
        *("control", "bulk", "socket", "counts"),
        "mediator",
    ]
    assert all(produced == emitted for _, produced, emitted, _ in end[9])
    counted = {tuple(p[1][:1]) for p in rig.writer.of(Kind.SYSCALL_COUNTS) if 1 in p}
    assert (started[1][0],) in counted


def test_a_hundred_short_programs_all_have_digests(cgroup: Path, sensors: Sensors, tmp_path: Path):
    rig = KernelRig(tmp_path)
    rig.cgroup = cgroup
    rig.sensors = sensors
    loop = "i=0; while [ $i -lt 100 ]; do /bin/true; i=$((i+1)); done"
    rig.agent = f"echo $$ >{cgroup}/cgroup.procs; {loop}"
    rig.run()
    execs = [p for p in rig.writer.of(Kind.EXEC) if p[4] == b"/bin/true"]
    assert len(execs) == 100
    assert {p[8] for p in execs} <= {"read", "cached"}
    assert len({p[7] for p in execs}) == 1
    exits = [p for p in rig.writer.of(Kind.EXIT) if p[5]]
    digests = {p[1][3] for p in exits if p[1][0] in {e[1][0] for e in execs}}
    assert digests == {execs[0][7]}
