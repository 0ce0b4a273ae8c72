"""Services of the host under names of their own, and TCP to where nothing is allowed.

The witness is the service: a process outside of the run that logs what reached it. Each refusal has
its control in the same run: a forward that leads to that service.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from harness.recording import raw
from harness.running import DEADLINE_S, Finished, environment, hark
from harness.world import API, EVIL, World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.recording import Event

DB = "db.hark.internal"


class Service:
    """The process of tcp_service.py."""

    def __init__(self, log: Path) -> None:
        self.log = log
        log.touch()
        script = Path(__file__).with_name("tcp_service.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(log)], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def seen(self, count: int) -> list[tuple[str, int, str]]:
        """Return what it logged, once ``count`` connections have ended: it may lag behind."""
        end = time.monotonic() + DEADLINE_S
        while len(lines := self.log.read_text().splitlines()) < count:
            assert time.monotonic() < end, lines
            time.sleep(0.02)
        return [tuple(json.loads(line)) for line in lines]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def service(world: World) -> Iterator[Service]:
    made = Service(world.directory / "service.log")
    yield made
    made.close()


def run(world: World, policy: str, program: str) -> Finished:
    """Run a Python program inside; it must end well."""
    world.policy.write_text(policy)
    done = hark(
        "run",
        f"--policy={world.policy}",
        "-o",
        world.bundle,
        "--",
        "/usr/bin/python3",
        "-c",
        program,
        cwd=world.work,
        env=environment(),
    )
    assert done.status == 0, done.stderr
    return done


def database(service: Service, port: int = 15432) -> str:
    return f'[forward.db]\nto = "127.0.0.1:{service.port}"\nport = {port}\n'


CONNECT = f"""
import hashlib, os, socket, sys, threading
def service(word, port=15432):
    sock = socket.create_connection(("{DB}", port))
    sock.settimeout(60)
    file = sock.makefile("rb")
    greeting = file.readline()
    assert greeting == b"220 a service of the host\\n", greeting
    sock.sendall(word + b"\\n")
    return sock, file
"""


@pytest.mark.kernel
@pytest.mark.interop
def test_bytes_pass_as_they_are_both_ways_and_each_end_alone(world: World, service: Service):
    program = (
        CONNECT
        + """
sock, file = service(b"echo")
data = bytes(range(256)) * 20000
threading.Thread(target=lambda: (sock.sendall(data), sock.shutdown(socket.SHUT_WR))).start()
back = file.read()
print(back.startswith(data), back[len(data):].decode().strip())
sock, file = service(b"first")
print(file.read().decode().strip())
sock.sendall(b"more after your end")
"""
    )
    done = run(world, database(service), program)
    data = bytes(range(256)) * 20000
    assert done.text.splitlines() == [f"True {len(data)} bytes", "that is all"]
    more = b"more after your end"
    assert service.seen(2) == [
        ("echo", len(data), hashlib.sha256(data).hexdigest()),
        ("first", len(more), hashlib.sha256(more).hexdigest()),
    ]

    recording = world.recording()
    conns = recording.kind("conn")
    assert [(e["dport"], "tls" in e.fields) for e in conns] == [(15432, False)] * 2
    assert all(e.actor.digest for e in conns)
    dials = [(e["host"], e["status"], e["address"], e["port"]) for e in recording.kind("dial")]
    assert (
        dials
        == [
            (DB, "dialling", "127.0.0.1", service.port),
            (DB, "ok", "127.0.0.1", service.port),
        ]
        * 2
    )
    for conn, reached, closed in zip(
        conns, recording.kind("upstream"), recording.kind("conn_close"), strict=True
    ):
        assert reached["host"] == DB
        assert "exchange" not in reached.fields
        assert reached["conn"] == closed["conn"] == conn["conn"]
        assert closed["reason"] == "complete"
    greeting = len(b"220 a service of the host\n")
    counts = [(e["rx_bytes"], e["tx_bytes"]) for e in recording.kind("conn_close")]
    assert counts[0] == (len(b"echo\n") + len(data), greeting + len(data) + len(b"5120000 bytes\n"))
    assert counts[1] == (len(b"first\n") + len(more), greeting + len(b"that is all\n"))
    assert not recording.kind("request")
    assert not [e for e in recording.kind("denied") if e["layer"] != "seccomp"]
    assert hark("verify", world.bundle).status == 0


@pytest.mark.kernel
@pytest.mark.interop
def test_a_reader_that_waits_makes_the_writer_wait(world: World, service: Service):
    """The service reads only after another client has come and gone; nothing is lost meanwhile."""
    program = (
        CONNECT
        + """
sock, file = service(b"slow")
block = os.urandom(1 << 20)
writer = threading.Thread(target=lambda: ([sock.sendall(block) for _ in range(64)], sock.close()))
writer.start()
other, answer = service(b"echo")
other.shutdown(socket.SHUT_WR)
answer.read()
writer.join()
file.close()
print(hashlib.sha256(block * 64).hexdigest())
"""
    )
    done = run(world, database(service), program)
    slow = [entry for entry in service.seen(2) if entry[0] == "slow"]
    assert slow == [("slow", 64 << 20, done.text.strip())]


@pytest.mark.kernel
@pytest.mark.interop
def test_a_reset_of_the_service_ends_the_connection(world: World, service: Service):
    program = (
        CONNECT
        + """
