"""What a session is given, and what comes of it.

Values and protocols only: the streams and the writer are named by what a session needs of them, so
that this room depends on nobody's internals.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from hark.policy import control
from hark.policy.model import Limits
from hark.recorder.children import Children
from hark.recorder.contents import Contents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from hark.bundle.events import Kind
    from hark.errors import HarkError
    from hark.kernel.records import KernelRecord, RefusedPacket, RingStats, SyscallCount
    from hark.launcher.ids import Slot
    from hark.mediator.records import MediatorRecord
    from hark.policy.control import Channel, Play
    from hark.recorder.stdio import Relay
    from hark.workspace.writes import Written

__all__ = ["Packets", "Player", "Replay", "Ring", "RunResult", "Sensors", "SessionInputs", "Writer"]


class Writer(Protocol):
    """What a session needs of ``hark.bundle.writer.BundleWriter``."""

    def append(self, kind: int, boot_ns: int, payload: dict[int, Any]) -> int:
        """Add an event."""

    def sync(self) -> None:
        """Flush, and wait for the disk."""

    def tick(self, now_boot_ns: int) -> None:
        """Flush and sign what has waited long enough."""

    def salvage(self) -> int:
        """After an error: drop what could not be written, so that last words can be."""

    def seal(self) -> None:
        """Write the final head and the end."""

    @property
    def size(self) -> int:
        """Bytes written."""


class Ring(Protocol):
    """The mediator's ring. ``poll`` raises HarkError when it is corrupt."""

    def fileno(self) -> int:
        """Readable when there may be records."""

    def poll(self) -> Iterable[MediatorRecord]:
        """Return the records that are there; does not wait."""

    @property
    def next_seq(self) -> int:
        """Sequence number of the next record; all below it were returned."""


class Sensors(Protocol):
    """The kernel's sensors of one run. ``stats`` counts since the run began."""

    def fileno(self) -> int:
        """Readable when there are many records."""

    def poll(self) -> Iterable[KernelRecord]:
        """Return the records that are there; does not wait."""

    def counts(self) -> Iterable[SyscallCount]:
        """Return the counts of system calls of the whole run."""

    def stats(self) -> Iterable[RingStats]:
        """Return the counters of each ring."""


class Packets(Protocol):
    """The nflog socket. ``lost``: packets that the kernel could not hand over so far."""

    lost: int

    def fileno(self) -> int:
        """Readable when there are packets."""

    def poll(self) -> Iterable[RefusedPacket]:
        """Return the packets that are there; does not wait."""


class Player(Protocol):
    """Answers a replay's requests from a recording, in the place of any upstream."""

    diverged: HarkError | None

    def took(self, record: MediatorRecord) -> None:
        """Look at a record, in the order of the ring."""

    def saw(self, name: str) -> None:
        """Note an action beside the mediator's: ``name HOST`` was asked, ``program FILE`` ran."""

    def typed(self, data: bytes | None, *, end: bool) -> None:
        """Look at what the agent was given on its standard input."""

    def wanted(self, exchange: int) -> None:
        """Note that an exchange waits: its request is in the ring."""

    def turn(self) -> Iterable[Play]:
        """Return what the mediator is to be told next. Once ``diverged`` is set, nothing."""


@dataclass(slots=True, kw_only=True)
class Replay:
    """What makes a run a replay: its answers, its standard input, who sees its output.

    ``stdin``: a descriptor to read from, owned by the run. ``outputs``: where the agent's stdout
    and stderr are shown. ``keep``: whether the bundle goes to the run's destination. ``bundle``:
    set when the run begins, a descriptor of the bundle, which outlives the run. ``start``: what the
    writable folders held when this was recorded, and do again; empty: they are listed anew.
    ``unpack``: makes them below the run's folder, as its ids, and returns a mount for each path.
    ``events``: what the bundle says of them behind its start.
    ``sealed_seed``: the recording's; ``has_seed``: set when it could be opened.
    """

    player: Player
    stdin: int
    outputs: tuple[int, int]
    parent: str
    keep: bool
    bundle: int = -1
    sealed_seed: bytes | None = None
    has_seed: bool = False
    start: tuple[Written, ...] = ()
    unpack: Callable[[Path, Slot], Mapping[str, int]] | None = None
    events: Iterable[tuple[Kind, dict[int, Any]]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInputs:
    """Everything a run hands to its recorder. The session owns it all from now on.

    ``writer``: header, run_start and head 0 are on disk. ``relay``: a ``PipeRelay``, or the
    operator's terminal as (input, output): then HARK_MSG_STARTED brings the agent's. ``bundle``
    and ``output`` are for messages only. ``netns_cookie`` comes from HARK_MSG_NET_READY. ``launch``
    was not told GO yet. ``written``: the layers whose folders come with HARK_MSG_EXITED, in their
    order. ``contents``: what their files held. ``children``: whom this process is the parent of.
    ``player``: a replay. ``sealed``: what hark-launch is told to do with the bundle and the run's
    folder. ``proxy``: host and port of the policy's proxy.
    ``publisher``: of a run with --publish. ``limits``: with hark's
    defaults; what is None is not bounded.
    """

    writer: Writer
    hosts: tuple[str, ...]
    secrets: tuple[str, ...]
    netns_cookie: int
    launch: Channel
    mediator: Channel
    broker: Channel
    signer: Channel
    ring: Ring
    sensors: Sensors
    packets: Packets
    relay: Relay | tuple[int, int]
    bundle: str
    output: str
    run: str = ""
    written: tuple[Written, ...] = ()
    contents: Contents = field(default_factory=Contents)
    children: Children = field(default_factory=Children)
    tracer: Channel | None = None
    player: Player | None = None
    sealed: int = control.SealedFlag.PUBLISH
    proxy: str | None = None
    publisher: Channel | None = None
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How a run ended. ``exit_code`` is what hark exits with, ``wait_status`` the agent's.

    ``path`` is where the bundle lies; ``published``: at its intended place. ``sealed`` is false
    when the bundle is a prefix. ``lines`` are for the operator, ready to print; ``errors``
    are those of them that tell what went wrong. ``exchanges`` and ``denied`` count events.
    """

    exit_code: int
    wait_status: int | None
    reason: str
    sealed: bool
    published: bool
    path: str
    lines: tuple[str, ...]
    errors: tuple[str, ...] = ()
    exchanges: int = 0
    denied: int = 0
