"""The recorder's loop: reads every stream of a run, writes the bundle, ends the run.

One thread, one ``selectors`` loop; threads exist only where the operator's descriptors or a cold
file could block (``stdio``, ``digest``). Rules:

- Order of reading in a turn: control sockets, then the mediator's ring, then nflog, then the
  kernel's rings. ``merge`` rests on it.
- Write-ahead: a refusal or a dial is appended and on disk before its peer hears so.
- Fails closed: a failed append or sync, a peer's end of file, a malformed message or a broken ring
  kills the agent's tree. What can be sealed is sealed, with the reason inside.
- Every wait has a deadline. The recorder opens no file and no socket, and starts no process.
"""

from __future__ import annotations

import contextlib
import enum
import os
import selectors
import signal
import socket
import time
from typing import TYPE_CHECKING, Any, TypeVar

from hark import limits
from hark.bundle.events import Kind
from hark.errors import HarkError, RecordingFailed
from hark.kernel.records import Exec, RingStats
from hark.launcher.seccomp import NOTIFY
from hark.policy import control
from hark.policy.control import Channel, MsgType, PeerBroken, PeerClosed, Plain
from hark.recorder.bounds import Bounds, refused_tasks
from hark.recorder.digest import Digests
from hark.recorder.ending import Ending, count_events, died, difference_events
from hark.recorder.inputs import RunResult, SessionInputs
from hark.recorder.merge import Ahead, DialRecorded, Merger, RingDurable
from hark.recorder.stdio import Stream, TerminalRelay
from hark.recorder.translate import Names, Payload, compact
from hark.workspace.writes import summary, write_set, write_set_events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from hark.recorder.stdio import Relay
    from hark.workspace.writes import WriteSet

__all__ = ["RunResult", "Session", "SessionInputs", "sign_by"]

_FORWARDED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGTSTP,  # hark stops when the agent has: HARK_MSG_JOB
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_HANDLED = (*_FORWARDED, signal.SIGCONT, signal.SIGWINCH)
_NO_ROOM = "there was no room: the agent was faster than the recorder"
_T = TypeVar("_T")


class _Phase(enum.Enum):
    RUNNING = enum.auto()  # the agent lives
    KILLING = enum.auto()  # something failed; hark-launch was told to kill
    DRAINING = enum.auto()  # the agent's tree is gone; the streams run dry
    DONE = enum.auto()


def sign_by(channel: Channel) -> Callable[[bytes], bytes]:
    """Return the ``sign`` of a BundleWriter that asks the signer on ``channel``."""
    idents = iter(range(1, 1 << 32))

    def sign(statement: bytes) -> bytes:
        channel.send(control.Sign(statement), ident=next(idents))
        answer, fds = channel.expect(control.Signed, limits.SESSION_CONTROL_WAIT_S)
        for fd in fds:
            os.close(fd)
        if answer.err:
            raise RecordingFailed("the signer refused a head", os.strerror(answer.err))
        return answer.signature

    return sign


