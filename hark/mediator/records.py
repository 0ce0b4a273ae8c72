"""What the mediator reports through its ring, as values.

Rules: frozen, decoded once (``decode.py``), no I/O. Times are CLOCK_BOOTTIME nanoseconds. Heads
and bodies are bytes as the agent sent or received them: a head never holds a real credential.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "ConnClose",
    "ConnOpen",
    "ConnTls",
    "ExchangeEnd",
    "Head",
    "MediatorRecord",
    "Refused",
    "RequestBody",
    "RequestHead",
    "ResponseBody",
    "ResponseHead",
    "Substituted",
    "Trailers",
    "Upstream",
]


@dataclass(frozen=True, slots=True)
class Head:
    """Common to every record of the ring. ``seq`` has no gaps: a full ring blocks the mediator."""

    boot_ns: int
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnOpen:
    """A connection of the agent was accepted. ``src`` joins it to a kernel Connect record."""

    head: Head
    conn: int
    src: bytes
    sport: int
    dst: bytes
    dport: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnTls:
    """The agent's side of the handshake is done."""

    head: Head
    conn: int
    sni: str
    version: str
    cipher: str
    alpn: str
    resumed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnClose:
    """The agent's connection ended. ``reason`` is a name of csrc/mediator/hark_reasons.h."""

    head: Head
    conn: int
    reason: str
    rx_bytes: int
    tx_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """The verified upstream an exchange uses. ``cert_sha256`` is over the leaf's DER."""

    head: Head
    exchange: int
    conn: int
    host: int
    addr: bytes
    port: int
    version: str
    cipher: str
    cert_sha256: bytes
    pooled: bool
    resumed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHead:
    """A parsed request. ``raw`` is the head as received, placeholders and all, CRLF lines.

    ``host`` is the index in the compiled host table, or -1 for a name that is not in it.
    """

    head: Head
    exchange: int
    conn: int
    host: int
    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBody:
    """Decoded body bytes (chunked framing removed), in order; ``end`` on the last one."""

    head: Head
    exchange: int
    data: bytes
    end: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseHead:
    """``raw`` as handed to the agent. ``own`` when hark made the response (403, 502 …)."""

    head: Head
    exchange: int
    status: int
    own: bool
    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseBody:
    """One delivery: body bytes handed to the agent in one write."""

    head: Head
    exchange: int
    data: bytes
    end: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Trailers:
    """Trailer fields that were forwarded."""

    head: Head
    exchange: int
    response: bool
    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Substituted:
    """A placeholder was replaced on the way out. Never holds the value."""

    head: Head
    exchange: int
    secret: int
    header: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The mediator refused something; held until it is on disk (HARK_MSG_DURABLE).

    ``reason`` is a name of csrc/mediator/hark_reasons.h; ``name`` the host or SNI that was meant;
    ``denial`` tells a policy denial from a protocol error.
    """

    head: Head
    exchange: int
    conn: int
    reason: str
    denial: bool
    name: str
    detail: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeEnd:
    """Nothing more follows for this exchange. ``reason`` is "complete" or why it ended early."""

    head: Head
    exchange: int
    reason: str
    request_bytes: int
    response_bytes: int


MediatorRecord = (
    ConnOpen
    | ConnTls
    | ConnClose
    | Upstream
    | RequestHead
    | RequestBody
    | ResponseHead
    | ResponseBody
    | Trailers
    | Substituted
    | Refused
    | ExchangeEnd
)
