"""What an agent does to itself while its calls are answered: as it would be outside of a run."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from harness.recording import Recording
from harness.running import need_program

if TYPE_CHECKING:
    from .rig import Place

pytestmark = pytest.mark.kernel

GETRANDOM = 318

CALL = """
import ctypes, os, signal, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
call = libc.syscall
call.restype = ctypes.c_long
def draw(at, n):
    got = call(318, ctypes.c_void_p(at), ctypes.c_size_t(n), 0)
    return got if got >= 0 else -ctypes.get_errno()
"""

NOT_DUMPABLE = """
libc.prctl(4, 0)  # PR_SET_DUMPABLE, as ssh-agent and gpg do
print(libc.prctl(3), len(os.getrandom(100)), len(set(os.getrandom(100))) > 10)
"""

# A signal every 500 us, most of them in the middle of a call; handlers that restart it.
SIGNALS = """
hits = 0
def count(*_):
    global hits
    hits += 1
signal.signal(signal.SIGALRM, count)
signal.siginterrupt(signal.SIGALRM, False)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
room = ctypes.create_string_buffer(256)
answers = set()
while hits < 500: answers.add(draw(ctypes.addressof(room), 256))
signal.setitimer(signal.ITIMER_REAL, 0)
signal.signal(signal.SIGALRM, signal.SIG_IGN)
print(answers)
"""

# Processes that end in the middle of a call, and the threads of one that executes there.
ENDS = """
for _ in range(20):
    child = os.fork()
    if child == 0:
        while True: os.getrandom(200_000)
    time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
def for_ever():
    while True: os.getrandom(200_000)
for _ in range(3): threading.Thread(target=for_ever, daemon=True).start()
time.sleep(0.05)
os.execv("/bin/echo", ["echo", "executed"])
"""

# Memory that goes away under a call: all of it, a part of it, or a fault, and never a crash.
MEMORY = """
libc.mmap.restype = ctypes.c_void_p
size = 1 << 16
seen = set()
for _ in range(200):
    at = libc.mmap(None, ctypes.c_size_t(size), 3, 0x22, -1, ctypes.c_long(0))
    thread = threading.Thread(target=lambda: seen.add(draw(at, size)))
    thread.start()
    libc.munmap(ctypes.c_void_p(at), ctypes.c_size_t(size))
    thread.join()
print(all(got == -14 or 0 < got <= size for got in seen))
"""

# A filter of the agent's own lies over hark's: a refusal there is the agent's word.
FILTER = """
import struct
def program(steps):
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    at = ctypes.create_string_buffer(code, len(code))
    return struct.pack("=H6xQ", len(steps), ctypes.addressof(at)), at
refuse = [(0x20, 0, 0, 0), (0x15, 0, 1, 318), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7FFF0000)]
libc.prctl(38, 1, 0, 0, 0)
filter_, keep = program(refuse)
print(call(317, 1, 0, filter_))
room = ctypes.create_string_buffer(16)
print(draw(ctypes.addressof(room), 16))
"""

CASES = {
    "not dumpable": NOT_DUMPABLE,
    "signals": SIGNALS,
    "ends": ENDS,
    "memory": MEMORY,
    "own filter": FILTER,
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_as_outside_of_a_run(place: Place, name: str):
    (place.work / "agent.py").write_text(CALL + CASES[name])
    command = [need_program("python3"), "-u", "agent.py"]
    bare = subprocess.run(command, cwd=place.work, capture_output=True, check=False, timeout=300)
    assert bare.stdout, bare.stderr
    inside = place.run(*command)
    assert (inside.status, inside.stdout) == (bare.returncode, bare.stdout), inside.stderr
    recording = Recording.read(place.bundle)
    assert recording.kind("random"), "positive control: calls were answered"
    assert recording.kind("run_end")[0]["reason"] == "exited"
    denied = [event["syscall"] for event in recording.kind("denied")]
    assert GETRANDOM not in denied, "an answer is no refusal"


LISTENER = """
import errno, struct
code = struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000)
at = ctypes.create_string_buffer(code, len(code))
libc.prctl(38, 1, 0, 0, 0)
got = call(317, 1, 8, struct.pack("=H6xQ", 1, ctypes.addressof(at)))
print(got >= 0 or errno.errorcode[ctypes.get_errno()])
"""


def test_a_listener_of_the_agents_own_is_refused_as_the_specification_says(place: Place):
    (place.work / "agent.py").write_text(CALL + LISTENER)
    command = [need_program("python3"), "agent.py"]
    assert place.run(*command).stdout == b"EBUSY\n"
    place.bundle.unlink()
    assert place.run(*command, options=("--det=off",)).stdout == b"True\n"
