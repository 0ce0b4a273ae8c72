"""A real broker process, with the recorder's and the mediator's ends of its sockets."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from policies import compiled

from hark.mediator import broker
from hark.mediator.broker import BrokerConfig
from hark.policy.control import (
    Channel,
    Dial,
    Dialed,
    DialEvent,
    DialStatus,
    MsgType,
    Plain,
    Received,
    socket_pair,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from hark.mediator.lookup import Resolved
    from hark.policy.model import Redirect

__all__ = ["UID", "WAIT_S", "BrokerProcess", "Listener"]

UID = 0x7700_0FF2
WAIT_S = 30.0  # for what must come; a test that waits it out has failed


class Listener:
    """A TCP server on loopback: the witness of what was dialled."""

    def __init__(self, address: str = "127.0.0.1", port: int = 0, backlog: int = 16) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        self.sock.bind((address, port))
        self.sock.listen(backlog)
        self.address = address
        self.port: int = self.sock.getsockname()[1]

    def connections(self) -> int:
        """Accept and close what is there; loopback connects are in the queue once they succeed."""
        self.sock.setblocking(False)
        seen = 0
        while True:
            try:
                self.sock.accept()[0].close()
            except BlockingIOError:
                return seen
            seen += 1

    def accept(self) -> socket.socket:
        self.sock.settimeout(WAIT_S)
        return self.sock.accept()[0]

    def close(self) -> None:
        self.sock.close()


class BrokerProcess:
    """Starts the broker; ``answer_intents`` plays the recorder as it should be."""

    def __init__(
        self,
        policy: str,
        redirects: tuple[Redirect, ...] = (),
        resolve: Callable[[str], Resolved] | None = None,
        proxy_auth: bytes = b"",
    ) -> None:
        recorder, theirs_r = socket_pair()
        mediator, theirs_m = socket_pair()
        self.policy = compiled(policy)
        self.pid = os.fork()
        if self.pid == 0:
            recorder.close()
            mediator.close()
            more = {"resolve": resolve} if resolve else {}
            more["proxy_auth"] = proxy_auth
            broker.main(
                theirs_r,
                theirs_m,
                BrokerConfig(policy=self.policy, redirects=redirects, uid=UID, gid=UID, **more),
            )
        theirs_r.close()
        theirs_m.close()
        self.recorder = Channel(recorder)
        self.mediator = Channel(mediator)
        self.status: int | None = None
        ready, _ = self.recorder.expect(Plain, WAIT_S)
        assert ready.kind is MsgType.BROKER_READY

    def ask(self, host: str | int, port: int, ident: int = 1, conn: int = 77) -> None:
        """Send DIAL as the mediator."""
        row = host if isinstance(host, int) else self.policy.find(host).index
        self.mediator.send(Dial(row, port, conn), ident=ident)

    def event(self) -> tuple[DialEvent, int]:
        """Return the recorder's next message, which must be about a dial, and its id."""
        got = self.recorder.recv(WAIT_S)
        assert got is not None
        assert isinstance(got.msg, DialEvent)
        return got.msg, got.ident

    def intent(self) -> tuple[DialEvent, int]:
        event, ident = self.event()
        assert event.kind is MsgType.DIAL_INTENT
        return event, ident

    def result(self) -> tuple[DialEvent, int]:
        event, ident = self.event()
        assert event.kind is MsgType.DIAL_RESULT
        return event, ident

    def recorded(self, ident: int) -> None:
        self.recorder.send(Plain(MsgType.DIAL_RECORDED), ident=ident)

    def dialed(self) -> tuple[Dialed, Received]:
        got = self.mediator.recv(WAIT_S)
        assert got is not None
        assert isinstance(got.msg, Dialed)
        assert bool(got.fds) == (got.msg.status == DialStatus.OK)
        return got.msg, got

    def wait(self) -> int:
        """Wait for the process to end by itself."""
        if self.status is None:
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.status

    def end(self) -> int:
        self.recorder.close()
        self.mediator.close()
        return self.wait()
