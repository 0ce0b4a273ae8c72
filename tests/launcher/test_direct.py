"""A direct workspace is the host's own folder: what an overlay disarms must be refused here."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
from typing import TYPE_CHECKING

import pytest

from hark.policy.person import Person
from launcher.rig import ALICE_ID, Box

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    MakeBox = Callable[..., Box]

pytestmark = pytest.mark.kernel
PYTHON = "/usr/bin/python3"

SET_ID = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
open("plain", "w").close()
fd = os.open("plain", os.O_RDWR)
how = (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, 0o6755, 0)
at = ctypes.c_long(-100)
ways = {
    "chmod": lambda: os.chmod("plain", 0o6755),
    "chmod_setuid": lambda: os.chmod("plain", 0o4755),
    "chmod_setgid": lambda: os.chmod("plain", 0o2755),
    "fchmod": lambda: os.fchmod(fd, 0o6755),
    "fchmodat2": lambda: libc.syscall(ctypes.c_long(452), at, b"plain", ctypes.c_long(0o6755), 0),
    "creat": lambda: libc.syscall(ctypes.c_long(85), b"creat", ctypes.c_long(0o6755)),
    "open": lambda: libc.syscall(ctypes.c_long(2), b"open", 0o101, 0o6755),
    "openat": lambda: os.open("openat", os.O_CREAT | os.O_WRONLY, 0o6755),
    "tmpfile": lambda: os.link(
        f"/proc/self/fd/{os.open('.', os.O_TMPFILE | os.O_RDWR, 0o6755)}", "tmpfile",
        src_dir_fd=os.open("/", os.O_PATH)),
    "openat2": lambda: libc.syscall(ctypes.c_long(437), at, b"openat2", how, ctypes.c_long(24)),
    "mknod": lambda: os.mknod("mknod", 0o106755),
}
for name, way in ways.items():
    try:
        way()
    except OSError:
        pass
    if name.startswith("f") or name.startswith("chmod"):
        os.rename("plain", name)
        open("plain", "w").close()
        fd = os.open("plain", os.O_RDWR)
"""


def set_id_files(folder: Path) -> list[str]:
    bits = stat.S_ISUID | stat.S_ISGID
    return sorted(p.name for p in folder.iterdir() if p.lstat().st_mode & bits)


def test_no_way_to_make_a_set_id_file_of_root(box: MakeBox, place: Path):
    root = Person(uid=0, gid=0, groups=(0,), name="root", home=str(place / "h"), shell="")
    one = box([PYTHON, "-I", "-S", "-c", SET_ID], person=root, workspace_mode="direct")
    result = one.run()
    assert (result.status, result.err) == (0, "")
    assert (place / "project" / "plain").stat().st_uid == 0, "it was the host's own folder"
    assert set_id_files(place / "project") == []


def test_the_control_every_way_makes_one_outside(place: Path):
    work = place / "control"
    work.mkdir()
    os.chown(work, ALICE_ID, ALICE_ID)
    subprocess.run(
        [PYTHON, "-I", "-S", "-c", SET_ID],
        check=True, cwd=work, umask=0, user=ALICE_ID, group=ALICE_ID, extra_groups=[],
    )  # fmt: skip
    assert len(set_id_files(work)) == 11


def test_in_an_overlay_the_bit_may_be_set_and_reaches_nobody(box: MakeBox, place: Path):
    one = box(["/bin/sh", "-c", "touch f; chmod 4755 f; stat -c %a f"])
    assert one.run().out == "4755\n"
    assert set_id_files(place / "project") == []
    assert (one.upper / "f").exists()
    assert one.runs.joinpath(one.request.run_id).stat().st_mode & 0o077 == 0


def test_inherited_set_id_folders_and_plain_modes_still_work(box: MakeBox, place: Path):
    script = "mkdir d/e && stat -c %a d/e && touch f && chmod 1755 f && chmod +x f && cp -p f g"
    one = box(["/bin/sh", "-c", script], workspace_mode="direct")
    folder = place / "project" / "d"
    folder.mkdir(parents=True)
    for path in (folder.parent, folder):
        os.chown(path, ALICE_ID, ALICE_ID)
    folder.chmod(0o2775)
    assert (one.run().out) == "2755\n"


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET])
def test_a_socket_of_the_host_in_it_is_not_reached(
    box: MakeBox, place: Path, kind: socket.SocketKind
):
    code = (
        f"import socket; s = socket.socket(1, {int(kind)}); s.connect('host.sock'); s.send(b'out');"
        "print('sent')"
    )
    one = box([PYTHON, "-I", "-S", "-c", code], workspace_mode="direct")
    path = place / "project" / "host.sock"
    with socket.socket(socket.AF_UNIX, kind) as service:
        service.bind(str(path))
        path.chmod(0o666)
        if kind != socket.SOCK_DGRAM:
            service.listen()
        service.setblocking(False)
        take = service.recv if kind == socket.SOCK_DGRAM else lambda _: service.accept()
        result = one.run()
        assert (result.status, result.out) == (1, "")
        with pytest.raises(BlockingIOError):
            take(9)
        done = subprocess.run(
            [PYTHON, "-I", "-S", "-c", code], cwd=path.parent, capture_output=True, check=True,
            user=ALICE_ID, group=ALICE_ID, extra_groups=[],
        )  # fmt: skip
        assert done.stdout == b"sent\n"
        take(9)


def test_pairs_of_sockets_are_still_there(box: MakeBox):
    code = "import socket; a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))"
    one = box([PYTHON, "-I", "-S", "-c", code], workspace_mode="direct")
    assert one.run().out == "b'x'\n"
