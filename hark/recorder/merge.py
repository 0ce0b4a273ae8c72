"""Joins the streams of a run: by time into one order, by tuple to the thread behind each event.

Pure: records and the time go in, events come out. Rules:

- A record is held ``MERGE_HOLD_NS`` and then written in the order of times. One that comes later
  than that is written where it arrives. Records of the mediator, the broker and the stdio relay
  keep their own order whatever their times say.
- Attribution is exact or absent. A connect record and the mediator's accept race: the accept waits
  for up to the hold, then it is written without an actor, and no later record changes that.
- An exec waits for the digest of its executable, within a bound. Everything behind it waits too, so
  that a short-lived program's events carry the digest.
- What must be on disk before it takes effect (a refusal, a dial) does not wait for the hold, and
  takes along everything older that was held.

The caller must read the mediator and the broker *before* the kernel's rings: the kernel reports a
connect before its SYN leaves, so a connect belonging to an accept that was read is then readable.
"""

from __future__ import annotations

import errno
import heapq
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hark import limits
from hark.bundle.events import Key, Kind
from hark.kernel import records as kernel
from hark.kernel import syscalls
from hark.mediator import records as mediator
from hark.policy import control
from hark.recorder import notice, translate
from hark.recorder.lineage import Actor, Connections, Flows, Image, Owner, Processes, tuple_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from hark.recorder.translate import Names, Payload

__all__ = ["Ahead", "DialRecorded", "InboundRecorded", "Merged", "Merger", "RingDurable"]

_DNS_PORT = 53
_SIGSYS = 31
_TCP = 6
_UDP = 17
_CLOSED_CONNS_KEPT = 1024  # a dial result may come after its connection's end
_KERNEL_FIRST = 0  # rank at equal times: a connect comes before its accept
_ABSENT = "syscall_absent"  # answered as by a kernel that lacks the call: libraries probe so
_REJECTED_CA = "client_rejected_ca"
_LEFT = "client_left_at_certificate"
_DISTRUST = {
    _REJECTED_CA: "{} does not trust the run's CA",
    _LEFT: "{} left when it saw the run's certificate; most likely it does not trust the CA",
}
_BROKEN_HANDSHAKES = frozenset({*_DISTRUST, "tls_handshake"})
_RECORD_BYTES = 256  # what a held record costs beside its data


@dataclass(frozen=True, slots=True)
class RingDurable:
    """Once the event is on disk, every ring record below ``below`` is."""

    below: int


@dataclass(frozen=True, slots=True)
class DialRecorded:
    """Once the event is on disk, the dial ``ident`` may be made."""

    ident: int


@dataclass(frozen=True, slots=True)
class InboundRecorded:
    """Once the event is on disk, the agent may see the connection ``ident``."""

    ident: int


Ahead = RingDurable | DialRecorded | InboundRecorded


@dataclass(frozen=True, slots=True)
class Merged:
    """An event for the bundle, and who waits for it to be on disk."""

    kind: Kind
    boot_ns: int
    payload: Payload
    ahead: Ahead | None = None


@dataclass(frozen=True, slots=True)
class _Dial:
    message: control.DialEvent
    ident: int


@dataclass(frozen=True, slots=True)
class _Inbound:
    message: control.Inbound
    ident: int


@dataclass(frozen=True, slots=True)
class _Ready:
    kind: Kind
    payload: Payload


@dataclass(slots=True)
class _Item:
    record: Any
    boot_ns: int
    arrived_ns: int
    bytes: int
    image: Image | None = None


@dataclass(slots=True)
class _Conn:
    opened: mediator.ConnOpen
    owner: Owner | None
    written: bool = False


