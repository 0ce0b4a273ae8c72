"""From the events of a recording to its actions, deliveries and inputs.

Pure. The authority is docs/spec/replay.md, "Events": every kind is an action, a delivery, an input,
a name or neither, and an unknown one is refused. Rules: works on a stream; holds open exchanges and
hashes, never bodies. A redacted event is refused: what cannot be read cannot be compared.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from blake3 import blake3

from hark import limits
from hark.bundle.events import Key, Kind
from hark.errors import BundleInvalid, InputError
from hark.replay.bodies import Field, decoder_of, text_of
from hark.replay.digest import Mark
from hark.replay.identity import (
    ActionKind,
    Canonicaliser,
    Identity,
    framed,
    keyed,
    placeholder_table,
    plain_identity,
)
from hark.replay.renaming import Replacer
from hark.replay.rules import BUILTIN, Rules, is_real_clock
from hark.replay.spawn import UNKNOWN, Spawn
from hark.replay.tokens import InputScanner, Masker, Ownership

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hark.replay.bodies import Decoder

__all__ = ["Action", "Delivered", "EventLike", "Extractor", "InputSeen", "Step", "is_outside"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# What a payload of a hostile bundle raises: a missing key, a wrong type, a number out of range.
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError)
_OUTPUTS = {1: "stdout", 2: "stderr", 4: "terminal"}
_TYPED = {0: "stdin", 3: "typed"}
# Reasons (csrc/mediator/hark_reasons.h) that are the outside's doing beside dial_… and upstream_….
_OUTSIDE = _words(
    "bad_response response_too_large too_many_interim response_smuggled switched_unasked "
    "encoding_unscannable"
)
# Reasons that depend on time or on hark itself: no action.
_NEITHER = _words(
    "client_silent head_timeout body_timeout client_gone client_closed truncated_request "
    "conn_limit no_memory stopped lingered internal"
)
_FINAL = 200  # statuses below are interim (RFC 9110 section 15.2)
_WRITE_SET = 28
_WORKSPACE_START = 29
_COUNT = 19  # of a denied event
_CAPABILITY = "capability"  # layer of a denied event
_IGNORED = frozenset(
    (
        Kind.DOWNGRADE,
        Kind.EXIT,
        Kind.CONNECT,
        Kind.SYSCALL_COUNTS,
        Kind.DIAL,
        Kind.UPSTREAM,
        Kind.SUBSTITUTED,
        Kind.CONN_CLOSE,
        Kind.SOCKET_CLOSE,
        Kind.UDP_FLOW,
        Kind.NOTICE,
        Kind.WORKSPACE_START,
        Kind.WORKSPACE_CONTENT,
        Kind.SURROUNDINGS,
        Kind.RANDOM,
        Kind.SEED,
        Kind.SOCKET,
        Kind.FILE,
    )
)
# Kinds of streams that run beside the mediator's: a request without a body waits over these.
_BESIDE = frozenset(
    (
        Kind.EXEC,
        Kind.FORK,
        Kind.EXIT,
        Kind.CONNECT,
        Kind.SOCKET_CLOSE,
        Kind.UDP_FLOW,
        Kind.SYSCALL_COUNTS,
        Kind.STDIO,
        Kind.DNS,
        Kind.SIGNAL,
        Kind.LOSS,
        Kind.WORKSPACE_CONTENT,
        Kind.SURROUNDINGS,
        Kind.SOCKET,
        Kind.FILE,
    )
)


class EventLike(Protocol):
    """What is needed of a bundle's event."""

    @property
    def seq(self) -> int:
        """Its number."""

    @property
    def kind(self) -> int:
        """Its kind."""

    @property
    def payload(self) -> dict[int, Any] | None:
        """Its map; None when redacted."""


@dataclass(frozen=True, slots=True)
class Action:
    """Something the agent did that the outside can see. ``number``: from 1, in bundle order."""

    number: int
    seq: int
    identity: Identity
    path: str = UNKNOWN
    program: str = ""
    lineage: bytes | None = None
    exchange: int | None = None
    last_input: str = ""
    thread: tuple[int, int] | None = None  # process and thread, by their ids in the recording

    def light(self) -> Action:
        """Return it without its fields."""
        return replace(self, identity=self.identity.light())


