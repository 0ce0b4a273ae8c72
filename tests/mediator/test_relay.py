"""Ordinary traffic, byte for byte: what the agent sends arrives, what it gets is recorded."""

from __future__ import annotations

import hashlib
import http.client
import os
import socket
import ssl
import threading
from typing import TYPE_CHECKING

import pytest

from hark.mediator.config import PortMode
from hark.mediator.records import (
    ConnClose,
    ConnTls,
    ExchangeEnd,
    Refused,
    RequestBody,
    RequestHead,
    ResponseBody,
    ResponseHead,
    Trailers,
    Upstream,
)

from .rig import HOST, length_of, read_all, read_exactly, read_head, scripted

if TYPE_CHECKING:
    from collections.abc import Callable

    from .rig import Recorder, Rig

H = f"Host: {HOST}\r\n".encode()
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
GET = b"GET /%d HTTP/1.1\r\n" + H + b"\r\n"


def request_body(recorder: Recorder, exchange: int) -> bytes:
    return b"".join(r.data for r in recorder.of(RequestBody) if r.exchange == exchange)


def response_body(recorder: Recorder, exchange: int) -> bytes:
    return b"".join(r.data for r in recorder.of(ResponseBody) if r.exchange == exchange)


def reasons(recorder: Recorder) -> list[str]:
    recorder.wait(ExchangeEnd)
    return [r.reason for r in recorder.of(Refused)]


def test_keep_alive_uses_one_connection_each_way(rig: Callable[..., Rig]):
    one = rig(scripted(*[OK] * 5))
    sock = one.tls()
    for i in range(5):
        sock.sendall(GET % i)
        head, rest = read_head(sock)
        assert read_exactly(sock, 2, rest) == (b"ok", b"")
        assert b"connection" not in head.lower()
    one.recorder.wait(ExchangeEnd, 5)
    assert len(one.recorder.of(ConnTls)) == 1
    assert [u.pooled for u in one.recorder.of(Upstream)] == [False, True, True, True, True]
    assert len(one.broker.dials) == 1
    first = one.recorder.of(Upstream)[0]
    assert first.version == "TLSv1.3"
    leaf = one.server.get_ca_certs(binary_form=True) if one.server else []
    assert not leaf
    assert len(first.cert_sha256) == hashlib.sha256().digest_size


def test_pool_is_shared_between_clients(rig: Callable[..., Rig]):
    one = rig(scripted(OK, OK))
    for i in range(2):
        with one.tls() as sock:
            sock.sendall(GET % i)
            read_exactly(sock, 2, read_head(sock)[1])
        one.recorder.wait(ExchangeEnd, i + 1)
    assert len(one.broker.dials) == 1


def test_a_pooled_connection_that_died_is_replaced(rig: Callable[..., Rig]):
    """The upstream leaves after each answer without saying so; every GET still succeeds."""
    one = rig(scripted(OK, close=True))
    sock = one.tls()
    for i in range(4):
        sock.sendall(GET % i)
        assert read_exactly(sock, 2, read_head(sock)[1]) == (b"ok", b"")
    assert [e.reason for e in one.recorder.wait(ExchangeEnd, 4)] == ["complete"] * 4


def test_pipelined_requests_are_answered_in_order(rig: Callable[..., Rig]):
    def serve(sock: socket.socket) -> None:
        rest = b""
        for _ in range(20):
            head, rest = read_head(sock, rest)
            target = head.split(b" ")[1]
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(target) + target)
        read_all(sock)

    one = rig(serve)
    sock = one.tls()
    sock.sendall(b"".join(GET % i for i in range(20)))
    rest = b""
    for i in range(20):
        head, rest = read_head(sock, rest)
        body, rest = read_exactly(sock, length_of(head), rest)
        assert body == b"/%d" % i
    one.recorder.wait(ExchangeEnd, 20)
    assert [r.raw for r in one.recorder.of(RequestHead)] == [GET % i for i in range(20)]