class Merger:
    """One per run. ``now_ns`` is CLOCK_BOOTTIME and must not fall.

    ``netns_cookie``: SO_NETNS_COOKIE of the agent's network namespace; 0: not known. A tuple of
    another namespace (one the agent made) names nothing here. ``answered``: system calls that
    hark-trace answers; none of them is ever refused by hark.
    """

    def __init__(
        self,
        names: Names,
        netns_cookie: int = 0,
        hold_ns: int = limits.MERGE_HOLD_NS,
        answered: frozenset[int] = frozenset(),
    ) -> None:
        self.notices = notice.Notices()
        self.totals: Counter[str] = Counter()
        self._names = names
        self._netns = netns_cookie
        self._answered = answered
        self._hold_ns = hold_ns
        self._heap: list[tuple[int, int, int, _Item]] = []
        self._arrivals = 0
        self._bytes = 0
        self._urgent_ns = -1
        self._last_key: dict[str, int] = {}
        self._processes = Processes()
        self._connections = Connections()
        self._flows = Flows()
        self._conns: OrderedDict[int, _Conn] = OrderedDict()
        self._closed_conns: deque[int] = deque()
        self._exchanges: OrderedDict[int, tuple[int, str]] = OrderedDict()
        self._resolved: OrderedDict[bytes, str] = OrderedDict()
        self._refusals: Counter[Hashable] = Counter()
        self._acts: Counter[Hashable] = Counter()
        self._repeated: dict[Hashable, Payload] = {}
        self._pending: dict[kernel.ExeId, list[Image]] = {}
        self._emitters: dict[type, Callable[[_Item], Iterator[Merged]]] = {
            kernel.Exec: self._exec,
            kernel.Fork: self._fork,
            kernel.Exit: self._exit,
            kernel.Connect: self._connect,
            kernel.UdpFlow: self._udp_flow,
            kernel.SocketClose: self._socket_close,
            kernel.SyscallRefused: self._syscall_refused,
            kernel.SyscallKilled: self._syscall_killed,
            kernel.CgroupLeft: self._cgroup_left,
            kernel.SocketAct: self._socket_act,
            kernel.FileAct: self._file_act,
            kernel.CapRefused: self._cap_refused,
            kernel.RefusedPacket: self._packet,
            mediator.ConnOpen: self._conn_open,
            mediator.ConnTls: self._conn_tls,
            mediator.ConnClose: self._conn_close,
            mediator.Upstream: self._upstream,
            mediator.RequestHead: self._request,
            mediator.RequestBody: self._body,
            mediator.ResponseHead: self._response,
            mediator.ResponseBody: self._delivery,
            mediator.Trailers: self._trailers,
            mediator.Substituted: self._substituted,
            mediator.Refused: self._refused,
            mediator.ExchangeEnd: self._end,
            control.Dns: self._dns,
            control.Draws: self._draws,
            _Dial: self._dial,
            _Inbound: self._inbound,
            _Ready: self._ready,
        }

    # --- records in -------------------------------------------------------------------------------

    def take_kernel(self, record: kernel.KernelRecord, now_ns: int) -> None:
        """Take a record of the BPF rings; their order among each other is that of their times."""
        if self._is_answer(record):
            return
        item = _Item(record, record.head.boot_ns, now_ns, _RECORD_BYTES)
        if isinstance(record, kernel.Exec):
            item.image = Image(record.exe, record.filename)
            self._pending.setdefault(record.exe, []).append(item.image)
        self._hold(item, item.boot_ns, _KERNEL_FIRST)

    def _is_answer(self, record: kernel.KernelRecord) -> bool:
        """Whether hark-trace answered with an error, or a signal came first.

        To the sensors that looks like seccomp's own refusal: a call left that never began.
        """
        return (
            isinstance(record, kernel.SyscallRefused)
            and record.nr in self._answered
            and not record.ia32
        )

    def take_packet(self, record: kernel.RefusedPacket, now_ns: int) -> None:
        """Take a packet that the run's rules refused."""
        item = _Item(record, record.boot_ns, now_ns, _RECORD_BYTES)
        self._hold(item, self._sane(item))

    def take_mediator(self, record: mediator.MediatorRecord, now_ns: int) -> None:
        """Take a record of the mediator's ring. Refusals ask for write-ahead."""
        size = _RECORD_BYTES
        if isinstance(record, mediator.RequestBody | mediator.ResponseBody):
            size += len(record.data)
        elif isinstance(record, mediator.RequestHead | mediator.ResponseHead):
            size += len(record.raw)
        item = _Item(record, record.head.boot_ns, now_ns, size)
        key = self._in_order("mediator", item)
        if isinstance(record, mediator.Refused):
            self._urgent_ns = max(self._urgent_ns, key)

    def take_dns(self, message: control.Dns, now_ns: int) -> None:
        """Take one answered question from the broker."""
        self._in_order("broker", _Item(message, message.boot_ns, now_ns, _RECORD_BYTES))

    def take_draws(self, message: control.Draws, now_ns: int) -> None:
        """Take what one thread has drawn of the run's randomness; they come at the end."""
        self._in_order("tracer", _Item(message, now_ns, now_ns, _RECORD_BYTES))

    def take_dial(self, message: control.DialEvent, ident: int, now_ns: int) -> None:
        """Take a dial's intent, which asks for write-ahead, or its result."""
        item = _Item(_Dial(message, ident), message.boot_ns, now_ns, _RECORD_BYTES)
        key = self._in_order("broker", item)
        if message.type is control.MsgType.DIAL_INTENT:
            self._urgent_ns = max(self._urgent_ns, key)

    def take_inbound(self, message: control.Inbound, ident: int, now_ns: int) -> None:
        """Take a connection to a published port: its begin asks for write-ahead."""
        item = _Item(_Inbound(message, ident), message.boot_ns, now_ns, _RECORD_BYTES)
        key = self._in_order("publisher", item)
        if message.what == control.InboundWhat.OPEN:
            self._urgent_ns = max(self._urgent_ns, key)

    def take_event(self, kind: Kind, boot_ns: int, payload: Payload, now_ns: int) -> None:
        """Take an event of the recorder itself: stdio, signals, losses."""
        data = payload.get(5)
        size = _RECORD_BYTES + (len(data) if isinstance(data, bytes) else 0)
        self._in_order("recorder", _Item(_Ready(kind, payload), boot_ns, now_ns, size))

    def digested(self, exe: kernel.ExeId, digest: bytes | None, state: str) -> None:
        """Take the digest of ``exe``, or why there is none. Events from now on carry it."""
        for image in self._pending.pop(exe, ()):
            image.digest = digest
            image.state = state

    def close(self) -> None:
        """Take note that every stream was read to its end: from now on only digests are awaited."""
        self._hold_ns = 0

    def lost(self) -> None:
        """Kernel records were lost: forget what a lost record may have made untrue."""
        self._flows.clear()

    # --- events out -------------------------------------------------------------------------------

    @property
    def taken(self) -> int:
        """How many records came in so far."""
        return self._arrivals

    @property
    def held(self) -> int:
        """How many records are held."""
        return len(self._heap)

    @property
    def held_bytes(self) -> int:
        """Memory of what is held, roughly."""
        return self._bytes

    def next_due_ns(self) -> int | None:
        """When ``due`` will have something, unless more comes in; ``None`` when nothing is held."""
        if not self._heap:
            return None
        key, _, _, item = self._heap[0]
        return self._due_ns(key, item)

    def due(self, now_ns: int, *, drain: bool = False) -> Iterator[Merged]:
        """Events whose time has come, in order. ``drain``: everything, and nothing waits."""
        while self._heap:
            key, _, _, item = self._heap[0]
            if not drain and not self._is_crowded() and self._due_ns(key, item) > now_ns:
                return
            heapq.heappop(self._heap)
            self._bytes -= item.bytes
            for event in self._emitters[type(item.record)](item):
                self.totals[_counted_as(event)] += 1
                yield event

    def process(self, record: kernel.SyscallCount) -> Actor | None:
        """Return the process whose calls were counted, as its main thread."""
        task = kernel.Task(record.tgid, record.tgid, record.start_ns)
        return self._processes.actor(task)

    def repeats(self) -> Iterator[tuple[Kind, Payload]]:
        """Yield one event for each refusal that was met more often than is told one by one."""
        for what, payload in self._repeated.items():
            count = self._refusals[what] - limits.DENIALS_ONE_BY_ONE
            yield Kind.DENIED, translate.compact({**payload, 19: count})

    def differences(self) -> dict[str, int]:
        """Return what the streams say about each other, for the end of the run.

        connects: from the kernel. conns: from the mediator. conns_unattributed: no connect was
        found. connects_unmet: neither accepted nor refused nor local. The rest: entries that had
        to be forgotten while they could still be needed.
        """
        totals = {
            "connects": self.totals["connect"],
            "conns": self.totals["conns"],
            "conns_unattributed": self.totals["conns_unattributed"],
            "connects_unmet": self._connections.finish(),
            "dns_unattributed": self.totals["dns_unattributed"],
            "sockets_forgotten": self._connections.forgotten + self._flows.forgotten,
            "processes_forgotten": self._processes.forgotten,
            "conns_forgotten": self.totals["conns_forgotten"],
        }
        return {name: count for name, count in totals.items() if count or name == "connects"}

    # --- holding ----------------------------------------------------------------------------------

    def _hold(self, item: _Item, key: int, rank: int = _KERNEL_FIRST + 1) -> None:
        self._arrivals += 1
        self._bytes += item.bytes
        heapq.heappush(self._heap, (key, rank, self._arrivals, item))

    def _sane(self, item: _Item) -> int:
        """Return the time of ``item``, unless a wrong clock would hold up everything behind it."""
        return min(item.boot_ns, item.arrived_ns + self._hold_ns)

    def _in_order(self, source: str, item: _Item) -> int:
        key = max(self._sane(item), self._last_key.get(source, 0))
        self._last_key[source] = key
        self._hold(item, key)
        return key

    def _due_ns(self, key: int, item: _Item) -> int:
        urgent = key <= self._urgent_ns
        return max(key if urgent else key + self._hold_ns, self._wait_until(item))

    def _is_crowded(self) -> bool:
        return (
            len(self._heap) > limits.MERGE_HELD_MAX_RECORDS
            or self._bytes > limits.MERGE_HELD_MAX_BYTES
        )

    def _wait_until(self, item: _Item) -> int:
        """Until when ``item`` waits for something that may still come; 0: for nothing."""
        record = item.record
        if isinstance(record, kernel.Exec):
            known = item.image is None or item.image.state
            return 0 if known else item.arrived_ns + limits.EXEC_DIGEST_WAIT_NS
        if isinstance(record, mediator.ConnOpen):
            found = self._connections.find(_conn_tuple(record), item.boot_ns) is not None
        elif isinstance(record, control.Dns):
            found = self._flow_of(record, self._connections.find) is not None
        elif isinstance(record, kernel.RefusedPacket):
            found = record.proto not in (_TCP, _UDP) or self._packet_owner(record) is not None
        else:
            return 0
        return 0 if found else item.arrived_ns + self._hold_ns

    # --- kernel -----------------------------------------------------------------------------------

    def _exec(self, item: _Item) -> Iterator[Merged]:
        record: kernel.Exec = item.record
        image = item.image or Image(record.exe, record.filename)
        self._processes.execed(record.head.task, image)
        state = image.state or "unknown: not hashed in time"
        yield self._by_task(Kind.EXEC, record.head, translate.exec_(record, image.digest, state))

    def _fork(self, item: _Item) -> Iterator[Merged]:
        record: kernel.Fork = item.record
        if not record.thread:
            self._processes.forked(record.head.task, record.child)
        yield self._by_task(Kind.FORK, record.head, translate.fork(record))

    def _exit(self, item: _Item) -> Iterator[Merged]:
        record: kernel.Exit = item.record
        yield self._by_task(Kind.EXIT, record.head, {4: record.status, 5: record.last})
        if record.last:
            self._processes.ended(record.head.task)

    def _connect(self, item: _Item) -> Iterator[Merged]:
        record: kernel.Connect = item.record
        if self._is_ours(record):
            self._connections.connected(record, self._processes.actor(record.head.task))
        yield self._by_task(Kind.CONNECT, record.head, translate.flow(record))

    def _udp_flow(self, item: _Item) -> Iterator[Merged]:
        record: kernel.UdpFlow = item.record
        if self._is_ours(record):
            self._flows.began(record, self._processes.actor(record.head.task))
        yield self._by_task(Kind.UDP_FLOW, record.head, translate.flow(record))

    def _socket_close(self, item: _Item) -> Iterator[Merged]:
        # A socket often closes in an interrupt: the current task of the record means nothing, the
        # thread that connected does.
        record: kernel.SocketClose = item.record
        owner = self._connections.closed(record.cookie, item.boot_ns)
        payload = {4: record.tx_bytes, 5: record.rx_bytes, Key.COOKIE: record.cookie}
        yield self._by_owner(Kind.SOCKET_CLOSE, item.boot_ns, payload, owner)

    def _syscall_refused(self, item: _Item) -> Iterator[Merged]:
        record: kernel.SyscallRefused = item.record
        absent = record.errno == errno.ENOSYS
        reason = _ABSENT if absent else "syscall_refused"
        payload = translate.syscall_denied(record, reason, record.errno)
        if not absent:
            self.notices.refused("system_call", _call_name(record), "")
        task = record.head.task
        what = (task.tgid, task.start_ns, record.nr, record.errno, record.ia32)
        yield from self._unless_repeated(what, self._by_task(Kind.DENIED, record.head, payload))

    def _syscall_killed(self, item: _Item) -> Iterator[Merged]:
        record: kernel.SyscallKilled = item.record
        payload = translate.syscall_denied(record, "syscall_killed", None)
        self.notices.refused("system_call", f"{_call_name(record)}, killed", "")
        yield self._by_task(Kind.DENIED, record.head, payload)
        yield self._by_task(Kind.SIGNAL, record.head, {4: _SIGSYS, 5: "seccomp"})

    def _cgroup_left(self, item: _Item) -> Iterator[Merged]:
        record: kernel.CgroupLeft = item.record
        detail = f"a task was moved to cgroup {record.to_cgroup}: it is not observed any more"
        yield self._by_task(Kind.LOSS, record.head, {4: "cgroup", 5: 1, 6: detail})

    def _socket_act(self, item: _Item) -> Iterator[Merged]:
        record: kernel.SocketAct = item.record
        yield self._by_task(Kind.SOCKET, record.head, translate.socket_act(record))

    def _file_act(self, item: _Item) -> Iterator[Merged]:
        """Tell a write or a removal, but not the same one of a process again and again."""
        record: kernel.FileAct = item.record
        task = record.head.task
        what = (task.tgid, task.start_ns, record.op, record.path, record.name)
        if len(self._acts) >= limits.FILES_REMEMBERED:
            self._acts.clear()
        self._acts[what] += 1
        if self._acts[what] <= limits.FILES_ONE_BY_ONE:
            yield self._by_task(Kind.FILE, record.head, translate.file_act(record))
        else:
            self.totals["files_repeated"] += 1

    def _cap_refused(self, item: _Item) -> Iterator[Merged]:
        record: kernel.CapRefused = item.record
        task = record.head.task
        what = (task.tgid, task.start_ns, "capability", record.cap)
        event = self._by_task(Kind.DENIED, record.head, translate.cap_refused(record))
        yield from self._unless_repeated(what, event)

    def _packet(self, item: _Item) -> Iterator[Merged]:
        record: kernel.RefusedPacket = item.record
        owner = self._packet_owner(record)
        if owner is not None:
            owner.met = True
        payload = translate.packet_denied(record)
        self.notices.refused("packet_refused", _packet_target(record), "")
        event = self._by_owner(Kind.DENIED, item.boot_ns, payload, owner, cookie=True)
        yield from self._unless_repeated((record.proto, record.dst, record.dport), event)

    # --- mediator ---------------------------------------------------------------------------------

    def _conn_open(self, item: _Item) -> Iterator[Merged]:
        record: mediator.ConnOpen = item.record
        owner = self._connections.accept(_conn_tuple(record), item.boot_ns)
        self.totals["conns"] += 1
        self.totals["conns_unattributed"] += owner is None
        self._conns[record.conn] = _Conn(record, owner)
        if len(self._conns) > limits.RECORDER_MAX_CONNS + _CLOSED_CONNS_KEPT:
            self._conns.popitem(last=False)
            self.totals["conns_forgotten"] += 1
        yield from ()  # the event is written with the handshake, or before what comes instead

    def _conn_tls(self, item: _Item) -> Iterator[Merged]:
        record: mediator.ConnTls = item.record
        conn = self._conns.get(record.conn)
        if conn is None:
            return
        conn.written = True
        payload = translate.conn(conn.opened, record)
        yield self._by_owner(Kind.CONN, item.boot_ns, payload, conn.owner, cookie=True)

    def _conn_close(self, item: _Item) -> Iterator[Merged]:
        record: mediator.ConnClose = item.record
        yield from self._conn_event(record.conn, item.boot_ns)
        payload = {4: record.conn, 5: record.reason, 6: record.rx_bytes, 7: record.tx_bytes}
        yield self._by_conn(Kind.CONN_CLOSE, item.boot_ns, payload, record.conn)
        self._closed_conns.append(record.conn)
        if len(self._closed_conns) > _CLOSED_CONNS_KEPT:
            self._conns.pop(self._closed_conns.popleft(), None)

    def _upstream(self, item: _Item) -> Iterator[Merged]:
        record: mediator.Upstream = item.record
        payload = translate.upstream(record, self._names)
        yield self._by_conn(Kind.UPSTREAM, item.boot_ns, payload, record.conn)

    def _request(self, item: _Item) -> Iterator[Merged]:
        record: mediator.RequestHead = item.record
        yield from self._conn_event(record.conn, item.boot_ns)
        self._exchanges[record.exchange] = (record.conn, self._names.host(record.host) or "")
        if len(self._exchanges) > limits.RECORDER_MAX_CONNS:
            self._exchanges.popitem(last=False)
            self.totals["conns_forgotten"] += 1
        payload = translate.request(record, self._names)
        yield self._by_conn(Kind.REQUEST, item.boot_ns, payload, record.conn)

    def _body(self, item: _Item) -> Iterator[Merged]:
        yield self._by_exchange(Kind.BODY, item, translate.data(item.record))

    def _response(self, item: _Item) -> Iterator[Merged]:
        yield self._by_exchange(Kind.RESPONSE, item, translate.response(item.record))

    def _delivery(self, item: _Item) -> Iterator[Merged]:
        yield self._by_exchange(Kind.DELIVERY, item, translate.data(item.record))

    def _trailers(self, item: _Item) -> Iterator[Merged]:
        record: mediator.Trailers = item.record
        payload = {Key.EXCHANGE: record.exchange, 4: record.response, 5: record.raw}
        yield self._by_exchange(Kind.TRAILERS, item, payload)

    def _substituted(self, item: _Item) -> Iterator[Merged]:
        record: mediator.Substituted = item.record
        _, host = self._exchanges.get(record.exchange, (0, ""))
        payload = {
            Key.EXCHANGE: record.exchange,
            4: self._names.secret(record.secret),
            5: record.header,
            6: host or None,
        }
        yield self._by_exchange(Kind.SUBSTITUTED, item, payload)

    def _refused(self, item: _Item) -> Iterator[Merged]:
        record: mediator.Refused = item.record
        # The name in such a record is the one the ClientHello asked for.
        sni = record.name if record.reason in _BROKEN_HANDSHAKES else ""
        yield from self._conn_event(record.conn, item.boot_ns, sni)
        ahead = RingDurable(record.head.seq + 1)
        conn = self._conns.get(record.conn)
        opened = conn.opened if conn else None
        if record.reason in notice.NOTED:
            payload: Payload = {
                Key.EXCHANGE: record.exchange or None,
                4: record.reason,
                5: notice.noted_text(record.reason, record.detail, record.name, self._names.secret),
            }
            event = self._by_conn(Kind.NOTICE, item.boot_ns, payload, record.conn)
        else:
            name = record.name or self._asked_for(opened)
            hint = self._hint(record, name, opened.dport if opened else None)
            self.notices.refused(record.reason, _refused_target(name, opened), hint)
            payload = translate.refused(record, self._names, opened, hint, name)
            event = self._by_conn(Kind.DENIED, item.boot_ns, payload, record.conn)
        yield Merged(event.kind, event.boot_ns, event.payload, ahead)
        if record.reason in _DISTRUST:
            yield from self._distrusted(record, item.boot_ns)

    def _end(self, item: _Item) -> Iterator[Merged]:
        record: mediator.ExchangeEnd = item.record
        payload = {
            Key.EXCHANGE: record.exchange,
            4: record.reason,
            5: record.request_bytes,
            6: record.response_bytes,
        }
        yield self._by_exchange(Kind.END, item, payload)
        self._exchanges.pop(record.exchange, None)

    # --- broker and recorder ----------------------------------------------------------------------

    def _dns(self, item: _Item) -> Iterator[Merged]:
        message: control.Dns = item.record
        owner = self._asker(message)
        self._remember(message)
        self.totals["dns_unattributed"] += owner is None
        yield self._by_owner(Kind.DNS, item.boot_ns, translate.dns(message), owner, cookie=True)
        if message.rcode and not message.allowed:
            payload = translate.dns_denied(message)
            yield self._by_owner(Kind.DENIED, item.boot_ns, payload, owner, cookie=True)

    def _remember(self, message: control.Dns) -> None:
        for raw in translate.dns_answers(message):
            self._resolved[raw] = message.qname
            self._resolved.move_to_end(raw)
        while len(self._resolved) > limits.RECORDER_MAX_RESOLVED:
            self._resolved.popitem(last=False)

    def _draws(self, item: _Item) -> Iterator[Merged]:
        message: control.Draws = item.record
        task = kernel.Task(message.tgid, message.tid, message.start_ns)
        actor = self._processes.actor(task) if message.tgid else None
        payload = translate.draws(message) | ({1: actor.value()} if actor else {})
        yield Merged(Kind.RANDOM, item.boot_ns, translate.compact(payload))

    def _dial(self, item: _Item) -> Iterator[Merged]:
        message, ident = item.record.message, item.record.ident
        yield from self._conn_event(message.conn, item.boot_ns)
        payload = translate.dial(message, self._names)
        event = self._by_conn(Kind.DIAL, item.boot_ns, payload, message.conn)
        intent = message.type is control.MsgType.DIAL_INTENT
        ahead = DialRecorded(ident) if intent else None
        yield Merged(event.kind, event.boot_ns, event.payload, ahead)

    def _inbound(self, item: _Item) -> Iterator[Merged]:
        message, ident = item.record.message, item.record.ident
        if message.what == control.InboundWhat.OPEN:
            payload = translate.inbound(message, ident)
            yield Merged(Kind.CONN, item.boot_ns, payload, InboundRecorded(ident))
        else:
            yield Merged(Kind.CONN_CLOSE, item.boot_ns, translate.inbound_end(message, ident))

    def _ready(self, item: _Item) -> Iterator[Merged]:
        yield Merged(item.record.kind, item.boot_ns, item.record.payload)

    # --- attribution ------------------------------------------------------------------------------

    def _is_ours(self, record: kernel.Connect | kernel.UdpFlow) -> bool:
        """Whether a tuple belongs to the namespace that the mediator and the broker serve."""
        return 0 in (record.netns, self._netns) or record.netns == self._netns

    def _asker(self, message: control.Dns) -> Owner | None:
        """Return who asked: by TCP a connection's first question is its accept."""
        accepted = self._flow_of(message, self._connections.accept)
        return accepted or self._flow_of(message, self._connections.find)

    def _flow_of(
        self,
        message: control.Dns,
        connection: Callable[[tuple[bytes, int, bytes, int], int], Owner | None],
    ) -> Owner | None:
        """Return the owner of a question's tuple; ``connection`` is for those asked by TCP."""
        src = translate.family_address(message.family, message.src)
        dst = translate.family_address(message.family, message.dst)
        if src is None or dst is None:
            return None
        key = tuple_of(src, message.sport, dst, _DNS_PORT)
        find = connection if message.tcp else self._flows.find
        return find(key, message.boot_ns)

    def _packet_owner(self, record: kernel.RefusedPacket) -> Owner | None:
        key = tuple_of(record.src, record.sport, record.dst, record.dport)
        if record.proto == _TCP:
            return self._connections.find(key, record.boot_ns)
        return self._flows.find(key, record.boot_ns) if record.proto == _UDP else None

    def _conn_event(self, conn_id: int, boot_ns: int, sni: str = "") -> Iterator[Merged]:
        """Yield the event of a connection that goes on without a handshake."""
        conn = self._conns.get(conn_id)
        if conn is None or conn.written:
            return
        conn.written = True
        payload = translate.conn(conn.opened, None, sni)
        yield self._by_owner(Kind.CONN, boot_ns, payload, conn.owner, cookie=True)

    def _program(self, conn_id: int) -> bytes:
        """Return what the process behind a connection last executed; empty: not known."""
        conn = self._conns.get(conn_id)
        actor = conn.owner.actor if conn and conn.owner else None
        return actor.image.filename if actor and actor.image else b""

    def _hint(self, record: mediator.Refused, name: str, dport: int | None) -> str:
        if record.reason in _DISTRUST:
            return notice.ca_hint(self._program(record.conn))
        return notice.hint(record.reason, name, dport)

    def _asked_for(self, opened: mediator.ConnOpen | None) -> str:
        """Return the name that the run's resolver last gave this address for, or nothing."""
        return self._resolved.get(translate.address(opened.dst), "") if opened else ""

    def _distrusted(self, record: mediator.Refused, boot_ns: int) -> Iterator[Merged]:
        """Tell once for each program and host that the client does not trust the run."""
        program = self._program(record.conn)
        who = notice.printable(program)
        if not self.notices.first(record.reason, f"{who} {record.name}"):
            return
        text = _DISTRUST[record.reason].format(who or "a client")
        payload = {4: record.reason, 5: text, 6: notice.ca_hint(program)}
        yield self._by_conn(Kind.NOTICE, boot_ns, payload, record.conn)

    def _unless_repeated(self, what: Hashable, event: Merged) -> Iterator[Merged]:
        """Yield a refusal, or only count it when it is the same for the hundredth time."""
        if what in self._refusals or len(self._refusals) < limits.DENIALS_MAX_KINDS:
            self._refusals[what] += 1
        if self._refusals[what] <= limits.DENIALS_ONE_BY_ONE:
            yield event
        else:
            self._repeated[what] = event.payload

    def _by_task(self, kind: Kind, head: kernel.Head, payload: Payload) -> Merged:
        actor = self._processes.actor(head.task)
        return Merged(kind, head.boot_ns, _with_actor(payload, actor))

    def _by_owner(
        self,
        kind: Kind,
        boot_ns: int,
        payload: Payload,
        owner: Owner | None,
        *,
        cookie: bool = False,
    ) -> Merged:
        if owner is not None and cookie:
            payload = {**payload, Key.COOKIE: owner.cookie}
        return Merged(kind, boot_ns, _with_actor(payload, owner.actor if owner else None))

    def _by_conn(self, kind: Kind, boot_ns: int, payload: Payload, conn_id: int) -> Merged:
        conn = self._conns.get(conn_id)
        return self._by_owner(kind, boot_ns, payload, conn.owner if conn else None)

    def _by_exchange(self, kind: Kind, item: _Item, payload: Payload) -> Merged:
        conn_id, _ = self._exchanges.get(item.record.exchange, (0, ""))
        return self._by_conn(kind, item.boot_ns, payload, conn_id)


