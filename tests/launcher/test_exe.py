"""OPEN_EXE: the recorder gets the executable of a task of the run, and of nothing else."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hark.policy.control import Exe, OpenExe

if TYPE_CHECKING:
    from collections.abc import Callable

    from launcher.rig import Box

    MakeBox = Callable[..., Box]

pytestmark = pytest.mark.kernel
TICK_NS = 10_000_000


def ask(
    one: Box, *, tgid: int, start_ns: int = 0, ino: int = 0, dev: int = 0, path: bytes = b""
) -> tuple[int, bytes]:
    one.launcher.channel.send(OpenExe(start_ns, ino, tgid, dev, path), ident=77)
    got = one.launcher.channel.recv(10)
    assert isinstance(got.msg, Exe)
    assert got.ident == 77
    assert len(got.fds) == (got.msg.err == 0)
    data = b""
    for fd in got.fds:
        data = os.pread(fd, 1 << 24, 0)
        assert os.fstat(fd).st_ino == (ino or os.fstat(fd).st_ino)
        os.close(fd)
    return got.msg.err, data


def start_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]) * TICK_NS


def test_a_living_process_and_its_inode(box: MakeBox):
    one = box(["/usr/bin/cat"]).start()
    pid = one.started.agent_pid
    ino = Path("/usr/bin/cat").stat().st_ino  # the overlay shows the layer's own number
    content = Path("/usr/bin/cat").read_bytes()
    assert ask(one, tgid=pid, ino=ino, start_ns=start_of(pid) + 5) == (0, content)
    # The device is no part of it: what the kernel has for an overlay is not what stat(2) shows.
    assert ask(one, tgid=pid, ino=ino, dev=0xFFF00001) == (0, content)
    assert ask(one, tgid=pid, ino=ino + 1, path=b"/usr/bin/cat")[0] == errno.ESTALE
    assert one.finish().status == 0


def test_a_dead_process_by_its_path_also_after_the_agents_end(box: MakeBox):
    one = box(["/bin/sh", "-c", "cp /usr/bin/true ./mine; ./mine; read x"]).start()
    own = Path("/usr/bin/true").read_bytes()
    os.write(one.pipes["stdin"], b"")
    gone = 0x7FFFFFF0
    assert ask(one, tgid=gone, path=b"/usr/bin/env") == (0, Path("/usr/bin/env").read_bytes())
    assert ask(one, tgid=gone, path=b"relative")[0] == errno.ENOENT
    assert ask(one, tgid=gone, path=b"/etc")[0] == errno.ESTALE
    assert ask(one, tgid=gone, path=b"/dev/zero")[0] == errno.ESTALE
    out = one.pump(b"\n")
    exited = one.wait_exited()
    mine = f"{one.request.workspace}/mine".encode()
    assert ask(one, tgid=gone, path=mine) == (0, own)
    assert one.seal(exited, out).status == 0


def test_a_process_outside_the_run_is_not_opened(box: MakeBox):
    one = box(["/usr/bin/cat"]).start()
    assert ask(one, tgid=os.getpid(), start_ns=start_of(os.getpid()))[0] == errno.ENOENT
    assert ask(one, tgid=one.started.agent_pid, start_ns=12345)[0] == errno.ENOENT
    one.finish()


def test_a_link_in_the_agents_tree_does_not_lead_out(box: MakeBox, place: Path):
    (place / "outside").write_text("host file")
    script = f"ln -s {place}/outside link; ln -s /proc/1/root/etc/shadow up; echo ready; read x"
    one = box(["/bin/sh", "-c", script]).start()
    assert os.read(one.pipes["stdout"], 6) == b"ready\n"
    work = one.request.workspace.encode()
    assert ask(one, tgid=0x7FFFFFF0, path=work + b"/link")[0] == errno.ENOENT
    assert ask(one, tgid=0x7FFFFFF0, path=work + b"/up")[0] in (
        errno.ELOOP,
        errno.ENOENT,
        errno.EXDEV,
    )
    one.finish(b"\n")


def test_a_fifo_does_not_hang_the_warden(box: MakeBox):
    one = box(["/bin/sh", "-c", "mkfifo pipe; echo ready; read x"]).start()
    assert os.read(one.pipes["stdout"], 6) == b"ready\n"
    path = f"{one.request.workspace}/pipe".encode()
    assert ask(one, tgid=0x7FFFFFF0, path=path)[0] == errno.ESTALE
    one.finish(b"\n")
