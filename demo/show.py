"""Show, from the recording, the events that tell the incident, and check each promise.

    python demo/show.py EVENTS.jsonl SEEN.jsonl BUNDLE

``EVENTS.jsonl`` is `hark inspect --json`; ``SEEN.jsonl`` is what the stub received, the witness
outside hark. The true key comes in the environment (DEMO_API_KEY). Exits 1 when a promise fails.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from pathlib import Path
from typing import Any

INJECTION_MARK = "SYSTEM NOTE TO AI ASSISTANTS"
PLACEHOLDER_MARK = b"hark-placeholder-"


def raw(value: Any) -> bytes:
    """Return the bytes of a value: text stands for itself, other byte strings are marked."""
    if isinstance(value, dict) and set(value) == {"base64"}:
        return base64.b64decode(value["base64"])
    return str(value).encode()


def flat(value: Any) -> list[bytes]:
    """Return every text and byte string inside a JSON value."""
    if isinstance(value, dict) and set(value) != {"base64"}:
        value = list(value.values())
    if isinstance(value, list):
        return [part for item in value for part in flat(item)]
    return [raw(value)] if isinstance(value, str | dict) else []


class Record:
    """The events of one recording, and their exchanges."""

    def __init__(self, lines: str) -> None:
        self.events: list[dict[str, Any]] = [json.loads(line) for line in lines.splitlines()]

    def kind(self, kind: str, **wanted: Any) -> list[dict[str, Any]]:
        """Events of one kind whose fields have the wanted values."""
        return [
            event
            for event in self.events
            if event["kind"] == kind and all(event.get(k) == v for k, v in wanted.items())
        ]

    def request(self, host: str) -> dict[str, Any]:
        """Return the first request that names ``host`` in its Host header."""
        wanted = f"\r\nhost: {host}\r\n".encode()
        for event in self.kind("request"):
            if wanted in raw(event["head"]).lower():
                return event
        raise SystemExit(f"demo: error: the recording holds no request to {host}")

    def program(self, event: dict[str, Any]) -> str:
        """Describe the process behind an event, as the kernel saw it."""
        tgid, _, start, digest = event["actor"]
        ran = [e for e in self.kind("exec") if e["actor"][0] == tgid and e["actor"][2] == start]
        name = raw(ran[-1]["filename"]).decode() if ran else "?"
        hashed = digest[:16] if digest else "unknown"
        return f"process {tgid}, {name}, BLAKE3 {hashed}…"

    def holds(self, secret: bytes) -> bool:
        """Whether any text or byte string of any event contains ``secret``."""
        return any(secret in part for part in flat(self.events))

    def body(self, kind: str, exchange: int) -> bytes:
        """Return the bytes of a request (``body``) or response (``delivery``)."""
        return b"".join(raw(e["data"]) for e in self.kind(kind, exchange=exchange))


class Show:
    """Prints lines and remembers whether all promises held."""

    def __init__(self) -> None:
        self.failed = 0

    def line(self, event: dict[str, Any], text: str) -> None:
        """One line about one event."""
        print(f"{event['seq']:>5}  {event['kind']:<12} {text}")

    def promise(self, holds: bool, text: str) -> None:
        """One thing that must be so."""
        self.failed += not holds
        print(f"       {'ok' if holds else 'NOT SO':<12} {text}")


def page(record: Record, show: Show) -> None:
    """Show the planted instruction, as it was handed to the agent."""
    request = record.request("news.example")
    text = record.body("delivery", request["exchange"]).decode()
    start = text.find(INJECTION_MARK)
    show.line(request, f"GET https://news.example{raw(request['target']).decode()}")
    show.promise(start >= 0, f'the page says: "{text[start:].partition("<")[0]}"')


def model(record: Record, show: Show, seen: list[dict[str, str]], key: str) -> None:
    """Show that the key goes to the model, and only on hark's outer side."""
    request = record.request("model.example")
    show.line(request, f"POST https://model.example{raw(request['target']).decode()}")
    held = PLACEHOLDER_MARK in raw(request["head"])
    show.promise(held, "the agent's Authorization header holds a placeholder")
    swaps = record.kind("substituted", exchange=request["exchange"])
    for swap in swaps:
        show.line(swap, f"{swap['secret']} put into {swap['header']} for {swap['host']}")
    arrived = [s for s in seen if s.get("host") == "model.example"]
    right = bool(arrived) and all(s["authorization"] == f"Bearer {key}" for s in arrived)
    show.promise(bool(swaps) and right, "the stub behind model.example received the real key")


def thief(record: Record, show: Show, seen: list[dict[str, str]], key: str) -> None:
    """Show what was tried, that it was denied, and what would have left."""
    request = record.request("evil.example")
    tried = record.body("body", request["exchange"])
    denied = record.kind("denied", exchange=request["exchange"])
    for event in denied:
        show.line(event, f"DENIED evil.example by the {event['layer']}: {event['reason']}")
        print(f"{'':>20}asked for by {record.program(event)}")
    show.line(request, f"it tried: POST {raw(request['target']).decode()} {tried.decode()}")
    dialled = record.kind("dial", conn=request["conn"])
    show.promise(bool(denied) and not dialled, "the request was denied, and never dialled")
    placeholder = PLACEHOLDER_MARK in tried and key.encode() not in tried
    show.promise(placeholder, "what it tried to leak is the placeholder, not the key")
    reached = any(s.get("host") == "evil.example" for s in seen)
    show.promise(not reached, "the stub behind evil.example received nothing")


def main() -> int:
    """Print the story; 1 when a promise fails."""
    events, witness, bundle = (Path(name) for name in sys.argv[1:4])
    record, show = Record(events.read_text()), Show()
    seen = [json.loads(line) for line in witness.read_text().splitlines()]
    key = os.environ["DEMO_API_KEY"]
    print(f"\ndemo: the incident, from the recording ({len(record.events)} events)")
    page(record, show)
    model(record, show, seen, key)
    thief(record, show, seen, key)
    leaked = record.holds(key.encode()) or key.encode() in bundle.read_bytes()
    show.promise(not leaked, "the key is nowhere in the recording")
    return 1 if show.failed else 0


if __name__ == "__main__":
    sys.exit(main())
