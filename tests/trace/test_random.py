"""The agent's randomness: by thread, as the kernel would give it, the same in a replay.

The oracle of the bytes is the `blake3` package and docs/spec/replay.md, "Randomness"; that of the
calls is the kernel itself, outside of a run.
"""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from blake3 import blake3
from harness.processes import below
from harness.recording import Recording, raw
from harness.running import HARK, PYTHON, environment, hark, need_program

from hark.bundle.events import Kind
from hark.bundle.keys import SigningKey
from hark.bundle.reader import Bundle
from hark.bundle.sealing import unwrap
from hark.locations import HOST_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .rig import Place

pytestmark = pytest.mark.kernel

GETRANDOM = 318

LIGHT = "light: the agent's randomness is the recorded, its clock is real"
CAP_SYS_PTRACE = 1 << 19

# Threads that race for their draws, their children, and a process that a further thread executes.
CROWD = """
import os, subprocess, sys, threading
DEEP = "import os; print(os.urandom(8).hex())"
out = {}
go = threading.Barrier(6)
def work(n):
    go.wait()
    out[n] = [os.getrandom(5).hex() for _ in range(200)]
    out[n].append(subprocess.run([sys.executable, "-c", DEEP], capture_output=True).stdout)
threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
for t in threads: t.start()
for t in threads: t.join()
for n in sorted(out): print(n, out[n])
sys.stdout.flush()
import ctypes
exe = sys.executable
threading.Thread(target=lambda: os.execv(exe, [exe, "-c", DEEP])).start()
threading.Event().wait()
"""

# What getrandom says to odd arguments: (result, errno) each. A page that cannot be written follows
# the one the buffer ends in.
ODD = """
import ctypes, errno, mmap
libc = ctypes.CDLL(None, use_errno=True)
call = libc.syscall
call.restype = ctypes.c_long
def ask(at, n, flags):
    got = call(318, ctypes.c_void_p(at), ctypes.c_size_t(n), ctypes.c_ulong(flags))
    return (got, ctypes.get_errno() if got < 0 else 0)
two = mmap.mmap(-1, 2 * mmap.PAGESIZE)
start = ctypes.addressof(ctypes.c_char.from_buffer(two))
libc.mprotect(ctypes.c_void_p(start + mmap.PAGESIZE), mmap.PAGESIZE, 0)
room = ctypes.create_string_buffer(34 << 20)
big = ctypes.addressof(room)
edge = start + mmap.PAGESIZE
print([ask(*a) for a in (
    (start, 16, 0), (start, 0, 0), (0, 0, 0), (0, 16, 0), (8, 16, 0), (edge, 16, 0),
    (start, 16, 8), (start, 16, 6), (start, 16, 1), (start, 16, 2), (start, 16, 4),
    (start, 16, 1 << 32), (big, 1 << 20, 0), (1 << 63, 16, 0),
)])
print(ask(edge - 100, 300, 0)[0] in (100, -1))
"""


def python(place: Place, text: str) -> list[str]:
    (place.work / "agent.py").write_text(text)
    return [need_program("python3"), "agent.py"]


def test_each_thread_repeats_its_own_numbers(place: Place):
    recorded = place.run(*python(place, CROWD))
    assert recorded.status == 0, recorded.stderr
    lines = recorded.stdout.decode().splitlines()
    assert len(lines) == 7, recorded.stderr
    assert len(set(lines[:6])) == 6, "positive control: threads have numbers of their own"
    for _ in range(3):
        done, said = place.replay("--strict")
        assert said["mode"] == LIGHT
        assert (said["verdict"], done.status) == ("REPLAY-EQUAL exact", 0), done.stderr
        assert not said["replay_notes"]
        assert recorded.stdout.decode() in done.stderr


def test_the_bytes_are_those_of_the_specification(place: Place):
    recorded = place.run(*python(place, "import os; print(os.getrandom(1000).hex())"))
    drawn = bytes.fromhex(recorded.stdout.decode())
    (told,) = Recording.read(place.bundle).kind("random")
    stream = bytes.fromhex(told["stream"])
    hasher = blake3(b"hark/random/1" + stream, key=place.seed())
    whole = hasher.digest(length=told["bytes"])
    assert whole.endswith(drawn)
    assert told["calls"] >= 2, "Python's own draws came first"
    assert told.actor.digest is not None


