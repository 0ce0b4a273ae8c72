"""The process: its cage, its ends, and what a recorder that stops reading does to it."""

from __future__ import annotations

import contextlib
import mmap
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

from hark.errors import HarkError, LaunchError
from hark.locations import libexec
from hark.mediator.config import Credential, HostEntry, MediatorConfig, PortMode
from hark.mediator.process import MediatorProcess
from hark.mediator.records import ConnClose, ExchangeEnd, RequestBody, RequestHead
from hark.policy import control

from .rig import HOST, REAL, Broker, read_all, read_exactly, read_head, scripted

if TYPE_CHECKING:
    from collections.abc import Callable

    from .rig import Rig

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
GET = b"GET / HTTP/1.1\r\nHost: " + HOST.encode() + b"\r\n\r\n"
NOBODY = 65534


def status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def wait_until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


needs_cage = pytest.mark.skipif(
    "HARK_TEST_MEDIATOR" in os.environ, reason="the sanitizer build has no cage"
)


@needs_cage
def test_cage(rig: Callable[..., Rig]):
    one = rig(scripted(OK))
    with one.tls() as sock:
        sock.sendall(GET)
        read_exactly(sock, 2, read_head(sock)[1])
    now = status(one.mediator.pid)
    assert now["Seccomp"] == "2"
    assert now["NoNewPrivs"] == "1"
    limits = Path(f"/proc/{one.mediator.pid}/limits").read_text()
    assert "Max core file size        0                    0" in limits
    owner = Path(f"/proc/{one.mediator.pid}/environ").stat()
    assert owner.st_uid == 0  # not dumpable: /proc belongs to root whatever the ids are
    assert os.getpgid(one.mediator.pid) == one.mediator.pid


@needs_cage
def test_ids_and_capabilities_are_dropped():
    broker = Broker()
    config = MediatorConfig(hosts=(), ids=(NOBODY, NOBODY))
    mediator = MediatorProcess(config, broker.theirs)
    try:
        mediator.ca_pem()
        wait_until(lambda: status(mediator.pid)["Seccomp"] == "2")
        now = status(mediator.pid)
        assert now["Uid"].split() == [str(NOBODY)] * 4
        assert now["Gid"].split() == [str(NOBODY)] * 4
        assert not now["Groups"].split()
        assert {int(now[c], 16) for c in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}
        held = list(Path(f"/proc/{mediator.pid}/fd").iterdir())
        assert len(held) == 9  # three standard ones, five of ours (the table is closed), epoll
    finally:
        mediator.close()
        broker.close()


def test_table_is_closed_and_environment_empty(rig: Callable[..., Rig]):
    one = rig(scripted(OK))
    links = [str(fd.readlink()) for fd in Path(f"/proc/{one.mediator.pid}/fd").iterdir()]
    assert not [link for link in links if "hark-mediator-table" in link]
    assert Path(f"/proc/{one.mediator.pid}/environ").read_bytes() == b""


@pytest.mark.parametrize("end", ["recorder", "broker"])
def test_it_ends_with_its_peers(rig: Callable[..., Rig], end: str):
    """And takes the agent's connections with it, so that nothing goes on unrecorded."""
    one = rig(scripted(OK, OK))
    sock = one.tls()
    sock.sendall(GET)
    read_exactly(sock, 2, read_head(sock)[1])
    if end == "recorder":
        one.recorder.stop()
        one.mediator.control.sock.shutdown(socket.SHUT_RDWR)
    else:
        one.broker.close()
    assert one.mediator.wait(10) == 1
    with contextlib.suppress(OSError):
        assert sock.recv(1) == b""


def test_killed_mediator_ends_connections(rig: Callable[..., Rig]):
    one = rig(scripted(OK, OK))
    sock = one.tls()
    sock.sendall(GET)
    read_exactly(sock, 2, read_head(sock)[1])
    pidfd = one.mediator.pidfd()
    os.kill(one.mediator.pid, signal.SIGKILL)
    assert one.mediator.wait(10) == -signal.SIGKILL
    os.close(pidfd)
    with contextlib.suppress(OSError):
        assert sock.recv(1) == b""
    assert one.recorder.wait(ExchangeEnd)  # what it had put in the ring is still there


def test_stop_takes_in_what_is_there(rig: Callable[..., Rig]):
    """A client that wrote and died at once is still recorded."""
    one = rig(read_all)
    sock = one.tls()
    sock.sendall(GET.replace(b"GET", b"POST")[:-2] + b"Content-Length: 1000\r\n\r\nlast words")
    late = one.tls()
    one.mediator.stop()
    one.mediator.control.expect(control.Plain, 10)
    wait_until(lambda: len(one.recorder.of(ConnClose)) == 2)
    body = b"".join(r.data for r in one.recorder.of(RequestBody))
    assert body == b"last words"
    assert one.recorder.of(ExchangeEnd)[0].reason == "stopped"
    assert {r.reason for r in one.recorder.of(ConnClose)} == {"stopped"}
    one.mediator.control.close()
    assert one.mediator.wait(10) == 0
    late.close()


@pytest.mark.parametrize(
    ("name", "reason"),
    [("Upper.test", "not normal"), ("10.0.0.1", "not normal"), ("a..b", "not normal")],
)
def test_bad_tables_are_refused(name: str, reason: str, capfd: pytest.CaptureFixture[str]):
    broker = Broker()
    host = HostEntry(index=0, name=name, ports=((443, PortMode.TLS),))
    mediator = MediatorProcess(MediatorConfig(hosts=(host,)), broker.theirs)
    with pytest.raises(HarkError):
        mediator.ca_pem()
    assert mediator.wait(10) == 125
    assert reason in capfd.readouterr().err
    mediator.close()
    broker.close()


