"""Two hostile runs of one person at once, in one folder: neither reaches or starves the other."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from harness.running import HARK, environment, hark, need

from escape.attacked import PYTHON

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from launcher.rig import Box

    MakeBox = Callable[..., Box]

pytestmark = pytest.mark.kernel
NOBODY = 65534

# The one that is attacked: offers everything, prints its own view, and at the end who came.
OFFER = """
import ctypes, json, os, socket, sys, threading
libc = ctypes.CDLL(None)
came = []
def serve(name, family, address, kind=socket.SOCK_STREAM):
    s = socket.socket(family, kind)
    s.bind(address)
    if kind == socket.SOCK_STREAM: s.listen()
    def loop():
        while True:
            if kind == socket.SOCK_STREAM: s.accept()[0].close()
            else: s.sendto(b"x", s.recvfrom(9)[1])
            came.append(name)
    threading.Thread(target=loop, daemon=True).start()
serve("abstract", socket.AF_UNIX, "\\0hark-two-runs")
serve("path", socket.AF_UNIX, "here.sock")
serve("tmp", socket.AF_UNIX, "/tmp/here.sock")
serve("tcp", socket.AF_INET, ("0.0.0.0", 4711))
serve("tcp6", socket.AF_INET6, ("::", 4712))
serve("udp", socket.AF_INET, ("0.0.0.0", 4713), socket.SOCK_DGRAM)
open("secret", "w").write("SECRET"); open("/tmp/secret", "w").write("SECRET")
open("/dev/shm/secret", "w").write("SECRET")
open(os.path.expanduser("~/secret"), "w").write("SECRET")
libc.shmget(0x4841524b, 4096, 0o1666); libc.semget(0x4841524b, 1, 0o1666)
if len(sys.argv) > 1:  # the control attacks from beside, in the same run
    sys.stdout.write(json.dumps([json.load(os.popen(sys.argv[1])), came]))
else:
    print("ready", flush=True)
    sys.stdin.read()
    print(json.dumps(came))
"""

ATTACK = """
import ctypes, json, os, signal, socket
libc = ctypes.CDLL(None)
got = {}
def attempt(name, way):
    try: got[name] = bool(way())
    except OSError: got[name] = False
def to(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as s:
        s.settimeout(2)
        s.connect(address)
        if kind == socket.SOCK_DGRAM: s.send(b"x"); s.recv(9)
    return True
attempt("abstract", lambda: to(socket.AF_UNIX, "\\0hark-two-runs"))
attempt("path", lambda: to(socket.AF_UNIX, "here.sock"))
attempt("tmp", lambda: to(socket.AF_UNIX, "/tmp/here.sock"))
attempt("tcp", lambda: to(socket.AF_INET, ("127.0.0.1", 4711)))
attempt("tcp own address", lambda: to(socket.AF_INET, ("100.64.0.2", 4711)))
attempt("tcp6", lambda: to(socket.AF_INET6, ("::1", 4712)))
attempt("udp", lambda: to(socket.AF_INET, ("100.64.0.2", 4713), socket.SOCK_DGRAM))
for path in ("secret", "/tmp/secret", "/dev/shm/secret", os.path.expanduser("~/secret")):
    attempt(path.replace(os.path.expanduser("~"), "~"), lambda: open(path).read() == "SECRET")
attempt("shm", lambda: libc.shmget(0x4841524b, 0, 0) >= 0)
attempt("sem", lambda: libc.semget(0x4841524b, 0, 0) >= 0)
others = [int(p) for p in os.listdir("/proc") if p.isdigit() and int(p) != os.getpid()]
read = lambda p: open(f"/proc/{p}/cmdline", "rb").read()
attempt("processes", lambda: [p for p in others if b"offer" in read(p)])
print(json.dumps(got))
"""
WAYS = 14


@pytest.fixture
def folder() -> Iterator[Path]:
    """A project of nobody's, and both programs in it."""
    need("root", os.geteuid() == 0)
    path = Path("/var/tmp") / f"hark-two-{os.getpid()}"
    project = path / "project"
    project.mkdir(parents=True)
    path.chmod(0o755)
    (project / "offer.py").write_text(OFFER)
    (project / "attack.py").write_text(ATTACK)
    (path / "out").mkdir()
    for owned in (project, path / "out"):
        os.chown(owned, NOBODY, NOBODY)
    yield project
    for bundle in (path / "out").glob("*.hark"):  # what they wrote is kept until then
        hark("discard", bundle)
    shutil.rmtree(path)


def words(folder: Path, name: str, *command: str) -> list[str]:
    out = folder.parent / "out" / f"{name}.hark"
    return ["run", "--as", "nobody", "-o", str(out), "--", PYTHON, "-I", "-S", *command]


def run_beside(folder: Path, words_: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [str(HARK), *words_],
        cwd=folder,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def test_one_run_does_not_reach_another(folder: Path):
    one = run_beside(folder, words(folder, "one", "offer.py"))
    assert one.stdout
    assert one.stdout.readline() == b"ready\n"
    done = hark(*words(folder, "two", "attack.py"), cwd=folder)
    assert done.status == 0, done.stderr
    came, _ = one.communicate()
    got = json.loads(done.stdout)
    assert len(got) == WAYS
    assert got == dict.fromkeys(got, False)
    assert json.loads(came) == []
    for name in ("one", "two"):
        assert hark("verify", folder.parent / "out" / f"{name}.hark").status == 0


def test_control_in_one_run_every_way_works(folder: Path):
    attack = f"{PYTHON} -I -S attack.py"
    done = hark(*words(folder, "one", "offer.py", attack), cwd=folder)
    got, came = json.loads(done.stdout)
    assert got == dict.fromkeys(got, True)
    assert len(got) == WAYS
    assert set(came) >= {"abstract", "path", "tmp", "tcp", "tcp6"}


TAKE: dict[str, Any] = {
    "inotify": "libc.inotify_init1(0)",
    "terminals": "os.openpty()[0]",
    "tasks": "fork()",
    "counters": "os.eventfd(0)",
}
GREED = """
import ctypes, os, signal, sys, time
libc = ctypes.CDLL(None)
def fork():
    pid = os.fork()
    if pid == 0:
        signal.pause(); os._exit(0)
    return pid
held = []
while len(held) < 5000:
    try: fd = %s
    except OSError: break
    if fd < 0: break
    held.append(fd)
print(len(held), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("what", TAKE)
def test_one_run_cannot_take_anothers_share(box: MakeBox, what: str):
    code = GREED % TAKE[what]
    greedy = [box([PYTHON, "-I", "-S", "-c", code]).start() for _ in range(2)]
    counts = [int(os.read(one.pipes["stdout"], 9)) for one in greedy]
    for one in greedy:
        one.finish(b"")
    assert counts[0] > 0
    assert counts[1] == counts[0], "the second got what the first had left"


def test_the_host_keeps_its_inotify_instances(box: MakeBox):
    """They are counted in the agent's user namespace, and there against the namespace's owner."""
    code = GREED % TAKE["inotify"]
    libc = ctypes.CDLL(None, use_errno=True)
    one = box([PYTHON, "-I", "-S", "-c", code]).start()
    taken = int(os.read(one.pipes["stdout"], 9))
    fd = libc.inotify_init1(os.O_CLOEXEC)
    one.finish(b"")
    assert taken == int(Path("/proc/sys/fs/inotify/max_user_instances").read_text())
    assert fd >= 0, "root has none left"
    os.close(fd)
