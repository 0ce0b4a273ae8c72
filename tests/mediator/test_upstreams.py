"""Servers that fail, lie or leave: what the agent gets and what is recorded."""

from __future__ import annotations

import socket
import ssl
import threading
from typing import TYPE_CHECKING

import pytest
from stub.authority import Authority

from hark.mediator.config import Limit
from hark.mediator.records import (
    ConnClose,
    ExchangeEnd,
    Refused,
    RequestBody,
    RequestHead,
    ResponseBody,
    ResponseHead,
    Upstream,
)
from hark.policy.control import DialStatus

from .rig import HOST, OTHER, read_all, read_exactly, read_head, scripted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .rig import Rig

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
GET = b"GET / HTTP/1.1\r\nHost: " + HOST.encode() + b"\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: " + HOST.encode() + b"\r\nContent-Length: 2\r\n\r\nhi"


def ask(one: Rig, data: bytes = GET) -> bytes:
    sock = one.tls()
    sock.sendall(data)
    return read_all(sock)


def context_for(authority: Authority, name: str, *, expired: bool = False) -> ssl.SSLContext:
    leaf = authority.leaf(name, expired=expired)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(leaf.certificate, leaf.key)
    return context


@pytest.mark.parametrize("fault", ["name", "expired", "unknown authority"])
def test_bad_certificates(
    rig: Callable[..., Rig], authority: Authority, tmp_path: Path, fault: str
):
    issuer = Authority(tmp_path / "stranger") if fault == "unknown authority" else authority
    name = "wrong.stub.test" if fault == "name" else HOST
    one = rig(scripted(OK), server=context_for(issuer, name, expired=fault == "expired"))
    answer = ask(one)
    assert answer.startswith(b"HTTP/1.1 502")
    assert b"X-Hark-Error: upstream_certificate" in answer
    refused = one.recorder.wait(Refused)[0]
    assert refused.reason == "upstream_certificate"
    assert not refused.denial
    assert refused.detail
    assert not one.recorder.of(Upstream)  # never verified, so never used
    assert one.recorder.wait(ExchangeEnd)[0].reason == "upstream_certificate"


def test_good_certificate_is_the_control(rig: Callable[..., Rig], authority: Authority):
    one = rig(scripted(OK), server=context_for(authority, HOST))
    sock = one.tls()
    sock.sendall(GET)
    assert read_head(sock)[0].startswith(b"HTTP/1.1 200")
    assert any(one.recorder.wait(Upstream)[0].cert_sha256)


def test_no_tls_at_the_other_end(rig: Callable[..., Rig]):
    def serve(sock: socket.socket) -> None:
        sock.sendall(b"SSH-2.0-x\r\n")
        sock.recv(1)

    one = rig(serve)
    plain = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        sock, _ = plain.accept()
        sock.sendall(b"SSH-2.0-x\r\n")
        sock.recv(1)
        sock.close()

    threading.Thread(target=accept, daemon=True).start()
    one.broker.answers[0] = plain.getsockname()
    assert b"X-Hark-Error: upstream_tls" in ask(one)
    plain.close()


@pytest.mark.parametrize(
    ("status", "reason", "code"),
    [
        (DialStatus.DENIED, "dial_denied", 502),
        (DialStatus.RESOLVE, "dial_resolve", 502),
        (DialStatus.PRIVATE, "dial_private", 502),
        (DialStatus.CONNECT, "dial_connect", 502),
        (DialStatus.TIMEOUT, "dial_timeout", 504),
        (DialStatus.UNRECORDED, "dial_unrecorded", 502),
    ],
)
def test_dials_that_fail(rig: Callable[..., Rig], status: DialStatus, reason: str, code: int):
    one = rig(scripted(OK))
    one.broker.answers[0] = status
    answer = ask(one, POST)
    assert answer.startswith(b"HTTP/1.1 %d" % code)
    assert f"X-Hark-Error: {reason}".encode() in answer
    assert one.recorder.wait(Refused)[0].reason == reason


HEAD = b"POST / HTTP/1.1\r\nHost: " + HOST.encode() + b"\r\n"


def body_of(one: Rig) -> bytes:
    one.recorder.wait(ExchangeEnd)
    return b"".join(r.data for r in one.recorder.of(RequestBody))


