"""`--publish`: the agent's own server, reached from the host's loopback and from nowhere else.

The witness is the client, a socket of this process outside of the run. Tests wait for what must
come; how long that takes decides nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from harness.processes import below
from harness.recording import Recording, raw
from harness.running import DEADLINE_S, HARK, environment, hark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.world import World

pytestmark = [pytest.mark.kernel, pytest.mark.interop]

SERVER = """
import hashlib, socket, sys
held = []
listener = socket.create_server((sys.argv[1], 8000), family=int(sys.argv[2]))
def lines():
    while True:
        sock, peer = listener.accept()
        file = sock.makefile("rwb")
        yield sock, file, file.readline().strip()
for sock, file, word in lines():
    if word == b"hello":
        file.write(b"hello from inside\\n")
    elif word == b"echo":
        file.write(file.read())
    elif word == b"early":
        file.write(b"early\\n")
        file.flush()
        sock.shutdown(socket.SHUT_WR)
        print(len(file.read()), flush=True)
    elif word == b"hold":
        file.read()
        held.append(sock)
        continue
    elif word == b"slow":
        held.append((sock, file))
        continue
    elif word == b"go":
        print(hashlib.sha256(held[-1][1].read()).hexdigest(), flush=True)
    elif word == b"quit":
        break
    file.close()
    sock.close()
