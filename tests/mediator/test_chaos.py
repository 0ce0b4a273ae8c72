"""Random clients and random servers at once: nothing crashes, nothing is forgotten.

Each thread has its own seed. What happens in which order is left to the scheduler; what must hold
afterwards is not.
"""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
import struct
import threading
from typing import TYPE_CHECKING

import pytest

from hark.mediator.config import Limit
from hark.mediator.records import (
    ConnClose,
    ConnOpen,
    ExchangeEnd,
    Refused,
    RequestBody,
    RequestHead,
    ResponseHead,
)

from .rig import DENIED, HOST, OTHER, PLACEHOLDER, read_exactly, read_head

if TYPE_CHECKING:
    from collections.abc import Callable

    from .rig import Rig

THREADS = 6
TURNS = 25
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def reset(sock: socket.socket) -> None:
    """Close with RST."""
    raw = socket.socket(fileno=sock.detach())
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raw.close()


def send_split(rng: random.Random, sock: socket.socket, data: bytes) -> None:
    while data:
        n = rng.choice((1, 2, 7, 100, 4096, 100_000))
        sock.sendall(data[:n])
        data = data[n:]


def chunked(rng: random.Random, body: bytes) -> bytes:
    parts = [body[i : i + 999] for i in range(0, len(body), 999)]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts)
    kind = b"Content-Type: text/event-stream\r\n" if rng.random() < 0.5 else b""
    return kind + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


def answer(rng: random.Random) -> bytes:
    body = rng.randbytes(rng.choice((0, 1, 500, 70_000)))
    start = b"HTTP/1.1 200 OK\r\n"
    return rng.choice(
        (
            b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK,
            start + b"\r\n" + body,
            OK + b"junk",
            b"HTTP/1.1 204 No Content\r\n\r\n",
            rng.randbytes(50),
            start + chunked(rng, body),
            start + b"Content-Length: %d\r\n\r\n" % len(body) + body,
        )
    )


def serve(sock: socket.socket) -> None:
    rng = random.Random(sock.getpeername()[1])  # noqa: S311 - repeatable
    with contextlib.suppress(OSError, EOFError):
        while True:
            head, _ = read_head(sock)
            if b"/control" in head:
                sock.sendall(OK)
                continue
            send_split(rng, sock, answer(rng)[: rng.choice((None, None, None, 10, 300))])
            if rng.random() < 0.2:
                reset(sock)
                return
            if rng.random() < 0.2:
                return


def request(rng: random.Random, name: str) -> bytes:
    body = rng.randbytes(rng.choice((0, 1, 2000, 90_000)))
    fields = b"Host: " + name.encode() + b"\r\n"
    if rng.random() < 0.3:
        fields += b"Authorization: " + PLACEHOLDER.encode() + b"\r\n"
    kind = rng.randrange(6)
    if kind == 0:
        return rng.randbytes(60)
    if kind == 1:
        chunk = b"%x\r\n%s\r\n" % (len(body), body) if body else b""
        return (
            b"POST / HTTP/1.1\r\n"
            + fields
            + b"Transfer-Encoding: chunked\r\n\r\n"
            + chunk
            + b"0\r\n\r\n"
        )
    if kind == 2:
        return (b"GET / HTTP/1.1\r\n" + fields + b"\r\n") * 3
    if kind == 3:
        return b"HEAD / HTTP/1.0\r\n" + fields + b"\r\n"
    return b"POST / HTTP/1.1\r\n" + fields + b"Content-Length: %d\r\n\r\n" % len(body) + body


def client(one: Rig, seed: int, failures: list[Exception]) -> None:
    rng = random.Random(seed)  # noqa: S311 - repeatable
    context = ssl.create_default_context(cafile=str(one.ca))
    try:
        for _ in range(TURNS):
            turn(one, rng, context)
    except Exception as error:  # noqa: BLE001 - shown by the test
        failures.append(error)


def turn(one: Rig, rng: random.Random, context: ssl.SSLContext) -> None:
    raw = one.connect()
    raw.settimeout(0.5)  # some servers never finish: leave
    with contextlib.suppress(OSError, EOFError):
        if rng.random() < 0.1:
            raw.sendall(rng.choice((b"", b"\x16\x03", b"GET / HTTP/1.1\r\n", rng.randbytes(30))))
            return raw.close()
        name = rng.choice((HOST, HOST, OTHER, DENIED))
        sock = context.wrap_socket(raw, server_hostname=name)
        for _ in range(rng.randrange(4)):
            send_split(rng, sock, request(rng, name)[: rng.choice((None, None, None, 20, 1000))])
            if rng.random() < 0.7:
                read_exactly(sock, rng.choice((1, 100, 10_000)))
        if rng.random() < 0.3:
            reset(sock)
        else:
            sock.close()
    return raw.close()


@pytest.mark.timeout(180)
def test_nothing_is_forgotten(rig: Callable[..., Rig]):
    one = rig(serve, limits={Limit.LINGER_MS: 200, Limit.DENIED_MS: 200, Limit.BODY_MS: 1000})
    failures: list[Exception] = []
    threads = [
        threading.Thread(target=client, args=(one, seed, failures)) for seed in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    with one.tls() as sock:  # it still works
        sock.sendall(b"GET /control HTTP/1.1\r\nHost: " + HOST.encode() + b"\r\n\r\n")
        assert read_head(sock)[0].startswith(b"HTTP/1.1 200")
    one.mediator.stop()
    opened = {r.conn for r in one.recorder.wait(ConnOpen)}
    one.recorder.wait(ConnClose, len(opened))
    assert [r.conn for r in one.recorder.of(ConnClose)].count(1) == 1
    assert {r.conn for r in one.recorder.of(ConnClose)} == opened
    check_exchanges(one)


def check_exchanges(one: Rig) -> None:
    """Each begins once, ends once, and its parts lie between."""
    heads = [r.exchange for r in one.recorder.of(RequestHead)]
    ends = [r.exchange for r in one.recorder.of(ExchangeEnd)]
    assert len(heads) > THREADS * TURNS / 3
    assert sorted(heads) == sorted(ends) == sorted(set(heads))
    sizes = {r.exchange: r.request_bytes for r in one.recorder.of(ExchangeEnd)}
    denied = {r.exchange for r in one.recorder.of(Refused)}
    for exchange in set(heads) - denied:
        got = sum(len(r.data) for r in one.recorder.of(RequestBody) if r.exchange == exchange)
        assert got == sizes[exchange]
    place = {r.exchange: r.head.seq for r in one.recorder.of(ExchangeEnd)}
    assert all(r.head.seq < place[r.exchange] for r in one.recorder.of(ResponseHead))