def _with_actor(payload: Payload, actor: Actor | None) -> Payload:
    value = actor.value() if actor is not None else None
    return translate.compact({**{int(k): v for k, v in payload.items()}, 1: value})


def _counted_as(event: Merged) -> str:
    """Return the total an event counts to. Only what was denied counts as a denial."""
    if event.kind is Kind.DENIED and event.payload.get(5) == _ABSENT:
        return "syscalls_absent"
    if event.kind is Kind.DENIED and event.payload.get(4) == "capability":
        return "capabilities_refused"
    return event.kind.name.lower()


def _call_name(record: kernel.SyscallRefused | kernel.SyscallKilled) -> str:
    return syscalls.name(record.nr | (syscalls.IA32 if record.ia32 else 0))


def _conn_tuple(record: mediator.ConnOpen) -> tuple[bytes, int, bytes, int]:
    return tuple_of(record.src, record.sport, record.dst, record.dport)


def _refused_target(name: str, opened: mediator.ConnOpen | None) -> str:
    """Name what a refusal of the mediator was about, for a line: a host, else an address."""
    if name or opened is None:
        return name
    return f"{translate.address_text(translate.address(opened.dst))} port {opened.dport}"


def _packet_target(record: kernel.RefusedPacket) -> str:
    names = {_TCP: "tcp", _UDP: "udp"}
    dst = translate.address_text(translate.address(record.dst))
    if record.proto in names:
        return f"{names[record.proto]} {dst} port {record.dport}"
    return f"protocol {record.proto} {dst}"