"""


class Running:
    """A run that publishes port 8000 of its agent."""

    def __init__(self, world: World, *agent: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.world = world
        world.policy.write_text("")
        words = ["run", f"--policy={world.policy}", "-o", str(world.bundle)]
        words += [f"--publish={self.port}:8000", "--", "/usr/bin/python3", *agent]
        self.process = subprocess.Popen(
            [HARK, *words],
            cwd=world.work,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def connect(self, word: bytes, address: str = "127.0.0.1") -> socket.socket:
        """Connect until the agent's server answers: before it listens, the connection just ends."""
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            assert self.process.poll() is None, self.process.communicate()
            with contextlib.suppress(ConnectionError):
                sock = socket.create_connection((address, self.port), timeout=DEADLINE_S)
                sock.sendall(word + b"\n")
                return sock
            time.sleep(0.02)
        raise AssertionError("the port was never published")

    def wait_ready(self) -> None:
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            with contextlib.suppress(OSError), self.connect(b"hello") as sock:
                if read_all(sock) == b"hello from inside\n":
                    return
            time.sleep(0.02)
        raise AssertionError("the agent's server never answered")

    def finish(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, out, err


def read_all(sock: socket.socket) -> bytes:
    data = b""
    while more := sock.recv(65536):
        data += more
    return data


@pytest.fixture
def running(world: World) -> Iterator[Callable[..., Running]]:
    made: list[Running] = []

    def start(*agent: str) -> Running:
        made.append(Running(world, *agent))
        return made[-1]

    yield start
    for one in made:
        if one.process.poll() is None:
            one.process.send_signal(signal.SIGTERM)
            one.process.communicate()


def inbound(recording: Recording) -> list[tuple[dict[str, object], dict[str, object]]]:
    """Pair each published connection with its end."""
    ends = {e["conn"]: e.fields for e in recording.kind("conn_close")}
    return [(e.fields, ends[e["conn"]]) for e in recording.kind("conn") if "published" in e.fields]


@pytest.mark.parametrize(("address", "family"), [("127.0.0.1", "2"), ("", "2"), ("::1", "10")])
def test_the_agents_server_answers_on_the_hosts_loopback(
    running: Callable[..., Running], address: str, family: str
) -> None:
    run = running("-c", SERVER, address, family)
    run.wait_ready()
    data = os.urandom(3 << 20)
    with run.connect(b"echo") as sock:
        sock.sendall(data[: 1 << 20])
        sock.sendall(data[1 << 20 :])
        sock.shutdown(socket.SHUT_WR)
        assert hashlib.sha256(read_all(sock)).digest() == hashlib.sha256(data).digest()
    with run.connect(b"early") as sock:
        assert read_all(sock) == b"early\n"
        sock.sendall(b"x" * 1000)  # after the server's own end
    run.connect(b"quit").close()
    status, out, err = run.finish()
    assert (status, out) == (0, "1000\n"), err

    recording = Recording.read(run.world.bundle)
    pairs = inbound(recording)
    for conn, _ in pairs:
        assert (conn["published"], conn["dport"], conn["src"]) == (run.port, 8000, "127.0.0.1")
        assert conn["dst"] == "127.0.0.1"
        assert "actor" not in conn
    ended = [(c["reason"], c["tx_bytes"], c["rx_bytes"]) for _, c in pairs]
    assert ended[0][0] in ("complete", "dial_connect")
    assert ("complete", len(b"echo\n") + len(data), len(data)) in ended
    assert ("complete", len(b"early\n") + 1000, len(b"early\n")) in ended
    (start,) = recording.kind("run_start")
    assert start["published"] == [[run.port, 8000]]
    assert hark("verify", run.world.bundle).status == 0


def test_a_client_that_resets_while_it_waits_is_let_go(running: Callable[..., Running]) -> None:
    """It has ended its side, so nothing is read from it: the reset is an error and no input."""
    run = running("-c", SERVER, "127.0.0.1", "2")
    run.wait_ready()
    sock = run.connect(b"hold")
    sock.shutdown(socket.SHUT_WR)
    with run.connect(b"hello") as other:  # served after the first one's end was read
        assert read_all(other) == b"hello from inside\n"
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
    with run.connect(b"hello") as other:
        assert read_all(other) == b"hello from inside\n"
    run.connect(b"quit").close()
    assert run.finish()[0] == 0
    held = [c for _, c in inbound(Recording.read(run.world.bundle)) if c["tx_bytes"] == 5]
    assert held
    assert held[0]["reason"] == "client_gone"


def test_a_server_that_waits_makes_the_client_wait(running: Callable[..., Running]) -> None:
    """The server reads only after another client said so; all of it is there then."""
    run = running("-c", SERVER, "127.0.0.1", "2")
    run.wait_ready()
    data = os.urandom(1 << 20) * 32
    with run.connect(b"slow") as sock:

        def send() -> None:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        with run.connect(b"go") as other:
            assert read_all(other) == b""
        sender.join()
    run.connect(b"quit").close()
    status, out, err = run.finish()
    assert (status, out.strip()) == (0, hashlib.sha256(data).hexdigest()), err


def test_only_loopback_leads_there(running: Callable[..., Running]) -> None:
    run = running("-c", SERVER, "127.0.0.1", "2")
    run.wait_ready()
    where = [
        line.split()[1]
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
        if line.split()[1].endswith(f":{run.port:04X}") and line.split()[3] == "0A"
    ]
    assert sorted(where) == sorted(
        [f"0100007F:{run.port:04X}", f"{'0' * 24}01000000:{run.port:04X}"][: len(where)]
    )
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", run.port), timeout=DEADLINE_S)
    run.connect(b"quit").close()
    assert run.finish()[0] == 0


def test_a_port_that_the_agent_does_not_serve(running: Callable[..., Running]) -> None:
    run = running("-c", "import signal; signal.pause()")
    with run.connect(b"hello") as sock, contextlib.suppress(ConnectionResetError):
        assert read_all(sock) == b""
    run.process.send_signal(signal.SIGTERM)
    run.finish()
    (pair,) = inbound(Recording.read(run.world.bundle))
    assert (pair[1]["reason"], pair[1]["tx_bytes"]) == ("dial_connect", 0)


def test_the_agent_reaches_no_host_by_it(running: Callable[..., Running]) -> None:
    """What the agent sees is a client on its own loopback; the way back leads nowhere."""
    with socket.create_server(("127.0.0.1", 0)) as secret:
        code = (
            "import socket\n"
            "s = socket.create_server(('127.0.0.1', 8000))\n"
            "c, peer = s.accept()\n"
            "print(peer[0], c.getsockname()[0])\n"
            f"for port in ({secret.getsockname()[1]}, peer[1]):\n"
            "    try: socket.create_connection(('127.0.0.1', port)); print('open')\n"
            "    except ConnectionRefusedError: print('refused')\n"
        )
        run = running("-c", code)
        while run.process.poll() is None:
            with contextlib.suppress(OSError, AssertionError), run.connect(b"x") as sock:
                sock.recv(1)
        status, out, err = run.finish()
        assert (status, out.split()) == (0, ["127.0.0.1", "127.0.0.1", "refused", "refused"]), err
        secret.setblocking(False)
        with pytest.raises(BlockingIOError):
            secret.accept()


def test_killing_the_publisher_ends_the_run(running: Callable[..., Running]) -> None:
    run = running("-c", SERVER, "127.0.0.1", "2")
    run.wait_ready()
    (publisher,) = [p for p in below(run.process.pid) if p.name == "hark-publisher"]
    status = Path(f"/proc/{publisher.pid}/status").read_text()
    assert "CapEff:\t0000000000000000\n" in status
    assert "NoNewPrivs:\t1\n" in status
    publisher.kill()
    code, _, err = run.finish()
    assert code == 125
    assert "the publisher died" in err
    (end,) = Recording.read(run.world.bundle).kind("run_end")
    assert raw(end["reason"]).decode() == "publisher-died"


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("--publish=x", "not [HOST_PORT:]PORT"),
        ("--publish=80", "1024 to 65535"),
        ("--publish=8080:70000", "no such port"),
        ("--publish=0", "no such port"),
    ],
)
def test_what_is_no_port(world: World, option: str, says: str) -> None:
    done = hark("run", option, "-o", world.bundle, "--", "/bin/true", cwd=world.work)
    assert done.status not in (0, 1)
    assert says in done.stderr


def test_a_port_in_use_is_told_before_anything_begins(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        word = f"--publish={port}:8000"
        done = hark("run", word, "-o", world.bundle, "--", "/bin/true", cwd=world.work)
    assert done.status != 0
    assert f"port {port} of this host cannot be published" in done.stderr
    assert not world.bundle.exists()


def test_dry_run_says_what_is_published(world: World) -> None:
    done = hark("run", "--publish=18080:80", "--dry-run", "--", "/bin/true", cwd=world.work)
    assert "port 80 of the agent is reached at 127.0.0.1:18080" in done.text, done.stderr
