"""Every field of every recorded request, altered in turn: each is seen, or named.

Pure, over the events of a real recording. Rules. A mutant is the recording itself with one thing
changed in one request; it is compared with the recording as a replay would be. It is *caught* when
the verdict diverges at that request, *renamed* or *ignored* when the verdict says so by the pair of
ids or by the rule's name, and else *silent*, which is a fault of hark.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hark.bundle.cbor import BlobRef
from hark.bundle.events import Kind
from hark.bundle.reader import Bundle
from hark.replay.actions import Action, Extractor
from hark.replay.bundles import rules_of
from hark.replay.verdict import History, Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hark.replay.rules import Rules

__all__ = ["Mutations", "mutate"]

OF_CONN = ("port", "TLS")  # altering these alters every request of the connection
LARGE = 1 << 20
_HEAD, _BODY, _HOST, _PORT, _TLS = 8, 4, 5, 9, 10


@dataclass(frozen=True, slots=True)
class Seen:
    """One event, its bytes read out of the chunk store."""

    seq: int
    kind: int
    payload: dict[int, Any]


@dataclass(slots=True)
class Mutations:
    """What became of the alterations. ``silent`` names each that nothing told."""

    requests: int = 0
    caught: int = 0
    renamed: int = 0
    ignored: Counter[str] = field(default_factory=Counter)
    silent: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """All alterations."""
        return self.caught + self.renamed + self.ignored.total() + len(self.silent)


@dataclass(frozen=True, slots=True)
class Request:
    """One recorded request: where its events are, and its parts."""

    at: int
    conn: int
    siblings: frozenset[int]  # events of all requests of its connection
    bodies: tuple[int, ...]
    head: bytes
    body: bytes


def mutate(path: Path) -> Mutations:
    """Alter everything in a recording, one by one."""
    found = Mutations()
    with Bundle.open(path) as bundle:
        events = [
            Seen(event.seq, event.kind, _read(bundle, event.payload or {}))
            for event in bundle.events()
        ]
        rules = rules_of(bundle)
    left, actions = history(events, rules)
    assert judged(left, actions, left, actions).exact, "the recording is not equal to itself"
    for request in requests(events):
        found.requests += 1
        own = frozenset((events[request.at].seq,))
        for label, changed in mutants(events, request):
            right, others = history(changed, rules)
            verdict = judged(left, actions, right, others)
            tell(found, label, verdict, request.siblings if label in OF_CONN else own)
    return found


def _read(bundle: Bundle, payload: dict[int, Any]) -> dict[int, Any]:
    return {key: _plain(bundle, value) for key, value in payload.items()}


def _plain(bundle: Bundle, value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(bundle, item) for item in value]
    return bundle.read_body(value) if isinstance(value, BlobRef) else value


def history(events: list[Seen], rules: Rules) -> tuple[History, dict[int, Action]]:
    """Read events as ``compare`` does; keep the actions with their fields."""
    found, actions = History(), {}
    extractor = Extractor(bytes, rules)
    for event in events:
        for step in extractor.feed(event):
            found.add(step)
            if isinstance(step, Action):
                actions[step.number] = step
    for step in extractor.finish():
        found.add(step)
        if isinstance(step, Action):
            actions[step.number] = step
    found.is_complete = extractor.is_complete
    return found, actions


def judged(
    left: History, recorded: dict[int, Action], right: History, now: dict[int, Action]
) -> Verdict:
    """Compare two histories."""
    return judge(
        left,
        right,
        load_recorded=lambda number: recorded[number].identity,
        load_now=lambda number: now[number].identity,
    )


def tell(found: Mutations, label: str, verdict: Verdict, events: frozenset[int]) -> None:
    """Sort one alteration by what the verdict says of it; ``events``: where it may be told."""
    first = verdict.divergence
    if first is not None:
        sides = [side for side in (first.recorded, first.now) if side is not None]
        where = {side.event for side in sides}
        if where & events or first.conflict or first.moved:
            found.caught += 1
        else:
            found.silent.append(f"{label}: told of another action: {[s.title for s in sides]}")
    elif verdict.tally.rules:
        for rule in verdict.tally.rules:
            found.ignored[rule] += 1
    elif verdict.renames:
        found.renamed += 1
    elif verdict.tally.times:
        found.ignored["time, since the clock was real"] += 1
    else:
        found.silent.append(f"{label}: {verdict.first_line()}")


def requests(events: list[Seen]) -> Iterator[Request]:
    """Yield the recorded requests, but those that are no HTTP."""
    conns = {event.payload[4]: at for at, event in enumerate(events) if event.kind == Kind.CONN}
    for at, event in enumerate(events):
        if event.kind != Kind.REQUEST or b" HTTP/1." not in event.payload[_HEAD]:
            continue
        number = event.payload[2]
        bodies = tuple(
            i
            for i, other in enumerate(events)
            if other.kind == Kind.BODY and other.payload[2] == number
        )
        conn = event.payload[4]
        siblings = frozenset(
            other.seq for other in events if other.kind == Kind.REQUEST and other.payload[4] == conn
        )
        body = b"".join(events[i].payload[_BODY] for i in bodies)
        yield Request(at, conns[conn], siblings, bodies, event.payload[_HEAD], body)


# --- alterations ----------------------------------------------------------------------------------


def mutants(events: list[Seen], request: Request) -> Iterator[tuple[str, list[Seen]]]:
    """Yield what is altered, and the events with it."""
    for label, head in heads(request.head):
        yield label, put(events, request, head=head)
    for label, body in bodies(request):
        yield label, put(events, request, head=sized(request.head, body), body=body)
    for label, key, value in (("port", _PORT, 8443), ("TLS", _TLS, None)):
        conn = events[request.conn]
        changed = list(events)
        changed[request.conn] = replace(conn, payload={**conn.payload, key: value})
        yield label, changed
    host = events[request.at].payload.get(_HOST)
    changed = list(events)
    payload = {**events[request.at].payload, _HOST: f"x{host}"}
    changed[request.at] = replace(events[request.at], payload=payload)
    yield "host", changed


def put(
    events: list[Seen], request: Request, *, head: bytes, body: bytes | None = None
) -> list[Seen]:
    """Return the events with another head, and another body in its first event."""
    changed = list(events)
    changed[request.at] = replace(
        events[request.at], payload={**events[request.at].payload, _HEAD: head}
    )
    for place, at in enumerate(request.bodies if body is not None else ()):
        payload = {**events[at].payload, _BODY: body if place == 0 else b""}
        changed[at] = replace(events[at], payload=payload)
    return changed


def sized(head: bytes, body: bytes) -> bytes:
    """Return a head whose Content-Length is a body's."""
    lines = head.split(b"\r\n")
    return b"\r\n".join(
        b"Content-Length: %d" % len(body) if line.lower().startswith(b"content-length:") else line
        for line in lines
    )


