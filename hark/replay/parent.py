"""The recording that a replay follows: verified, then read once into what playback needs.

Rules: nothing of a bundle is used before all of it verified, and one whose signer is not known is
refused unless the operator says otherwise. What cannot be compared is refused with words. Bodies
stay in the bundle; only where they stand is kept.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from blake3 import blake3
from ulid import ULID

from hark import limits
from hark.bundle.events import Key, Kind
from hark.bundle.sealing import KEM_X25519
from hark.bundle.verify import Verdict
from hark.errors import BundleInvalid, InputError
from hark.policy.control import PlayFlag, PlayWhat
from hark.replay.actions import Action, Extractor, is_outside
from hark.replay.bundles import rules_of, steps
from hark.replay.identity import ActionKind
from hark.replay.match import Entry
from hark.replay.stored import Collected, Stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from hark.bundle.cbor import BlobRef
    from hark.bundle.keys import Trust
    from hark.bundle.reader import Bundle, Event
    from hark.replay.identity import Identity
    from hark.replay.rules import Rules

__all__ = ["Framing", "Held", "Parent", "Piece", "Script", "Waits", "load", "read"]

_STDIN, _TYPED, _SHOWN = 0, 3, 4
_FINAL = 200  # statuses below are interim (RFC 9110 section 15.2)
_BODILESS = (204, 304)


class Framing(int, Enum):
    """``enum hark_framing``: how the agent knows where a response ends."""

    NONE = 0
    LENGTH = 1
    CHUNKED = 2
    EOF = 3


@dataclass(frozen=True, slots=True)
class Piece:
    """One thing the agent was handed. ``data`` may stand in the bundle's chunk store."""

    what: PlayWhat
    data: bytes | BlobRef = b""
    status: int = 0
    framing: Framing = Framing.NONE
    length: int = 0
    flags: int = 0
    reason: str = ""


@dataclass(slots=True)
class Script:
    """What a recorded exchange gave the agent. ``expects``: it waited for 100 (Continue)."""

    number: int
    method: bytes
    expects: bool
    coding: str = ""
    is_whole: bool = False
    pieces: list[Piece] = field(default_factory=list)
    is_over: bool = False
    began: bool = False
    failure: tuple[str, bytes] = ("", b"")
    content: Any = field(default_factory=blake3)


@dataclass(frozen=True, slots=True)
class Waits:
    """One step of the recorded order: an action to be seen, or a piece to be handed on.

    ``seen``: a name of ``Player.saw``; else ``exchange``, with ``piece`` -1 for its request.
    """

    exchange: int = 0
    piece: int = -1
    seen: str = ""


@dataclass(frozen=True, slots=True)
class Held:
    """What a folder held at the start: its path and manifest, None when that was too large."""

    folder: bytes
    manifest: bytes | None
    digest: bytes


@dataclass(slots=True)
class Parent:
    """A recording ready to be played."""

    bundle: Bundle
    run: ULID
    start: dict[int, Any]
    rules: Rules
    is_sealed: bool
    entries: list[Entry] = field(default_factory=list)
    scripts: dict[int, Script] = field(default_factory=dict)
    order: list[Waits] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    contents: dict[bytes, Collected] = field(default_factory=dict)
    surroundings: dict[int, Any] = field(default_factory=dict)
    programs: dict[bytes, bytes | None] = field(default_factory=dict)
    first: tuple[bytes, bytes] = (b"", b"")  # file and argv[0] of the first exec
    stdin: list[bytes | BlobRef] = field(default_factory=list)
    stdin_ended: bool = False
    sealed_seed: bytes | None = None
    draws: Counter[bytes] = field(default_factory=Counter)
    is_complete: bool = False

    _known: dict[int, Identity] = field(default_factory=dict)

    def stored(self) -> list[Stored] | None:
        """Return the recorded folders; None when there are none, or one cannot be made anew.

        Raises BundleInvalid for rows or contents that contradict themselves.
        """
        out = []
        for held in self.held:
            found = self.contents.get(held.folder)
            if found is None or held.manifest is None:
                return None
            out.append(Stored.of(self.bundle, held.folder, held.manifest, held.digest, found))
        return out or None

    def identity(self, number: int) -> Identity:
        """Return the identity of action ``number`` with its fields: reads the bundle again.

        What stands behind it is kept too, since that is mostly asked for next.
        """
        if number not in self._known:
            self._known.clear()
            for _, step in steps(self.bundle, self.rules):
                if isinstance(step, Action) and step.number >= number:
                    self._known[step.number] = step.identity
                if len(self._known) > limits.REPLAY_NEAREST_MAX:
                    break
        if number not in self._known:
            raise InputError(f"there is no action {number}")
        return self._known[number]