@pytest.mark.parametrize("size", [5, 200_000])
def test_a_body_that_comes_after_the_failed_dial_is_recorded(rig: Callable[..., Rig], size: int):
    """What is recorded of a request does not depend on how soon its dial failed."""
    one = rig(scripted(OK))
    one.broker.answers[0] = DialStatus.CONNECT
    body = bytes(i % 251 for i in range(size))
    sock = one.tls()
    sock.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % size + body[:1])
    one.recorder.wait(Refused)  # the dial has failed
    sock.sendall(body[1:])
    assert read_head(sock)[0].startswith(b"HTTP/1.1 502")
    assert body_of(one) == body
    assert one.recorder.of(RequestBody)[-1].end


def test_a_server_that_leaves_in_the_middle_of_a_body(rig: Callable[..., Rig]):
    one = rig(read_head)
    body = bytes(3_000_000)  # more than the sockets between them hold
    sock = one.tls()
    sock.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    assert b"X-Hark-Error: upstream_" in read_all(sock)
    assert body_of(one) == body


def test_a_body_that_never_comes_after_the_failed_dial(rig: Callable[..., Rig]):
    one = rig(scripted(OK), limits={Limit.DENIED_MS: 100})
    one.broker.answers[0] = DialStatus.CONNECT
    sock = one.tls()
    sock.sendall(HEAD + b"Content-Length: 6\r\n\r\nhal")
    assert read_head(sock)[0].startswith(b"HTTP/1.1 502")
    assert body_of(one) == b"hal"


def test_a_client_that_asks_first_is_told_to_go_on_after_the_failed_dial(rig: Callable[..., Rig]):
    one = rig(scripted(OK))
    one.broker.answers[0] = DialStatus.CONNECT
    sock = one.tls()
    sock.sendall(HEAD + b"Content-Length: 4\r\nExpect: 100-continue\r\n\r\n")
    head, rest = read_head(sock)
    assert head.startswith(b"HTTP/1.1 100")
    sock.sendall(b"body")
    assert read_head(sock, rest)[0].startswith(b"HTTP/1.1 502")
    assert body_of(one) == b"body"
    assert [(r.status, r.own) for r in one.recorder.of(ResponseHead)] == [(100, True), (502, True)]


def test_broker_that_never_answers(rig: Callable[..., Rig]):
    one = rig(scripted(OK), limits={Limit.DIAL_MS: 200})
    one.broker.answers[0] = one.listener.getsockname()  # accepts, and says nothing
    one.broker._dial = lambda *_: None  # type: ignore[method-assign]
    assert b"X-Hark-Error: dial_timeout" in ask(one)


def test_server_that_never_answers(rig: Callable[..., Rig]):
    one = rig(read_all, limits={Limit.RESPONSE_MS: 200})
    assert b"X-Hark-Error: upstream_timeout" in ask(one)


def test_server_that_leaves_without_an_answer(rig: Callable[..., Rig]):
    def serve(sock: socket.socket) -> None:
        read_head(sock)

    one = rig(serve)
    assert b"X-Hark-Error: upstream_closed" in ask(one, POST)
    assert len(one.broker.dials) == 1  # a POST is never sent twice


def abrupt(sock: socket.socket) -> None:
    """End the socket below TLS: no close_notify."""
    if isinstance(sock, ssl.SSLSocket):
        socket.socket(fileno=sock.detach()).close()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nsome",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nsome",
    ],
    ids=["length", "chunked", "end without close_notify"],
)
def test_server_that_leaves_in_the_middle(rig: Callable[..., Rig], answer: bytes):
    def serve(sock: socket.socket) -> None:
        read_head(sock)
        sock.sendall(answer)
        abrupt(sock)

    one = rig(serve)
    got = ask(one)
    assert b"some" in got
    assert not got.endswith(b"0\r\n\r\n")  # the agent can see that it was cut
    assert one.recorder.wait(ExchangeEnd)[0].reason == "upstream_truncated"
    assert one.recorder.wait(Refused, where=lambda r: r.reason == "upstream_truncated")
    assert b"".join(r.data for r in one.recorder.of(ResponseBody)) == b"some"
    assert not any(r.end for r in one.recorder.of(ResponseBody))


def test_short_answer_cut_is_a_502(rig: Callable[..., Rig]):
    """A response that waits for its new length is not begun, so it can still be refused."""

    def serve(sock: socket.socket) -> None:
        read_head(sock)
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nsome")
        abrupt(sock)

    assert b"X-Hark-Error: upstream_truncated" in ask(rig(serve))


