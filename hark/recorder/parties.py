"""Starts the processes of a run beside hark-launch, as early as a policy is there.

Order, and why. Broker and signer are forked first, while this process has one thread. The mediator
is started next, since the agent's files hold its CA. Each imports what only it needs after its
fork: on another core, while the caller goes on. Rules: closing our ends of the control sockets
ends all of them.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hark import limits
from hark.errors import AlreadyTold, HarkError, InputError, LaunchError
from hark.launcher import trust
from hark.launcher.ids import Slot, claim_slot
from hark.launcher.plan import TRACER
from hark.locations import HOST_KEY
from hark.mediator.config import config_of
from hark.mediator.process import MediatorProcess
from hark.policy import control
from hark.policy.control import Channel, MsgType, Plain
from hark.policy.model import Determinism
from hark.recorder.ahead import Ahead
from hark.trace.process import TracerProcess

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from hark.mediator.publish import Published
    from hark.recorder.prepare import Prepared

__all__ = ["Begun", "Parties", "begin"]

_TOLD = {error.exit_code for error in (InputError, LaunchError, HarkError)}  # the signer's own


@dataclass(slots=True)
class Parties:
    """The processes of a run, by the recorder's ends of their control sockets."""

    broker: Channel
    signer: Channel
    mediator: MediatorProcess
    tracer: TracerProcess | None
    pids: dict[str, int]
    pidfds: dict[str, int]
    publisher: Channel | None = None
    _public: bytes = b""

    def public_key(self) -> bytes:
        """Wait for the signer to have loaded its key; return whose heads it will sign."""
        if self._public:
            return self._public
        try:
            ready, _ = self.signer.expect(control.SignerReady, limits.SESSION_CONTROL_WAIT_S)
        except control.PeerClosed:
            self.explain(wait=True)
            raise LaunchError("the run cannot be signed", "the signer closed its socket") from None
        self._public = ready.public_key
        return self._public

    def descriptors(self) -> dict[str, int]:
        """Return what the launch plan names of them: who is watched, and the way to hark-trace."""
        return self.pidfds | ({TRACER: self.tracer.launch} if self.tracer is not None else {})

    def wrap(self, seed: bytes) -> control.Wrapped:
        """Seal the run's seed for the holder of the signing key."""
        self.signer.send(control.Wrap(seed))
        sealed, _ = self.signer.expect(control.Wrapped, limits.SESSION_CONTROL_WAIT_S)
        if sealed.err:
            raise LaunchError("the run's seed cannot be sealed", os.strerror(sealed.err))
        return sealed

    def unwrap(self, sealed: bytes) -> bytes | None:
        """Open a recorded seed; None when it was sealed for another key."""
        self.signer.send(control.Unwrap(sealed))
        opened, _ = self.signer.expect(control.Unwrapped, limits.SESSION_CONTROL_WAIT_S)
        return None if opened.err else opened.secret

    def explain(self, *, wait: bool = False) -> None:
        """Raise what is wrong when a party has failed: whatever was met after that follows from it.

        ``wait``: the signer is known to be ending. Returns when nobody has failed.
        """
        for name in ("signer", "broker", "publisher", "mediator", "tracer"):
            if name not in self.pids:
                continue
            flags = os.WEXITED | os.WNOWAIT | (0 if wait and name == "signer" else os.WNOHANG)
            try:
                ended = os.waitid(os.P_PID, self.pids[name], flags)
            except ChildProcessError:  # reaped by who gave up on it
                continue
            if ended is None or ended.si_status == 0:
                continue
            if name == "signer" and ended.si_code == os.CLD_EXITED and ended.si_status in _TOLD:
                raise AlreadyTold(ended.si_status)
            how = "status" if ended.si_code == os.CLD_EXITED else "signal"
            raise LaunchError(
                f"the {name} ended before the agent could start", f"{how} {ended.si_status}"
            )

    def wait_broker(self) -> None:
        """Wait until the broker has become its own user."""
        got = self.broker.recv(limits.SESSION_CONTROL_WAIT_S)
        if got is None or got.msg.kind is not MsgType.BROKER_READY:
            raise LaunchError("the broker did not start")

    def publish(self, netns: int) -> None:
        """Have the publisher, where there is one, enter the agent's network namespace."""
        if self.publisher is None:
            return
        self.publisher.send(Plain(MsgType.PUBLISH), fds=[netns])
        got = self.publisher.recv(limits.SESSION_CONTROL_WAIT_S)
        if got is None or got.msg.kind is not MsgType.PUBLISHER_READY:
            raise LaunchError("the publisher did not start")


@dataclass(slots=True)
class Begun:
    """A run whose parties are on their way. ``undo`` ends them, unless somebody takes over."""

    slot: Slot
    ahead: Ahead
    parties: Parties
    undo: ExitStack


