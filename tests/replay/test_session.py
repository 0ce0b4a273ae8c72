"""`hark replay` on real recordings: equal where the agent is, stopped where it is not.

Every replay runs after the stub that answered the recording is gone or counted: the witness that
nothing is dialled is the listener itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.processes import below, wait_until_gone
from harness.recording import Recording
from harness.running import HARK, PYTHON, Finished, environment, hark, need, need_program
from harness.world import API, EVIL, NEWS, POLICY, World
from stub import Stub
from ulid import ULID

from hark.bundle.core import load as load_core
from hark.bundle.reader import Bundle
from hark.bundle.redact import Redaction, redact
from hark.bundle.source import BytesSource
from hark.errors import HarkError
from hark.locations import RUNS

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.kernel

CLIENTS = Path(__file__).resolve().parents[1] / "interop" / "clients"

ASK = f"""
import json, subprocess, sys, urllib.error, urllib.request

def ask(content, host="{API}", **more):
    call = dict(model="m", messages=[dict(role="user", content=content)], **more)
    headers = {{"Content-Type": "application/json", "Authorization": "Bearer x"}}
    url = "https://" + host + "/v1/chat/completions"
    request = urllib.request.Request(url, json.dumps(call).encode(), headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["choices"][0]["message"]["content"]
    except urllib.error.HTTPError as error:
        return str(error.code)
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    need("root", os.geteuid() == 0)
    (tmp_path / "work").mkdir()
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    with Stub(tmp_path / "stub", (API, NEWS, EVIL)) as stub:
        yield World(stub, tmp_path, policy)
    for path in tmp_path.rglob("*.hark"):  # what the recorded agents wrote is kept until then
        with contextlib.suppress(HarkError), Bundle.open(path) as bundle:
            run = ULID(bundle.header.run_id)
            if (RUNS / str(run)).exists():
                assert hark("discard", str(run)).status == 0


def agent(world: World, body: str) -> list[str]:
    """Write an agent and return its command."""
    (world.work / "agent.py").write_text(ASK + body)
    return [need_program("python3"), "agent.py"]


def replay(world: World, *options: str) -> tuple[Finished, dict[str, Any]]:
    """Replay the world's bundle without its secret; no connection may reach the stub."""
    before = len(world.stub.connections())
    done = hark("replay", "--json", *options, world.bundle, cwd=world.work, env=environment())
    assert len(world.stub.connections()) == before, "a replay dialled"
    return done, json.loads(done.stdout) if done.stdout else {}


def assert_equal(
    world: World,
    *options: str,
    verdict: str = "REPLAY-EQUAL exact",
    mode: str = "light: the agent's randomness is the recorded",
) -> dict[str, Any]:
    done, said = replay(world, *options)
    assert done.status == 0, (done.stderr, json.dumps(said, indent=1))
    assert said["verdict"] == verdict
    assert said["mode"].startswith(mode), said["mode"]
    return said


def assert_diverged(world: World, *options: str) -> dict[str, Any]:
    done, said = replay(world, *options)
    assert done.status == 1, (done.stderr, said)
    assert said["verdict"].startswith("REPLAY-DIVERGED at action ")
    return said


CASES = (
    ("urllib_client.py", "python", 3),
    ("httpx_client.py", "python", 4),
    ("openai_client.py", "python", 6),
    ("fetch_client.mjs", "node", 3),
    ("curl_client.sh", "sh", 1),
)


@pytest.mark.parametrize(("script", "program", "least"), CASES, ids=[case[0] for case in CASES])
def test_an_unmodified_client_replays_equal(world: World, script: str, program: str, least: int):
    shutil.copy(CLIENTS / script, world.work)
    if program == "sh":
        need_program("curl")
    interpreter = str(PYTHON) if program == "python" else need_program(program)
    recorded = world.run(interpreter, script)
    assert recorded.status == 0, recorded.stderr
    assert len(world.recording().exchanges()) >= least
    said = assert_equal(world)
    assert not said["inputs_that_differ"]


def test_a_replay_shows_what_the_agent_prints_and_its_bundle_replays_too(world: World):
    recorded = world.run(*agent(world, "print(ask('one')); print('err', file=sys.stderr)"))
    assert recorded.status == 0, recorded.stderr
    again = world.directory / "again.hark"
    done = hark("replay", "-o", again, world.bundle, cwd=world.work, env=environment())
    assert done.status == 0, done.stderr
    assert done.stdout.startswith(recorded.stdout + b"REPLAY-EQUAL exact  [light: the agent's")
    assert "err\n" in done.stderr
    assert hark("verify", again).status == 0
    start = Recording.read(again).kind("run_start")[0]
    assert start["note"].startswith("replay of ")
    twice = hark("replay", "--json", again, cwd=world.work, env=environment())
    assert twice.status == 0, twice.stderr
    first = json.loads(replay(world)[0].stdout)["digests"]["now"]
    assert json.loads(twice.stdout)["digests"]["now"] == first


def test_standard_input_comes_from_the_recording(world: World):
    body = "words = sys.stdin.read(); print(ask(words), len(words))"
    recorded = world.run(*agent(world, body), stdin=b"tell me " * 20_000)
    assert recorded.status == 0, recorded.stderr
    assert_equal(world)


def test_a_shell_pipeline_and_what_it_writes(world: World):
    script = "printf 'b\\na\\n' | sort | tee out.txt; mkdir d; wc -l <out.txt >d/n; exit 3"
    assert world.run("/bin/sh", "-c", script).status == 3
    said = assert_equal(world)
    assert said["actions"] >= 8
    assert not (world.work / "out.txt").exists()
    assert not (world.work / "d").exists()


def test_a_run_that_left_its_bundle_in_the_workspace_does_not_see_it(world: World):
    world = World(world.stub, world.directory, world.policy)
    words = world.words("/bin/sh", "-c", "ls -A; echo x >made; ls -A")
    words[words.index("-o") + 1] = "here.hark"
    recorded = hark(*words, cwd=world.work, env=world.env())
    assert recorded.status == 0, recorded.stderr
    assert (world.work / "here.hark").exists()
    done = hark("replay", "--json", "here.hark", cwd=world.work, env=environment())
    assert done.status == 0, (done.stderr, done.stdout)
    assert (world.work / "here.hark").exists()
    assert not (world.work / "made").exists()


def test_an_id_that_came_back_is_this_runs_own(world: World):
    """The server repeats an id the agent made; the agent compares it, and uses it again."""
    body = f"""
import uuid
mine = str(uuid.uuid4())
call = urllib.request.Request("https://{NEWS}/echo", json.dumps({{"id": mine}}).encode())
with urllib.request.urlopen(call) as answer:
    back = json.load(answer)["id"]
print(back == mine)
ask("about it", session=back)
"""
    recorded = world.run(*agent(world, body), options=["--det=off"])
    assert recorded.stdout == b"True\n", recorded.stderr
    assert_equal(world, verdict="REPLAY-EQUAL renamed 1", mode="untraced")


def test_bodies_of_all_kinds(world: World):
    """Large both ways, none, HEAD, and one that waits for 100 (Continue)."""
    curl = need_program("curl")
    (world.work / "big").write_bytes(os.urandom(3_000_000))
    script = f"""
{curl} -sS https://{NEWS}/bytes/8000000 | cksum
{curl} -sS https://{NEWS}/chunks/500 | cksum
{curl} -sS -I https://{NEWS}/page | head -c 15
{curl} -sS https://{NEWS}/bytes/0 | cksum
{curl} -sS -d @/dev/null https://{NEWS}/echo | cksum
{curl} -sS -T - -X POST https://{NEWS}/echo </dev/null | cksum
{curl} -sS -H 'Expect: 100-continue' --data-binary @big https://{NEWS}/echo | cksum
"""
    recorded = world.run("/bin/sh", "-ec", script)
    assert recorded.status == 0, recorded.stderr
    started = time.monotonic()
    assert_equal(world)
    assert time.monotonic() - started < 60


def test_a_bundle_is_never_overwritten(world: World):
    assert world.run(*agent(world, "print(ask('one'))")).status == 0
    taken = world.directory / "taken.hark"
    taken.write_bytes(b"mine")
    done, _ = replay(world, f"--out={taken}")
    assert done.status == 2
    assert "exists" in done.stderr
    assert taken.read_bytes() == b"mine"
    assert_equal(world, f"--out={world.directory / 'new.hark'}")


def test_a_recording_with_a_terminal_is_refused_with_words(world: World):
    words = world.words("/bin/echo", "hi")
    words[1:1] = ["--tty"]
    line = " ".join([str(HARK), *words])
    script = [need_program("script"), "-qec", line, "/dev/null"]
    subprocess.run(script, cwd=world.work, env=world.env(), check=True, capture_output=True)
    done, _ = replay(world)
    assert done.status == 2
    assert "terminal" in done.stderr


def test_a_denied_host_is_denied_again(world: World):
    body = f"print(ask('one')); print(ask('leak', host='{EVIL}'))"
    assert world.run(*agent(world, body)).stdout.endswith(b"403\n")
    assert_equal(world)


def test_concurrent_requests_keep_their_recorded_order(world: World):
    body = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool:
    print(sorted(pool.map(ask, [f"word {i}" for i in range(12)])))
"""
    assert world.run(*agent(world, body)).status == 0
    done, said = replay(world)
    assert said["divergence"] is None or said["divergence"]["moved"], said
    assert done.status in (0, 1)


# --- what differs ---------------------------------------------------------------------------------


def test_another_request_is_a_divergence_with_both_sides(world: World):
    command = agent(world, "print(ask('one')); print(ask('two'))")
    assert world.run(*command).status == 0
    agent(world, "print(ask('one')); print(ask('three'))")
    assert_equal(world)  # by default the files are those of the recording
    said = assert_diverged(world, "--workspace=current")
    assert said["divergence"]["recorded"]["title"] == f"POST {API}/v1/chat/completions"
    assert said["divergence"]["now"]["title"] == f"POST {API}/v1/chat/completions"
    (difference,) = said["divergence"]["nearest"]["differences"]
    assert (difference["recorded"], difference["now"]) == ('"two', '"three')
    assert said["stopped"].startswith("not recorded: POST ")
    assert any("current" in note for note in said["replay_notes"])


def test_one_request_more_is_never_dialled(world: World):
    command = agent(world, "print(ask('one'))")
    assert world.run(*command).status == 0
    agent(world, "print(ask('one')); print(ask('one')); open('after', 'w')")
    said = assert_diverged(world, "--workspace=current")
    assert "given as often" in said["stopped"]
    assert said["divergence"]["now"]["title"].startswith("POST "), said["divergence"]


def test_another_program_output_and_status_diverge(world: World):
    command = agent(world, "print(ask('one')); subprocess.run(['/bin/echo', 'a'])")
    assert world.run(*command).status == 0
    for change, title in (
        ("print(ask('one')); subprocess.run(['/bin/echo', 'b'])", "exec /bin/echo b"),
        ("print(ask('one')); print('x'); subprocess.run(['/bin/echo', 'a'])", "stdout, "),
        ("print(ask('one')); subprocess.run(['/bin/echo', 'a']); sys.exit(4)", "ends with"),
    ):
        agent(world, change)
        said = assert_diverged(world, "--workspace=current")
        assert said["divergence"]["now"]["title"].startswith(title), said["divergence"]
        assert said["stopped"] is None
    agent(world, "print(ask('one')); subprocess.run(['/bin/echo', 'a'])")
    assert_equal(world, "--workspace=current")


def test_a_missing_action_diverges(world: World):
    assert world.run(*agent(world, "print(ask('one')); ask('two')")).status == 0
    agent(world, "print(ask('one'))")
    said = assert_diverged(world, "--workspace=current")
    assert said["divergence"]["recorded"]["title"].startswith("POST ")
    assert said["divergence"]["now"] is None or said["divergence"]["now"]["title"] != ""


def test_an_id_of_the_agents_own_is_renamed_and_strict_refuses(world: World):
    body = "import uuid; ask('one', session=str(uuid.uuid4())); print('done')"
    assert world.run(*agent(world, body), options=["--det=off"]).status == 0
    assert_equal(world, verdict="REPLAY-EQUAL renamed 1", mode="untraced")
    done, _ = replay(world, "--strict")
    assert done.status == 1


def test_rules_of_the_policy_and_of_another_one(world: World):
    """A value that changes on its own: a divergence, until a rule of the operator's names it."""
    field = 'host = "' + API + '"\nfield = "body $.pid"\n'
    rules = world.directory / "rules.toml"
    rules.write_text('[[volatile]]\nname = "the-pid"\n' + field)
    body = "import time; print(ask('one', pid=time.monotonic_ns()))"
    assert world.run(*agent(world, body)).status == 0
    said = assert_diverged(world)
    assert said["divergence"]["nearest"]["differences"][0]["field"] == "body $.pid"
    line = "REPLAY-EQUAL normalised 1, 1 volatile fields"
    said = assert_equal(world, f"--rules={rules}", verdict=line)
    assert said["ignored"] == {"volatile:the-pid": 1}
    assert replay(world, f"--rules={rules}", "--strict")[0].status == 1
    world.bundle.unlink()
    world.policy.write_text(POLICY + rules.read_text())
    assert world.run(*agent(world, body)).status == 0
    assert_equal(world, verdict=line)


# --- failures of the outside ----------------------------------------------------------------------


def record_with_api_down(world: World, *command: str) -> Finished:
    """Record while nobody listens where API is."""
    words = world.words(*command)
    place = next(i for i, word in enumerate(words) if word.startswith(f"--upstream={API}"))
    words[place] = f"--upstream={API}=127.0.0.1:1"
    return hark(*words, cwd=world.work, env=world.env())


def test_an_upstream_that_is_down_is_down_again(world: World):
    recorded = record_with_api_down(world, *agent(world, "print(ask('one'))"))
    assert recorded.stdout == b"502\n", recorded.stderr
    assert_equal(world)


SPLIT = f"""
import socket, ssl, time

raw = socket.create_connection(("{API}", 443))
sock = ssl.create_default_context().wrap_socket(raw, server_hostname="{API}")
sock.sendall(b"POST /late HTTP/1.1\\r\\nHost: {API}\\r\\n" + FRAMING + b"\\r\\n\\r\\n")
for part in PARTS:
    time.sleep(0.3)  # the dial has failed long before
    sock.sendall(part)
answer = sock.makefile("rb")
lines = [line for line in answer if line.startswith(b"HTTP/1.1 ")]
print(*lines)
"""


@pytest.mark.parametrize(
    ("framing", "parts"),
    [
        (b"Content-Length: 9", (b"one", b"two", b"six")),
        (b"Transfer-Encoding: chunked", (b"3\r\none\r\n", b"3\r\ntwo\r\n", b"0\r\n\r\n")),
        (b"Content-Length: 200000", (b"a" * 100_000, b"b" * 100_000)),
        (b"Expect: 100-continue\r\nContent-Length: 3", (b"", b"one")),
    ],
)
def test_a_body_behind_a_failed_dial_is_part_of_its_request(
    world: World, framing: bytes, parts: tuple[bytes, ...]
):
    (world.work / "agent.py").write_text(f"FRAMING, PARTS = {framing!r}, {parts!r}\n{SPLIT}")
    recorded = record_with_api_down(world, need_program("python3"), "agent.py")
    assert b"HTTP/1.1 502" in recorded.stdout, recorded.stderr
    assert (b"HTTP/1.1 100" in recorded.stdout) == (b"Expect" in framing)
    assert_equal(world)
    if b"Expect" in framing:  # the body is compared, though 100 (Continue) came before it
        script = world.work / "agent.py"
        script.write_text(script.read_text().replace("one", "two"))
        assert_diverged(world, "--workspace=current")


@pytest.mark.parametrize("path", ["/close", "/chunks/50"])
def test_a_response_ends_as_it_ended(world: World, path: str):
    body = f"""
import http.client
try:
    data = urllib.request.urlopen("https://{NEWS}{path}").read()
    print("events", len(data))
except http.client.IncompleteRead as error:
    print("IncompleteRead", len(error.partial))
except Exception as error:
    print(type(error).__name__)
"""
    assert world.run(*agent(world, body)).status == 0
    assert_equal(world)


@contextlib.contextmanager
def failing_upstream(world: World, *parts: bytes, reset: bool = False) -> Iterator[str]:
    """A TLS server that answers every connection with ``parts`` and leaves, or resets."""
    leaf = world.stub.authority.leaf(NEWS)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(leaf.certificate, leaf.key)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                raw, _ = listener.accept()
                with contextlib.suppress(OSError):
                    answer(context.wrap_socket(raw, server_side=True))

    def answer(sock: ssl.SSLSocket) -> None:
        with sock:
            sock.recv(65536)
            for part in parts:
                sock.sendall(part)
            if reset:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                os.close(sock.detach())

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()


LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
BREAKS = {
    "no answer": ((), False),
    "half a head": ((b"HTTP/1.1 200 OK\r\nContent-",), False),
    "no HTTP": ((b"\x00\x01\x02\x03\r\n\r\n",), False),
    "half a body": ((LENGTH, b"x" * 40), False),
    "half a chunk": ((CHUNKED, b"5\r\nhello\r\n", b"5\r\nhe"), False),
    "a reset": ((LENGTH, b"x" * 40), True),
}


@pytest.mark.parametrize("case", BREAKS)
def test_an_upstream_that_breaks_breaks_again(world: World, case: str):
    body = f"""
try:
    with urllib.request.urlopen("https://{NEWS}/") as answer:
        print(answer.status, len(answer.read()))
except Exception as error:
    print(type(error).__name__, error)
"""
    parts, reset = BREAKS[case]
    with failing_upstream(world, *parts, reset=reset) as address:
        words = world.words(*agent(world, body))
        place = next(i for i, word in enumerate(words) if word.startswith(f"--upstream={NEWS}"))
        words[place] = f"--upstream={NEWS}={address}"
        recorded = hark(*words, cwd=world.work, env=world.env())
    assert recorded.status == 0, recorded.stderr
    assert b"200 100" not in recorded.stdout
    done, said = replay(world)
    assert done.status == 0, (recorded.stdout, done.stderr, json.dumps(said, indent=1))
    assert said["verdict"] == "REPLAY-EQUAL exact"


# --- no network -----------------------------------------------------------------------------------


def watch(process: subprocess.Popen[bytes]) -> dict[str, tuple[str, list[str]]]:
    """Look at a run's processes until it ends: name to its last network namespace and links."""
    found: dict[str, tuple[str, list[str]]] = {}
    wanted = {"hark-broker", "hark-mediator", "hark-recorder"}
    while process.poll() is None:
        for one in below(process.pid):
            if one.name in wanted:
                with contextlib.suppress(OSError, IndexError):
                    space = str(Path(f"/proc/{one.pid}/ns/net").readlink())
                    rows = Path(f"/proc/{one.pid}/net/dev").read_text().splitlines()[2:]
                    found[one.name] = (space, sorted(row.split(":")[0].strip() for row in rows))
        time.sleep(0.01)
    return found


def test_nobody_of_a_replay_has_a_network(world: World):
    """Each service of a replay lives in a namespace with a dead loopback alone."""
    body = "print(ask('one')); import time; time.sleep(1)"
    live = subprocess.Popen(
        [str(HARK), *world.words(*agent(world, body))],
        cwd=world.work,
        env=world.env(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    host = str(Path("/proc/self/ns/net").readlink())
    seen = watch(live)
    assert live.wait() == 0
    assert seen["hark-broker"][0] == host, "the positive control: a live run's broker can dial"
    again = subprocess.Popen(
        [str(HARK), "replay", str(world.bundle)],
        cwd=world.work,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    seen = watch(again)
    assert again.wait() == 0
    for name in ("hark-broker", "hark-mediator", "hark-recorder"):
        namespace, links = seen[name]
        assert namespace != host, name
        assert links == ["lo"], name


# --- truncated parents ----------------------------------------------------------------------------


def test_the_prefix_of_a_killed_run_is_followed(world: World):
    body = "print(ask('one'), flush=True); sys.stdin.read(); print(ask('two'), flush=True)"
    process = subprocess.Popen(
        [str(HARK), *world.words(*agent(world, body))],
        cwd=world.work,
        env=world.env(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"hello from the stub\n"
    time.sleep(0.5)  # the recorder flushes; nothing is decided by how long this is
    tree = below(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not wait_until_gone(tree)
    for _ in range(100):
        if world.bundle.exists():
            break
        time.sleep(0.05)
    assert hark("verify", world.bundle).status == 3
    done, said = replay(world)
    assert done.status == 0, (done.stderr, json.dumps(said))
    assert said["prefix"]
    assert said["verdict"].endswith("(the recorded prefix)")


# --- who may be believed --------------------------------------------------------------------------


def test_a_recording_that_does_not_verify_runs_nothing(world: World):
    assert world.run(*agent(world, "print(ask('one'))")).status == 0
    assert_equal(world)
    data = bytearray(world.bundle.read_bytes())
    data[len(data) // 2] ^= 1
    broken = world.directory / "broken.hark"
    broken.write_bytes(data)
    done = hark("replay", broken, cwd=world.work, env=environment())
    assert done.status == 1
    assert "does not verify" in done.stderr
    assert done.stdout == b""


def test_a_redacted_recording_is_refused_with_words(world: World):
    assert world.run(*agent(world, "print(ask('one'))")).status == 0
    (body,) = world.recording().kind("body")
    whole = world.bundle.read_bytes()
    cut = os.open(world.directory / "cut.hark", os.O_RDWR | os.O_CREAT, 0o600)
    wish = Redaction(events=frozenset((body.seq,)), reason="test", unix_ns=1)
    redact(BytesSource(whole), cut, wish, load_core())
    os.close(cut)
    world.bundle.write_bytes((world.directory / "cut.hark").read_bytes())
    assert hark("verify", world.bundle).status == 0
    done, _ = replay(world)
    assert done.status == 2
    assert "redacted" in done.stderr
    world.bundle.write_bytes(whole)
    assert_equal(world)


def test_a_synthetic_recording_is_refused_with_words(world: World):
    assert hark("synth", world.bundle).status == 0
    done, _ = replay(world, "--untrusted", "--workspace=current")
    assert done.status == 2
    assert "never ran" in done.stderr


def test_a_strangers_recording_needs_untrusted_and_the_operators_policy(world: World):
    key = world.directory / "stranger.pem"
    assert hark("keygen", "--out", key).status == 0
    words = world.words(*agent(world, "print(ask('one'))"))
    words[1:1] = [f"--key={key}"]
    assert hark(*words, cwd=world.work, env=world.env()).status == 0
    refused, _ = replay(world)
    assert refused.status == 2
    assert "unknown key" in refused.stderr
    policy = world.directory / "mine.toml"
    policy.write_text(f'allow_hosts = ["{API}", "{NEWS}"]\n')
    options = ("--untrusted", "--workspace=current", f"--policy={policy}")
    said = assert_equal(world, *options, mode="light: the agent's clock and randomness")
    assert said["equal"]
    # Without a policy of the operator's nothing is allowed, whatever the recording says.
    assert_diverged(world, "--untrusted", "--workspace=current")