def load(
    bundle: Bundle,
    trust: Trust,
    *,
    untrusted: bool = False,
    rules: Rules | None = None,
    progress: Callable[[int], None] | None = None,
) -> Parent:
    """Verify all of a bundle, then read it. Raises HarkError for one that cannot be replayed.

    ``rules``: what is not compared, instead of what the recorded policy says.
    """
    report = bundle.verify(trust, progress=progress)
    if report.verdict not in (Verdict.VERIFIED, Verdict.TRUNCATED):
        raise BundleInvalid(
            "the recording does not verify", report.why, "`hark verify` says where it is broken"
        )
    if report.verdict is Verdict.TRUNCATED and not report.signed_events:
        raise BundleInvalid("the recording does not verify", "nothing in it is signed")
    if report.signer is None or not (report.signer.known or untrusted):
        key = report.signer.key.hex() if report.signer else "none"
        raise InputError(
            "the recording is signed by an unknown key",
            key,
            "trust the key (--trusted-keys, --key), or replay it as a stranger's: --untrusted",
        )
    if report.synthetic:
        raise InputError("the recording cannot be replayed", "hark synth made it: it never ran")
    if report.redacted_events or report.redacted_chunks:
        raise InputError("the recording cannot be replayed", "parts of it were redacted")
    if report.header is None:
        raise BundleInvalid("the recording does not verify", "it has no header")
    run = ULID(report.header.run_id)
    return read(bundle, run, is_sealed=report.verdict is Verdict.VERIFIED, rules=rules)


def read(
    bundle: Bundle, run: ULID, *, is_sealed: bool = True, rules: Rules | None = None
) -> Parent:
    """Read a verified bundle. Raises InputError for what cannot be replayed."""
    chosen = rules_of(bundle, rules=rules)
    parent = Parent(bundle, run, {}, chosen, is_sealed)
    reading = _Reading(parent)
    extractor = Extractor(bundle.read_body, chosen)
    for event in bundle.events():
        for step in extractor.feed(event):
            if isinstance(step, Action):
                reading.acted(step)
        reading.take(event)
    for step in extractor.finish():
        if isinstance(step, Action):
            reading.acted(step)
    parent.is_complete = extractor.is_complete
    reading.finish()
    if not parent.start:
        raise InputError("the recording cannot be replayed", "it has no start")
    return parent


