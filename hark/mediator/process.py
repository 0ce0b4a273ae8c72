"""The mediator as a child process: started, told its table, watched.

Rules: Python only starts it. Nothing between fork and exec but what ``subprocess`` does in C;
afterwards the two talk through sockets and the ring. Its table holds credentials, so the memfd is
closed here as soon as the child has it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
from typing import TYPE_CHECKING

from hark import limits
from hark.errors import LaunchError
from hark.locations import libexec
from hark.mediator.ca import checked_pem
from hark.mediator.config import encode
from hark.mediator.ring import RingMemory, RingReader
from hark.policy import control
from hark.policy.control import Channel, MsgType, PeerClosed, Plain

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence
    from pathlib import Path

    from hark.mediator.config import MediatorConfig

__all__ = ["MediatorProcess"]

_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class MediatorProcess:
    """One running ``hark-mediator``, in its own process group.

    ``control``: the recorder's end of its control socket. ``ring``: its records. Both belong to
    this object until somebody takes over; ``close`` ends the child by closing them.
    """

    def __init__(
        self, config: MediatorConfig, broker: socket.socket, *, program: Path | None = None
    ) -> None:
        """Start the child. ``broker``: the mediator's end of its socket to the broker; stays ours.

        Raises LaunchError when the program cannot be started.
        """
        memory = RingMemory()
        ours, theirs = control.socket_pair()
        table = _table(encode(config))
        try:
            fds = [
                theirs.fileno(),
                broker.fileno(),
                memory.memfd,
                memory.doorbell,
                memory.space,
                table,
            ]
            self._child = _spawn(program or libexec("hark-mediator"), fds)
        except OSError as error:
            ours.close()
            memory.close()
            raise LaunchError(
                "the mediator cannot be started",
                f"{error.filename}: {error.strerror}",
                "make build",
            ) from None
        finally:
            theirs.close()
            os.close(table)
        self.pid = self._child.pid
        self.control = Channel(ours)
        self.ring = RingReader(memory)

    def ca_pem(self, timeout_s: float = limits.MEDIATOR_START_S) -> bytes:
        """Wait for the run CA's certificate, PEM. Raises HarkError when the child failed."""
        try:
            message, _ = self.control.expect(control.Ca, timeout_s)
        except PeerClosed:
            raise LaunchError("the mediator did not start", "its message is above") from None
        return checked_pem(message.pem)

    def listen(self, listeners: Sequence[socket.socket | int]) -> None:
        """Hand over one or two listening sockets; they stay the caller's to close."""
        fds = [s if isinstance(s, int) else s.fileno() for s in listeners]
        self.control.send(Plain(MsgType.LISTEN), fds=fds)

    def durable(self, below: int) -> None:
        """Tell it that every record below this sequence number is on disk."""
        self.control.send(control.Durable(below))

    def stop(self) -> None:
        """Ask it to take in what is there and to answer DRAINED."""
        self.control.send(Plain(MsgType.STOP))

    def pidfd(self) -> int:
        """Return a new descriptor that becomes readable when the child ends."""
        return os.pidfd_open(self.pid)

    def wait(self, timeout_s: float) -> int:
        """Exit status, negative for a signal. Raises ``subprocess.TimeoutExpired``."""
        return self._child.wait(timeout_s)

    def close(self) -> None:
        """End it: close its sockets, wait a moment, kill."""
        self.control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(limits.MEDIATOR_END_S)
        if self._child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._child.wait()
        self.ring.close()


def _table(data: bytes) -> int:
    fd = os.memfd_create("hark-mediator-table", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    return fd


def _spawn(program: Path, fds: Sequence[int]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [program, *map(str, fds)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env={},
        pass_fds=fds,
        process_group=0,
    )