@dataclass(frozen=True, slots=True)
class Delivered:
    """Something the outside gave the agent, which parts the actions."""

    seq: int
    mark: Mark
    title: str


@dataclass(frozen=True, slots=True)
class InputSeen:
    """An input that does not part the actions, or the whole content of a response."""

    seq: int
    label: str
    digest: bytes


Step = Action | Delivered | InputSeen


@dataclass(slots=True)
class _Exchange:
    number: int
    seq: int
    actor: list[int] | None
    request: Canonicaliser | None
    name: bytes
    title: str
    body_began: bool = False
    refused: str = ""
    failed: str = ""
    is_own: bool = False
    status: int = 0
    delivered: int = 0  # bytes of the response, its content coding removed where that can be
    content: Any = field(default_factory=blake3)
    decoder: Decoder | None = None
    scanner: InputScanner | None = None


@dataclass(slots=True)
class _Output:
    """One output stream: what it said, plain and masked."""

    seq: int
    replacer: Replacer
    masker: Masker
    length: int = 0
    text: bytearray = field(default_factory=bytearray)
    plain: Any = field(default_factory=blake3)
    masked: Any = field(default_factory=blake3)
    stream: Any = None

    def __post_init__(self) -> None:
        self.stream = self.masker.stream()

    def feed(self, data: bytes) -> None:
        self._take(self.replacer.feed(data))

    def _take(self, data: bytes) -> None:
        self.length += len(data)
        self.plain.update(data)
        self.masked.update(self.stream.feed(data))
        if self.length <= limits.IDENTITY_PART_MAX_BYTES:
            self.text += data

    def finish(self) -> Field:
        self._take(self.replacer.finish())
        self.masked.update(self.stream.finish())
        value = f"{self.length} bytes {self.plain.hexdigest()}"
        if self.length <= limits.IDENTITY_PART_MAX_BYTES:
            value = text_of(bytes(self.text))
        return Field("text", value, self.masked.digest())


