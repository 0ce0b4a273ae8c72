"""No attack works from inside, and each works outside: else the test would prove nothing.

Controls: ``person`` runs the same probe as the same person on the host, with no_new_privs off;
``root`` as root, for what only root could do. A probe without a working control on this kernel is
reported as skipped, never as passed. Services of the host are the witness: they count who spoke
to them.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import socket
import stat
import struct
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from launcher.rig import ALICE_ID, Box

from hark.launcher.plan import PathGrant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    MakeBox = Callable[..., Box]

pytestmark = pytest.mark.kernel
PROBES = Path(__file__).with_name("probes.py")
PYTHON = "/usr/bin/python3"
ANY = "0.0.0.0"  # noqa: S104 - the attacked service listens everywhere

PERSON = [
    "abstract_socket",
    "path_socket_in_run",
    "path_socket_in_granted_folder",
    "path_socket_in_workspace",
    "host_loopback",
    "host_loopback_v6",
    "host_address",
    "host_udp",
    "read_environ_of_victim",
    "read_memory_of_victim",
    "ptrace_victim",
    "ptrace_own_child",
    "signal_victim",
    "pidfd_of_victim",
    "steal_descriptor_of_victim",
    "see_host_processes",
    "compare_victim",
    "unshare_user",
    "clone_user",
    "clone3_user",
    "handle_of_file",
    "io_uring",
    "userfaultfd",
    "memfd_secret",
    "keyring",
    "i386_call",
    "x32_call",
    "vsock",
    "crypto_socket",
    "multipath_tcp",
    "netlink_netfilter",
    "netlink_audit",
    "netlink_sock_diag",
    "netlink_with_high_bits",
    "file_beside_grants",
    "ssh_key_in_home",
    "sysv_memory",
    "posix_memory",
    "message_queue",
    "setuid_program",
    "file_capability",
    "type_into_terminal",
    "type_into_terminal_high_bits",
    "change_line_discipline",
]

ROOT = [
    "read_environ_of_pid_one",
    "root_of_pid_one",
    "setns_net_of_pid_one",
    "mount_tmpfs",
    "new_mount_api",
    "clone_tree",
    "chroot",
    "bpf_map",
    "perf_event",
    "kernel_log",
    "packet_socket",
    "raw_socket",
    "shadow",
    "core_pattern",
    "sysrq",
    "kernel_message_device",
    "block_device",
    "make_block_device",
    "move_out_of_cgroup",
    "bpf_file_system",
    "hard_link_to_shadow",
    "become_root",
    "negative_nice",
    "real_time",
    "host_name",
]

# Cannot be tried outside without harm; the property is also shown by another test.
NO_CONTROL = ["kill_pid_one", "unmount_proc", "delete_own_link", "unknown_call"]


class Services:
    """Sockets of the host that hand out a secret and count who took it."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.sockets: list[socket.socket] = []

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

    def datagram(self, name: str) -> int:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.bind((ANY, 0))
        self.sockets.append(s)

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    _, peer = s.recvfrom(99)
                    self.taken.append(name)
                    s.sendto(b"SECRET", peer)

        threading.Thread(target=serve, daemon=True).start()
        return int(s.getsockname()[1])


@pytest.fixture
def host(place: Path) -> Iterator[tuple[Services, dict[str, Any]]]:
    """The attacked host: services, a victim process of the same person, files, memory."""
    made = Services()
    context: dict[str, Any] = {}
    undo = contextlib.ExitStack()
    with undo:
        _sockets(made, place, context, undo)
        _files(place, context)
        _memory(context, undo)
        _victim(context, undo)
        yield made, context
    for s in made.sockets:
        s.close()