@pytest.mark.parametrize("real", [b"with\nline", b"short", b"tab\tinside it"])
def test_bad_credentials_are_refused_and_not_shown(real: bytes, capfd: pytest.CaptureFixture[str]):
    broker = Broker()
    host = HostEntry(index=0, name=HOST, ports=((443, PortMode.TLS),))
    credential = Credential(
        secret=0, placeholder="hark-placeholder-x", real=real, headers=("a",), hosts=(0,)
    )
    config = MediatorConfig(hosts=(host,), credentials=(credential,))
    assert repr(real) not in repr(config)
    mediator = MediatorProcess(config, broker.theirs)
    with pytest.raises(LaunchError):
        mediator.ca_pem()
    shown = capfd.readouterr().err
    assert "credential" in shown
    assert real.decode() not in shown
    mediator.close()
    broker.close()


def test_missing_program():
    broker = Broker()
    with pytest.raises(LaunchError):
        MediatorProcess(MediatorConfig(hosts=()), broker.theirs, program=Path("/nonexistent"))
    broker.close()


def test_started_by_hand():
    done = subprocess.run([libexec("hark-mediator")], capture_output=True, check=False, timeout=10)
    assert done.returncode == 125
    assert b"descriptors" in done.stderr


def test_recorder_that_stops_reading_stops_the_agent(rig: Callable[..., Rig]):
    """Back-pressure: nothing is dropped, the sender waits, and all goes on afterwards."""
    total = 40_000_000
    received = [0]

    def serve(sock: socket.socket) -> None:
        received[0] = len(read_head(sock)[1])
        while received[0] < total and (data := sock.recv(65536)):
            received[0] += len(data)
        sock.sendall(OK)
        read_all(sock)

    one = rig(serve, credentials=False)
    sock = one.tls()
    one.recorder.draining = False
    sent = [0]
    piece = os.urandom(100_000)

    def send() -> None:
        sock.sendall(GET.replace(b"GET", b"POST")[:-2] + b"Content-Length: %d\r\n\r\n" % total)
        while sent[0] < total:
            sock.sendall(piece)
            sent[0] += len(piece)

    sock.settimeout(60)
    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    before = -1
    while before != received[0]:  # until nothing arrives any more
        before = received[0]
        time.sleep(0.5)
    assert 0 < received[0] < 17_000_000  # no more than the ring holds
    one.recorder.draining = True
    sender.join(60)
    assert not sender.is_alive()
    assert read_head(sock)[0].startswith(b"HTTP/1.1 200")
    assert received[0] == total
    end = one.recorder.wait(ExchangeEnd)[0]
    assert end.request_bytes == total
    body = b"".join(r.data for r in one.recorder.of(RequestBody))
    assert body == piece * (total // len(piece))


def test_stalled_mediator_still_ends_with_its_recorder(rig: Callable[..., Rig]):
    one = rig(read_all, credentials=False)
    sock = one.tls()
    one.recorder.draining = False

    def send() -> None:
        with contextlib.suppress(OSError):
            sock.sendall(GET.replace(b"GET", b"POST")[:-2] + b"Content-Length: 99999999\r\n\r\n")
            sock.sendall(bytes(99_999_999))

    threading.Thread(target=send, daemon=True).start()
    time.sleep(0.5)
    one.recorder.stop()
    one.mediator.control.sock.shutdown(socket.SHUT_RDWR)
    assert one.mediator.wait(10) == 1


@needs_cage  # memory is another one under sanitizers
def test_one_slow_client_does_not_stop_others(rig: Callable[..., Rig]):
    """A client that does not read its response holds no more than its own queue."""

    def serve(sock: socket.socket) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                head, _ = read_head(sock)
                if b"/slow" in head:
                    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 50000000\r\n\r\n")
                    sock.sendall(bytes(50_000_000))
                else:
                    sock.sendall(OK)

    one = rig(serve, credentials=False)
    slow = one.tls()
    slow.sendall(GET.replace(b" / ", b" /slow "))
    read_head(slow)
    for _ in range(20):
        with one.tls() as sock:
            sock.sendall(GET)
            assert read_exactly(sock, 2, read_head(sock)[1])[0] == b"ok"
    memory = int(status(one.mediator.pid)["VmRSS"].split()[0])
    assert memory < 80_000  # KiB, of which the ring is 16,384
    assert len(one.recorder.wait(RequestHead, 21)) == 21


def test_data_left_inside_openssl_is_not_forgotten(rig: Callable[..., Rig]):
    """Read-ahead keeps records in OpenSSL that epoll never reports; a pause must not lose them."""
    total = 8_000_000

    def serve(sock: socket.socket) -> None:
        read_head(sock)
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total)
        sock.sendall(bytes(total))
        read_all(sock)

    one = rig(serve, credentials=False)
    sock = one.tls()
    sock.sendall(GET)
    _, rest = read_head(sock)
    got = len(rest)
    while got < total:
        time.sleep(0.001)  # slower than the server: the queue fills and drains over and over
        data = sock.recv(200_000)
        assert data
        got += len(data)
    assert got == total


def test_consumer_that_breaks_the_ring_ends_it(
    rig: Callable[..., Rig], capfd: pytest.CaptureFixture[str]
):
    one = rig(scripted(OK))
    one.recorder.stop()
    with mmap.mmap(one.mediator.ring._memory.memfd, 4096) as page:
        struct.pack_into("=Q", page, 128, 2**40)
    one.connect()
    assert one.mediator.wait(10) == 1
    assert "ring" in capfd.readouterr().err


def test_credentials_are_not_in_the_arguments(rig: Callable[..., Rig]):
    one = rig(scripted(OK))
    assert REAL not in Path(f"/proc/{one.mediator.pid}/cmdline").read_bytes()