BAD = {
    "not HTTP": (b"hello there\r\n\r\n", "bad_response"),
    "length and coding": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "bad_response",
    ),
    "coding before chunked": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "bad_response",
    ),
    "two lengths": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
        "bad_response",
    ),
    "bare LF": (b"HTTP/1.1 200 OK\nContent-Length: 0\n\n", "bad_response"),
    "folded": (b"HTTP/1.1 200 OK\r\nX: 1\r\n 2\r\n\r\n", "bad_response"),
    "head too large": (b"HTTP/1.1 200 OK\r\n" + b"X: " + b"a" * 70000, "response_too_large"),
    "many fields": (
        b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 200 + b"\r\n",
        "response_too_large",
    ),
    "switched": (
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        "switched_unasked",
    ),
    "interim flood": (b"HTTP/1.1 103 Early Hints\r\n\r\n" * 20, "too_many_interim"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_responses(rig: Callable[..., Rig], name: str):
    data, reason = BAD[name]
    one = rig(scripted(data))
    answer = ask(one)
    assert f"X-Hark-Error: {reason}".encode() in answer
    assert one.recorder.wait(ExchangeEnd)[0].reason == reason
    assert one.recorder.of(ResponseHead)[-1].own


def test_bytes_after_the_response_are_never_an_answer(rig: Callable[..., Rig]):
    """The classic of poisoned pools: a second response that nobody asked for."""
    poison = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
    one = rig(scripted(OK + poison, OK))
    for _ in range(2):
        sock = one.tls()
        sock.sendall(GET)
        _, rest = read_head(sock)
        assert read_exactly(sock, 2, rest)[0] == b"ok"
        sock.close()
    one.recorder.wait(ExchangeEnd, 2)
    assert len(one.broker.dials) == 2  # the first connection was not used again
    assert [r.reason for r in one.recorder.of(Refused)] == ["response_smuggled"] * 2


def test_bytes_on_an_idle_connection_close_it(rig: Callable[..., Rig]):
    go = threading.Event()

    def serve(sock: socket.socket) -> None:
        read_head(sock)
        sock.sendall(OK)
        go.wait(10)
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")
        read_all(sock)

    one = rig(serve)
    with one.tls() as sock:
        sock.sendall(GET)
        read_exactly(sock, 2, read_head(sock)[1])
    one.recorder.wait(ConnClose)
    go.set()
    refused = one.recorder.wait(Refused)[0]
    assert (refused.reason, refused.name, refused.exchange) == ("response_smuggled", HOST, 0)


def test_bodiless_statuses_with_a_body(rig: Callable[..., Rig]):
    one = rig(scripted(b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nabcde", OK))
    sock = one.tls()
    sock.sendall(GET)
    head, rest = read_head(sock)
    assert head.startswith(b"HTTP/1.1 204")
    sock.sendall(GET)
    head, rest = read_head(sock, rest)
    assert head.startswith(b"HTTP/1.1 204")  # a fresh connection's first answer, not "abcde"
    assert len(one.broker.dials) == 2


def test_upstream_sessions_resume(rig: Callable[..., Rig]):
    def serve(sock: socket.socket) -> None:
        read_head(sock)
        sock.sendall(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))

    one = rig(serve)
    for i in range(3):
        with one.tls() as sock:
            sock.sendall(GET)
            read_head(sock)
        one.recorder.wait(ExchangeEnd, i + 1)
    assert len(one.broker.dials) == 3
    assert [u.resumed for u in one.recorder.of(Upstream)] == [False, True, True]


def test_hosts_do_not_share_connections(rig: Callable[..., Rig], authority: Authority):
    contexts = {name: context_for(authority, name) for name in (HOST, OTHER)}

    def choose(sock: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        sock.context = contexts[name or HOST]

    server = context_for(authority, HOST)
    server.sni_callback = choose  # type: ignore[assignment]
    one = rig(scripted(OK, OK), server=server)
    for name in (HOST, OTHER, HOST, OTHER):
        with one.tls(name) as sock:
            sock.sendall(GET.replace(HOST.encode(), name.encode()))
            assert read_head(sock)[0].startswith(b"HTTP/1.1 200")
    assert sorted(d.host for d in one.broker.dials) == [0, 1]
    assert [h.host for h in one.recorder.wait(RequestHead, 4)] == [0, 1, 0, 1]