class Session:
    """One run's recording. ``run`` may be called once."""

    def __init__(
        self,
        inputs: SessionInputs,
        clock: Callable[[], int] = lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME),
    ) -> None:
        self._in = inputs
        self._clock = clock
        self._merger = Merger(
            Names(inputs.hosts, inputs.secrets, inputs.proxy),
            inputs.netns_cookie,
            answered=frozenset(one.call for one in NOTIFY if inputs.tracer is not None),
        )
        self._digests = Digests(self._ask_exe)
        self._selector = selectors.DefaultSelector()
        # Streams that can wait have a selector of their own, so that a pause does not spin.
        self._bulk = selectors.DefaultSelector()
        self._bulk_polled = False
        self._urgent = selectors.DefaultSelector()  # what must not wait for a pause to end
        self._paced = False
        self._relay: Relay | None = None
        self._phase = _Phase.RUNNING
        self._deadline_ns = 0
        # By what their end would be.
        self._undrained = {"mediator-died", "broker-died"}
        if inputs.tracer is not None:
            self._undrained.add("tracer-died")
        if inputs.publisher is not None:
            self._undrained.add("publisher-died")
        self._launch_alive = True
        self._writable = True
        self._end = Ending(limits=inputs.limits)
        self._bounds: Bounds | None = None  # until the agent may start
        self._appended = 0
        self._next_stats_ns = 0
        self._dropped: dict[str, int] = {}
        self._discarded = 0
        self._uppers: tuple[int, ...] = ()
        self._write_sets: list[WriteSet] = []

    # --- the run ----------------------------------------------------------------------------------

    def run(self) -> RunResult:
        """Tell hark-launch to start the agent, record until its end, seal, have it published."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._release)
            stack.enter_context(self._signals())
            self._register()
            self._tell_launch(Plain(MsgType.GO))
            self._bounds = Bounds(self._in.limits, self._clock())
            while self._phase is not _Phase.DONE:
                self._turn()
            self._settle()
            sealed = self._seal()
            published = self._publish()
            if self._relay is not None:
                self._relay.finish(self._interrupted)
            return self._result(sealed=sealed, published=published)

    def _turn(self) -> None:
        if self._paced:
            # Records gather, so that a turn is for many: each costs the agent's exchanges a core.
            self._urgent.select(limits.SESSION_PACE_S)
        for key, _ in self._selector.select(self._timeout_s()):
            self._guarded(key.data)
        now = self._clock()
        self._guarded(self._read_streams, now)
        self._guarded(self._write_due, now)
        if self._phase is _Phase.RUNNING:
            self._written(self._append_all, self._in.contents.take(now))
        self._check_limits(now)
        self._check_end(now)

    def _guarded(self, action: Callable[..., None], *args: Any) -> None:
        """Run ``action``; its failure ends the run the fail-closed way."""
        try:
            action(*args)
        except HarkError as error:
            self._fail("recording-failed", error)

    def _written(self, action: Callable[..., object], *args: Any) -> bool:
        """Run ``action`` of the writer. False: it failed, now or before, and the run ends."""
        if not self._writable:
            return False
        try:
            action(*args)
        except (PeerClosed, PeerBroken) as error:  # a head could not be signed
            self._writable = False
            self._fail("signer-died", died("signer-died", error.what))
        except HarkError as error:
            self._writable = False
            self._fail("recording-failed", error)
        return self._writable

    def _timeout_s(self) -> float:
        now = self._clock()
        due = self._merger.next_due_ns()
        wait = limits.SESSION_POLL_NS if due is None else min(due - now, limits.SESSION_POLL_NS)
        if self._phase is _Phase.RUNNING and (more := self._in.contents.due_ns()) is not None:
            wait = min(wait, more - now)
        if self._phase is _Phase.DRAINING:
            wait = min(wait, limits.MERGE_HOLD_NS // 4)
        return max(0, wait) / 1e9

    # --- streams in -------------------------------------------------------------------------------

    def _register(self) -> None:
        watch: list[tuple[Any, Callable[[], None]]] = [
            (self._in.launch, self._on_launch),
            (self._in.mediator, self._on_mediator),
            (self._in.broker, self._on_broker),
            (self._in.signer, self._on_signer),
            (self._digests, self._on_digests),
            (self._in.sensors, _nothing),  # read in every turn
            (self._in.packets, _nothing),
        ]
        channels = [self._in.launch, self._in.mediator, self._in.broker, self._in.signer]
        if self._in.tracer is not None:
            watch.append((self._in.tracer, self._on_tracer))
        if self._in.publisher is not None:
            watch.append((self._in.publisher, self._on_publisher))
            channels.append(self._in.publisher)
        for source, callback in watch:
            self._selector.register(source.fileno(), selectors.EVENT_READ, callback)
        for channel in channels:
            self._urgent.register(channel.fileno(), selectors.EVENT_READ)
        self._urgent.register(self._wake, selectors.EVENT_READ)
        self._bulk.register(self._in.ring.fileno(), selectors.EVENT_READ, _nothing)
        self._poll_bulk()
        if not isinstance(self._in.relay, tuple):
            self._relay = self._in.relay
            self._relay.attach(self._bulk, self._on_stdio)

    def _poll_bulk(self) -> None:
        """Pause the streams that can wait while too much is held, and go on after."""
        wanted = self._has_room()
        if wanted and not self._bulk_polled:
            self._selector.register(self._bulk.fileno(), selectors.EVENT_READ, self._on_bulk)
        elif not wanted and self._bulk_polled:
            self._selector.unregister(self._bulk.fileno())
        self._bulk_polled = wanted

    def _on_bulk(self) -> None:
        for key, _ in self._bulk.select(0):
            if key.fd in self._bulk.get_map():  # a callback before it may have closed this one
                self._guarded(key.data)

    def _read_streams(self, now: int) -> None:
        if self._bulk_polled or self._phase is _Phase.DRAINING:
            self._paced = False
            for record in _all(self._in.ring.poll, self._has_room):
                self._paced = self._phase is _Phase.RUNNING
                # Not the turn's time: the mediator writes on while it is read, in a busy turn for
                # longer than the merge would believe.
                self._merger.take_mediator(record, self._clock())
                if self._in.player is not None:
                    self._in.player.took(record)
        for packet in _all(self._in.packets.poll):
            self._merger.take_packet(packet, self._clock())
        self._read_kernel(self._clock())
        self._play()
        if now >= self._next_stats_ns:
            self._next_stats_ns = now + 10 * limits.SESSION_POLL_NS
            self._note_losses(now)
            if self._relay is not None:
                self._relay.tick()
        self._poll_bulk()

    def _play(self) -> None:
        """Have the mediator answer what is known to be in the ring; a divergence ends the run."""
        player = self._in.player
        if player is None:
            return
        for message in player.turn():
            self._in.mediator.send(message, timeout_s=limits.SESSION_CONTROL_WAIT_S)
        if player.diverged is not None:
            self._fail("replay-diverged", player.diverged)

    def _has_room(self) -> bool:
        return self._merger.held_bytes < limits.MERGE_PAUSE_BYTES

    def _read_kernel(self, now: int) -> None:
        for record in _all(self._in.sensors.poll, lambda: not self._over(now)):
            self._merger.take_kernel(record, now)
            if isinstance(record, Exec) and self._in.player is not None:
                self._in.player.saw(f"program {os.fsdecode(record.filename)}")
            if isinstance(record, Exec) and (known := self._digests.want(record)) is not None:
                self._merger.digested(record.exe, known.digest, known.state)

    def _on_digests(self) -> None:
        for result in self._digests.results():
            self._merger.digested(result.exe, result.digest, result.state)

    def _on_stdio(
        self, stream: int, data: bytes | None, *, end: bool, size: tuple[int, int] | None = None
    ) -> None:
        now = self._clock()
        payload = compact({4: stream, 5: data, 6: end or None, 7: list(size) if size else None})
        self._merger.take_event(Kind.STDIO, now, payload, now)
        if self._in.player is not None and stream == Stream.STDIN:
            self._in.player.typed(data, end=end)

    def _note_losses(self, now: int) -> None:
        lost = {
            f"kernel {ring.name}": max(ring.dropped, ring.produced - ring.emitted)
            for ring in self._in.sensors.stats()
        }
        if any(count > self._dropped.get(source, 0) for source, count in lost.items()):
            self._merger.lost()
        lost["nflog"] = self._in.packets.lost
        for source, count in lost.items():
            if (new := count - self._dropped.get(source, 0)) > 0:
                self._dropped[source] = count
                payload: Payload = {4: source, 5: new, 6: _NO_ROOM}
                self._merger.take_event(Kind.LOSS, now, payload, now)

    # --- peers ------------------------------------------------------------------------------------

    def _messages(self, channel: Channel, reason: str) -> Iterator[control.Received]:
        """Yield what a peer sent; its end of file ends the run."""
        try:
            while (got := channel.recv()) is not None:
                yield got
        except PeerClosed:
            self._selector.unregister(channel.fileno())
            self._peer_gone(reason)
        except PeerBroken as error:
            self._selector.unregister(channel.fileno())
            self._undrained.discard(reason)
            self._fail(reason, error)

    def _peer_gone(self, reason: str) -> None:
        error = died(reason, "its control socket was closed")
        if reason == "launcher-died":
            self._launch_alive = False
            self._fail(reason, error)
            self._begin_draining()
        elif self._phase is _Phase.RUNNING:
            self._fail(reason, error)
        elif reason in self._undrained:
            self._end.cut_short(reason, error)
        self._undrained.discard(reason)  # it says nothing more

    def _on_launch(self) -> None:
        for got in self._messages(self._in.launch, "launcher-died"):
            match got.msg:
                case control.Exe(err=err):
                    if not self._digests.answered(got.ident, err, got.fds):
                        raise PeerBroken("an answer to no question", "OPEN_EXE")
                    continue
                case control.Started():
                    self._started(got.fds)
                    continue
                case control.Exited():
                    self._uppers = got.fds
                    self._exited(got.msg)
                    continue
                case control.Job(stopped=1):
                    self._suspend()
                case control.Job():
                    pass
                case control.Failed():
                    self._not_started(got.msg)
                case _:
                    got.close()
                    raise PeerBroken(f"{type(got.msg).__name__} message from hark-launch")
            got.close()

    def _on_mediator(self) -> None:
        for got in self._messages(self._in.mediator, "mediator-died"):
            got.close()
            if isinstance(got.msg, control.PlayWanted) and self._in.player is not None:
                self._in.player.wanted(got.msg.exchange)
                continue
            if got.msg != Plain(MsgType.DRAINED):
                raise PeerBroken(f"{type(got.msg).__name__} message from the mediator")
            self._undrained.discard("mediator-died")

    def _on_broker(self) -> None:
        for got in self._messages(self._in.broker, "broker-died"):
            got.close()
            now = self._clock()
            match got.msg:
                case control.Dns():
                    self._merger.take_dns(got.msg, now)
                    if self._in.player is not None and not got.msg.rcode:
                        self._in.player.saw(f"name {got.msg.qname.lower().rstrip('.')}")
                case control.DialEvent():
                    self._merger.take_dial(got.msg, got.ident, now)
                case Plain(type=MsgType.DRAINED):
                    self._undrained.discard("broker-died")
                case _:
                    raise PeerBroken(f"{type(got.msg).__name__} message from the broker")

    def _on_tracer(self) -> None:
        if self._in.tracer is None:
            return
        for got in self._messages(self._in.tracer, "tracer-died"):
            got.close()
            match got.msg:
                case control.Draws():
                    self._merger.take_draws(got.msg, self._clock())
                case Plain(type=MsgType.DRAINED):
                    self._undrained.discard("tracer-died")
                case _:
                    raise PeerBroken(f"{type(got.msg).__name__} message from hark-trace")

    def _on_publisher(self) -> None:
        if self._in.publisher is None:
            return
        for got in self._messages(self._in.publisher, "publisher-died"):
            got.close()
            match got.msg:
                case control.Inbound():
                    self._merger.take_inbound(got.msg, got.ident, self._clock())
                case Plain(type=MsgType.DRAINED):
                    self._undrained.discard("publisher-died")
                case _:
                    raise PeerBroken(f"{type(got.msg).__name__} message from the publisher")

    def _on_signer(self) -> None:
        # The writer reads answers itself, while it waits for them: what is left is end of file.
        try:
            if self._in.signer.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                raise PeerBroken("message from the signer that nobody asked for")
        except BlockingIOError:
            return
        except OSError:
            pass
        self._selector.unregister(self._in.signer.fileno())
        self._peer_gone("signer-died")

    def _tell_launch(self, msg: control.Message, ident: int = 0) -> None:
        if not self._launch_alive:
            return
        try:
            self._in.launch.send(msg, ident=ident, timeout_s=limits.SESSION_CONTROL_WAIT_S)
        except PeerClosed:
            self._peer_gone("launcher-died")

    def _ask_exe(self, question: control.OpenExe, ident: int) -> None:
        self._tell_launch(question, ident)

    def _started(self, fds: Sequence[int]) -> None:
        if not isinstance(self._in.relay, tuple):
            for fd in fds:
                os.close(fd)
            if fds:
                raise PeerBroken("a terminal that nobody asked for")
            return
        if len(fds) != 1:
            raise PeerBroken("no terminal came with the agent")
        operator_in, operator_out = self._in.relay
        self._relay = TerminalRelay(
            master=fds[0], operator_in=operator_in, operator_out=operator_out
        )
        self._relay.attach(self._bulk, self._on_stdio)

    # --- events out -------------------------------------------------------------------------------

    def _write_due(self, now: int, *, drain: bool = False) -> None:
        waiting: list[Ahead] = []
        for event in self._merger.due(now, drain=drain):
            if not self._written(self._in.writer.append, event.kind, event.boot_ns, event.payload):
                self._discarded += 1
                continue
            self._appended += 1
            if event.ahead is not None:
                waiting.append(event.ahead)
        if waiting and self._written(self._in.writer.sync):
            self._release_waiting(waiting)
        self._written(self._in.writer.tick, now)

    def _release_waiting(self, waiting: list[Ahead]) -> None:
        """Tell each peer what of it is on disk. One that is gone is seen as such."""
        below = 0
        with contextlib.suppress(PeerClosed):
            for ahead in waiting:
                if isinstance(ahead, RingDurable):
                    below = max(below, ahead.below)
                elif isinstance(ahead, DialRecorded):
                    self._in.broker.send(Plain(MsgType.DIAL_RECORDED), ident=ahead.ident)
                elif self._in.publisher is not None:
                    self._in.publisher.send(Plain(MsgType.INBOUND_RECORDED), ident=ahead.ident)
        with contextlib.suppress(PeerClosed):
            if below:
                self._in.mediator.send(control.Durable(below))

    # --- signals ----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        self._wake, bell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        former_fd = signal.set_wakeup_fd(bell, warn_on_full_buffer=False)
        former = {number: signal.signal(number, _caught) for number in _HANDLED}
        self._selector.register(self._wake, selectors.EVENT_READ, self._on_signals)
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(former_fd)
            os.close(self._wake)
            os.close(bell)

    def _interrupted(self) -> bool:
        """Whether the operator wants no more of the output that is left."""
        with contextlib.suppress(BlockingIOError):
            return any(number in _FORWARDED for number in os.read(self._wake, 4096))
        return False

    def _on_signals(self) -> None:
        for number in os.read(self._wake, 4096):
            if number == signal.SIGWINCH:
                if self._relay is not None:
                    self._relay.resized()
            elif number in _FORWARDED:
                self._forward(number)

    def _forward(self, number: int) -> None:
        now = self._clock()
        self._merger.take_event(Kind.SIGNAL, now, {4: number, 5: "operator"}, now)
        if self._phase is _Phase.RUNNING:
            self._tell_launch(control.Signal(number))

    def _suspend(self) -> None:
        """Stop as a job of the shell does; the agent's job goes on when hark does."""
        if self._relay is not None:
            self._relay.suspend()
        self._forward(signal.SIGCONT)

    # --- the end ----------------------------------------------------------------------------------

    def _fail(self, reason: str, error: HarkError) -> None:
        """Kill the agent's tree; the first reason stays."""
        self._end.failed(reason, error)
        if self._phase is _Phase.RUNNING:
            self._phase = _Phase.KILLING
            self._deadline_ns = self._clock() + limits.SESSION_KILL_WAIT_NS
            self._tell_launch(Plain(MsgType.KILL))

    def _check_limits(self, now: int) -> None:
        """End a run that is over one of the recorder's own limits."""
        if self._bounds is not None and (name := self._over(now)):
            self._fail(f"limit-{name}", self._bounds.error(name))

    def _over(self, now: int) -> str:
        """Return the limit that a run is over which is not being ended yet, or ""."""
        if self._phase is not _Phase.RUNNING or self._bounds is None:
            return ""
        events = self._appended + self._merger.held
        return self._bounds.over(now, events, self._in.writer.size)

    def _not_started(self, msg: control.Failed) -> None:
        self._fail("not-started", HarkError(msg.what, os.strerror(msg.err), msg.hint))
        self._begin_draining()

    def _exited(self, msg: control.Exited) -> None:
        self._end.exited(msg)
        self._begin_draining()

    def _begin_draining(self) -> None:
        """Have the streams run dry: the agent's tree is gone, or cannot be waited for."""
        if self._phase in (_Phase.DRAINING, _Phase.DONE):
            return
        self._phase = _Phase.DRAINING
        self._deadline_ns = self._clock() + limits.SESSION_DRAIN_WAIT_NS
        services = (
            ("publisher-died", self._in.publisher),
            ("broker-died", self._in.broker),
            ("mediator-died", self._in.mediator),
            ("tracer-died", self._in.tracer),
        )
        for reason, channel in services:
            if channel is not None and reason in self._undrained:
                with contextlib.suppress(PeerClosed):
                    channel.send(Plain(MsgType.STOP))
        if self._relay is not None:
            self._relay.drain()

    def _check_end(self, now: int) -> None:
        if self._phase is _Phase.KILLING and now >= self._deadline_ns:
            self._end.detail += " (hark-launch did not confirm the kill)"
            self._begin_draining()
        if self._phase is not _Phase.DRAINING:
            return
        if now >= self._deadline_ns:
            self._end.detail = self._end.detail or "a stream did not end in time"
            self._phase = _Phase.DONE
        elif not self._undrained:
            # Everything that will ever come is there: read until a whole turn brings nothing.
            before = self._merger.taken
            self._guarded(self._read_streams, now)
            self._merger.close()
            self._guarded(self._write_due, self._clock())
            if self._merger.next_due_ns() is None and self._merger.taken == before:
                self._phase = _Phase.DONE

    def _settle(self) -> None:
        """Say which service died first: one is often noticed before the one that it followed."""
        if self._end.by_service and (found := self._in.children.culprit()):
            self._end.settled(*found)

    # --- the last events --------------------------------------------------------------------------

    def _seal(self) -> bool:
        """Write the counters and run_end, and seal. After an error only what was reserved."""
        rings: list[RingStats] = []
        with contextlib.suppress(HarkError):
            rings = list(self._in.sensors.stats())
            self._note_losses(self._clock())
        self._write_due(self._clock(), drain=True)
        self._write_sets = write_set(self._in.written, self._uppers)
        self._written(self._append_all, write_set_events(self._write_sets))
        self._written(self._append_all, self._in.contents.finish())
        differences = self._merger.differences()
        self._written(self._append_all, self._merger.repeats())
        self._written(self._append_all, difference_events(differences))
        self._written(self._append_counts)
        read = self._in.ring.next_seq
        rings.append(RingStats("mediator", read, read, 0))
        try:
            if not self._writable:
                lost = self._in.writer.salvage() + self._discarded
                words: Payload = {4: "recorder", 5: lost, 6: "the bundle could not be written"}
                self._append(Kind.LOSS, words)
            totals = dict(self._merger.totals) | differences
            self._append(Kind.RUN_END, self._end.run_end(totals, rings))
            self._in.writer.seal()
        except HarkError as error:
            self._end.errors.append(error)
            with contextlib.suppress(HarkError):  # a prefix, then, but all of it on disk
                self._in.writer.salvage()
                self._in.writer.sync()
            return False
        return True

    def _append_counts(self) -> None:
        counts = list(self._in.sensors.counts())
        self._end.refused_tasks = self._end.refused_tasks or refused_tasks(counts)
        self._append_all(count_events(counts, self._merger))

    def _append_all(self, events: Iterable[tuple[Kind, Payload]]) -> None:
        for kind, payload in events:
            self._append(kind, payload)

    def _append(self, kind: Kind, payload: Payload) -> None:
        self._in.writer.append(kind, self._clock(), payload)

    def _publish(self) -> bool:
        """Have hark-launch bring the bundle to its place."""
        self._tell_launch(control.Sealed(self._in.sealed))
        if not self._launch_alive:
            return False
        deadline = time.monotonic() + limits.SESSION_PUBLISH_WAIT_NS / 1e9
        try:
            while (left := deadline - time.monotonic()) > 0:
                got = self._in.launch.recv(left)
                if got is None:
                    break
                got.close()
                if isinstance(got.msg, control.Published):
                    if got.msg.err:
                        cause = os.strerror(got.msg.err)
                        self._end.errors.append(HarkError("the bundle was not moved", cause))
                    return got.msg.err == 0
        except HarkError as error:
            self._end.errors.append(error)
            return False
        self._end.errors.append(HarkError("the bundle was not moved", "no answer in time"))
        return False

    def _result(self, *, sealed: bool, published: bool) -> RunResult:
        path = self._in.output if published else self._in.bundle
        errors = [line for error in self._end.errors for line in error.lines()]
        where = [] if published else [f"hark: the bundle lies at {path}"]
        lines = [*errors, *self._end.met_lines(), *self._merger.notices.lines()]
        if self._in.player is None:  # a replay's changes are gone
            lines += self._in.contents.lines()
            lines += summary(self._write_sets, self._in.run)
        return RunResult(
            exit_code=self._end.exit_code,
            wait_status=self._end.wait_status,
            reason=self._end.reason,
            sealed=sealed,
            published=published,
            path=path,
            lines=tuple(dict.fromkeys([*lines, *where])),
            errors=tuple(dict.fromkeys([*errors, *where])),
            exchanges=self._merger.totals["request"],
            denied=self._merger.totals["denied"],
        )

    def _release(self) -> None:
        for fd in (*self._uppers, *(layer.manifest for layer in self._in.written)):
            os.close(fd)
        if isinstance(self._relay, TerminalRelay):
            self._relay.restore()  # before a bug's traceback is printed
        self._digests.close()
        self._in.contents.close()
        self._bulk.close()
        self._urgent.close()
        self._selector.close()
        if self._in.tracer is not None:
            self._in.tracer.close()
        for peer in (self._in.mediator, self._in.broker, self._in.signer, self._in.launch):
            peer.close()  # which ends the three services
        self._in.children.wait()


def _all(
    poll: Callable[[], Iterable[_T]], has_room: Callable[[], bool] = lambda: True
) -> Iterator[_T]:
    """Yield what ``poll`` gives until it gives nothing or there is no room, within a bound."""
    for _ in range(limits.SESSION_POLLS_PER_TURN):
        empty = True
        for record in poll():
            empty = False
            yield record
        if empty or not has_room():
            return


def _caught(_number: int, _frame: object) -> None:
    """Let the wake-up descriptor tell the loop."""


def _nothing() -> None:
    """Wake the loop; the stream is read in every turn."""
