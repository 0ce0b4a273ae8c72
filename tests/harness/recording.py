"""A bundle as `hark inspect --json` shows it, grouped into exchanges.

Rules. Tests read bundles only through the command, as a person does. A missing field is a failure
with the event in its message, never a default.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.running import hark

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Actor", "Event", "Exchange", "Recording", "raw"]


def raw(value: Any) -> bytes:
    """Return the bytes that a JSON value of `inspect --json` stands for."""
    if isinstance(value, dict) and set(value) == {"base64"}:
        return base64.b64decode(value["base64"], validate=True)
    assert isinstance(value, str), f"neither text nor bytes: {value!r}"
    return value.encode()


@dataclass(frozen=True, slots=True)
class Actor:
    """The thread behind an event; ``digest`` is BLAKE3 of its executable, in hex."""

    tgid: int
    tid: int
    start_ns: int
    digest: str | None


@dataclass(frozen=True, slots=True)
class Event:
    """One event; ``fields`` by the names of docs/spec/records.md."""

    seq: int
    kind: str
    fields: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        """Return a field that must be there."""
        assert name in self.fields, f"event {self.seq} ({self.kind}) has no {name}: {self.fields}"
        return self.fields[name]

    @property
    def actor(self) -> Actor:
        """The actor, which must be there."""
        tgid, tid, start_ns, digest = self["actor"]
        return Actor(tgid, tid, start_ns, digest)


@dataclass(slots=True)
class Exchange:
    """The events of one exchange; bodies are joined, deliveries and 1xx responses kept apart."""

    number: int
    request: Event
    request_parts: list[bytes] = field(default_factory=list)
    interim: list[Event] = field(default_factory=list)
    response: Event | None = None
    deliveries: list[bytes] = field(default_factory=list)
    substituted: list[Event] = field(default_factory=list)
    denied: list[Event] = field(default_factory=list)
    upstream: Event | None = None
    end: Event | None = None

    @property
    def host(self) -> str:
        """The host that was meant: the policy's name, or what the agent wrote for a denied one."""
        named = self.request.fields.get("host")
        if named is not None:
            return raw(named).decode()
        for line in raw(self.request["head"]).decode("latin-1").split("\r\n"):
            name, _, value = line.partition(":")
            if name.lower() == "host":
                return value.strip()
        return ""

    @property
    def request_body(self) -> bytes:
        """The whole request body as the agent sent it."""
        return b"".join(self.request_parts)

    @property
    def response_body(self) -> bytes:
        """The whole response body as handed to the agent."""
        return b"".join(self.deliveries)


class Recording:
    """All events of a bundle, in order."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events

    @classmethod
    def read(cls, bundle: Path, *, sealed: bool = True) -> Recording:
        """Read a bundle through the command, which must find it whole: sealed, or only cut."""
        shown = hark("inspect", "--json", bundle)
        assert shown.status == (0 if sealed else 3), shown.stderr
        return cls.parse(shown.stdout)

    @classmethod
    def parse(cls, text: bytes) -> Recording:
        """Parse the command's output: one JSON object a line."""
        events = []
        for line in text.splitlines():
            value = json.loads(line)
            events.append(Event(value.pop("seq"), value.pop("kind"), value))
        return cls(events)

    def kind(self, kind: str) -> list[Event]:
        """Return the events of one kind."""
        return [event for event in self.events if event.kind == kind]

    def exchanges(self, host: str | None = None) -> list[Exchange]:
        """Return the exchanges in the order of their requests, those of one host, or all."""
        found = {e["exchange"]: Exchange(e["exchange"], e) for e in self.kind("request")}
        for event in self.events:
            exchange = found.get(event.fields.get("exchange", 0))
            if exchange is not None:
                _add(exchange, event)
        return [e for e in found.values() if host is None or e.host == host]

    def everything(self) -> bytes:
        """Return every text and byte string of every event, to look for what must not be there."""
        return b"\n".join(_flat([event.fields for event in self.events]))


def _add(exchange: Exchange, event: Event) -> None:
    if event.kind == "body":
        exchange.request_parts.append(raw(event["data"]))
    elif event.kind == "delivery":
        exchange.deliveries.append(raw(event["data"]))
    elif event.kind == "substituted":
        exchange.substituted.append(event)
    elif event.kind == "denied":
        exchange.denied.append(event)
    elif event.kind == "response" and event["status"] < 200:
        exchange.interim.append(event)
    elif event.kind in {"response", "upstream", "end"}:
        assert getattr(exchange, event.kind) is None, f"two {event.kind} in {exchange.number}"
        setattr(exchange, event.kind, event)


def _flat(value: Any) -> list[bytes]:
    if isinstance(value, dict):
        if set(value) == {"base64"}:
            return [raw(value)]
        return [part for item in value.values() for part in _flat(item)]
    if isinstance(value, list):
        return [part for item in value for part in _flat(item)]
    return [value.encode()] if isinstance(value, str) else []
