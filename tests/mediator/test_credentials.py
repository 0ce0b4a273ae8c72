"""Placeholders become values only where they may, and values never come back or get recorded."""

from __future__ import annotations

import http.client
import os
from typing import TYPE_CHECKING

import pytest

from hark.mediator.config import PortMode
from hark.mediator.records import (
    ExchangeEnd,
    Refused,
    RequestBody,
    RequestHead,
    ResponseBody,
    ResponseHead,
    Substituted,
)

from .rig import (
    HOST,
    OTHER,
    PLACEHOLDER,
    REAL,
    length_of,
    read_all,
    read_exactly,
    read_head,
    scripted,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from .rig import Rig

MARK = PLACEHOLDER.encode()
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
SAME_LENGTH = b"sk-real-credential-of-same-length"


def request(*fields: bytes, host: str = HOST, target: bytes = b"/", body: bytes = b"") -> bytes:
    lines = [b"POST " + target + b" HTTP/1.1", b"Host: " + host.encode(), *fields]
    lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def everything(one: Rig) -> bytes:
    """All bytes that were ever in a record."""
    parts: list[bytes] = []
    for kind in (RequestHead, ResponseHead):
        parts += [r.raw for r in one.recorder.of(kind)]
    for kind in (RequestBody, ResponseBody):
        parts += [r.data for r in one.recorder.of(kind)]
    parts += [r.detail for r in one.recorder.of(Refused)]
    return b"\n".join(parts)


def ring_bytes(one: Rig) -> bytes:
    """The whole shared memory, read records and all."""
    size = os.fstat(one.mediator.ring._memory.memfd).st_size
    return os.pread(one.mediator.ring._memory.memfd, size, 0)


@pytest.mark.parametrize("field", [b"Authorization: Bearer ", b"X-API-Key: ", b"authorization:"])
def test_replaced_in_its_fields(rig: Callable[..., Rig], field: bytes):
    seen: list[bytes] = []
    one = rig(scripted(OK, seen=seen))
    sock = one.tls()
    sock.sendall(request(field + MARK + b" tail"))
    read_exactly(sock, 2, read_head(sock)[1])
    assert REAL + b" tail" in seen[0]
    assert MARK not in seen[0]
    name = field.split(b":")[0].decode().lower()
    assert [(r.secret, r.header) for r in one.recorder.wait(Substituted)] == [(7, name)]
    one.recorder.wait(ExchangeEnd)
    assert REAL not in everything(one)
    assert REAL not in ring_bytes(one)
    assert MARK in everything(one)


@pytest.mark.parametrize(
    "data",
    [
        request(b"X-Other: " + MARK),
        request(target=b"/?key=" + MARK),
        request(body=b'{"key": "' + MARK + b'"}'),
    ],
    ids=["another field", "target", "body"],
)
def test_elsewhere_it_passes_as_it_is(rig: Callable[..., Rig], data: bytes):
    seen: list[bytes] = []
    one = rig(scripted(OK, seen=seen))
    sock = one.tls()
    sock.sendall(data)
    read_exactly(sock, 2, read_head(sock)[1])
    assert MARK in seen[0]
    assert REAL not in seen[0]
    notes = one.recorder.wait(Refused)
    assert [r.reason for r in notes] == ["placeholder_elsewhere"]
    assert not notes[0].denial


def test_placeholder_in_a_body_sent_byte_by_byte(rig: Callable[..., Rig]):
    one = rig(scripted(OK))
    sock = one.tls()
    for byte in request(body=b"xx" + MARK + b"yy"):
        sock.sendall(bytes([byte]))
    read_exactly(sock, 2, read_head(sock)[1])
    assert [r.reason for r in one.recorder.wait(Refused)] == ["placeholder_elsewhere"]


@pytest.mark.parametrize(
    "data",
    [
        request(b"Authorization: Bearer " + MARK, host=OTHER),
        request(target=b"/" + MARK, host=OTHER),
    ],
)
def test_to_an_allowed_host_it_is_not_bound_to(rig: Callable[..., Rig], data: bytes):
    one = rig(scripted(OK))
    sock = one.tls(OTHER)
    sock.sendall(data)
    assert read_head(sock)[0].startswith(b"HTTP/1.1 403")
    assert one.recorder.wait(Refused)[0].reason == "credential_wrong_host"
    assert not one.broker.dials


def test_never_in_clear_text(rig: Callable[..., Rig]):
    seen: list[bytes] = []
    one = rig(scripted(OK, seen=seen), mode=PortMode.PLAIN)
    sock = one.connect()
    sock.sendall(request(b"Authorization: Bearer " + MARK))
    read_exactly(sock, 2, read_head(sock)[1])
    assert REAL not in seen[0]
    assert [r.reason for r in one.recorder.wait(Refused)] == ["placeholder_elsewhere"]
    assert not one.recorder.of(Substituted)


def test_no_compression_is_asked_for(rig: Callable[..., Rig]):
    seen: list[bytes] = []
    one = rig(scripted(OK, seen=seen))
    sock = one.tls()
    sock.sendall(request(b"Accept-Encoding: gzip, br"))
    read_exactly(sock, 2, read_head(sock)[1])
    assert b"Accept-Encoding: identity" in seen[0]
    assert b"gzip" not in seen[0]
    assert b"Accept-Encoding: gzip, br" in one.recorder.wait(RequestHead)[0].raw


def test_compressed_answer_to_a_request_with_a_credential(rig: Callable[..., Rig]):
    answer = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nxx"
    one = rig(scripted(answer, answer))
    sock = one.tls()
    sock.sendall(request())
    read_exactly(sock, 2, read_head(sock)[1])  # without one it passes
    sock.sendall(request(b"Authorization: " + MARK))
    assert read_head(sock)[0].startswith(b"HTTP/1.1 502")
    assert one.recorder.wait(Refused)[0].reason == "encoding_unscannable"


FRAMINGS = ["length", "chunked", "event stream", "end"]


def reflecting(framing: str, parts: list[bytes]) -> Callable[[socket.socket], None]:
    def serve(sock: socket.socket) -> None:
        head, rest = read_head(sock)
        read_exactly(sock, length_of(head), rest)
        body = b"".join(parts)
        echo = b"HTTP/1.1 200 OK\r\nX-Echo: <" + REAL + b">\r\n"
        if framing == "length":
            sock.sendall(echo + b"Content-Length: %d\r\n\r\n" % len(body))
        elif framing == "end":
            sock.sendall(echo + b"\r\n")
        else:
            kind = b"text/event-stream" if framing == "event stream" else b"text/plain"
            sock.sendall(
                echo + b"Content-Type: " + kind + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
        chunked = framing not in {"length", "end"}
        for part in parts:
            sock.sendall(b"%x\r\n%s\r\n" % (len(part), part) if chunked else part)
        if chunked:
            sock.sendall(b"0\r\n\r\n")
        if framing != "end":
            read_all(sock)

    return serve


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("split", [1, 7, 10_000])
@pytest.mark.parametrize("real", [REAL, SAME_LENGTH], ids=["other length", "same length"])
def test_reflected_value_is_put_back(
    rig: Callable[..., Rig], framing: str, split: int, real: bytes, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("mediator.test_credentials.REAL", real)
    body = (
        b"error: key " + real + b" or " + real[:9] + b" or " + real + real + b" is bad" + real[:4]
    )
    parts = [body[i : i + split] for i in range(0, len(body), split)]
    one = rig(reflecting(framing, parts), real=real)
    connection = http.client.HTTPSConnection(HOST)
    connection.sock = one.tls()
    connection.request("POST", "/", body=b"x", headers={"Authorization": PLACEHOLDER})
    answer = connection.getresponse()
    want = body.replace(real, MARK)
    assert answer.read() == want
    assert answer.getheader("x-echo") == f"<{PLACEHOLDER}>"
    one.recorder.wait(ExchangeEnd)
    assert real not in everything(one)
    assert real not in ring_bytes(one)
    assert b"".join(r.data for r in one.recorder.of(ResponseBody)) == want
    assert {r.reason for r in one.recorder.of(Refused)} - {"eof_framed"} == {"reflected"}


def test_large_response_with_reflections(rig: Callable[..., Rig]):
    body = (b"a" * 10_000 + REAL) * 100
    one = rig(reflecting("length", [body]))
    connection = http.client.HTTPSConnection(HOST)
    connection.sock = one.tls()
    connection.request("POST", "/", body=b"x", headers={"Authorization": PLACEHOLDER})
    assert connection.getresponse().read() == body.replace(REAL, MARK)


def test_event_that_could_begin_a_value_is_not_lost(rig: Callable[..., Rig]):
    parts = [b"data: sk-re", b"gular text\n\n", b"data: " + REAL[:-1], b"!\n\n"]
    one = rig(reflecting("event stream", parts))
    connection = http.client.HTTPSConnection(HOST)
    connection.sock = one.tls()
    connection.request("POST", "/", body=b"x", headers={"Authorization": PLACEHOLDER})
    assert connection.getresponse().read() == b"".join(parts)
