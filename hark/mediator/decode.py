"""Bytes of the mediator's ring into records. Pure: no I/O, no state.

Rules: the layout is ``bpf/hark_abi.h``'s, and ``tests/mediator/test_decode.py`` holds the two
together. The mediator may have been taken over by what it parses, so every length is checked; a
record that does not fit its layout is an error of the run, never skipped.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

from hark.errors import RecordingFailed
from hark.mediator.reasons import NAMES
from hark.mediator.records import (
    ConnClose,
    ConnOpen,
    ConnTls,
    ExchangeEnd,
    Head,
    Refused,
    RequestBody,
    RequestHead,
    ResponseBody,
    ResponseHead,
    Substituted,
    Trailers,
    Upstream,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from hark.mediator.records import MediatorRecord

    _Fixed = tuple[Any, ...]

__all__ = ["LAYOUTS", "decode"]

AF_INET = 2
AF_INET6 = 10
END = 2  # HARK_RECF_END

_HEAD = Struct("=IHHQQQ")
_OPEN = Struct("=Q16s16sHHH2x")
_TLS = Struct("=Q64s64s64sII")
_CLOSE = Struct("=QQQH6x")
_UPSTREAM = Struct("=QIHH16s64s64s32sHH4x")
_REQUEST = Struct("=QiI")
_BYTES = Struct("=I4x")
_RESPONSE = Struct("=HHI")
_TRAILERS = Struct("=II")
_SUBSTITUTED = Struct("=II")
_REFUSED = Struct("=QHHHH")
_END = Struct("=QQH6x")

# C struct -> what it holds. For tests/mediator/test_decode.py.
LAYOUTS = {
    "hark_rec_head": _HEAD,
    "hark_rec_conn_open": _OPEN,
    "hark_rec_conn_tls": _TLS,
    "hark_rec_conn_close": _CLOSE,
    "hark_rec_upstream": _UPSTREAM,
    "hark_rec_req_head": _REQUEST,
    "hark_rec_bytes": _BYTES,
    "hark_rec_res_head": _RESPONSE,
    "hark_rec_trailers": _TRAILERS,
    "hark_rec_substituted": _SUBSTITUTED,
    "hark_rec_refused": _REFUSED,
    "hark_rec_exchange_end": _END,
}


class _MalformedError(Exception):
    """Why a record does not fit; becomes RecordingFailed with its place."""


def decode(data: bytes | memoryview) -> list[MediatorRecord]:
    """Return the records of ``data``, which must hold whole records and nothing else.

    Raises RecordingFailed when it does not.
    """
    view = memoryview(data)
    records: list[MediatorRecord] = []
    at = 0
    while at < len(view):
        try:
            length = _length(view, at)
            records.append(_record(view[at : at + length]))
        except _MalformedError as error:
            raise RecordingFailed(
                "the mediator's record cannot be read", f"{error} at byte {at}"
            ) from None
        at += length
    return records


def _length(view: memoryview, at: int) -> int:
    if len(view) - at < _HEAD.size:
        raise _MalformedError("head cut short")
    length = int.from_bytes(view[at : at + 4], "little")
    if length < _HEAD.size or length % 8 or length > len(view) - at:
        raise _MalformedError(f"length {length}")
    return length


def _record(rec: memoryview) -> MediatorRecord:
    _, kind, flags, boot_ns, seq, subject = _HEAD.unpack_from(rec)
    reader = _READERS.get(kind)
    if reader is None:
        raise _MalformedError(f"kind {kind:#x}")
    layout, make = reader
    if len(rec) < _HEAD.size + layout.size:
        raise _MalformedError(f"kind {kind:#x} cut short")
    fixed = layout.unpack_from(rec, _HEAD.size)
    rest = rec[_HEAD.size + layout.size :]
    return make(Head(boot_ns, seq), subject, flags, fixed, rest)


def _bytes(rest: memoryview, size: int, start: int = 0) -> bytes:
    if start + size > len(rest):
        raise _MalformedError(f"{size} bytes where {len(rest) - start} are")
    return rest[start : start + size].tobytes()


def _text(raw: bytes) -> str:
    return raw.rstrip(b"\0").decode("latin-1")


def _address(family: int, raw: bytes) -> bytes:
    if family == AF_INET:
        return raw[:4]
    if family == AF_INET6:
        return raw
    if family == 0 and not any(raw):
        return b""  # the dial never came to an address
    raise _MalformedError(f"address family {family}")


def _reason(number: int) -> str:
    if number >= len(NAMES):
        raise _MalformedError(f"reason {number}")
    return NAMES[number]


# One maker per kind: head, subject, flags, fixed part, variable part -> record.


def _open(head: Head, _subject: int, _flags: int, fixed: _Fixed, _rest: memoryview) -> ConnOpen:
    conn, src, dst, family, sport, dport = fixed
    return ConnOpen(
        head=head,
        conn=conn,
        src=_address(family, src),
        sport=sport,
        dst=_address(family, dst),
        dport=dport,
    )


def _tls(head: Head, _subject: int, _flags: int, fixed: _Fixed, rest: memoryview) -> ConnTls:
    conn, version, cipher, alpn, resumed, size = fixed
    return ConnTls(
        head=head,
        conn=conn,
        sni=_text(_bytes(rest, size)),
        version=_text(version),
        cipher=_text(cipher),
        alpn=_text(alpn),
        resumed=bool(resumed),
    )


def _close(head: Head, _subject: int, _flags: int, fixed: _Fixed, _rest: memoryview) -> ConnClose:
    conn, rx, tx, reason = fixed
    return ConnClose(head=head, conn=conn, reason=_reason(reason), rx_bytes=rx, tx_bytes=tx)


def _upstream(head: Head, subject: int, _flags: int, fixed: _Fixed, _rest: memoryview) -> Upstream:
    conn, host, family, port, addr, version, cipher, digest, pooled, resumed = fixed
    return Upstream(
        head=head,
        exchange=subject,
        conn=conn,
        host=host,
        addr=_address(family, addr),
        port=port,
        version=_text(version),
        cipher=_text(cipher),
        cert_sha256=digest,
        pooled=bool(pooled),
        resumed=bool(resumed),
    )


def _request(head: Head, subject: int, _flags: int, fixed: _Fixed, rest: memoryview) -> RequestHead:
    conn, host, size = fixed
    return RequestHead(head=head, exchange=subject, conn=conn, host=host, raw=_bytes(rest, size))


def _request_body(
    head: Head, subject: int, flags: int, fixed: _Fixed, rest: memoryview
) -> RequestBody:
    data = _bytes(rest, fixed[0])
    return RequestBody(head=head, exchange=subject, data=data, end=bool(flags & END))


def _response(
    head: Head, subject: int, _flags: int, fixed: _Fixed, rest: memoryview
) -> ResponseHead:
    status, own, size = fixed
    return ResponseHead(
        head=head, exchange=subject, status=status, own=bool(own), raw=_bytes(rest, size)
    )


def _response_body(
    head: Head, subject: int, flags: int, fixed: _Fixed, rest: memoryview
) -> ResponseBody:
    data = _bytes(rest, fixed[0])
    return ResponseBody(head=head, exchange=subject, data=data, end=bool(flags & END))


def _trailers(head: Head, subject: int, _flags: int, fixed: _Fixed, rest: memoryview) -> Trailers:
    response, size = fixed
    return Trailers(head=head, exchange=subject, response=bool(response), raw=_bytes(rest, size))


def _end(head: Head, subject: int, _flags: int, fixed: _Fixed, _rest: memoryview) -> ExchangeEnd:
    request, response, reason = fixed
    return ExchangeEnd(
        head=head,
        exchange=subject,
        reason=_reason(reason),
        request_bytes=request,
        response_bytes=response,
    )


def _substituted(
    head: Head, subject: int, _flags: int, fixed: _Fixed, rest: memoryview
) -> Substituted:
    secret, size = fixed
    return Substituted(
        head=head, exchange=subject, secret=secret, header=_text(_bytes(rest, size)).lower()
    )


def _refused(head: Head, subject: int, _flags: int, fixed: _Fixed, rest: memoryview) -> Refused:
    conn, reason, denial, name, detail = fixed
    return Refused(
        head=head,
        exchange=subject,
        conn=conn,
        reason=_reason(reason),
        denial=bool(denial),
        name=_text(_bytes(rest, name)),
        detail=_bytes(rest, detail, name),
    )


_READERS: dict[
    int, tuple[Struct, Callable[[Head, int, int, _Fixed, memoryview], MediatorRecord]]
] = {
    0x101: (_OPEN, _open),
    0x102: (_TLS, _tls),
    0x103: (_CLOSE, _close),
    0x104: (_UPSTREAM, _upstream),
    0x110: (_REQUEST, _request),
    0x111: (_BYTES, _request_body),
    0x112: (_RESPONSE, _response),
    0x113: (_BYTES, _response_body),
    0x114: (_TRAILERS, _trailers),
    0x115: (_END, _end),
    0x116: (_SUBSTITUTED, _substituted),
    0x117: (_REFUSED, _refused),
}