def test_large_bodies_both_ways(rig: Callable[..., Rig]):
    up = os.urandom(3_000_000)
    down = os.urandom(5_000_000)
    got: list[bytes] = []

    def serve(sock: socket.socket) -> None:
        head, rest = read_head(sock)
        got.append(read_exactly(sock, length_of(head), rest)[0])
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(down) + down)
        read_all(sock)

    one = rig(serve, credentials=False)
    sock = one.tls()
    sender = threading.Thread(
        target=sock.sendall,
        args=(b"POST / HTTP/1.1\r\n" + H + b"Content-Length: %d\r\n\r\n" % len(up) + up,),
    )
    sender.start()
    head, rest = read_head(sock)
    assert read_exactly(sock, length_of(head), rest)[0] == down
    sender.join()
    assert got == [up]
    end = one.recorder.wait(ExchangeEnd)[0]
    assert (end.request_bytes, end.response_bytes) == (len(up), len(down))
    assert request_body(one.recorder, end.exchange) == up
    assert response_body(one.recorder, end.exchange) == down
    assert one.recorder.of(RequestBody)[-1].end
    assert one.recorder.of(ResponseBody)[-1].end


def test_chunked_request_with_extension_and_trailers(rig: Callable[..., Rig]):
    seen: list[bytes] = []

    def serve(sock: socket.socket) -> None:
        data = b""
        while not data.endswith(b"\r\n\r\n") or b"\r\n0\r\n" not in data:
            data += sock.recv(65536)
        seen.append(data)
        sock.sendall(OK)
        read_all(sock)

    one = rig(serve)
    sock = one.tls()
    sock.sendall(
        b"POST / HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n"
        b"5;x=1\r\nhello\r\n6\r\n world\r\n0\r\nX-Sum: 1\r\nHost: evil\r\nExpect: x\r\n\r\n"
    )
    read_exactly(sock, 2, read_head(sock)[1])
    end = one.recorder.wait(ExchangeEnd)[0]
    assert request_body(one.recorder, end.exchange) == b"hello world"
    head, _, body = seen[0].partition(b"\r\n\r\n")
    assert b"Transfer-Encoding: chunked" in head
    assert body == b"5\r\nhello\r\n6\r\n world\r\n0\r\nX-Sum: 1\r\n\r\n"
    assert one.recorder.of(Trailers)[0].raw == b"X-Sum: 1\r\n"
    assert reasons(one.recorder) == ["chunk_extension"]


def test_response_trailers(rig: Callable[..., Rig]):
    one = rig(
        scripted(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"2\r\nok\r\n0\r\nX-T: v\r\nSet-Cookie: no\r\n\r\n"
        )
    )
    sock = one.tls()
    sock.sendall(GET % 1 + GET.replace(b"/%d", b"/2").replace(b"\r\n\r\n", b"\r\n\r\n"))
    _, rest = read_head(sock)
    want = b"2\r\nok\r\n0\r\nX-T: v\r\n\r\n"
    assert read_exactly(sock, len(want), rest)[0] == want
    assert one.recorder.wait(Trailers)[0].response


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_statuses_without_body(rig: Callable[..., Rig], status: bytes):
    one = rig(scripted(b"HTTP/1.1 " + status + b"\r\nContent-Length: 5\r\n\r\n", OK))
    sock = one.tls()
    sock.sendall(GET % 1)
    _, rest = read_head(sock)
    sock.sendall(GET % 2)
    head, rest = read_head(sock, rest)
    assert head.startswith(b"HTTP/1.1 200")
    assert read_exactly(sock, 2, rest) == (b"ok", b"")


