"""Resets and half-closes in the middle: the other side never takes what it got for the whole.

A reset is SO_LINGER with 0 seconds on the raw socket. Each has its control: the same bytes, and an
orderly end.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import ssl
import struct
from typing import TYPE_CHECKING

import pytest

from hark.mediator.records import ExchangeEnd, Refused, RequestBody, ResponseBody

from .rig import HOST, Rig, read_all, read_head

if TYPE_CHECKING:
    from collections.abc import Callable

POST = f"POST / HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
GET = f"GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()
CHUNK = b"5\r\nhello\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def reset(sock: socket.socket) -> None:
    """Close with a reset, below TLS."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raw = socket.socket(fileno=sock.detach()) if isinstance(sock, ssl.SSLSocket) else sock
    raw.close()


def keeps_what_comes(got: queue.Queue[bytes]) -> Callable[[socket.socket], None]:
    """Return a server that reads to the end, and answers a whole request.

    It tells that it has the first chunk, and at the end all that it read.
    """

    def serve(sock: socket.socket) -> None:
        _, data = read_head(sock)
        while len(data) < len(CHUNK):
            data += sock.recv(65536)
        got.put(data)
        with contextlib.suppress(OSError):
            while not data.endswith(b"0\r\n\r\n") and (more := sock.recv(65536)):
                data += more
            if data.endswith(b"0\r\n\r\n"):
                sock.sendall(OK)
        got.put(data)

    return serve


@pytest.mark.parametrize("end", ["whole", "reset", "half-close", "close"])
def test_case_48_and_49_an_upload_that_is_cut_is_no_whole_one(rig: Callable[..., Rig], end: str):
    got: queue.Queue[bytes] = queue.Queue()
    one = rig(keeps_what_comes(got))
    sock = one.tls()
    sock.sendall(POST + CHUNK)
    assert got.get(timeout=30) == CHUNK  # what is under way when a connection breaks may be lost
    if end == "whole":
        sock.sendall(b"0\r\n\r\n")
        assert read_head(sock)[0].startswith(b"HTTP/1.1 200")
    elif end == "reset":
        reset(sock)
    elif end == "half-close":
        with contextlib.suppress(ssl.SSLError, OSError):
            sock.shutdown(socket.SHUT_WR)
    else:
        sock.close()
    assert got.get(timeout=30) == CHUNK + (b"0\r\n\r\n" if end == "whole" else b"")
    (ended,) = one.recorder.wait(ExchangeEnd)
    assert ended.request_bytes == 5
    assert (ended.reason == "complete") == (end == "whole")
    assert not any(body.end for body in one.recorder.of(RequestBody)) or end == "whole"


@pytest.mark.parametrize("framing", ["length", "chunked", "event stream"])
@pytest.mark.parametrize("end", ["reset", "close"])
def test_case_49_an_answer_that_is_cut_is_no_whole_one(
    rig: Callable[..., Rig], framing: str, end: str
):
    """Nothing that the agent gets looks like an end: no last chunk, and less than the length."""

    def serve(sock: socket.socket) -> None:
        read_head(sock)
        kind = b"text/event-stream" if framing == "event stream" else b"text/plain"
        head = b"HTTP/1.1 200 OK\r\nContent-Type: " + kind + b"\r\n"
        if framing == "length":
            sock.sendall(head + b"Content-Length: 100000\r\n\r\n" + b"hello")
        else:
            sock.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNK)
        delivered.wait()
        if end == "reset":
            reset(sock)

    delivered = Delivered()
    one = rig(serve, credentials=False)
    sock = one.tls()
    sock.sendall(GET)
    one.recorder.wait(ResponseBody)
    delivered.tell()
    answer = read_all(sock)
    assert b"hello" in answer
    assert not answer.endswith(b"0\r\n\r\n")
    assert len(answer) < 1000
    (ended,) = one.recorder.wait(ExchangeEnd)
    assert ended.reason in {"upstream_truncated", "upstream_closed"}
    assert ended.response_bytes == 5
    assert ended.reason in {r.reason for r in one.recorder.of(Refused)}
    assert not any(body.end for body in one.recorder.of(ResponseBody))


class Delivered:
    """Lets a server wait until the agent's side has what it sent."""

    def __init__(self) -> None:
        self._queue: queue.Queue[None] = queue.Queue()

    def wait(self) -> None:
        self._queue.get(timeout=30)

    def tell(self) -> None:
        self._queue.put(None)


def test_a_client_that_resets_while_it_waits_frees_the_server(rig: Callable[..., Rig]):
    got: queue.Queue[bytes] = queue.Queue()

    def serve(sock: socket.socket) -> None:
        got.put(read_head(sock)[0])
        with contextlib.suppress(OSError):
            got.put(sock.recv(1))  # the end, when the mediator lets go

    one = rig(serve)
    sock = one.tls()
    sock.sendall(GET)
    assert got.get(timeout=30).startswith(b"GET / ")
    reset(sock)
    assert got.get(timeout=30) == b""
    assert one.recorder.wait(ExchangeEnd)[0].reason == "client_gone"
