"""How a run ended, and its last events.

Pure: values in, events out; ``session`` writes them. Rules: the first reason stays, unless
hark-launch, which watches the processes themselves, names the one that died first. Whatever the
streams say differently about the same run is told.
"""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hark.bundle.events import Kind
from hark.errors import HarkError, RecordingFailed
from hark.policy.control import ExitCause
from hark.policy.model import Limits
from hark.recorder.bounds import MET, memory_error, over_error
from hark.recorder.translate import Payload, compact

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hark.kernel.records import RingStats, SyscallCount
    from hark.policy.control import Exited
    from hark.recorder.lineage import Actor
    from hark.recorder.merge import Merger

__all__ = ["Ending", "count_events", "died", "difference_events"]

_COUNTS_PER_EVENT = 4096  # keeps a payload far below the bundle's limit of items
_CAUSES: dict[int, str] = {
    ExitCause.RECORDER: "recorder-died",
    ExitCause.MEDIATOR: "mediator-died",
    ExitCause.BROKER: "broker-died",
    ExitCause.SIGNER: "signer-died",
    ExitCause.PUBLISHER: "publisher-died",
    ExitCause.INIT: "init-died",
    ExitCause.METER: "meter-died",
    ExitCause.TRACER: "tracer-died",
}
_LOSSES = {
    "conns_unattributed": "connections whose connect the kernel did not report",
    "sockets_forgotten": "the table of sockets was full",
    "processes_forgotten": "the table of processes was full",
    "conns_forgotten": "the table of connections was full",
}
_NAMES = {
    "recorder-died": "the recorder",
    "mediator-died": "the mediator",
    "broker-died": "the broker",
    "signer-died": "the signer",
    "tracer-died": "the tracer",
    "publisher-died": "the publisher",
    "init-died": "the init of the run",
    "launcher-died": "hark-launch",
    "meter-died": "the meter of the run's limits",
}
_LIMIT = "limit-"
_SIGKILL = 9
_SERVICES = frozenset(
    {"mediator-died", "broker-died", "signer-died", "tracer-died", "publisher-died"}
)
_DEATHS = frozenset(f"{_NAMES[reason]} died" for reason in _SERVICES)


def died(reason: str, cause: str) -> HarkError:
    """Return the error that tells who died."""
    return HarkError(f"{_NAMES[reason]} died", cause)