def test_head_has_no_body(rig: Callable[..., Rig]):
    one = rig(scripted(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n", OK))
    connection = http.client.HTTPSConnection(
        HOST, context=ssl.create_default_context(cafile=str(one.ca))
    )
    connection.sock = one.tls()
    connection.request("HEAD", "/")
    answer = connection.getresponse()
    assert answer.getheader("content-length") == "5000"
    assert answer.read() == b""
    connection.request("GET", "/")
    assert connection.getresponse().read() == b"ok"


def test_continue_is_relayed(rig: Callable[..., Rig]):
    def serve(sock: socket.socket) -> None:
        head, rest = read_head(sock)
        assert b"Expect: 100-continue" in head
        assert rest == b""
        sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        read_exactly(sock, 4)
        sock.sendall(OK)
        read_all(sock)

    one = rig(serve)
    sock = one.tls()
    sock.sendall(b"PUT / HTTP/1.1\r\n" + H + b"Content-Length: 4\r\nExpect: 100-continue\r\n\r\n")
    head, rest = read_head(sock)
    assert head.startswith(b"HTTP/1.1 100")
    sock.sendall(b"body")
    assert read_head(sock, rest)[0].startswith(b"HTTP/1.1 200")
    one.recorder.wait(ExchangeEnd)
    assert [r.status for r in one.recorder.of(ResponseHead)] == [100, 200]
    assert not one.upstream.errors


def test_early_hints_then_answer(rig: Callable[..., Rig]):
    one = rig(scripted(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + OK))
    sock = one.tls()
    sock.sendall(GET % 1)
    head, rest = read_head(sock)
    assert head == b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    assert read_head(sock, rest)[0].startswith(b"HTTP/1.1 200")


def test_answer_before_the_request_is_complete(rig: Callable[..., Rig]):
    def serve(sock: socket.socket) -> None:
        read_head(sock)
        sock.sendall(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno")
        read_all(sock)

    one = rig(serve)
    sock = one.tls()
    sock.sendall(b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 100000\r\n\r\nstart")
    head, rest = read_head(sock)
    assert head.startswith(b"HTTP/1.1 413")
    assert rest + read_all(sock) == b"no"
    assert one.recorder.wait(ExchangeEnd)[0].reason == "complete"


def test_response_framed_by_the_end(rig: Callable[..., Rig]):
    def serve(sock: socket.socket) -> None:
        read_head(sock)
        sock.sendall(b"HTTP/1.1 200 OK\r\n\r\nuntil the end")

    one = rig(serve)
    sock = one.tls()
    sock.sendall(GET % 1)
    head, rest = read_head(sock)
    assert b"Transfer-Encoding: chunked" in head
    assert rest + read_exactly(sock, 23 - len(rest))[0] == b"d\r\nuntil the end\r\n0\r\n\r\n"
    assert reasons(one.recorder) == ["eof_framed"]


def test_http_1_0_client_gets_no_chunks(rig: Callable[..., Rig]):
    one = rig(
        scripted(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
    )
    sock = one.tls()
    sock.sendall(b"GET / HTTP/1.0\r\n" + H + b"\r\n")
    head, rest = read_head(sock)
    assert b"chunked" not in head
    assert b"Connection: close" in head
    assert rest + read_all(sock) == b"ok"


def test_half_closed_client_gets_its_response(rig: Callable[..., Rig]):
    release = threading.Event()

    def serve(sock: socket.socket) -> None:
        read_head(sock)
        release.wait(10)
        sock.sendall(OK)
        read_all(sock)

    one = rig(serve, mode=PortMode.PLAIN)
    sock = one.connect()
    sock.sendall(GET % 1)
    sock.shutdown(socket.SHUT_WR)
    one.recorder.wait(RequestHead)
    release.set()
    assert read_all(sock).endswith(b"\r\n\r\nok")
    assert one.recorder.wait(ExchangeEnd)[0].reason == "complete"


def test_absolute_form_becomes_origin_form(rig: Callable[..., Rig]):
    seen: list[bytes] = []
    one = rig(scripted(OK, OK, seen=seen))
    sock = one.tls()
    for target in (b"/p?q=1", b"?q=1"):
        sock.sendall(b"GET https://" + HOST.encode() + target + b" HTTP/1.1\r\n" + H + b"\r\n")
        read_exactly(sock, 2, read_head(sock)[1])
    assert [s.split(b" ")[1] for s in seen] == [b"/p?q=1", b"/?q=1"]


def test_hop_by_hop_fields_stop_here(rig: Callable[..., Rig]):
    seen: list[bytes] = []
    answer = (
        b'HTTP/1.1 200 OK\r\nConnection: X-Mine\r\nX-Mine: 1\r\nAlt-Svc: h3=":443"\r\n'
        b"X-Kept: 1\r\nContent-Length: 0\r\n\r\n"
    )
    one = rig(scripted(answer, seen=seen))
    sock = one.tls()
    sock.sendall(
        b"GET / HTTP/1.1\r\n" + H + b"Connection: Upgrade, X-Drop, Authorization\r\n"
        b"Upgrade: h2c\r\nX-Drop: 1\r\nX-Kept: 2\r\nauthorization: a\r\nTE: trailers\r\n\r\n"
    )
    head, _ = read_head(sock)
    assert head == b"HTTP/1.1 200 OK\r\nX-Kept: 1\r\nContent-Length: 0\r\n\r\n"
    lines = seen[0].split(b"\r\n")[1:-2]
    assert set(lines) == {H[:-2], b"X-Kept: 2", b"authorization: a", b"Accept-Encoding: identity"}
    assert reasons(one.recorder) == ["upgrade_stripped"]


def chunked_events(n: int) -> list[bytes]:
    return [b'data: {"n": %d}\n\n' % i for i in range(n)]


@pytest.mark.parametrize("burst", [True, False], ids=["burst", "one by one"])
def test_event_stream_keeps_its_boundaries(rig: Callable[..., Rig], burst: bool):
    events = chunked_events(300)

    def serve(sock: socket.socket) -> None:
        read_head(sock)
        sock.sendall(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        parts = [b"%x\r\n%s\r\n" % (len(e), e) for e in events]
        for part in [b"".join(parts)] if burst else parts:
            sock.sendall(part)
        sock.sendall(b"0\r\n\r\n")
        read_all(sock)

    one = rig(serve)
    connection = http.client.HTTPSConnection(HOST)
    connection.sock = one.tls()
    connection.request("GET", "/")
    assert connection.getresponse().read() == b"".join(events)
    one.recorder.wait(ExchangeEnd)
    deliveries = [r.data for r in one.recorder.of(ResponseBody) if r.data]
    assert deliveries == events  # none merged, none split


def test_event_stream_of_single_bytes(rig: Callable[..., Rig]):
    """The most records that input can make: the ring must hold them without a loss."""
    n = 150_000

    def serve(sock: socket.socket) -> None:
        read_head(sock)
        sock.sendall(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * n + b"0\r\n\r\n"
        )
        read_all(sock)

    one = rig(serve, mode=PortMode.PLAIN, credentials=False)
    sock = one.connect()
    sock.sendall(GET % 1)
    data = read_head(sock)[1]
    while not data.endswith(b"\r\n0\r\n\r\n"):
        data += sock.recv(1 << 20)
    end = one.recorder.wait(ExchangeEnd)[0]
    assert end.response_bytes == n
    assert len([r for r in one.recorder.of(ResponseBody) if r.data == b"x"]) == n


def test_small_chunks_elsewhere_may_be_joined_but_not_changed(rig: Callable[..., Rig]):
    parts = [os.urandom(37) for _ in range(500)]
    body = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n"
    one = rig(scripted(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body))
    connection = http.client.HTTPSConnection(HOST)
    connection.sock = one.tls()
    connection.request("GET", "/")
    assert connection.getresponse().read() == b"".join(parts)
    end = one.recorder.wait(ExchangeEnd)[0]
    assert response_body(one.recorder, end.exchange) == b"".join(parts)


def test_plain_http_where_the_table_says_so(rig: Callable[..., Rig]):
    one = rig(scripted(OK), mode=PortMode.PLAIN)
    sock = one.connect()
    sock.sendall(GET % 1)
    assert read_exactly(sock, 2, read_head(sock)[1]) == (b"ok", b"")
    assert one.recorder.wait(Upstream)[0].version == ""
    assert not one.recorder.of(ConnTls)


def test_connection_end_is_recorded(rig: Callable[..., Rig]):
    one = rig(scripted(OK))
    with one.tls() as sock:
        sock.sendall(GET % 1)
        read_exactly(sock, 2, read_head(sock)[1])
    close = one.recorder.wait(ConnClose)[0]
    assert close.reason == "client_closed"
    assert close.rx_bytes == len(GET % 1)


def test_client_that_leaves_ends_the_exchange(rig: Callable[..., Rig]):
    def serve(sock: socket.socket) -> None:
        read_head(sock)
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
        for _ in range(1000):
            sock.sendall(bytes(100_000))

    one = rig(serve)
    sock = one.tls()
    sock.sendall(GET % 1)
    read_head(sock)
    sock.close()
    assert one.recorder.wait(ExchangeEnd)[0].reason == "client_gone"
