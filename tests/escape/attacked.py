"""The attacked host: services that count who spoke to them, a victim process, files, memory."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pty
import shutil
import socket
import stat
import struct
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

PYTHON = "/usr/bin/python3"
ANY = "0.0.0.0"  # noqa: S104 - the attacked service listens everywhere
REACHED = (
    "abstract", "abstract-d", "abstract-p", "run_socket", "granted_socket", "granted_datagram",
    "workspace_socket", "workspace_datagram", "granted_fifo", "workspace_fifo", "terminal",
    "tcp4", "tcp6", "udp",
)  # fmt: skip


class Services:
    """Sockets of the host that hand out a secret and count who took it."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.sockets: list[socket.socket] = []
        self.files: dict[str, int] = {}

    def stream(self, name: str, family: int, address: Any) -> socket.socket:
        s = socket.socket(family)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(address)
        s.listen()
        self.sockets.append(s)
        threading.Thread(target=self._serve, args=(name, s), daemon=True).start()
        return s

    def _serve(self, name: str, s: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                conn, _ = s.accept()
                self.taken.append(name)
                conn.sendall(b"SECRET")
                conn.close()

    def datagram(self, name: str, family: int = socket.AF_INET, address: Any = (ANY, 0)) -> Any:
        s = socket.socket(family, socket.SOCK_DGRAM)
        s.bind(address)
        self.sockets.append(s)

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    _, peer = s.recvfrom(99)
                    self.taken.append(name)
                    if peer:
                        s.sendto(b"SECRET", peer)

        threading.Thread(target=serve, daemon=True).start()
        return s.getsockname()

    def packets(self, name: str, address: str) -> None:
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.bind(address)
        s.listen()
        self.sockets.append(s)
        threading.Thread(target=self._serve, args=(name, s), daemon=True).start()

    def seen(self) -> set[str]:
        """Everyone who was reached so far."""
        for name, fd in self.files.items():
            with contextlib.suppress(BlockingIOError):
                if os.read(fd, 99):
                    self.taken.append(name)
        return set(self.taken)

    def close(self) -> None:
        for s in self.sockets:
            s.close()
        for fd in self.files.values():
            os.close(fd)


@contextlib.contextmanager
def attacked(place: Path, uid: int) -> Iterator[tuple[Services, dict[str, Any]]]:
    """A host under attack by the person ``uid``, who may see ``granted`` and ``scratch``."""
    made = Services()
    context: dict[str, Any] = {}
    with contextlib.ExitStack() as undo:
        undo.callback(made.close)
        _sockets(made, place, uid, context, undo)
        _files(place, uid, context)
        _channels(made, place, uid, context)
        _memory(context, undo)
        _victim(uid, context, undo)
        yield made, context


def _sockets(
    made: Services, place: Path, uid: int, context: dict[str, Any], undo: contextlib.ExitStack
) -> None:
    name = place.name
    context["abstract"] = name
    made.stream("abstract", socket.AF_UNIX, "\0" + name)
    folders = {
        "run_socket": Path("/run"),
        "granted_socket": place / "granted",
        "workspace_socket": place / "project",
    }
    for key, folder in folders.items():
        folder.mkdir(exist_ok=True)
        path = folder / f"{name}.sock"
        made.stream(key, socket.AF_UNIX, str(path))
        path.chmod(0o666)
        undo.callback(path.unlink)
        context[key] = str(path)
        if key != "run_socket":
            path = folder / f"{name}.dgram"
            made.datagram(key.replace("socket", "datagram"), socket.AF_UNIX, str(path))
            path.chmod(0o666)
            context[key.replace("socket", "datagram")] = str(path)
    made.datagram("abstract-d", socket.AF_UNIX, f"\0{name}-d")
    made.packets("abstract-p", f"\0{name}-p")
    os.chown(place / "project", uid, uid)
    context["port"] = made.stream("tcp4", socket.AF_INET, (ANY, 0)).getsockname()[1]
    context["port6"] = made.stream("tcp6", socket.AF_INET6, ("::1", 0)).getsockname()[1]
    context["udp_port"] = made.datagram("udp")[1]
    context["host_address"] = _own_address()


def _own_address() -> str:
    """An address of this host that is not 127.0.0.1."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s, contextlib.suppress(OSError):
        s.connect(("192.0.2.1", 9))
        return str(s.getsockname()[0])
    return "127.0.0.2"


def _files(place: Path, uid: int, context: dict[str, Any]) -> None:
    home = place / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id").write_text("SECRET")
    (place / "beside").write_text("SECRET")
    for path in (home, home / ".ssh", home / ".ssh" / "id"):
        os.chown(path, uid, uid)
    scratch = place / "scratch"
    scratch.mkdir(mode=0o777)
    scratch.chmod(0o777)
    granted = place / "granted"
    own = granted / "own"
    own.mkdir()
    (own / "file").write_text("GRANTED")
    for path in (own, own / "file"):
        os.chown(path, uid, uid)
    context |= {"granted_own": str(own), "granted_file": str(own / "file")}
    shutil.copy("/usr/bin/id", granted / "setuid")
    (granted / "setuid").chmod(0o4755)
    shutil.copy(Path(PYTHON).resolve(), granted / "filecap")
    os.setxattr(
        granted / "filecap", "security.capability", struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0)
    )
    source = place / "i386.c"
    source.write_text(
        'int main(void){int r;__asm__ volatile("int $0x80":"=a"(r):"a"(20));return r<=0;}'
    )
    subprocess.run(["gcc", "-O1", "-o", granted / "i386", source], check=True)
    devices = [p for p in Path("/dev").iterdir() if stat.S_ISBLK(p.stat().st_mode)]
    root = next((p for p in devices if p.stat().st_rdev == Path("/").stat().st_dev), None)
    context |= {
        "beside": str(place / "beside"),
        "ssh": str(home / ".ssh" / "id"),
        "scratch": str(scratch),
        "setuid": str(granted / "setuid"),
        "filecap": str(granted / "filecap"),
        "i386": str(granted / "i386"),
        "block": str(root or "/dev/null-block"),
        "block_number": Path("/").stat().st_dev,
        "cgroup_procs": next(
            (
                str(p)
                for p in (
                    Path("/sys/fs/cgroup/cgroup.procs"),
                    Path("/sys/fs/cgroup/unified/cgroup.procs"),
                )
                if p.exists()
            ),
            "",
        ),
        "link": 2,
    }


def _channels(made: Services, place: Path, uid: int, context: dict[str, Any]) -> None:
    """Named pipes in what the agent sees, and a terminal of the person outside."""
    for key, folder in (("granted_fifo", "granted/own"), ("workspace_fifo", "project")):
        path = place / folder / "fifo"
        os.mkfifo(path)
        os.chown(path, uid, uid)
        made.files[key] = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        context[key] = str(path)
    master, slave = pty.openpty()
    context["terminal"] = os.ttyname(slave)
    os.fchown(slave, uid, uid)
    os.set_blocking(master, False)
    made.files |= {"terminal": master, "terminal side": slave}
    os.set_blocking(slave, False)


def _memory(context: dict[str, Any], undo: contextlib.ExitStack) -> None:
    libc = ctypes.CDLL(None)
    key = 0x48000000 | os.getpid()
    shm, queue = libc.shmget(key, 4096, 0o1666), libc.msgget(key, 0o1666)
    undo.callback(libc.shmctl, shm, 0, None)
    undo.callback(libc.msgctl, queue, 0, None)
    semaphores = libc.semget(key, 1, 0o1666)
    undo.callback(libc.semctl, semaphores, 0, 0)
    name = f"hark-{os.getpid()}".encode()
    mask = os.umask(0)
    os.close(libc.syscall(ctypes.c_long(240), name, os.O_RDWR | os.O_CREAT, 0o666, 0))
    os.umask(mask)
    undo.callback(libc.syscall, ctypes.c_long(241), name)  # mq_unlink
    context["queue"] = name.decode()
    path = Path(f"/dev/shm/hark-{os.getpid()}")
    path.write_text("SECRET")
    path.chmod(0o666)
    undo.callback(path.unlink)
    context |= {"shm_key": key, "posix_shm": str(path)}


def _victim(uid: int, context: dict[str, Any], undo: contextlib.ExitStack) -> None:
    code = (
        "import ctypes,sys;b=ctypes.create_string_buffer(b'SECRET');"
        "print(ctypes.addressof(b),flush=True);sys.stdin.read()"
    )
    victim = subprocess.Popen(
        [PYTHON, "-I", "-S", "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"NAME": "VICTIM"},
        user=uid,
        group=uid,
        extra_groups=[],
    )
    undo.callback(victim.wait)
    undo.callback(victim.stdin.close)
    undo.callback(victim.stdout.close)
    context |= {"victim": victim.pid, "victim_address": int(victim.stdout.readline())}