@dataclass(slots=True)
class Ending:
    """What is known about the end, filled in as it comes. ``errors`` are for the operator."""

    reason: str = ""
    detail: str = ""
    wait_status: int | None = None
    stragglers: int = 0
    refused_tasks: int = 0
    killed_tasks: int = 0
    errors: list[HarkError] = field(default_factory=list)
    limits: Limits = field(default_factory=Limits)

    def failed(self, reason: str, error: HarkError) -> None:
        """Take the reason why hark ended the run, unless there is one already."""
        if self.reason:
            return
        self.errors.append(error)
        self.reason = reason
        self.detail = ": ".join(part for part in (error.what, error.cause) if part)

    def cut_short(self, reason: str, error: HarkError) -> None:
        """Take a service that died with records untold; that outranks an agent that ended well."""
        if self.reason == "exited":
            self.reason = ""
        self.failed(reason, error)

    def exited(self, msg: Exited) -> None:
        """Take hark-launch's word. What it saw die first outranks what we noticed first."""
        self.wait_status = msg.wait_status
        self.stragglers = msg.stragglers
        self.refused_tasks = msg.refused_tasks
        self.killed_tasks = msg.killed_tasks
        if msg.cause == ExitCause.LIMIT:
            self.failed(*over_error(msg.limit, self.limits))
        elif self._wanted_memory(msg):
            self.failed("limit-memory", memory_error(self.limits))
        cause = _CAUSES.get(msg.cause)
        if cause is not None and self.reason in ("", *_CAUSES.values()):
            self.reason = self.detail = ""
            self.errors.clear()
            self.failed(cause, died(cause, "the agent was stopped"))
        if not self.reason:
            self.reason = "killed" if msg.cause == ExitCause.KILLED else "exited"

    def _wanted_memory(self, msg: Exited) -> bool:
        """Whether what ended is the agent, or the run's init, and the kernel killed for memory."""
        ended_alone = msg.cause in (ExitCause.AGENT, ExitCause.INIT)
        killed = os.WIFSIGNALED(msg.wait_status) and os.WTERMSIG(msg.wait_status) == _SIGKILL
        return bool(ended_alone and killed and msg.killed_tasks)

    @property
    def met(self) -> list[tuple[str, int]]:
        """Limits that the run met without being over them: the name, and how often."""
        counts = (("pids", self.refused_tasks), ("memory", self.killed_tasks))
        return [(name, count) for name, count in counts if count]

    def met_lines(self) -> list[str]:
        """Lines for the operator."""
        return [
            f"hark: limit: {name} is {getattr(self.limits, name)}: {count} {MET[name]}"
            for name, count in self.met
        ]

    @property
    def by_service(self) -> bool:
        """Whether the death of a service is what ended the run."""
        return self.reason in _SERVICES

    def settled(self, service: str, how: str) -> None:
        """Take the parent's word on which service ended first: it outranks who was noticed."""
        reason = f"{service}-died"
        self.reason = self.detail = ""
        self.errors = [e for e in self.errors if e.what not in _DEATHS]
        self.failed(reason, died(reason, how))

    @property
    def exit_code(self) -> int:
        """What hark exits with: the agent's status, 128 + signal, or 125 when hark failed.

        A run that was over a limit was killed, as its policy says: that is no failure of hark.
        """
        status = self.wait_status
        if self.reason.startswith(_LIMIT):
            return 128 + _SIGKILL
        if self.reason != "exited" or status is None:
            return RecordingFailed.exit_code
        return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)

    def run_end(self, totals: dict[str, int], rings: Iterable[RingStats]) -> Payload:
        """Return the payload of run_end (docs/spec/records.md, kind 2)."""
        return compact(
            {
                4: self.wait_status,
                5: self.exit_code,
                6: self.reason,
                7: {name: totals[name] for name in sorted(totals, key=_cbor_order)},
                8: self.stragglers,
                9: [[r.name, r.produced, r.emitted, r.dropped] for r in rings],
                10: self.detail or None,
                11: [[name, count] for name, count in self.met] or None,
            }
        )


def count_events(counts: Iterable[SyscallCount], merger: Merger) -> Iterator[tuple[Kind, Payload]]:
    """Yield syscall_counts for each process, in parts where there are many."""
    processes: dict[tuple[int, int], list[list[int]]] = defaultdict(list)
    actors: dict[tuple[int, int], Actor | None] = {}
    for record in counts:
        key = (record.tgid, record.start_ns)
        processes[key].append([record.nr, record.errno, record.count])
        actors.setdefault(key, merger.process(record))
    for key, rows in sorted(processes.items()):
        rows.sort()
        actor = actors[key]
        for at in range(0, len(rows), _COUNTS_PER_EVENT):
            value = actor.value() if actor else None
            yield Kind.SYSCALL_COUNTS, compact({1: value, 4: rows[at : at + _COUNTS_PER_EVENT]})


def difference_events(differences: dict[str, int]) -> Iterator[tuple[Kind, Payload]]:
    """Yield what the streams say differently, and what the tables had to forget."""
    for source, detail in _LOSSES.items():
        if count := differences.get(source):
            yield Kind.LOSS, {4: source, 5: count, 6: detail}
    if count := differences.get("connects_unmet"):
        # Not a loss by itself: a connect that is cut off in the middle meets nobody.
        text = f"{count} connects were neither accepted nor seen by the rules"
        yield Kind.NOTICE, {4: "connects_unmet", 5: text}


def _cbor_order(text: str) -> tuple[int, bytes]:
    """Canonical CBOR: shorter keys first, then bytewise (docs/spec/bundle.md, "CBOR profile")."""
    data = text.encode()
    return (len(data), data)
