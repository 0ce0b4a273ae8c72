"""Requests and events for the replay tests, written as the recorder would. Nothing is mocked."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hark.bundle.events import Kind
from hark.replay.actions import Action, Delivered, Extractor, InputSeen
from hark.replay.identity import Canonicaliser, Identity, placeholder_table
from hark.replay.rules import BUILTIN, Rules
from hark.replay.tokens import Ownership

if TYPE_CHECKING:
    from collections.abc import Iterable

AGENT = [100, 100, 7, None]
TABLE = placeholder_table([("key", b"hark-placeholder-01-key")])


@dataclass(frozen=True)
class Event:
    seq: int
    kind: int
    payload: dict[int, Any] | None


def split(data: bytes, seed: int) -> list[bytes]:
    """Cut bytes at random places; seed 0: every byte by itself."""
    if seed == 0:
        return [data[i : i + 1] for i in range(len(data))]
    rng = random.Random(seed)  # noqa: S311 - repeatable
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(6)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def head(
    target: str = "/v1/x", *lines: str, method: str = "POST", host: str = "api.example"
) -> bytes:
    return "\r\n".join([f"{method} {target} HTTP/1.1", f"Host: {host}", *lines, "", ""]).encode()


def identify(
    raw_head: bytes,
    *body: bytes,
    ownership: Ownership | None = None,
    rules: Rules = BUILTIN,
    host: str | None = None,
    table: dict[bytes, bytes] = TABLE,
) -> Identity:
    made = Canonicaliser(
        raw_head,
        host=host,
        port=443,
        tls=True,
        placeholders=table,
        ownership=ownership or Ownership(),
        rules=rules,
    )
    for part in body:
        made.feed(part)
    return made.finish()


class Script:
    """A recording in the making: each call appends the events of one thing that happened."""

    def __init__(self, determinism: str = "off") -> None:
        self.events: list[Event] = []
        self.exchanges = 0
        self.add(
            Kind.RUN_START,
            {
                4: [b"agent"],
                5: b"/work",
                6: "",
                8: [[b"PATH", b"/bin"]],
                11: determinism,
                18: [["key", "hark-placeholder-01-key"]],
            },
        )
        self.add(Kind.FORK, {1: [9, 9, 1, None], 4: AGENT[:3], 5: False})
        self.exec(b"/bin/agent")

    def add(self, kind: int, payload: dict[int, Any] | None) -> None:
        self.events.append(Event(len(self.events), kind, payload))

    def exec(self, filename: bytes, *argv: bytes, actor: list[Any] | None = None) -> None:
        words = [filename, *argv]
        self.add(Kind.EXEC, {1: actor or AGENT, 4: filename, 5: words, 7: b"\1" * 32, 8: "read"})

    def request(
        self, target: str, body: bytes = b"", *lines: str, method: str = "POST", seed: int = 1
    ) -> int:
        self.exchanges += 1
        number = self.exchanges
        length = f"Content-Length: {len(body)}"
        raw = head(target, *([length] if body else []), *lines, method=method)
        self.add(Kind.CONN, {1: AGENT, 4: number, 9: 443, 10: "TLSv1.3"})
        self.add(Kind.REQUEST, {1: AGENT, 2: number, 4: number, 5: "api.example", 8: raw})
        for part in split(body, seed) if body else []:
            self.add(Kind.BODY, {1: AGENT, 2: number, 4: part, 5: False})
        if body:
            self.add(Kind.BODY, {1: AGENT, 2: number, 4: b"", 5: True})
        return number

    def begin(self, number: int, status: int = 200, *, own: bool = False) -> None:
        raw = f"HTTP/1.1 {status} OK\r\n\r\n".encode()
        self.add(Kind.RESPONSE, {2: number, 4: status, 5: own, 6: raw})

    def deliver(self, number: int, data: bytes) -> None:
        self.add(Kind.DELIVERY, {2: number, 4: data, 5: False})

    def end(self, number: int, reason: str = "complete") -> None:
        self.add(Kind.END, {2: number, 4: reason, 5: 0, 6: 0})

    def answer(self, number: int, *chunks: bytes) -> None:
        self.begin(number)
        for chunk in chunks:
            self.deliver(number, chunk)
        self.end(number)

    def output(self, data: bytes, stream: int = 1) -> None:
        self.add(Kind.STDIO, {4: stream, 5: data, 6: False})

    def finish(self, status: int = 0) -> list[Event]:
        self.add(Kind.RUN_END, {4: status, 5: status, 6: "exited", 7: {}})
        return self.events


def read(value: Any) -> bytes:
    """Read a payload's bytes, as a bundle without a chunk store."""
    if not isinstance(value, bytes):
        raise TypeError(f"not bytes: {value!r}")
    return value


def steps(events: Iterable[Event], rules: Rules | None = None) -> list[Any]:
    extractor = Extractor(read, rules)
    found = [step for event in events for step in extractor.feed(event)]
    return [*found, *extractor.finish()]


def actions(events: Iterable[Event]) -> list[Action]:
    return [step for step in steps(events) if isinstance(step, Action)]


def deliveries(events: Iterable[Event]) -> list[Delivered]:
    return [step for step in steps(events) if isinstance(step, Delivered)]


def inputs(events: Iterable[Event]) -> list[InputSeen]:
    return [step for step in steps(events) if isinstance(step, InputSeen)]
