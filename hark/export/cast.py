"""A run's terminal as an asciicast, version 2 (docs.asciinema.org, "asciicast v2").

Pure: events in, lines out. Rules: what the agent showed comes as it was shown, with the times of
the record; bytes that are not UTF-8 become U+FFFD, as on a terminal, and a character cut by two
events stays whole. Pipes have no line discipline: their line ends become CR LF, as a terminal would
make them. Typed keys are left out unless asked for; those typed without echo are not in the bundle.
"""

from __future__ import annotations

import codecs
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from hark.bundle.events import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["cast_lines"]

_STDIN, _STDOUT, _STDERR, _TYPED, _SHOWN = range(5)  # docs/spec/records.md, kind 23
_PIPES = (_STDOUT, _STDERR)
_INPUTS = (_STDIN, _TYPED)
_ROWS, _COLUMNS = 24, 80  # of a run that had no terminal


class EventLike(Protocol):
    """What is needed of an event of a bundle."""

    @property
    def kind(self) -> int:
        """Number of its kind."""

    @property
    def time_ns(self) -> int:
        """CLOCK_BOOTTIME in nanoseconds."""

    @property
    def payload(self) -> dict[int, Any] | None:
        """Key to value; ``None``: redacted."""


@dataclass(slots=True)
class _Cast:
    """The state of one conversion. ``start_ns``: the time of run_start."""

    read: Callable[[Any], bytes]
    keys: bool
    start_ns: int = 0
    header: dict[str, Any] = field(default_factory=dict)
    begun: bool = False
    decoders: dict[int, codecs.IncrementalDecoder] = field(default_factory=dict)

    def started(self, event: EventLike, payload: dict[int, Any]) -> None:
        """Take run_start: the command, and the terminal's name."""
        self.start_ns = event.time_ns
        words = [word.decode("utf-8", "replace") for word in payload.get(4, [])]
        self.header["title"] = " ".join(words)
        names = dict(payload.get(8, []))
        env = {
            name: names[name.encode()].decode("utf-8", "replace")
            for name in ("TERM", "SHELL")
            if name.encode() in names
        }
        if env:
            self.header["env"] = env

    def begin(self, rows: int = _ROWS, columns: int = _COLUMNS) -> Iterator[str]:
        """Yield the header before the first event."""
        if not self.begun:
            self.begun = True
            size = {"version": 2, "width": columns, "height": rows}
            yield json.dumps(size | self.header, ensure_ascii=False)

    def stdio(self, event: EventLike, payload: dict[int, Any]) -> Iterator[str]:
        """Yield the lines of a stdio event."""
        stream = payload[4]
        if (size := payload.get(7)) is not None:
            rows, columns = size
            if self.begun:
                yield self._line(event, "r", f"{columns}x{rows}")
            yield from self.begin(rows or _ROWS, columns or _COLUMNS)
            return
        if stream in _INPUTS and not self.keys:
            return
        yield from self.begin()
        data = self.read(payload[5]) if payload.get(5) is not None else b""
        text = self._decoder(stream).decode(data, final=bool(payload.get(6)))
        if stream in _PIPES:
            text = text.replace("\n", "\r\n")
        if text:
            yield self._line(event, "i" if stream in _INPUTS else "o", text)

    def _decoder(self, stream: int) -> codecs.IncrementalDecoder:
        if stream not in self.decoders:
            self.decoders[stream] = codecs.getincrementaldecoder("utf-8")("replace")
        return self.decoders[stream]

    def _line(self, event: EventLike, code: str, text: str) -> str:
        seconds = max(0, event.time_ns - self.start_ns) / 1e9
        return json.dumps([round(seconds, 6), code, text], ensure_ascii=False)


def cast_lines(
    events: Iterable[EventLike],
    *,
    created_unix_s: int,
    read: Callable[[Any], bytes],
    keys: bool = False,
) -> Iterator[str]:
    """Yield the lines of an asciicast.

    ``events``: run_start and stdio, in order; others are skipped. ``created_unix_s``: wall time of
    the start, in seconds. ``read`` turns a body (bytes, or a reference to chunks) into bytes.
    ``keys``: with what was typed. Raises ``KeyError``, ``TypeError``, ``ValueError`` or
    ``AttributeError`` for a payload that does not hold what its kind demands.
    """
    cast = _Cast(read, keys, header={"timestamp": created_unix_s})
    for event in events:
        payload = event.payload
        if payload is None:
            continue  # redacted
        if event.kind == Kind.RUN_START:
            cast.started(event, payload)
        elif event.kind == Kind.STDIO:
            yield from cast.stdio(event, payload)
    yield from cast.begin()