def begin(
    run: Prepared,
    ahead: Ahead | None = None,
    *,
    is_replay: bool = False,
    slot: Slot | None = None,
) -> Begun:
    """Claim a slot and start broker, signer and mediator; wait for none. Raises HarkError."""
    with ExitStack() as undo:
        ahead = ahead or Ahead()
        undo.callback(ahead.abandon)
        slot = slot or claim_slot()
        to_mediator, from_mediator = control.socket_pair()
        broker, broker_pid = _fork(lambda sock: _broker(sock, to_mediator, run, slot, is_replay))
        undo.callback(broker.close)
        to_mediator.close()
        signer, signer_pid = _fork(lambda sock: _signer(sock, run, slot))
        undo.callback(signer.close)
        publisher, pids = _publish(run, slot, undo)
        mediator = _mediator(run, slot, from_mediator, is_replay=is_replay)
        undo.callback(mediator.close)
        from_mediator.close()
        pids |= {"broker": broker_pid, "signer": signer_pid, "mediator": mediator.pid}
        tracer = None
        if run.determinism is not Determinism.OFF:
            tracer = TracerProcess(slot.tracer, slot.tracer)
            undo.callback(tracer.close)
            pids["tracer"] = tracer.pid
        pidfds = {name: os.pidfd_open(pid) for name, pid in pids.items()}
        parties = Parties(broker, signer, mediator, tracer, pids, pidfds, publisher)
        return Begun(slot, ahead, parties, undo.pop_all())


def _broker(
    sock: socket.socket, mediator: socket.socket, run: Prepared, slot: Slot, offline: bool
) -> None:
    """Be the broker."""
    from hark.mediator import broker  # noqa: PLC0415 - only here

    trust.check_tree()
    config = broker.BrokerConfig(
        policy=run.policy,
        redirects=run.redirects,
        uid=slot.broker,
        gid=slot.broker,
        offline=offline,
        proxy_auth=run.proxy_auth,
    )
    broker.main(sock, mediator, config)


def _publish(run: Prepared, slot: Slot, undo: ExitStack) -> tuple[Channel | None, dict[str, int]]:
    """Start the publisher of a run with --publish; its listening sockets are then its own."""
    if not run.publish:
        return None, {}
    from hark.mediator import publish  # noqa: PLC0415 - only here

    published = publish.listen(run.publish)
    channel, pid = _fork(lambda sock: _publisher(sock, published, slot))
    for one in published:
        one.sock.close()
    undo.callback(channel.close)
    return channel, {"publisher": pid}


def _publisher(sock: socket.socket, published: list[Published], slot: Slot) -> None:
    """Be the publisher."""
    from hark.mediator import publish  # noqa: PLC0415 - only here

    trust.check_tree()
    publish.main(sock, published, uid=slot.publisher, gid=slot.publisher)


def _signer(sock: socket.socket, run: Prepared, slot: Slot) -> None:
    """Be the signer."""
    import cryptography.hazmat.backends.openssl.backend  # noqa: PLC0415 - hpke does at its first use
    import cryptography.hazmat.primitives.asymmetric.ed25519  # noqa: PLC0415 - only here
    import cryptography.hazmat.primitives.asymmetric.x25519  # noqa: PLC0415
    import cryptography.hazmat.primitives.hpke  # noqa: PLC0415
    import cryptography.hazmat.primitives.serialization  # noqa: F401, PLC0415 - so that it is checked

    from hark.recorder import signer  # noqa: PLC0415

    trust.check_tree()
    source = signer.KeySource(path=HOST_KEY) if run.key_fd < 0 else signer.KeySource(fd=run.key_fd)
    signer.main(sock, source, uid=slot.signer, gid=slot.signer)


def _mediator(
    run: Prepared, slot: Slot, broker: socket.socket, *, is_replay: bool
) -> MediatorProcess:
    roots = {r.host: run.upstream_ca.decode() for r in run.redirects} if run.upstream_ca else None
    ids = (slot.mediator, slot.mediator)
    config = config_of(
        run.policy,
        run.secrets,
        ids=ids,
        upstream_ca=roots,
        play=is_replay,
        extra_ca=run.extra_ca.decode(),
    )
    return MediatorProcess(config, broker)


def _fork(main: Callable[[socket.socket], Any]) -> tuple[Channel, int]:
    """Fork a child that runs ``main`` with its end of a control socket; return ours and its pid."""
    ours, theirs = control.socket_pair()
    pid = os.fork()
    if pid == 0:
        try:
            ours.close()
            main(theirs)  # never returns
        except HarkError as error:
            os.write(2, "".join(f"{line}\n" for line in error.lines()).encode())
        finally:
            os._exit(limits.EXIT_BUG)
    theirs.close()
    return Channel(ours), pid