def _sockets(
    made: Services, place: Path, context: dict[str, Any], undo: contextlib.ExitStack
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
    os.chown(place / "project", ALICE_ID, ALICE_ID)
    context["port"] = made.stream("tcp4", socket.AF_INET, (ANY, 0)).getsockname()[1]
    context["port6"] = made.stream("tcp6", socket.AF_INET6, ("::1", 0)).getsockname()[1]
    context["udp_port"] = made.datagram("udp")
    context["host_address"] = _own_address()


def _own_address() -> str:
    """An address of this host that is not 127.0.0.1."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s, contextlib.suppress(OSError):
        s.connect(("192.0.2.1", 9))
        return str(s.getsockname()[0])
    return "127.0.0.2"


def _files(place: Path, context: dict[str, Any]) -> None:
    home = place / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id").write_text("SECRET")
    (place / "beside").write_text("SECRET")
    for path in (home, home / ".ssh", home / ".ssh" / "id"):
        os.chown(path, ALICE_ID, ALICE_ID)
    scratch = place / "scratch"
    scratch.mkdir(mode=0o777)
    scratch.chmod(0o777)
    granted = place / "granted"
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


def _memory(context: dict[str, Any], undo: contextlib.ExitStack) -> None:
    libc = ctypes.CDLL(None)
    key = 0x48000000 | os.getpid()
    shm, queue = libc.shmget(key, 4096, 0o1666), libc.msgget(key, 0o1666)
    undo.callback(libc.shmctl, shm, 0, None)
    undo.callback(libc.msgctl, queue, 0, None)
    path = Path(f"/dev/shm/hark-{os.getpid()}")
    path.write_text("SECRET")
    path.chmod(0o666)
    undo.callback(path.unlink)
    context |= {"shm_key": key, "posix_shm": str(path)}


def _victim(context: dict[str, Any], undo: contextlib.ExitStack) -> None:
    code = (
        "import ctypes,sys;b=ctypes.create_string_buffer(b'SECRET');"
        "print(ctypes.addressof(b),flush=True);sys.stdin.read()"
    )
    victim = subprocess.Popen(
        [PYTHON, "-I", "-S", "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"NAME": "VICTIM"},
        user=ALICE_ID,
        group=ALICE_ID,
        extra_groups=[],
    )
    undo.callback(victim.wait)
    undo.callback(victim.stdin.close)
    undo.callback(victim.stdout.close)
    context |= {"victim": victim.pid, "victim_address": int(victim.stdout.readline())}


def outside(probes: list[str], file: Path, uid: int) -> dict[str, list[Any]]:
    """The control: the same probes on the host; root's in a pid namespace, to have a pid 1."""
    own_pids = ["unshare", "--pid", "--fork", "--mount-proc"] if uid == 0 else []
    done = subprocess.run(
        [*own_pids, PYTHON, "-I", "-S", PROBES, file, ",".join(probes)],
        check=True,
        capture_output=True,
        user=uid,
        group=uid,
        extra_groups=[],
        start_new_session=True,
    )
    return dict(json.loads(done.stdout))


def test_no_attack_works_from_inside(
    box: MakeBox, place: Path, host: tuple[Services, dict[str, Any]], subtests: Any
):
    services, context = host
    file = place / "granted" / "context.json"
    file.write_text(json.dumps(context))
    shutil.copy(PROBES, place / "granted" / "probes.py")
    names = [*PERSON, *ROOT, *NO_CONTROL]
    argv = [PYTHON, "-I", "-S", str(place / "granted" / "probes.py"), str(file), ",".join(names)]
    grants = (
        PathGrant(str(place / "granted"), "folder", "test"),
        PathGrant(str(place / "scratch"), "folder", "test"),
    )
    one = box(argv, read=grants)
    result = one.run()
    inside = json.loads(result.out)
    assert services.taken == [], "a service of the host was reached"
    controls = outside(PERSON, file, ALICE_ID) | outside(ROOT, file, 0)
    assert set(services.taken) >= {
        "abstract",
        "run_socket",
        "granted_socket",
        "workspace_socket",
        "tcp4",
        "tcp6",
        "udp",
    }
    escaped = {name: got for name, got in inside.items() if got[0]}
    weak = {name: got[1] for name, got in controls.items() if not got[0]}
    assert escaped == {}
    for name in names:
        with subtests.test(name):
            if name in weak:
                pytest.skip(f"works not even outside: {weak[name]}")