def test_the_names_of_streams_are_those_of_the_specification(place: Place):
    script = "import os, subprocess, sys, threading\n"
    script += "t = threading.Thread(target=lambda: os.getrandom(1)); t.start(); t.join()\n"
    script += "subprocess.run([sys.executable, '-c', ''])\n"
    assert place.run(*python(place, script)).status == 0
    agent = mix(0x6861726B2F312F01, 1, thread=False)  # of the run's init
    agent = mix(agent, 1, thread=False)
    wanted = {agent, mix(agent, 1, thread=True), mix(agent, 1, thread=False)}
    told = Recording.read(place.bundle).kind("random")
    assert {int(event["stream"], 16) for event in told} == wanted


def mix(path: int, number: int, *, thread: bool) -> int:
    mask = (1 << 64) - 1
    x = (path + (2 * number + thread) * 0x9E3779B97F4A7C15) & mask
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & mask
    return x ^ x >> 31


def test_odd_arguments_get_the_kernels_own_answers(place: Place):
    command = python(place, ODD)
    bare = subprocess.run(command, cwd=place.work, capture_output=True, check=True)
    inside = place.run(*command)
    assert inside.stdout == bare.stdout, inside.stderr
    denied = [event["syscall"] for event in Recording.read(place.bundle).kind("denied")]
    assert GETRANDOM not in denied, "an answer is no refusal"


def test_without_it_nothing_is_asked_and_nothing_repeats(place: Place):
    command = python(place, "import os; print(list(os.getrandom(8)))")
    recorded = place.run(*command, options=("--det=off",))
    recording = Recording.read(place.bundle)
    assert recording.kind("run_start")[0]["determinism"] == "off"
    assert not recording.kind("seed")
    assert not recording.kind("random")
    done, said = place.replay()
    assert str(said["mode"]).startswith("untraced")
    assert done.status == 1, "the printed bytes are others"
    assert recorded.stdout.decode() not in done.stderr


def test_the_seed_is_in_the_bundle_only_sealed(place: Place, tmp_path: Path):
    """Another key opens nothing: the replay has fresh randomness, and says so."""
    key = tmp_path / "key.pem"
    assert hark("keygen", "--out", key).status == 0
    command = python(place, "import uuid; print(uuid.uuid4())")
    recorded = place.run(*command, options=(f"--key={key}",))
    assert recorded.status == 0, recorded.stderr
    with Bundle.open(place.bundle) as bundle:
        (event,) = bundle.events(Kind.SEED)
    assert event.payload is not None
    seed = unwrap(event.payload[5], SigningKey.load(key).sealing())
    assert seed is not None
    assert seed not in place.bundle.read_bytes()
    assert unwrap(event.payload[5], SigningKey.load(HOST_KEY).sealing()) is None
    trusted = f"--trusted-keys={key}.pub"
    done, said = place.replay(trusted)
    assert said["mode"] == "light: the agent's clock and randomness are real"
    assert recorded.stdout.decode() not in done.stderr
    done, said = place.replay(trusted, f"--sign-with={key}")
    assert said["mode"] == LIGHT
    assert recorded.stdout.decode() in done.stderr


def test_more_draws_than_recorded_are_told(place: Place):
    assert place.run(*python(place, "import os; os.getrandom(8)")).status == 0
    python(place, "import os; os.getrandom(9)")
    _, said = place.replay("--workspace=current")
    notes = [str(note) for note in said["replay_notes"]]  # type: ignore[attr-defined]
    assert any("a thread has drawn another number" in note for note in notes), notes


@pytest.mark.parametrize(
    "words",
    [("mktemp", "-u"), ("shuf", "-i", "1-1000"), ("bash", "-c", "echo $SRANDOM $(echo $SRANDOM)")],
    ids=lambda words: words[0],
)
def test_programs_of_other_kinds_repeat(place: Place, words: tuple[str, ...]):
    recorded = place.run(need_program(words[0]), *words[1:])
    assert recorded.status == 0, recorded.stderr
    assert recorded.stdout
    done, said = place.replay()
    assert (said["verdict"], done.status) == ("REPLAY-EQUAL exact", 0), done.stderr


