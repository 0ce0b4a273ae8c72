"""The real mediator between a scripted upstream and real clients, on loopback.

Rules. Nothing of the mediator is replaced: the rig plays the processes around it. The broker dials
what it is told per host, the recorder drains the ring and, unless a test stops it, reports every
record as durable. A listener on 127.0.0.1 stands for TPROXY's: the address dialled is the socket's
own name in both cases.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import ssl
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from hark.mediator.config import Credential, HostEntry, Limit, MediatorConfig, PortMode
from hark.mediator.process import MediatorProcess
from hark.policy import control
from hark.policy.control import Channel, DialStatus, PeerClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stub.authority import Authority

    from hark.mediator.records import MediatorRecord

__all__ = [
    "DENIED",
    "HOST",
    "OTHER",
    "PLACEHOLDER",
    "REAL",
    "Broker",
    "Recorder",
    "Rig",
    "Upstream",
    "length_of",
    "read_all",
    "read_exactly",
    "read_head",
    "scripted",
]

HOST = "api.stub.test"
OTHER = "other.stub.test"
DENIED = "evil.example"
PLACEHOLDER = "hark-placeholder-0123456789abcdef"
REAL = b"sk-real-credential-9876543210-zyxw"
WAIT_S = 10.0  # ends a hang; no test's result depends on it

R = TypeVar("R")


class Upstream:
    """A TLS (or plain) server that runs ``serve`` for each connection, in a thread of its own."""

    def __init__(
        self,
        serve: Callable[[socket.socket], None],
        context: ssl.SSLContext | None,
    ) -> None:
        self.connections = 0
        self.errors: list[Exception] = []
        self._serve = serve
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._one, args=(sock,), daemon=True).start()

    def _one(self, sock: socket.socket) -> None:
        sock.settimeout(WAIT_S)
        try:
            if self._context:
                sock = self._context.wrap_socket(sock, server_side=True)
            self._serve(sock)
        except Exception as error:  # noqa: BLE001 - shown by the test that expected otherwise
            self.errors.append(error)
        finally:
            with contextlib.suppress(OSError):
                if isinstance(sock, ssl.SSLSocket):
                    sock.unwrap()
            sock.close()

    def close(self) -> None:
        self._listener.close()


class Broker:
    """Answers DIAL per host index with a socket to an address, or with a status."""

    def __init__(self) -> None:
        ours, self.theirs = control.socket_pair()
        self.channel = Channel(ours)
        self.answers: dict[int, tuple[str, int] | DialStatus] = {}
        self.dials: list[control.Dial] = []
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with contextlib.suppress(PeerClosed, OSError):
            while True:
                got = self.channel.recv(None)
                if got and isinstance(got.msg, control.Dial):
                    self._dial(got.msg, got.ident)

    def _dial(self, dial: control.Dial, ident: int) -> None:
        self.dials.append(dial)
        answer = self.answers.get(dial.host, DialStatus.DENIED)
        if isinstance(answer, DialStatus):
            self.channel.send(control.Dialed(answer, 0, 0, 0, bytes(16)), ident=ident)
            return
        with socket.create_connection(answer) as sock:
            addr = socket.inet_aton(answer[0]) + bytes(12)
            reply = control.Dialed(DialStatus.OK, 0, socket.AF_INET, answer[1], addr)
            self.channel.send(reply, ident=ident, fds=[sock.fileno()])

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.channel.sock.shutdown(socket.SHUT_RDWR)


class Recorder:
    """Drains the ring in a thread and reports records as durable."""

    def __init__(self, mediator: MediatorProcess) -> None:
        self.mediator = mediator
        self.records: list[MediatorRecord] = []
        self.raw = bytearray()
        self.error: Exception | None = None
        self.durable = True
        self.draining = True
        self._changed = threading.Condition()
        self._end = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        told = 0
        try:
            while not self._end:
                got = self.mediator.ring.poll() if self.draining else []
                with self._changed:
                    self.records += got
                    self._changed.notify_all()
                below = self.mediator.ring.next_seq
                if self.durable and below > told:
                    told = below
                    self.mediator.durable(below)
                if not got:
                    time.sleep(0.001)
        except Exception as error:  # noqa: BLE001 - shown by wait()
            with self._changed:
                self.error = error
                self._changed.notify_all()

    def of(self, kind: type[R]) -> list[R]:
        with self._changed:
            return [r for r in self.records if isinstance(r, kind)]

    def wait(
        self, kind: type[R], n: int = 1, where: Callable[[R], bool] = lambda _: True
    ) -> list[R]:
        """At least ``n`` records of a kind."""
        end = time.monotonic() + WAIT_S
        with self._changed:
            while True:
                found = [r for r in self.records if isinstance(r, kind) and where(r)]
                if len(found) >= n:
                    return found
                assert self.error is None, self.error
                left = end - time.monotonic()
                assert left > 0, f"no {kind.__name__}; got {[*deque(self.records, 30)]}"
                self._changed.wait(left)

    def stop(self) -> None:
        self._end = True
        self._thread.join(WAIT_S)


class SharedMediator(MediatorProcess):
    """A mediator that the recorder's thread and the test may both write to.

    A control socket numbers its messages, so it has one sender at a time.
    """

    _sending = threading.Lock()

    def durable(self, below: int) -> None:
        with self._sending:
            super().durable(below)

    def stop(self) -> None:
        with self._sending:
            super().stop()


def chosen_program() -> Path | None:
    """Another build of the mediator, from HARK_TEST_MEDIATOR; the built one by default."""
    name = os.environ.get("HARK_TEST_MEDIATOR")
    return Path(name) if name else None


@dataclass
class Rig:
    """Everything around one mediator. ``port`` is what clients dial."""

    authority: Authority
    serve: Callable[[socket.socket], None]
    directory: Path
    limits: Mapping[Limit, int] = field(default_factory=dict)
    credentials: bool = True
    bindings: tuple[Credential, ...] = ()  # instead of the usual one
    real: bytes = REAL
    mode: PortMode = PortMode.TLS
    server: ssl.SSLContext | None = None
    program: Path | None = field(default_factory=chosen_program)
    play: bool = False  # a replay's mediator: the test sends PLAY

    def __enter__(self) -> Self:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self.listener.getsockname()[1]
        if self.server is None and self.mode is not PortMode.PLAIN:
            leaf = self.authority.leaf(HOST)
            self.server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self.server.load_cert_chain(leaf.certificate, leaf.key)
        self.upstream = Upstream(self.serve, self.server)
        self.broker = Broker()
        self.broker.answers = {0: self.upstream.address, 1: self.upstream.address}
        self.mediator = SharedMediator(self._config(), self.broker.theirs, program=self.program)
        self.broker.theirs.close()
        self.ca = self.directory / "run-ca.pem"
        self.ca.write_bytes(self.mediator.ca_pem())
        self.recorder = Recorder(self.mediator)
        self.mediator.listen([self.listener])
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.close()
        self.recorder.stop()
        self.mediator.close()
        # Not a signal of its cage (SIGSYS), a crash, or a sanitizer's finding.
        assert self.mediator.wait(0) in {0, 1, -signal.SIGKILL}, self.mediator.wait(0)
        self.broker.close()
        self.upstream.close()

    def _config(self) -> MediatorConfig:
        pem = self.authority.ca_file.read_text()
        ports = ((self.port, self.mode),)
        credential = Credential(
            secret=7,
            placeholder=PLACEHOLDER,
            real=self.real,
            headers=("authorization", "x-api-key"),
            hosts=(0,),
        )
        return MediatorConfig(
            hosts=(
                HostEntry(index=0, name=HOST, ports=ports, ca_pem=pem),
                HostEntry(index=1, name=OTHER, ports=ports, ca_pem=pem),
            ),
            credentials=(self.bindings or (credential,)) if self.credentials else (),
            limits=self.limits,
            play=self.play,
        )

    # --- clients ---

    def connect(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.port))
        sock.settimeout(WAIT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def tls(self, name: str = HOST) -> ssl.SSLSocket:
        """A client's connection, trusting the run's CA only."""
        context = ssl.create_default_context(cafile=str(self.ca))
        return context.wrap_socket(self.connect(), server_hostname=name)


def read_head(sock: socket.socket, data: bytes = b"") -> tuple[bytes, bytes]:
    """One head with its empty line, and what came after it."""
    while b"\r\n\r\n" not in data:
        more = sock.recv(65536)
        if not more:
            raise EOFError(data)
        data += more
    head, rest = data.split(b"\r\n\r\n", 1)
    return head + b"\r\n\r\n", rest


def read_exactly(sock: socket.socket, n: int, data: bytes = b"") -> tuple[bytes, bytes]:
    """``n`` bytes, and what came after them."""
    while len(data) < n:
        more = sock.recv(65536)
        if not more:
            raise EOFError(data)
        data += more
    return data[:n], data[n:]


def read_all(sock: socket.socket) -> bytes:
    """Everything until the peer closes, cleanly or not."""
    data = b""
    with contextlib.suppress(ConnectionResetError, ssl.SSLError):
        while more := sock.recv(65536):
            data += more
    return data


def length_of(head: bytes) -> int:
    """Content-Length of a head, 0 without."""
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.split(b":")[1])
    return 0


def scripted(
    *answers: bytes, seen: list[bytes] | None = None, close: bool = False
) -> Callable[[socket.socket], None]:
    """A server that reads requests with Content-Length and gives these answers, in turn."""

    def serve(sock: socket.socket) -> None:
        rest = b""
        for answer in answers:
            try:
                head, rest = read_head(sock, rest)
            except EOFError:
                return
            body, rest = read_exactly(sock, length_of(head), rest)
            if seen is not None:
                seen.append(head + body)
            sock.sendall(answer)
        if not close:
            with contextlib.suppress(OSError):
                sock.recv(1)

    return serve