class _Reading:
    """One pass over the events."""

    def __init__(self, parent: Parent) -> None:
        self.parent = parent
        self.actions: dict[int, Action] = {}
        self.ends: dict[int, int] = {}
        self.took = {
            Kind.RUN_START: self._start,
            Kind.WORKSPACE_START: self._held,
            Kind.WORKSPACE_CONTENT: self._content,
            Kind.SURROUNDINGS: self._surroundings,
            Kind.STDIO: self._stdio,
            Kind.DNS: self._dns,
            Kind.EXEC: self._exec,
            Kind.REQUEST: self._request,
            Kind.DENIED: self._denied,
            Kind.RESPONSE: self._response,
            Kind.DELIVERY: self._delivery,
            Kind.TRAILERS: self._trailers,
            Kind.END: self._end,
            Kind.SEED: self._seed,
            Kind.RANDOM: self._random,
        }
        self.names: set[str] = set()

    def acted(self, action: Action) -> None:
        if action.identity.kind is ActionKind.REQUEST and action.exchange is not None:
            self.actions[action.exchange] = action
            self.parent.order.append(Waits(action.exchange))

    def take(self, event: Event) -> None:
        handler = self.took.get(Kind(event.kind)) if event.payload is not None else None
        if handler is not None and event.payload is not None:
            handler(event.seq, event.payload)

    def finish(self) -> None:
        for number, action in self.actions.items():
            script = self.parent.scripts[number]
            self.parent.entries.append(
                Entry(
                    action.number,
                    action.identity.light(),
                    action.lineage,
                    action.path,
                    number,
                    action.seq,
                    self.ends.get(number, action.seq),
                    script.content.digest(),
                )
            )

    # --- events -----------------------------------------------------------------------------------

    def _start(self, _seq: int, p: dict[int, Any]) -> None:
        self.parent.start = p

    def _held(self, _seq: int, p: dict[int, Any]) -> None:
        manifest = self.parent.bundle.read_body(p[5]) if 5 in p else None  # noqa: PLR2004 - its key
        self.parent.held.append(Held(p[4], manifest, p[6]))

    def _content(self, _seq: int, p: dict[int, Any]) -> None:
        folder = p.get(4)
        if not isinstance(folder, bytes) or all(folder != held.folder for held in self.parent.held):
            raise BundleInvalid("the recording does not hold", "contents of a folder it has not")
        self.parent.contents.setdefault(folder, Collected()).take(p)

    def _surroundings(self, _seq: int, p: dict[int, Any]) -> None:
        self.parent.surroundings = p

    def _stdio(self, _seq: int, p: dict[int, Any]) -> None:
        if p[4] in (_TYPED, _SHOWN):
            raise InputError(
                "the recording cannot be replayed yet",
                "its agent had a terminal, and typed keys are not played back",
                "record with --no-tty",
            )
        if p[4] == _STDIN:
            self.parent.stdin.append(p.get(5, b""))
            self.parent.stdin_ended |= bool(p.get(6))

    def _dns(self, _seq: int, p: dict[int, Any]) -> None:
        name = p.get(4, b"").decode("utf-8", "surrogateescape").lower().rstrip(".")
        if not p.get(6) and name not in self.names:
            self.names.add(name)
            self.parent.order.append(Waits(seen=f"name {name}"))

    def _exec(self, _seq: int, p: dict[int, Any]) -> None:
        name = p.get(4, b"").decode("utf-8", "surrogateescape")
        self.parent.order.append(Waits(seen=f"program {name}"))
        argv = p.get(5)
        if not self.parent.programs and isinstance(argv, list) and argv:
            self.parent.first = (p.get(4, b""), self.parent.bundle.read_body(argv[0]))
        if len(self.parent.programs) < limits.SURROUNDINGS_FILES_MOST:
            self.parent.programs.setdefault(p.get(4, b""), p.get(7))

    def _request(self, _seq: int, p: dict[int, Any]) -> None:
        head = self.parent.bundle.read_body(p.get(8, b""))
        fields = _fields(head)
        expects = fields.get(b"expect", b"").lower() == b"100-continue"
        number = p[Key.EXCHANGE]
        self.parent.scripts[number] = Script(number, p.get(6, b""), expects)

    def _seed(self, _seq: int, p: dict[int, Any]) -> None:
        if p.get(4) == KEM_X25519 and isinstance(p.get(5), bytes):
            self.parent.sealed_seed = p[5]

    def _random(self, _seq: int, p: dict[int, Any]) -> None:
        self.parent.draws[p.get(7, b"")] += p[6]

    def _script(self, p: dict[int, Any]) -> Script | None:
        return self.parent.scripts.get(p.get(Key.EXCHANGE, 0))

    def _add(self, script: Script, piece: Piece) -> None:
        # 100 (Continue) comes before the request is complete: it waits for nothing.
        is_invited = script.expects and script.number not in self.actions
        if piece.what is not PlayWhat.INTERIM or not is_invited:
            self.parent.order.append(Waits(script.number, len(script.pieces)))
        script.pieces.append(piece)

    def _denied(self, _seq: int, p: dict[int, Any]) -> None:
        script = self._script(p)
        if script is not None and not p.get(17):
            script.failure = (str(p.get(5, "")), self.parent.bundle.read_body(p.get(13, b"")))

    def _response(self, _seq: int, p: dict[int, Any]) -> None:
        script = self._script(p)
        if script is None:
            return
        if p.get(5):
            self._own(script, p)
            return
        head = self.parent.bundle.read_body(p.get(6, b""))
        status = int(p.get(4, 0))
        if status < _FINAL:
            self._add(script, Piece(PlayWhat.INTERIM, head, status))
            return
        script.began = True
        fields = _fields(head)
        script.coding = fields.get(b"content-encoding", b"").decode("latin-1").lower()
        framing = _framing(script.method, status, fields)
        length = int(fields.get(b"content-length", b"0") or b"0")
        close = framing is Framing.EOF or b"close" in fields.get(b"connection", b"").lower()
        flags = PlayFlag.CLOSE if close else 0
        script.content.update(head)
        self._add(script, Piece(PlayWhat.HEAD, head, status, framing, length, flags))

    def _own(self, script: Script, p: dict[int, Any]) -> None:
        """Take hark's own answer: made anew, but for the 100 (Continue) behind a failed dial."""
        reason, detail = script.failure
        status = int(p.get(4, 0))
        if status < _FINAL and is_outside(reason):
            head = self.parent.bundle.read_body(p.get(6, b""))
            self._add(script, Piece(PlayWhat.INTERIM, head, status))
            return
        if reason:
            self._add(script, Piece(PlayWhat.REFUSE, detail, reason=reason))
        script.is_over = True

    def _delivery(self, _seq: int, p: dict[int, Any]) -> None:
        script = self._script(p)
        if script is None or script.is_over or not script.began:
            return
        data = p.get(4, b"")
        if data != b"":
            script.content.update(self.parent.bundle.read_body(data))
            self._add(script, Piece(PlayWhat.BODY, data))

    def _trailers(self, _seq: int, p: dict[int, Any]) -> None:
        script = self._script(p)
        if script is not None and p.get(4) and script.began:
            self._add(script, Piece(PlayWhat.TRAILERS, p.get(5, b"")))

    def _end(self, seq: int, p: dict[int, Any]) -> None:
        script = self._script(p)
        if script is None:
            return
        self.ends[script.number] = seq
        reason = str(p.get(4, ""))
        if script.is_over:
            return
        script.is_over = True
        if reason == "complete":
            script.is_whole = True
            self._add(script, Piece(PlayWhat.END))
        elif reason.startswith("upstream_") or reason == script.failure[0]:
            self._add(script, Piece(PlayWhat.CUT, script.failure[1], reason=reason))
        # Else the agent left, or the run ended: nothing more came, and nothing more will.


def _fields(head: bytes) -> dict[bytes, bytes]:
    """Return the fields of a head that hark wrote or checked; the last of equal names."""
    lines = (line.partition(b":") for line in head.split(b"\r\n")[1:] if line)
    return {name.strip().lower(): value.strip() for name, _, value in lines}


def _framing(method: bytes, status: int, fields: dict[bytes, bytes]) -> Framing:
    """Return how the body ends (RFC 9112 section 6.3)."""
    if method.upper() == b"HEAD" or status in _BODILESS:
        return Framing.NONE
    if b"chunked" in fields.get(b"transfer-encoding", b"").lower():
        return Framing.CHUNKED
    return Framing.LENGTH if b"content-length" in fields else Framing.EOF