def test_openssl_mixes_the_time_in(place: Place):
    """The limit that the specification names: the clock is real here, so its numbers differ."""
    assert place.run(need_program("openssl"), "rand", "-hex", "24").status == 0
    done, said = place.replay()
    assert (said["verdict"], done.status) == ("REPLAY-EQUAL renamed 1", 0), done.stderr


def test_a_file_in_tmp_gets_the_same_name(place: Place):
    command = python(place, "import tempfile; print(tempfile.mkdtemp())")
    recorded = place.run(*command)
    done, said = place.replay()
    assert said["verdict"] == "REPLAY-EQUAL exact"
    assert recorded.stdout.decode() in done.stderr


WAITS = "import sys; print('here', flush=True); sys.stdin.read()"


@contextlib.contextmanager
def waiting(place: Place) -> Iterator[subprocess.Popen[bytes]]:
    run = subprocess.Popen(
        [str(HARK), "run", "-o", str(place.bundle), "--", str(PYTHON), "-c", WAITS],
        cwd=place.work,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert run.stdout is not None
        assert run.stdout.readline() == b"here\n"
        yield run
    finally:
        run.communicate(timeout=60)


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_the_tracer_can_do_nothing_outside_of_the_run(place: Place):
    with waiting(place) as run:
        tree = {process.name: process.pid for process in below(run.pid)}
        status = status_of(tree["hark-trace"])
        space = Path(f"/proc/{tree['hark-trace']}/ns/user").readlink()
        (agent,) = [p for p in below(run.pid) if p.name.startswith("python") and p.pid != run.pid]
        assert space == Path(f"/proc/{agent.pid}/ns/user").readlink()
        assert space != Path("/proc/self/ns/user").readlink()
    for name in ("CapPrm", "CapEff"):
        assert int(status[name], 16) == CAP_SYS_PTRACE
    for name in ("CapBnd", "CapInh", "CapAmb"):
        assert int(status[name], 16) == 0
    assert status["Seccomp"] == "2"
    assert status["NoNewPrivs"] == "1"
    uids = {int(uid) for uid in status["Uid"].split()}
    assert len(uids) == 1
    assert uids.pop() & 0xFF000000 == 0x77000000


def test_dry_run_shows_what_is_handed_to_the_tracer(place: Place):
    words = ["run", "--dry-run", "--", need_program("true")]
    shown = hark(*words, cwd=place.work, env=environment()).text
    assert "trace fd=tracer-socket userns=0" in shown
    assert "(notify)" in shown
    without = hark("run", "--det=off", *words[1:], cwd=place.work, env=environment()).text
    assert "trace fd=" not in without
    assert "(notify)" not in without


def test_told_draws_are_as_many_as_made(place: Place):
    script = "import os\nfor _ in range(1000): os.getrandom(3)\n"
    assert place.run(*python(place, script)).status == 0
    (told,) = Recording.read(place.bundle).kind("random")
    before = place.bundle.with_name("before.hark")
    place.bundle.rename(before)
    assert place.run(*python(place, "import os\n")).status == 0
    (base,) = Recording.read(place.bundle).kind("random")
    assert told["calls"] - base["calls"] == 1000
    assert told["bytes"] - base["bytes"] == 3000
    assert raw(told["source"]) == b"getrandom"


def test_addresses_repeat_where_the_policy_takes_it(place: Place, tmp_path: Path):
    policy = tmp_path / "policy.toml"
    policy.write_text('allow_downgrades = ["aslr"]\n')
    command = python(place, "print([id(object()), id(print), hash(object())])")
    recorded = place.run(*command, options=(f"--policy={policy}",))
    recording = Recording.read(place.bundle)
    (lost,) = recording.kind("downgrade")
    assert lost["feature"] == "aslr"
    done, said = place.replay()
    assert (said["verdict"], done.status) == ("REPLAY-EQUAL exact", 0), done.stderr
    assert recorded.stdout.decode() in done.stderr
    place.bundle.rename(place.bundle.with_name("allowed.hark"))
    plain = place.run(*command)
    assert plain.stdout != recorded.stdout, "positive control: the kernel chooses at random"
    assert not Recording.read(place.bundle).kind("downgrade")
