"""What a denied request leaves behind: all of it recorded, answered only then, never dialled."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from hark.mediator.config import Limit
from hark.mediator.records import ExchangeEnd, Refused, RequestBody, RequestHead, ResponseHead

from .rig import DENIED, PLACEHOLDER, read_all, read_head, scripted

if TYPE_CHECKING:
    from collections.abc import Callable

    from .rig import Rig

HEAD = b"POST /drop HTTP/1.1\r\nHost: " + DENIED.encode() + b"\r\n"


def body_of(one: Rig) -> bytes:
    one.recorder.wait(ExchangeEnd)
    return b"".join(r.data for r in one.recorder.of(RequestBody))


def test_the_answer_waits_for_the_disk(rig: Callable[..., Rig]):
    one = rig(scripted())
    one.recorder.durable = False
    sock = one.tls(DENIED)
    sock.sendall(HEAD + b"Content-Length: 6\r\n\r\nstolen")
    refused = one.recorder.wait(Refused)[0]
    one.recorder.wait(RequestBody)
    sock.settimeout(0.3)
    with pytest.raises(TimeoutError):
        sock.recv(1)
    one.mediator.durable(refused.head.seq)  # everything below it: not the refusal itself
    with pytest.raises(TimeoutError):
        sock.recv(1)
    one.mediator.durable(refused.head.seq + 1)
    sock.settimeout(10)
    assert read_head(sock)[0].startswith(b"HTTP/1.1 403")


def test_the_answer_says_what_to_do(rig: Callable[..., Rig]):
    one = rig(scripted())
    sock = one.tls(DENIED)
    sock.sendall(b"GET / HTTP/1.1\r\nHost: " + DENIED.encode() + b"\r\n\r\n")
    head, _, body = read_all(sock).partition(b"\r\n\r\n")
    assert b"Content-Type: application/json" in head
    error = json.loads(body)["error"]
    assert error["type"] == "hark_denied"
    assert error["rule"] == "allow_hosts"
    assert error["reason"] == "host_denied"
    assert error["host"] == DENIED
    assert "operator" in error["next_step"]
    end = one.recorder.wait(ExchangeEnd)[0]
    assert error["event"] == f"exchange {end.exchange}"
    own = one.recorder.of(ResponseHead)[0]
    assert (own.own, own.status, own.raw) == (True, 403, head + b"\r\n\r\n")


def test_body_is_recorded_up_to_its_limit(rig: Callable[..., Rig]):
    one = rig(scripted())
    sock = one.tls(DENIED)
    body = bytes(range(256)) * 400
    sock.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    assert read_head(sock)[0].startswith(b"HTTP/1.1 403")
    assert body_of(one) == body[:65536]


def test_body_that_never_comes(rig: Callable[..., Rig]):
    one = rig(scripted(), limits={Limit.DENIED_MS: 100})
    sock = one.tls(DENIED)
    sock.sendall(HEAD + b"Content-Length: 600\r\n\r\nonly this")
    assert read_head(sock)[0].startswith(b"HTTP/1.1 403")
    assert body_of(one) == b"only this"
    assert one.recorder.wait(ExchangeEnd)[0].request_bytes == len(b"only this")


def test_client_that_asks_before_it_sends(rig: Callable[..., Rig]):
    """It is told to go on, or its body would never be seen."""
    one = rig(scripted())
    sock = one.tls(DENIED)
    sock.sendall(HEAD + b"Content-Length: 6\r\nExpect: 100-continue\r\n\r\n")
    head, rest = read_head(sock)
    assert head.startswith(b"HTTP/1.1 100")
    sock.sendall(b"stolen")
    assert read_head(sock, rest)[0].startswith(b"HTTP/1.1 403")
    assert body_of(one) == b"stolen"


def test_chunked_body(rig: Callable[..., Rig]):
    one = rig(scripted())
    sock = one.tls(DENIED)
    sock.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nsto\r\n3\r\nlen\r\n0\r\n\r\n")
    assert read_head(sock)[0].startswith(b"HTTP/1.1 403")
    assert body_of(one) == b"stolen"


def test_client_that_leaves_at_once_is_recorded_all_the_same(rig: Callable[..., Rig]):
    one = rig(scripted())
    sock = one.tls(DENIED)
    sock.sendall(HEAD + b"Content-Length: 6\r\n\r\nstolen")
    sock.close()
    one.recorder.wait(ExchangeEnd)
    assert one.recorder.of(Refused)[0].reason == "host_denied"
    assert body_of(one) == b"stolen"


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (b"Authorization: Bearer " + PLACEHOLDER.encode() + b"\r\n\r\n", b"head"),
        (b"Content-Length: 33\r\n\r\n" + PLACEHOLDER.encode(), b"body"),
    ],
)
def test_placeholder_on_its_way_out_is_named(rig: Callable[..., Rig], data: bytes, where: bytes):
    assert len(PLACEHOLDER) == 33
    one = rig(scripted())
    sock = one.tls(DENIED)
    sock.sendall(HEAD + data)
    assert read_head(sock)[0].startswith(b"HTTP/1.1 403")
    note = one.recorder.wait(Refused, where=lambda r: r.reason == "placeholder_denied_host")[0]
    assert b"secret 7" in note.detail
    assert where in note.detail
    assert one.recorder.of(RequestHead)[0].host == -1


def test_broken_request_to_a_denied_host_is_a_denial(rig: Callable[..., Rig]):
    one = rig(scripted())
    sock = one.tls(DENIED)
    sock.sendall(b"\x00\x01nonsense\r\n\r\n")
    assert read_head(sock)[0].startswith(b"HTTP/1.1 403")
    assert one.recorder.wait(Refused)[0].denial
