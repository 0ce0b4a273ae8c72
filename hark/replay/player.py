"""Answers a replay's requests from its recording.

Lives in the recorder. It looks at every record of the mediator as the bundle does, finds the
recorded exchange of a request, and says what the mediator hands to the agent. Rules:

- Each recorded exchange is given once. What was not recorded is a divergence, and nothing is given
  from then on; there is no upstream to ask.
- Pieces are released in recorded order, each after the actions that were recorded before it, so
  that concurrency stays what it was. What is waited for too long is passed over and counted.
- Does no I/O: records and words in, messages out.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hark import limits
from hark.bundle.events import Kind
from hark.errors import HarkError
from hark.mediator import records
from hark.mediator.reasons import NAMES
from hark.policy.control import Play, PlayFlag, PlayWhat
from hark.recorder import translate
from hark.replay.actions import Action, Extractor
from hark.replay.identity import ActionKind
from hark.replay.match import Matcher, Missing
from hark.replay.parent import Framing, Piece
from hark.replay.recoding import Recoding, needs_recoding, plain_head
from hark.replay.renaming import Rewriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from hark.mediator.records import MediatorRecord
    from hark.replay.match import Entry
    from hark.replay.parent import Parent, Script

__all__ = ["Diverged", "Player"]

_DATA = 4096  # HARK_MSG_PLAY_DATA
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Diverged(HarkError):
    """The agent asked for something that was not recorded."""


@dataclass(frozen=True, slots=True)
class _Event:
    seq: int
    kind: int
    payload: dict[int, Any]


@dataclass(slots=True)
class _Live:
    """One exchange of this run: which recorded one it is, and how far it was played."""

    number: int
    script: Script | None = None
    is_wanted: bool = False
    was_invited: bool = False
    has_head: bool = False
    has_body: bool = False
    turns: int = 0  # that it waited without being known
    unread: int = 0  # bytes sent that the mediator has not handed on
    pieces: deque[Piece] = field(default_factory=deque)  # released, not sent
    rewriter: Rewriter | None = None
    recoding: Recoding | None = None
    length: int | None = None  # of the body without its coding, where that is removed


class Player:
    """See ``hark.recorder.inputs.Player``. ``passed``: steps that did not wait for their turn."""

    def __init__(
        self,
        parent: Parent,
        hosts: tuple[str, ...],
        secrets: tuple[str, ...],
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.diverged: HarkError | None = None
        self.passed = 0
        self.gone_beyond = False
        self._parent = parent
        self._clock = clock
        self._names = translate.Names(hosts, secrets)
        self._extractor = Extractor(bytes, parent.rules)
        # The nearest is looked for when the agent is gone: that reads the bundle, many times.
        known = {entry.number: entry.identity for entry in parent.entries}
        self._matcher = Matcher(parent.entries, known.__getitem__)
        self._opened: dict[int, records.ConnOpen] = {}
        self._live: dict[int, _Live] = {}
        self._of: dict[int, _Live] = {}  # recorded exchange to the one of this run
        self._at = 0  # of the recorded order
        self._released: dict[int, int] = {}  # recorded exchange to pieces whose turn has come
        self._seen: Counter[str] = Counter()
        self._needed: Counter[str] = Counter()
        self._since: int | None = None
        self._seq = 0
        self._last = 0  # exchange of the last request head
        self._now: deque[Play] = deque()
        self._handlers: dict[type, Callable[[Any], None]] = {
            records.ConnOpen: self._opens,
            records.ConnTls: self._shakes,
            records.ConnClose: self._closes,
            records.RequestHead: self._request,
            records.RequestBody: self._request_body,
            records.ResponseHead: self._response,
            records.ResponseBody: self._response_body,
            records.Trailers: self._trailers,
            records.Refused: self._refused,
            records.ExchangeEnd: self._ends,
        }
        self._feed(Kind.RUN_START, parent.start)

    @property
    def left(self) -> Sequence[Entry]:
        """Recorded requests that were not made."""
        return self._matcher.left

    # --- what the run does ------------------------------------------------------------------------

    def saw(self, name: str) -> None:
        """Note an action beside the exchanges: ``name HOST`` was asked, ``program FILE`` ran."""
        self._seen[name] += 1

    def typed(self, data: bytes | None, *, end: bool) -> None:
        """See ``hark.recorder.inputs.Player``."""
        self._feed(Kind.STDIO, translate.compact({4: 0, 5: data, 6: end or None}))

    def wanted(self, exchange: int) -> None:
        """See ``hark.recorder.inputs.Player``."""
        self._live.setdefault(exchange, _Live(exchange)).is_wanted = True

    def took(self, record: MediatorRecord) -> None:
        """See ``hark.recorder.inputs.Player``."""
        handler = self._handlers.get(type(record))
        if handler is not None:
            handler(record)

    def _opens(self, record: records.ConnOpen) -> None:
        self._opened[record.conn] = record

    def _shakes(self, record: records.ConnTls) -> None:
        if record.conn in self._opened:
            self._feed(Kind.CONN, translate.conn(self._opened.pop(record.conn), record))

    def _closes(self, record: records.ConnClose) -> None:
        self._opened.pop(record.conn, None)

    def _request_body(self, record: records.RequestBody) -> None:
        if live := self._live.get(record.exchange):
            live.has_body = True
        self._feed(Kind.BODY, translate.data(record))

    def _response(self, record: records.ResponseHead) -> None:
        self._feed(Kind.RESPONSE, translate.response(record))
        self._credit(record.exchange, len(record.raw))

    def _response_body(self, record: records.ResponseBody) -> None:
        self._feed(Kind.DELIVERY, translate.data(record))
        self._credit(record.exchange, len(record.data))

    def _trailers(self, record: records.Trailers) -> None:
        self._feed(Kind.TRAILERS, {2: record.exchange, 4: record.response, 5: record.raw})

    def _refused(self, record: records.Refused) -> None:
        self._feed(Kind.DENIED, translate.refused(record, self._names, None, ""))

    def _ends(self, record: records.ExchangeEnd) -> None:
        self._feed(Kind.END, {2: record.exchange, 4: record.reason})
        self._live.pop(record.exchange, None)

    def _request(self, record: records.RequestHead) -> None:
        if record.conn in self._opened:  # clear text: no handshake came
            self._feed(Kind.CONN, translate.conn(self._opened.pop(record.conn), None))
        live = self._live.setdefault(record.exchange, _Live(record.exchange))
        live.has_head = True
        self._last = record.exchange
        self._feed(Kind.REQUEST, translate.request(record, self._names))
        if record.host >= 0 and b"\r\nexpect: 100-continue\r\n" in record.raw.lower():
            self._invite(live)

    def _invite(self, live: _Live) -> None:
        """Send 100 (Continue): the request is complete, and known, only after it."""
        scripts = (self._parent.scripts[e.exchange or 0] for e in self._matcher.left)
        if any(s.expects and s.pieces and s.pieces[0].what is PlayWhat.INTERIM for s in scripts):
            live.was_invited = True
            self._now.extend(_messages(live.number, Piece(PlayWhat.INTERIM, b"", 100), _CONTINUE))

    def _credit(self, exchange: int, size: int) -> None:
        if live := self._live.get(exchange):
            live.unread = max(0, live.unread - size)

    def _feed(self, kind: Kind, payload: dict[int, Any]) -> None:
        self._seq += 1
        self._take(self._extractor.feed(_Event(self._seq, kind, payload)))

    def _take(self, steps: Iterable[Any]) -> None:
        for step in steps:
            if isinstance(step, Action) and step.identity.kind is ActionKind.REQUEST:
                self._asked(step)

    def _asked(self, action: Action) -> None:
        """Find the recorded exchange of a request."""
        if self.diverged is not None or action.exchange is None:
            return
        found = self._matcher.look_up(action.identity, action.lineage, action.path)
        if isinstance(found, Missing):
            self._diverge(action, found)
            return
        live = self._live.setdefault(action.exchange, _Live(action.exchange))
        number = found.entry.exchange or 0
        live.script = self._parent.scripts[number]
        self._of[number] = live
        if live.script.coding in ("", "identity"):
            live.rewriter = Rewriter(self._matcher.renames)
        elif size := self._decoded_size(live.script):
            live.rewriter = Rewriter(self._matcher.renames)
            live.recoding = Recoding(live.script.coding)
            live.length = size
        for piece in range(self._released.get(number, 0)):
            self._release(live, piece)

    def _decoded_size(self, script: Script) -> int:
        """Return the length of a coded reply that holds an id to be put back, else 0."""
        changed = self._matcher.renames.changed
        if not changed or not script.is_whole:
            return 0
        bodies = (piece.data for piece in script.pieces if piece.what is PlayWhat.BODY)
        return needs_recoding(script.coding, map(self._parent.bundle.read_body, bodies), changed)

    def _diverge(self, action: Action, missing: Missing) -> None:
        title = action.identity.title
        self.gone_beyond = not self._parent.is_complete and not self._matcher.left
        if self.gone_beyond:
            self.diverged = Diverged("the recording ends here", f"next came {title}")
            return
        cause = "nothing like it is left in the recording"
        if missing.used:
            cause = f"recorded {missing.used} times, and given as often"
        elif missing.conflict:
            cause = "an id in it cannot be the recorded one"
        self.diverged = Diverged(f"not recorded: {title}", cause)

    # --- what the agent gets ----------------------------------------------------------------------

    def turn(self) -> Iterator[Play]:
        """See ``hark.recorder.inputs.Player``."""
        self._complete()
        if self.diverged is not None:
            return
        self._advance()
        if self._is_through():
            self.gone_beyond = True
            self.diverged = Diverged("the recording ends here")
            return
        while self._now:
            yield self._now.popleft()
        for live in list(self._live.values()):
            yield from self._send(live)

    def _complete(self) -> None:
        """Take the requests that wait, and of which no further record will come."""
        last = self._live.get(self._last)
        if last is not None and last.is_wanted and last.script is None:
            self._take(self._extractor.finish())
        for live in list(self._live.values()):
            if live.is_wanted and live.script is None and self.diverged is None:
                live.turns += 1
                # Chunked, and nothing in it: such a body has no record.
                if live.turns > 1 and live.has_head and not live.has_body:
                    self._feed(Kind.BODY, {2: live.number, 4: b"", 5: True})

    def _advance(self) -> None:
        """Go on in the recorded order, as far as what was done allows."""
        order = self._parent.order
        while self._at < len(order):
            step = order[self._at]
            if not self._is_done(step) and not self._has_waited():
                return
            self._since = None
            self._at += 1
            if step.seen:
                self._needed[step.seen] += 1
            elif step.piece >= 0:
                self._released[step.exchange] = step.piece + 1
                if live := self._of.get(step.exchange):
                    self._release(live, step.piece)

    def _is_through(self) -> bool:
        """Whether a recording without an end was followed to where it stops, a while ago."""
        if self._parent.is_complete or self._at < len(self._parent.order):
            return False
        if any(live.pieces or live.unread for live in self._live.values()):
            self._since = None
            return False
        self._since = self._since or self._clock()
        return self._clock() - self._since >= limits.REPLAY_GATE_NS

    def _is_done(self, step: Any) -> bool:
        if step.seen:
            return self._seen[step.seen] > self._needed[step.seen]
        if step.exchange in self._of:
            return True
        # 100 (Continue) came before the body, and only with its body is a request known.
        if step.piece != 0:
            return False
        return self._parent.scripts[step.exchange].pieces[0].what is PlayWhat.INTERIM

    def _has_waited(self) -> bool:
        """Whether the step has held up an exchange for too long."""
        now = self._clock()
        if not any(live.is_wanted for live in self._live.values()):
            self._since = None
            return False
        if self._since is None:
            self._since = now
        if now - self._since < limits.REPLAY_GATE_NS:
            return False
        self.passed += 1
        return True

    def _release(self, live: _Live, number: int) -> None:
        if live.script is not None:
            live.pieces.append(live.script.pieces[number])

    def _send(self, live: _Live) -> Iterator[Play]:
        """Send what is released, as far as the agent takes it."""
        while live.pieces and live.is_wanted and live.unread < limits.REPLAY_UNREAD_BYTES:
            piece = live.pieces.popleft()
            if piece.what is PlayWhat.INTERIM and live.was_invited:
                continue
            data = self._parent.bundle.read_body(piece.data)
            if live.rewriter is not None:
                data = self._rewritten(live, piece, data)
                if not data and piece.what is PlayWhat.BODY:
                    continue  # held back: an id may go on in the next piece
                if piece.what is PlayWhat.END and (rest := live.rewriter.finish()):
                    yield from self._counted(live, Piece(PlayWhat.BODY), rest)
            yield from self._counted(live, piece, data)

    def _rewritten(self, live: _Live, piece: Piece, data: bytes) -> bytes:
        """Put this run's ids into a reply that holds the recorded ones."""
        rewriter = live.rewriter
        if rewriter is None or piece.what in (PlayWhat.END, PlayWhat.REFUSE, PlayWhat.CUT):
            return data
        if piece.what is PlayWhat.BODY:
            return rewriter.feed(live.recoding.feed(data) if live.recoding else data)
        if piece.what is PlayWhat.HEAD and live.length is not None:
            data = plain_head(data, live.length)
        return Rewriter(self._matcher.renames).replace(data)

    def _counted(self, live: _Live, piece: Piece, data: bytes) -> Iterator[Play]:
        if piece.what in (PlayWhat.HEAD, PlayWhat.INTERIM, PlayWhat.BODY):
            live.unread += len(data)
        if piece.what is PlayWhat.HEAD and live.length is not None:
            piece = replace(piece, length=live.length)
        yield from _messages(live.number, piece, data)


def _messages(exchange: int, piece: Piece, data: bytes) -> Iterator[Play]:
    """Cut one piece into messages."""
    reason = NAMES.index(piece.reason) if piece.reason in NAMES else 0
    parts = [data[at : at + _DATA] for at in range(0, len(data), _DATA)] or [b""]
    for i, part in enumerate(parts):
        more = PlayFlag.MORE if i + 1 < len(parts) else 0
        yield Play(
            exchange=exchange,
            length=piece.length if piece.framing is Framing.LENGTH else 0,
            size=len(part),
            what=piece.what,
            flags=piece.flags | more,
            status=piece.status,
            framing=piece.framing,
            reason=reason,
            data=part.ljust(_DATA, b"\0"),
        )
