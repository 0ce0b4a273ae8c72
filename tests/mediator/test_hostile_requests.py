"""Requests that no client should send: each refused with its own reason, recorded, never dialled.

Numbers in the names are those of the HTTP request smuggling cases everybody tests (CL.TE, TE.CL,
obs-fold, bare LF ...). Each is sent whole and byte by byte; both must end alike.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from hark.mediator.records import ExchangeEnd, Refused, RequestHead, ResponseHead

from .rig import HOST, OTHER, read_all, scripted

if TYPE_CHECKING:
    from collections.abc import Callable

    from .rig import Rig

H = f"Host: {HOST}\r\n".encode()
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

REFUSED = {
    "CL.TE": (
        b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"0\r\n\r\n",
        400,
        "bad_framing",
    ),
    "TE.CL": (
        b"POST / HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n"
        b"0\r\n\r\n",
        400,
        "bad_framing",
    ),
    "two lengths": (
        b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nabcde",
        400,
        "bad_framing",
    ),
    "length list": (
        b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 5, 5\r\n\r\nabcde",
        400,
        "bad_framing",
    ),
    "negative length": (
        b"POST / HTTP/1.1\r\n" + H + b"Content-Length: -1\r\n\r\n",
        400,
        "bad_framing",
    ),
    "signed length": (
        b"POST / HTTP/1.1\r\n" + H + b"Content-Length: +5\r\n\r\nabcde",
        400,
        "bad_framing",
    ),
    "huge length": (
        b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 99999999999999999999999\r\n\r\n",
        400,
        "bad_framing",
    ),
    "unknown coding": (
        b"POST / HTTP/1.1\r\n" + H + b"Transfer-Encoding: xchunked\r\n\r\n",
        400,
        "bad_framing",
    ),
    "coding not last": (
        b"POST / HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        400,
        "bad_framing",
    ),
    "coding before chunked": (
        b"POST / HTTP/1.1\r\n" + H + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        400,
        "bad_framing",
    ),
    "coding in 1.0": (
        b"POST / HTTP/1.0\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
        "bad_framing",
    ),
    "folded line": (
        b"GET / HTTP/1.1\r\n" + H + b"X: 1\r\n  folded\r\n\r\n",
        400,
        "bad_request",
    ),
    "bare LF": (b"GET / HTTP/1.1\nHost: " + HOST.encode() + b"\n\n", 400, "bad_request"),
    "bare CR": (b"GET / HTTP/1.1\r\n" + H + b"X: a\rb\r\n\r\n", 400, "bad_request"),
    "NUL in a value": (b"GET / HTTP/1.1\r\n" + H + b"X: a\0b\r\n\r\n", 400, "bad_request"),
    "space before colon": (
        b"GET / HTTP/1.1\r\n" + H + b"X : a\r\n\r\n",
        400,
        "bad_request",
    ),
    "two hosts": (
        b"GET / HTTP/1.1\r\n" + H + b"Host: evil.example\r\n\r\n",
        400,
        "host_duplicate",
    ),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", 400, "host_missing"),
    "another host": (
        b"GET / HTTP/1.1\r\nHost: " + OTHER.encode() + b"\r\n\r\n",
        421,
        "host_mismatch",
    ),
    "another host in absolute form": (
        b"GET https://evil.example/ HTTP/1.1\r\n" + H + b"\r\n",
        421,
        "host_mismatch",
    ),
    "address as host": (b"GET / HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n", 403, "ip_literal"),
    "CONNECT": (
        b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        405,
        "connect_denied",
    ),
    "HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "h2_preface"),
    "HTTP/0.9": (b"GET /\r\n\r\n", 505, "bad_version"),
    "WebSocket": (
        b"GET / HTTP/1.1\r\n" + H + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        501,
        "upgrade_refused",
    ),
    "unknown expectation": (
        b"GET / HTTP/1.1\r\n" + H + b"Expect: a-pony\r\n\r\n",
        417,
        "bad_expect",
    ),
    "not HTTP": (b"\x00\x01\x02\x03 what is this\r\n\r\n", 400, "bad_request"),
}

LARGE = {
    "head": (
        b"GET / HTTP/1.1\r\n" + H + b"".join(b"X-%d: %s\r\n" % (i, b"a" * 8000) for i in range(10)),
        431,
        "head_too_large",
    ),
    "value": (b"GET / HTTP/1.1\r\n" + H + b"X: " + b"a" * 33000, 431, "head_too_large"),
    "fields": (
        b"GET / HTTP/1.1\r\n" + H + b"".join(b"X-%d: a\r\n" % i for i in range(130)),
        431,
        "head_too_large",
    ),
    "target": (b"GET /" + b"a" * 17000, 414, "uri_too_long"),
}

BODIES = {
    "length in the trailers": b"0\r\nContent-Length: 3\r\n\r\n",
    "chunk size negative": b"-1\r\n",
    "chunk size 0x": b"0x5\r\nabcde\r\n0\r\n\r\n",
    "chunk size too long": b"FFFFFFFFFFFFFFFFF\r\n",
    "chunk with LF only": b"1\nx\n0\n\n",
    "chunk longer than said": b"1\r\nxyz\r\n0\r\n\r\n",
    "chunk extensions without end": b"1;" + b"a" * 400 + b"\r\nx\r\n0\r\n\r\n",
    "trailers without end": b"0\r\n" + b"X-T: " + b"a" * 9000 + b"\r\n\r\n",
}


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def refuse(one: Rig, data: bytes, *, slowly: bool) -> bytes:
    sock = one.tls()
    try:
        for part in [data[i : i + 1] for i in range(len(data))] if slowly else [data]:
            sock.sendall(part)
    except OSError:
        assert slowly  # refused before the last byte
    return read_all(sock)


@pytest.mark.parametrize("slowly", [False, True], ids=["whole", "bytes"])
def test_refused(rig: Callable[..., Rig], slowly: bool):
    one = rig(scripted(OK))
    for name, (data, status, reason) in REFUSED.items():
        before = len(one.recorder.of(ExchangeEnd))
        answer = refuse(one, data, slowly=slowly)
        assert status_of(answer) == status, name
        head, _, body = answer.partition(b"\r\n\r\n")
        assert f"X-Hark-Error: {reason}".encode() in head, name
        assert json.loads(body)["error"]["reason"] == reason, name
        end = one.recorder.wait(ExchangeEnd, before + 1)[-1]
        assert end.reason == reason, name
        refused = [r for r in one.recorder.of(Refused) if r.exchange == end.exchange]
        assert [r.reason for r in refused] == [reason], name
        sent = [r for r in one.recorder.of(RequestHead) if r.exchange == end.exchange]
        assert len(sent) == 1, name
        assert data.startswith(sent[0].raw), name
        own = [r for r in one.recorder.of(ResponseHead) if r.exchange == end.exchange]
        assert [(r.own, r.status) for r in own] == [(True, status)], name
    assert not one.broker.dials


@pytest.mark.parametrize("name", LARGE)
def test_too_large(rig: Callable[..., Rig], name: str):
    data, status, reason = LARGE[name]
    one = rig(scripted(OK))
    assert status_of(refuse(one, data, slowly=False)) == status
    assert one.recorder.wait(ExchangeEnd)[0].reason == reason
    assert not one.broker.dials


@pytest.mark.parametrize("slowly", [False, True], ids=["whole", "bytes"])
@pytest.mark.parametrize("name", BODIES)
def test_bad_chunks(rig: Callable[..., Rig], name: str, slowly: bool):
    one = rig(read_all)
    data = b"POST / HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n" + BODIES[name]
    answer = refuse(one, data, slowly=slowly)
    assert status_of(answer) == 400
    end = one.recorder.wait(ExchangeEnd)[0]
    assert end.reason in {"bad_request", "bad_trailer", "bad_framing"}


def test_nothing_after_connection_close(rig: Callable[..., Rig]):
    seen: list[bytes] = []
    one = rig(scripted(OK, OK, seen=seen))
    get = b"GET /%d HTTP/1.1\r\n" + H + b"%s\r\n"
    sock = one.tls()
    sock.sendall(get % (1, b"Connection: close\r\n") + get % (2, b""))
    answer = read_all(sock)
    assert answer.count(b"HTTP/1.1 200") == 1
    one.recorder.wait(ExchangeEnd)
    assert len(one.recorder.of(RequestHead)) == 1
    assert len(seen) == 1