def heads(head: bytes) -> Iterator[tuple[str, bytes]]:
    """Alter the start line and every field: value, name, absence, twice; add one."""
    start, *lines = head[:-4].split(b"\r\n")
    method, target, version = start.split(b" ")

    def whole(first: bytes, fields: list[bytes]) -> bytes:
        return b"\r\n".join([first, *fields]) + b"\r\n\r\n"

    yield "method", whole(b" ".join((b"PUT", target, version)), lines)
    for label, other in targets(target):
        yield label, whole(b" ".join((method, other, version)), lines)
    yield "a new field", whole(start, [*lines, b"X-New: 1"])
    for at, line in enumerate(lines):
        name, _, value = line.partition(b":")
        shown = name.decode()
        others = {
            "value": name + b":" + value + b"x",
            "name": b"X-" + line,
            "case of the name": name.swapcase() + b":" + value,
        }
        for what, other in others.items():
            yield f"{what} of {shown}", whole(start, [*lines[:at], other, *lines[at + 1 :]])
        yield f"{shown} left out", whole(start, lines[:at] + lines[at + 1 :])
        yield f"{shown} twice", whole(start, [*lines[: at + 1], *lines[at:]])


def targets(target: bytes) -> Iterator[tuple[str, bytes]]:
    """Alter path and query."""
    path, _, query = target.partition(b"?")
    yield "path longer", target.replace(path, path + b"x", 1)
    yield "path, another case", target.replace(path, path.swapcase(), 1)
    yield "path, a dot segment", target.replace(path, path + b"/.", 1)
    yield "a new parameter", target + (b"&" if query else b"?") + b"new=1"
    for part in filter(None, query.split(b"&")):
        yield f"parameter {part.decode()}", target.replace(part, part + b"x", 1)
        yield f"parameter {part.decode()} twice", target + b"&" + part


def bodies(request: Request) -> Iterator[tuple[str, bytes]]:
    """Alter the body: as JSON where it is, and as bytes."""
    body = request.body
    if not body:
        return
    if b"content-encoding: gzip" in request.head.lower():
        for what, other in leaves(gzip.decompress(body)):
            yield what, gzip.compress(other, mtime=0)
    yield from leaves(body)
    yield "body cut", body[:-1]
    yield "body longer", body + b" x"
    step = max(1, len(body) // (16 if len(body) < LARGE else 2))
    for at in range(0, len(body), step):
        flipped = bytes([body[at] ^ 1])
        yield f"byte {at} of the body", body[:at] + flipped + body[at + 1 :]


def leaves(body: bytes) -> Iterator[tuple[str, bytes]]:
    """Alter each leaf, key and list of a JSON body, if it is one."""
    try:
        value = json.loads(body)
    except ValueError:
        return
    yield "white space", json.dumps(value, indent=3).encode()
    for label, other in altered(value, "$"):
        yield label, json.dumps(other).encode()


def altered(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Yield a JSON value with one thing in it altered."""
    if isinstance(value, dict):
        yield f"{place}: a new key", {**value, "new": None}
        for key, item in value.items():
            rest = {name: other for name, other in value.items() if name != key}
            yield f"{place}.{key} left out", rest
            yield f"{place}.{key} named otherwise", {**rest, key + "x": item}
            for label, other in altered(item, f"{place}.{key}"):
                yield label, {**value, key: other}
    elif isinstance(value, list):
        yield f"{place}: one more", [*value, None]
        if value:
            yield f"{place}: one less", value[:-1]
        if len(value) > 1 and value[0] != value[1]:
            yield f"{place}: two swapped", [value[1], value[0], *value[2:]]
        for i, item in enumerate(value):
            for label, other in altered(item, f"{place}[{i}]"):
                yield label, [*value[:i], other, *value[i + 1 :]]
    else:
        yield from ((f"{place} as {other!r}"[:80], other) for other in scalars(value))


def scalars(value: Any) -> list[Any]:
    """Return other values for a leaf, near and far."""
    if isinstance(value, bool):
        return [not value, str(value), None]
    if isinstance(value, int | float):
        return [value + 1, -value - 1, str(value), float(value) + 0.5]
    if isinstance(value, str):
        return [value + " ", value.swapcase() + "x", "", None, value[1:] if value else "y"]
    return [0, "null", False]