class Extractor:
    """Feed it the events of one recording in order; then ``finish``.

    ``read`` gives the bytes of a payload's value, which may stand in the chunk store.
    """

    def __init__(self, read: Callable[[Any], bytes], rules: Rules | None = None) -> None:
        self.lost: Counter[str] = Counter()
        self.is_complete = False
        self.ownership = Ownership()
        self._read = read
        self._given_rules = rules
        self._rules = rules or BUILTIN
        self._table: dict[bytes, bytes] = {}
        self._spawn = Spawn()
        self._conns: OrderedDict[int, tuple[bool, int | None]] = OrderedDict()
        self._exchanges: OrderedDict[int, _Exchange] = OrderedDict()
        self._waiting: _Exchange | None = None
        self._outputs: dict[int, _Output] = {}
        self._typed: dict[int, tuple[Any, InputScanner]] = {}
        self._writes: dict[bytes, list[Field]] = {}
        self._cwd = b""
        self._once: set[tuple[Any, ...]] = set()
        self._last: dict[str, str] = {}
        self._last_any = ""
        self._count = 0
        self._handlers: dict[int, Callable[[int, dict[int, Any]], Iterator[Step]]] = {
            Kind.RUN_START: self._run_start,
            Kind.RUN_END: self._run_end,
            Kind.LOSS: self._loss,
            Kind.EXEC: self._exec,
            Kind.FORK: self._fork,
            Kind.DNS: self._dns,
            Kind.DENIED: self._denied,
            Kind.CONN: self._conn,
            Kind.REQUEST: self._request,
            Kind.BODY: self._body,
            Kind.RESPONSE: self._response,
            Kind.DELIVERY: self._delivery,
            Kind.TRAILERS: self._trailers,
            Kind.END: self._end,
            Kind.STDIO: self._stdio,
            Kind.SIGNAL: self._signal,
            _WRITE_SET: self._write_set,
            _WORKSPACE_START: self._workspace_start,
        }

    @property
    def open_exchanges(self) -> int:
        """Exchanges without an end so far."""
        return len(self._exchanges)

    def feed(self, event: EventLike) -> Iterator[Step]:
        """Yield what an event means. Raises ``InputError`` for what cannot be compared."""
        if event.payload is None:
            raise InputError("this recording cannot be compared", f"event {event.seq} was redacted")
        if event.kind == Kind.DENIED and event.payload.get(4) == _CAPABILITY:
            return  # what the kernel asks a capability for differs between kernels
        if event.kind not in _BESIDE:
            yield from _guarded(event.seq, self._settle(event.kind, event.payload))
        handler = self._handlers.get(event.kind)
        if handler is not None:
            yield from _guarded(event.seq, handler(event.seq, event.payload))
        elif event.kind not in _IGNORED:
            raise InputError(
                "this recording cannot be compared",
                f"event {event.seq} is of kind {event.kind}, which this version does not know",
                "use the version of hark that made it",
            )

    def finish(self) -> Iterator[Step]:
        """Yield what a recording that ends here still means."""
        seq = self._waiting.seq if self._waiting else 0
        yield from _guarded(seq, self._settle(0, {}))

    # --- the run ----------------------------------------------------------------------------------

    def _run_start(self, seq: int, p: dict[int, Any]) -> Iterator[Step]:
        pairs = [(str(name), self._raw(text)) for name, text in p.get(18) or []]
        self._table = placeholder_table(pairs)
        if self._given_rules is None:
            is_real = is_real_clock(str(p.get(11, "off")))
            self._rules = replace(BUILTIN, real_times=is_real)
        self._cwd = self._raw(p.get(5) or b"").rstrip(b"/")
        replacer = Replacer(self._table)
        given = [(f"argv[{i}]", self._raw(word)) for i, word in enumerate(p.get(4) or [])]
        given.append(("cwd", self._raw(p.get(5) or b"")))
        given += [
            (f"environment {text_of(self._raw(name))}", self._raw(value))
            for name, value in p.get(8) or []
        ]
        given.append(("policy", self._raw(p.get(6) or b"")))
        for label, raw in given:
            value = replacer.replace(raw)
            scanner = InputScanner(self.ownership)
            scanner.feed(value)
            scanner.finish()
            yield InputSeen(seq, label, blake3(value).digest())

    def _run_end(self, seq: int, p: dict[int, Any]) -> Iterator[Step]:
        for number in list(self._exchanges):
            yield from self._close(self._exchanges[number], seq, "")
        for stream, (content, scanner) in sorted(self._typed.items()):
            scanner.finish()
            yield InputSeen(seq, _TYPED[stream], content.digest())
        for stream in sorted(self._outputs):
            yield self._output_action(stream)
        fields = [
            Field("wait status", str(p.get(4))),
            Field("reason", str(p.get(6, ""))),
        ]
        status = f"exit status {p.get(5)}" if p.get(5) is not None else f"wait status {p.get(4)}"
        identity = self._plain(ActionKind.EXIT, f"ends with {status}", fields)
        self.is_complete = p.get(6) == "exited"
        yield self._action(seq, identity, None)

    def _output_action(self, stream: int) -> Action:
        output = self._outputs[stream]
        text = output.finish()
        name = _OUTPUTS[stream]
        title = f"{name}, {output.length} bytes"
        sent = [Field("stream", name), Field("length", str(output.length)), text]
        rules = self._rules.of_output(name)
        values = [rules.apply(item.name, item.value) for item in sent]
        if rules.used:
            fields = [Field(item.name, value) for item, value in zip(sent, values, strict=True)]
            identity = self._plain(ActionKind.OUTPUT, title, fields, sent, rules.used)
            return self._action(output.seq, identity, None)
        identity = self._plain(ActionKind.OUTPUT, title, sent)
        identity = replace(
            identity,
            tokens=(*output.masker.tokens, *identity.tokens),
            times=output.masker.times,
        )
        return self._action(output.seq, identity, None)

    def _loss(self, _seq: int, p: dict[int, Any]) -> Iterator[Step]:
        self.lost[str(p.get(4, "?"))] += int(p.get(5, 1))
        yield from ()

    def _stdio(self, seq: int, p: dict[int, Any]) -> Iterator[Step]:
        stream = p.get(4)
        data = self._read(p[5]) if p.get(5) is not None else b""
        if stream in _OUTPUTS:
            if stream not in self._outputs:
                masker = Masker(self.ownership, times=self._rules.real_times)
                self._outputs[stream] = _Output(seq, Replacer(self._table), masker)
            if data:
                self._outputs[stream].feed(data)
                self._outputs[stream].seq = seq
        elif stream in _TYPED:
            if stream not in self._typed:
                self._typed[stream] = (blake3(), InputScanner(self.ownership))
            content, scanner = self._typed[stream]
            content.update(data)
            scanner.feed(data)
            if p.get(6):
                scanner.finish()
        yield from ()

    def _workspace_start(self, seq: int, p: dict[int, Any]) -> Iterator[Step]:
        folder = text_of(self._placed(self._raw(p.get(4, b""))))
        yield InputSeen(seq, f"files of {folder}", self._raw(p.get(6, b"")))

    def _placed(self, folder: bytes) -> bytes:
        """A replay has the same folder; a second recording may have been made elsewhere."""
        if folder == self._cwd or folder.startswith(self._cwd + b"/"):
            return b"{cwd}" + folder[len(self._cwd) :]
        return folder

    def _write_set(self, seq: int, p: dict[int, Any]) -> Iterator[Step]:
        folder = self._raw(p.get(4, b""))
        fields = self._writes.setdefault(folder, [])
        for entry in p.get(5) or []:
            path, *what = entry
            value = " ".join(_shown(item) for item in what)
            if len(fields) <= limits.REPLAY_WRITES_MAX:
                # A digest has the shape of an id, and is none: other content is a difference.
                fields.append(Field(f"path {text_of(self._raw(path))}", value, value.encode()))
        if p.get(6) is None:
            return
        del self._writes[folder]
        if p[6] > limits.REPLAY_WRITES_MAX:  # then the recorder's own digest of all entries
            root = _shown(p.get(7))
            fields = [Field("root", root, root.encode())]
        shown = self._placed(folder)
        place = [Field("folder", text_of(shown)), Field("complete", str(p.get(8)))]
        title = f"{p[6]} changes in {text_of(shown)}"
        sent = [*place, *fields]
        named, used = self._without_content(sent)
        identity = self._plain(ActionKind.WRITES, title, named, sent, used)
        yield self._action(seq, identity, None)

    def _without_content(self, fields: list[Field]) -> tuple[list[Field], list[str]]:
        """Drop size and digest of files that a volatile rule names; return the names used."""
        out, used = [], []
        for item in fields:
            rule = self._rules.of_file(item.name.removeprefix("path "))
            if rule is None or not item.name.startswith("path "):
                out.append(item)
                continue
            what = item.value.split(" ")[:2]  # change and type
            out.append(Field(item.name, f"{' '.join(what)} \0volatile:{rule}\0"))
            used.append(rule)
        return out, used

    def _signal(self, seq: int, p: dict[int, Any]) -> Iterator[Step]:
        if p.get(5) != "seccomp":
            yield InputSeen(seq, "signal", blake3(str(p.get(4)).encode()).digest())

    # --- processes --------------------------------------------------------------------------------

    def _fork(self, _seq: int, p: dict[int, Any]) -> Iterator[Step]:
        self._spawn.forked(p.get(Key.ACTOR), p[4], thread=bool(p.get(5)))
        yield from ()

    def _exec(self, seq: int, p: dict[int, Any]) -> Iterator[Step]:
        actor = p.get(Key.ACTOR)
        filename = self._raw(p.get(4, b""))
        lineage = self._spawn.execed(actor, filename)
        replacer = Replacer(self._table)
        argv = [replacer.replace(self._raw(word)) for word in p.get(5) or []]
        fields = [Field("lineage", lineage.hex(), b"l" + lineage)]
        fields.append(Field("filename", text_of(filename)))
        fields += [Field(f"argv[{i}]", text_of(word)) for i, word in enumerate(argv)]
        if p.get(6):
            fields.append(Field("argv end", "not recorded"))
        title = "exec " + " ".join(text_of(word) for word in argv or [filename])
        yield self._action(seq, self._plain(ActionKind.EXEC, title, fields), actor)
        if p.get(7) is not None and self._is_new("file", filename):
            yield InputSeen(seq, f"program {text_of(filename)}", p[7])

    # --- names and refusals -----------------------------------------------------------------------

    def _dns(self, seq: int, p: dict[int, Any]) -> Iterator[Step]:
        name = text_of(self._raw(p.get(4, b""))).lower().rstrip(".")
        if not p.get(6) and self._is_new("question", name):
            fields = [Field("name", name)]
            identity = self._plain(ActionKind.QUESTION, f"asks for {name}", fields)
            yield self._action(seq, identity, p.get(Key.ACTOR))

    def _denied(self, seq: int, p: dict[int, Any]) -> Iterator[Step]:
        layer = p.get(4)
        actor = p.get(Key.ACTOR)
        if p.get(_COUNT):  # how often a loop was refused after the hundredth time
            return
        if layer == "mediator":
            yield from self._denied_by_mediator(seq, p)
            return
        if layer == "seccomp":
            lineage = self._spawn.lineage(actor) or b""
            names = [("call", p.get(7)), ("abi", "i386" if p.get(18) else ""), ("errno", p.get(8))]
            names.append(("lineage", lineage.hex()))
            once: tuple[Any, ...] = ("seccomp", lineage, p.get(7), p.get(18))
            title = f"syscall {p.get(7)} refused"
        elif layer == "nft":
            where = self._raw(p.get(10, b"")).hex()
            names = [("protocol", p.get(12)), ("address", where), ("port", p.get(11))]
            socket = p.get(Key.COOKIE) or ("port", p.get(16))
            once = ("nft", socket, p.get(12), where, p.get(11))
            title = f"packet to {where} port {p.get(11)} refused"
        else:
            asked = text_of(self._raw(p.get(9, b""))).lower().rstrip(".")
            names = [("name", asked), ("rule", p.get(6))]
            once = ("dns", asked, p.get(6))
            title = f"question for {asked} refused"
        if self._is_new(*once):
            fields = [Field("layer", str(layer))]
            fields += [Field(k, str(v)) for k, v in names if v not in (None, "")]
            yield self._action(seq, self._plain(ActionKind.REFUSED, title, fields), actor)

    def _denied_by_mediator(self, seq: int, p: dict[int, Any]) -> Iterator[Step]:
        reason = str(p.get(5, ""))
        exchange = self._exchanges.get(p.get(Key.EXCHANGE, 0))
        if exchange is not None:
            if p.get(17):
                exchange.refused = reason
            elif is_outside(reason):
                exchange.failed = reason
            return
        if reason in _NEITHER or is_outside(reason) or Key.EXCHANGE in p:
            return
        host = text_of(self._raw(p.get(9, b""))).lower()
        if self._is_new("conn", p.get(15, seq), reason):
            fields = [Field("layer", "mediator"), Field("reason", reason), Field("host", host)]
            fields.append(Field("port", str(p.get(11, ""))))
            title = f"connection to {host or 'a host without a name'} refused: {reason}"
            identity = self._plain(ActionKind.REFUSED, title, fields)
            yield self._action(seq, identity, p.get(Key.ACTOR))

    # --- exchanges --------------------------------------------------------------------------------

    def _conn(self, _seq: int, p: dict[int, Any]) -> Iterator[Step]:
        self._conns[p[4]] = (p.get(10) is not None, p.get(9))
        if len(self._conns) > limits.RECORDER_MAX_CONNS:
            self._conns.popitem(last=False)
        yield from ()

    def _request(self, seq: int, p: dict[int, Any]) -> Iterator[Step]:
        tls, port = self._conns.get(p.get(4, 0), (True, None))
        host = p.get(5)
        request = Canonicaliser(
            self._read(p.get(8, b"")),
            host=host if isinstance(host, str) else None,
            port=port,
            tls=tls,
            placeholders=self._table,
            ownership=self.ownership,
            rules=self._rules,
        )
        number = p[Key.EXCHANGE]
        exchange = _Exchange(number, seq, p.get(Key.ACTOR), request, request.name, request.title)
        self._exchanges[number] = exchange
        if not request.has_body:
            self._waiting = exchange
        if len(self._exchanges) > limits.RECORDER_MAX_CONNS:
            raise InputError("this recording cannot be compared", "too many exchanges at once")
        yield from ()

    def _settle(self, kind: int, p: dict[int, Any]) -> Iterator[Step]:
        """Yield the request that had no body, unless this event says more about it."""
        exchange = self._waiting
        if exchange is None:
            return
        if kind == Kind.DENIED and p.get(Key.EXCHANGE) == exchange.number:
            return
        self._waiting = None
        yield from self._complete(exchange, is_whole=True)

    def _complete(self, exchange: _Exchange, *, is_whole: bool) -> Iterator[Step]:
        request, exchange.request = exchange.request, None
        if request is not None:
            identity = request.finish(refused=exchange.refused, is_whole=is_whole)
            yield self._action(exchange.seq, identity, exchange.actor, exchange.number)

    def _body(self, _seq: int, p: dict[int, Any]) -> Iterator[Step]:
        exchange = self._exchanges.get(p[Key.EXCHANGE])
        if exchange is None or exchange.request is None:
            return
        exchange.body_began = True
        exchange.request.feed(self._read(p.get(4, b"")))
        if p.get(5):
            yield from self._complete(exchange, is_whole=True)

    def _response(self, seq: int, p: dict[int, Any]) -> Iterator[Step]:
        exchange = self._exchanges.get(p[Key.EXCHANGE])
        if exchange is None:
            return
        status = int(p.get(4, 0))
        is_own = bool(p.get(5))
        self._scan_head(exchange, self._read(p.get(6, b"")))
        if status < _FINAL:  # the body may come only now
            if not is_own or exchange.failed:
                yield self._delivered(seq, exchange, "")
            return
        if not exchange.body_began:  # a body of no bytes has no event
            yield from self._complete(exchange, is_whole=True)
        exchange.is_own = is_own
        exchange.status = status
        if not is_own or exchange.failed:
            yield self._delivered(seq, exchange, exchange.failed if is_own else "")

    def _scan_head(self, exchange: _Exchange, head: bytes) -> None:
        scanner = InputScanner(self.ownership)
        scanner.feed(head)
        scanner.finish()
        coding = ""
        for line in head.split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name.strip().lower() == b"content-encoding":
                coding = value.strip().decode("latin-1").lower()
        exchange.decoder = decoder_of(coding)
        exchange.scanner = InputScanner(self.ownership)

    def _delivery(self, seq: int, p: dict[int, Any]) -> Iterator[Step]:
        exchange = self._exchanges.get(p[Key.EXCHANGE])
        if exchange is None:
            return
        data = self._read(p.get(4, b""))
        exchange.content.update(data)
        size = self._scan(exchange, data)
        if p.get(5) and exchange.scanner is not None:
            exchange.scanner.finish()
        if size and not exchange.is_own:
            exchange.delivered += size
            yield self._delivered(seq, exchange, "")

    def _scan(self, exchange: _Exchange, data: bytes) -> int:
        """Look for ids in the next bytes of a response; return how many decoded bytes they are."""
        if exchange.decoder is None or exchange.scanner is None:
            return len(data)
        size = 0
        try:
            for piece in exchange.decoder.feed(data):
                size += len(piece)
                exchange.scanner.feed(piece)
        except ValueError:
            exchange.decoder = None
            return len(data)
        return size

    def _trailers(self, seq: int, p: dict[int, Any]) -> Iterator[Step]:
        exchange = self._exchanges.get(p[Key.EXCHANGE])
        raw = self._read(p.get(5, b""))
        if exchange is None:
            return
        if p.get(4):
            exchange.content.update(b"\0trailers" + raw)
            yield self._delivered(seq, exchange, "trailers")
            return
        lines = sorted(
            (text_of(name).strip().lower(), text_of(value).strip())
            for name, _, value in (line.partition(b":") for line in raw.split(b"\r\n") if line)
        )
        fields = [Field(f"trailer {name}", value, whole=True) for name, value in lines]
        identity = self._plain(ActionKind.TRAILERS, f"trailers of {exchange.title}", fields)
        yield self._action(seq, identity, exchange.actor, exchange.number)

    def _end(self, seq: int, p: dict[int, Any]) -> Iterator[Step]:
        exchange = self._exchanges.get(p[Key.EXCHANGE])
        if exchange is not None:
            yield from self._close(exchange, seq, str(p.get(4, "")))

    def _close(self, exchange: _Exchange, seq: int, reason: str) -> Iterator[Step]:
        is_whole = exchange.status != 0 and not exchange.body_began
        yield from self._complete(exchange, is_whole=is_whole)
        if is_outside(reason) and not exchange.is_own:
            yield self._delivered(seq, exchange, reason)
        if exchange.scanner is not None:
            exchange.scanner.finish()
        if not exchange.is_own:
            said = exchange.status.to_bytes(4, "big") + exchange.content.digest()
            ending = reason if is_outside(reason) else ""
            digest = keyed("input", said + framed(ending.encode()))
            yield InputSeen(seq, f"response to {exchange.title}", digest)
        self._exchanges.pop(exchange.number, None)

    # --- steps ------------------------------------------------------------------------------------

    def _plain(
        self,
        kind: ActionKind,
        title: str,
        fields: list[Field],
        sent: Sequence[Field] = (),
        volatile: Sequence[str] = (),
    ) -> Identity:
        return plain_identity(
            kind, title, fields, self.ownership, self._rules, sent=sent, volatile=volatile
        )

    def _raw(self, value: Any) -> bytes:
        """Return a name, path or word; long ones stand in the chunk store like any bytes."""
        return (
            value.encode("utf-8", "surrogateescape")
            if isinstance(value, str)
            else self._read(value)
        )

    def _is_new(self, *what: Any) -> bool:
        if what in self._once:
            return False
        self._once.add(what)
        return True

    def _delivered(self, seq: int, exchange: _Exchange, reason: str) -> Delivered:
        title = f"response to {exchange.title}, {exchange.delivered} bytes (event {seq})"
        self._last[self._spawn.process_path(exchange.actor)] = title
        self._last_any = title
        mark = Mark(exchange.number, exchange.name, exchange.delivered, reason)
        return Delivered(seq, mark, title)

    def _action(
        self,
        seq: int,
        identity: Identity,
        actor: list[int] | None,
        exchange: int | None = None,
    ) -> Action:
        self._count += 1
        return Action(
            number=self._count,
            seq=seq,
            identity=identity,
            path=self._spawn.path(actor),
            program=text_of(self._spawn.program(actor)),
            lineage=self._spawn.lineage(actor),
            exchange=exchange,
            last_input=self._last.get(self._spawn.process_path(actor), self._last_any),
            thread=(int(actor[0]), int(actor[1])) if actor else None,
        )


def _guarded(seq: int, steps: Iterator[Step]) -> Iterator[Step]:
    try:
        yield from steps
    except _MALFORMED as error:
        raise BundleInvalid(
            f"event {seq} does not hold what its kind demands", repr(error)
        ) from error


def is_outside(reason: str) -> bool:
    """Whether a reason is the outside's doing, and so an input, not an action."""
    return reason.startswith(("dial_", "upstream_")) or reason in _OUTSIDE


def _shown(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
