"""A run around a real Session: real sockets, pipes, signer, writer; peers are short scripts.

Each peer is a thread with the other end of its control socket and the project's own codec. The
streams (ring, sensors, nflog) are queues with a real eventfd, since what is tested here is what the
session does with them; their own readers are tested in their rooms.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hark.bundle.core import load
from hark.bundle.events import Kind
from hark.bundle.format import Header
from hark.bundle.keys import SigningKey, Trust
from hark.bundle.source import BytesSource
from hark.bundle.verify import VerifyReport, verify_source
from hark.bundle.writer import BundleWriter, create
from hark.kernel.records import RingStats, SyscallCount
from hark.policy import control
from hark.policy.control import Channel, MsgType, PeerClosed, Plain
from hark.recorder import signer
from hark.recorder.session import RunResult, Session, SessionInputs, sign_by
from hark.recorder.stdio import PipeRelay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

WAIT_S = 8


def boot_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


class Stream:
    """A queue of records that wakes its reader."""

    def __init__(self) -> None:
        self.records: deque[Any] = deque()
        self.wake = os.eventfd(0, os.EFD_NONBLOCK)
        self.broken: Exception | None = None
        self.lost = 0
        self.next_seq = 0
        self.batch = 1 << 30  # records that one poll gives

    def fileno(self) -> int:
        return self.wake

    def put(self, *records: Any) -> None:
        self.records.extend(records)
        os.eventfd_write(self.wake, 1)

    def fail(self, error: Exception) -> None:
        self.broken = error
        os.eventfd_write(self.wake, 1)

    def poll(self) -> Iterable[Any]:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.wake)
        if self.broken is not None:
            raise self.broken
        out = []
        while self.records and len(out) < self.batch:
            out.append(self.records.popleft())
        if self.records:
            os.eventfd_write(self.wake, 1)
        self.next_seq += len(out)
        return out


class KernelStream(Stream):
    """Adds the counters of the sensors."""

    def __init__(self) -> None:
        super().__init__()
        self.syscalls: list[SyscallCount] = []
        self.rings = [RingStats("control", 0, 0, 0), RingStats("bulk", 0, 0, 0)]

    def counts(self) -> list[SyscallCount]:
        return self.syscalls

    def stats(self) -> list[RingStats]:
        return self.rings


class Peer:
    """One end of a control socket and what came out of it."""

    def __init__(self) -> None:
        ours, theirs = control.socket_pair()
        self.channel = Channel(ours)
        self.session_side = Channel(theirs)
        self.seen: list[control.Message] = []

    def send(self, msg: control.Message, ident: int = 0, fds: Iterable[int] = ()) -> None:
        self.channel.send(msg, ident=ident, fds=list(fds))

    def expect(self, wanted: Callable[[control.Message], bool]) -> control.Received:
        """Wait for a message; those before it are kept in ``seen``."""
        end = time.monotonic() + WAIT_S
        while (left := end - time.monotonic()) > 0:
            got = self.channel.recv(left)
            if got is None:
                break
            self.seen.append(got.msg)
            if wanted(got.msg):
                return got
            got.close()
        raise AssertionError(f"not seen: {self.seen}")

    def expect_plain(self, kind: MsgType) -> control.Received:
        return self.expect(lambda msg: msg == Plain(kind))

    def close(self) -> None:
        self.channel.close()


@dataclass
class Written:
    """One event as the session appended it."""

    kind: Kind
    boot_ns: int
    payload: dict[int, Any]


class SpyWriter:
    """The real writer, with a list of what it was asked."""

    def __init__(self, real: BundleWriter) -> None:
        self.real = real
        self.log: list[Written | str] = []

    def append(self, kind: int, at: int, payload: dict[int, Any]) -> int:
        seq = self.real.append(kind, at, payload)
        self.log.append(Written(Kind(kind), at, payload))
        return seq

    def sync(self) -> None:
        self.real.sync()
        self.log.append("sync")

    def tick(self, now: int) -> None:
        self.real.tick(now)

    def salvage(self) -> int:
        self.log.append("salvage")
        return self.real.salvage()

    def seal(self) -> None:
        self.real.seal()
        self.log.append("seal")

    @property
    def size(self) -> int:
        return self.real.size

    @property
    def events(self) -> list[Written]:
        return [entry for entry in self.log if isinstance(entry, Written)]

    def of(self, kind: Kind) -> list[dict[int, Any]]:
        return [event.payload for event in self.events if event.kind is kind]


@dataclass
class Rig:
    """All parts of one run. ``agent`` is a shell script that hark-launch's stand-in starts."""

    folder: Path
    agent: str = "exit 0"
    stdin: bytes | None = b""
    launch: Peer = field(default_factory=Peer)
    mediator: Peer = field(default_factory=Peer)
    broker: Peer = field(default_factory=Peer)
    signer: Peer = field(default_factory=Peer)
    ring: Stream = field(default_factory=Stream)
    packets: Stream = field(default_factory=Stream)
    sensors: KernelStream = field(default_factory=KernelStream)
    process: subprocess.Popen[bytes] | None = None
    threads: list[threading.Thread] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.key = SigningKey.generate()
        self.path = self.folder / "run.hark"
        self.stdout, self.stderr = self.folder / "out", self.folder / "err"
        self.writer: SpyWriter | None = None
        self.relay: Any = None
        self.agent_fds: tuple[int, int, int] = (-1, -1, -1)

    # --- building ---

    def open_writer(self) -> SpyWriter:
        sign = sign_by(self.signer.session_side)
        got = self.signer.session_side.recv(WAIT_S)
        assert got is not None, self.errors
        assert isinstance(got.msg, control.SignerReady)
        header = Header(
            run_id=bytes(16),
            created_unix_ns=time.time_ns(),
            recorder="hark-test",
            public_key=got.msg.public_key,
            created_boot_ns=boot_ns(),
        )
        writer = BundleWriter(
            create(self.path), header, sign, now_boot_ns=boot_ns, now_unix_ns=time.time_ns
        )
        writer.append(Kind.RUN_START, boot_ns(), {4: [b"sh"]})
        writer.head()
        return SpyWriter(writer)

    def pipes(self) -> PipeRelay:
        """Pipes to the agent; the operator's side are files."""
        to_agent, from_us = os.pipe()
        out_r, out_w = os.pipe()
        err_r, err_w = os.pipe()
        self.agent_fds = (to_agent, out_w, err_w)
        source = self.folder / "in"
        source.write_bytes(self.stdin or b"")
        return PipeRelay(
            stdin=(os.open(source, os.O_RDONLY), from_us),
            stdout=(out_r, os.open(self.stdout, os.O_WRONLY | os.O_CREAT, 0o600)),
            stderr=(err_r, os.open(self.stderr, os.O_WRONLY | os.O_CREAT, 0o600)),
        )

    def play(self, script: Callable[[], None]) -> None:
        """Run one peer's script beside the session."""

        def body() -> None:
            try:
                with contextlib.suppress(PeerClosed):
                    script()
            except BaseException as error:  # noqa: BLE001 - reported by run()
                self.errors.append(error)

        thread = threading.Thread(target=body, daemon=True)
        self.threads.append(thread)
        thread.start()

    # --- ordinary peers ---

    def serve_signer(self) -> None:
        signer.serve(self.signer.channel, self.key)

    def serve_mediator(self) -> None:
        self.mediator.expect_plain(MsgType.STOP)
        self.mediator.send(Plain(MsgType.DRAINED))

    def serve_broker(self) -> None:
        self.broker.expect_plain(MsgType.STOP)
        self.broker.send(Plain(MsgType.DRAINED))

    def start_agent(self) -> None:
        """GO, then the agent as a real process, then STARTED."""
        self.launch.expect_plain(MsgType.GO)
        stdin, stdout, stderr = self.agent_fds
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", self.agent], stdin=stdin, stdout=stdout, stderr=stderr
        )
        for fd in self.agent_fds:
            os.close(fd)
        self.launch.send(control.Started(self.process.pid, 1))

    def end_agent(self, cause: int = 0) -> None:
        """Send EXITED when the agent is gone; then publish."""
        assert self.process is not None
        code = self.process.wait(WAIT_S)
        status = -code if code < 0 else code << 8
        self.launch.send(control.Exited(status, 0, cause))
        self.launch.expect(lambda msg: isinstance(msg, control.Sealed))
        self.launch.send(control.Published(0))

    def serve_launch(self) -> None:
        self.start_agent()
        self.end_agent()

    def kill_agent(self) -> None:
        """Kill it as soon as it exists."""
        wait_for(lambda: self.process is not None)
        self.process.kill()

    def kill_on_order(self) -> None:
        """Wait for KILL, kill the agent, then end as usual."""
        self.launch.expect_plain(MsgType.KILL)
        assert self.process is not None
        self.process.kill()
        self.end_agent(control.ExitCause.KILLED)

    # --- running ---

    def run(
        self, *scripts: Callable[[], None], ordinary: str = "mediator broker launch"
    ) -> RunResult:
        """Run a session to its end, with ``scripts`` and the named ordinary peers beside it."""
        self.play(self.serve_signer)
        self.writer = self.open_writer()
        relay = self.relay if self.relay is not None else self.pipes()
        inputs = SessionInputs(
            writer=self.writer,
            hosts=("api.example",),
            secrets=("KEY",),
            netns_cookie=0,
            launch=self.launch.session_side,
            mediator=self.mediator.session_side,
            broker=self.broker.session_side,
            signer=self.signer.session_side,
            ring=self.ring,
            sensors=self.sensors,
            packets=self.packets,
            relay=relay,
            bundle=str(self.path),
            output="run-1.hark",
        )
        for name in ordinary.split():
            self.play(getattr(self, f"serve_{name}"))
        for script in scripts:
            self.play(script)
        result = Session(inputs).run()
        for thread in self.threads[1:]:
            thread.join(WAIT_S)
        if self.errors:
            raise self.errors[0]
        return result

    def verify(self) -> VerifyReport:
        trust = Trust(own=self.key.public)
        return verify_source(BytesSource(self.path.read_bytes()), trust, load())