sock, file = service(b"reset")
sock.sendall(b"x")
try:
    print("end", file.read())
except ConnectionResetError:
    print("end b''")
"""
    )
    assert run(world, database(service), program).text.strip() == "end b''"
    (closed,) = world.recording().kind("conn_close")
    assert closed["reason"] == "upstream_closed"


@pytest.mark.kernel
@pytest.mark.interop
def test_a_service_that_is_not_there(world: World, service: Service):
    service.close()
    program = f"""
import socket
sock = socket.create_connection(("{DB}", 15432))
sock.settimeout(60)
print(sock.recv(10))
"""
    assert run(world, database(service), program).text.strip() == "b''"
    (denied,) = [e for e in world.recording().kind("denied") if e["layer"] == "mediator"]
    assert (denied["reason"], denied["host"], denied["policy"]) == ("dial_connect", DB, False)


@pytest.mark.kernel
@pytest.mark.interop
def test_a_model_of_the_host_is_recorded_as_http(world: World):
    heads: list[str] = []

    class Model(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heads.append(self.headers["Host"])
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = json.dumps({"echo": body.decode()}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]
    program = f"""
import urllib.request
for url in ("http://model.hark.internal:{port}/api/chat", "http://model.hark.internal:22/"):
    try:
        print(urllib.request.urlopen(url, b"hi").read().decode())
    except urllib.error.HTTPError as error:
        print(error.code)
"""
    policy = f'[forward.model]\nto = "127.0.0.1:{port}"\nhttp = true\n'
    done = run(world, policy, "import urllib.error\n" + program)
    server.shutdown()
    assert done.text.splitlines() == ['{"echo": "hi"}', "403"]
    assert heads == [f"model.hark.internal:{port}"]
    recording = world.recording()
    good, bad = recording.exchanges()
    assert good.request_body == b"hi"
    assert json.loads(good.response_body) == {"echo": "hi"}
    assert [e["reason"] for e in bad.denied] == ["plain_http_denied"]
    assert good.request.actor.digest


# --- TCP to where nothing is allowed --------------------------------------------------------------

TRY = f"""
import socket, ssl
def attempt(host, port, say=None):
    sock = socket.create_connection((host, port))
    sock.settimeout(60)
    if say is not None:
        sock.sendall(say)
        print(sock.recv(12))
    return sock
with attempt("{DB}", 15432) as control:
    print(control.recv(3))
attempt("scanned.example", 22).close()
attempt("{API}", 5432).close()
attempt("ssh.example", 22, b"SSH-2.0-x\\r\\n").close()
print(attempt("smtp.example", 587).recv(10))
context = ssl.create_default_context()
context.wrap_socket(attempt("{EVIL}", 443), server_hostname="{EVIL}").close()
attempt("192.0.2.7", 6379).close()
"""


@pytest.mark.kernel
@pytest.mark.interop
def test_every_attempt_is_a_denial_with_port_and_host(world: World, service: Service):
    done = run(world, f'allow_hosts = ["{API}"]\n{database(service)}', TRY)
    control, ssh, smtp = done.text.splitlines()
    assert (control, ssh, smtp) == ("b'220'", "b'HTTP/1.1 403'", "b''")
    assert not world.stub.connections()

    recording = world.recording()
    found = {
        (host_of(e), e["dport"]): e for e in recording.kind("denied") if e["layer"] != "seccomp"
    }
    assert {key: e["reason"] for key, e in found.items()} == {
        ("scanned.example", 22): "tcp_denied",
        (API, 5432): "port_denied",
        ("ssh.example", 22): "tcp_denied",
        ("smtp.example", 587): "tcp_denied",
        (EVIL, 443): "host_denied",
        ("", 6379): "tcp_denied",
    }
    for event in found.values():
        assert event["policy"] is True
        assert event["proto"] == 6
        assert event["dst"]
        assert event.actor.digest
    assert "[forward]" in found["smtp.example", 587]["hint"]
    assert "tcp denied smtp.example" in done.stderr
    assert {e["host"] for e in recording.kind("dial")} == {DB}


def host_of(event: Event) -> str:
    return raw(event.fields.get("host", "")).decode()


@pytest.mark.kernel
@pytest.mark.interop
def test_a_replay_says_that_a_connection_without_http_is_not_replayed(
    world: World, service: Service
):
    program = CONNECT + 'service(b"echo")[0].close()\n'
    run(world, database(service), program)
    before = service.seen(1)
    done = hark("replay", world.bundle, cwd=world.work)
    assert done.status == 1, done.text
    assert "not_replayed" in done.text + done.stderr
    assert service.seen(1) == before == [("echo", 0, hashlib.sha256().hexdigest())]
