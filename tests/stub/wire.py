"""HTTP/1.1 as a server reads and writes it, keeping the raw bytes.

Rules: this is the test's witness, so it is strict and small. A request that does not parse ends
the connection with ``WireError``. Limits are those of a test, not of a server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Request", "WireError", "chunk", "last_chunk", "read_request"]

_HEAD_MAX = 256 * 1024
_BODY_MAX = 512 * 1024 * 1024


class WireError(Exception):
    """The peer sent something that is not an HTTP/1.1 request."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request: its head as it came, and its body with the transfer coding removed."""

    method: str
    target: str
    fields: tuple[tuple[str, str], ...]
    head: bytes
    body: bytes

    def field(self, name: str, default: str = "") -> str:
        """Return the first field called ``name``, whatever its case."""
        wanted = name.lower()
        return next((value for key, value in self.fields if key.lower() == wanted), default)


class _Source:
    """Bytes of one connection, and the ones read too early for the next request."""

    def __init__(self, receive: Callable[[int], bytes], kept: bytearray) -> None:
        self._receive = receive
        self.kept = kept

    def more(self) -> None:
        data = self._receive(65536)
        if not data:
            raise WireError("the connection ended inside a message")
        self.kept += data

    def until(self, mark: bytes) -> bytes:
        while (at := self.kept.find(mark)) < 0:
            if len(self.kept) > _HEAD_MAX:
                raise WireError("no end of head or chunk line")
            self.more()
        return self.exactly(at + len(mark))

    def exactly(self, count: int) -> bytes:
        if count > _BODY_MAX:
            raise WireError("body too large for this stub")
        while len(self.kept) < count:
            self.more()
        taken = bytes(self.kept[:count])
        del self.kept[:count]
        return taken


def _fields(lines: list[str]) -> tuple[tuple[str, str], ...]:
    parsed = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or name != name.strip() or not name:
            raise WireError(f"bad field line {line!r}")
        parsed.append((name, value.strip(" \t")))
    return tuple(parsed)


def _chunked(source: _Source) -> bytes:
    body = bytearray()
    while size := int(source.until(b"\r\n").split(b";")[0], 16):
        body += source.exactly(size)
        if source.exactly(2) != b"\r\n":
            raise WireError("a chunk is longer than its size")
    while source.until(b"\r\n") != b"\r\n":
        pass  # trailer fields: nothing the stub answers depends on them
    return bytes(body)


def read_request(
    receive: Callable[[int], bytes], kept: bytearray, proceed: Callable[[], None]
) -> Request | None:
    """Read one request; ``None`` when the connection ended between two of them.

    ``kept`` carries bytes over to the next call. ``proceed`` is called when the client waits for
    ``100 Continue`` (RFC 9110 section 10.1.1).
    """
    source = _Source(receive, kept)
    if not kept:
        data = receive(65536)
        if not data:
            return None
        kept += data
    head = source.until(b"\r\n\r\n")
    lines = head[:-4].decode("latin-1").split("\r\n")
    start = lines[0].split(" ")
    if len(start) != 3 or not start[2].startswith("HTTP/1."):
        raise WireError(f"bad request line {lines[0]!r}")
    request = Request(start[0], start[1], _fields(lines[1:]), head, b"")
    if request.field("expect").lower() == "100-continue":
        proceed()
    if "chunked" in request.field("transfer-encoding").lower():
        body = _chunked(source)
    else:
        body = source.exactly(int(request.field("content-length", "0")))
    return Request(request.method, request.target, request.fields, head, body)


def chunk(data: bytes) -> bytes:
    """One chunk of the chunked transfer coding (RFC 9112 section 7.1)."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def last_chunk(trailers: tuple[tuple[str, str], ...] = ()) -> bytes:
    """Return the end of a chunked body."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in trailers)
    return f"0\r\n{lines}\r\n".encode()
