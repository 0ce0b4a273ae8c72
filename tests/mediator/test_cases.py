"""Hostile cases that have no other home. docs/cases.md names a test for every number."""

from __future__ import annotations

import os
import socket
import ssl
import struct
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

from hark.mediator.config import Limit, PortMode
from hark.mediator.records import ConnClose, ConnTls, ExchangeEnd, Refused, ResponseBody

from .rig import DENIED, HOST, read_all, read_exactly, read_head, scripted
from .test_second_hello import ALERT, HANDSHAKE, extension, hello, record

if TYPE_CHECKING:
    from collections.abc import Callable

    from .rig import Rig

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
GET = b"GET / HTTP/1.1\r\nHost: " + HOST.encode() + b"\r\n\r\n"


def s_client(one: Rig, *words: str) -> list[str]:
    base = ["openssl", "s_client", "-connect", f"127.0.0.1:{one.port}", "-servername", HOST]
    return [*base, "-CAfile", str(one.ca), *words]


def test_case_1_hello_in_segments_of_one_byte(rig: Callable[..., Rig]):
    one = rig(scripted(OK))
    raw = one.connect()
    context = ssl.create_default_context(cafile=str(one.ca))
    inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(inward, outward, server_hostname=HOST)
    done = False
    while not done:
        try:
            tls.do_handshake()
            done = True
        except ssl.SSLWantReadError:
            pass
        for byte in outward.read():
            raw.sendall(bytes([byte]))
        if not done:
            inward.write(raw.recv(65536))
    assert one.recorder.wait(ConnTls)[0].sni == HOST


@pytest.mark.parametrize("kind", ["GREASE", "a real one"])
def test_case_9_encrypted_hello(rig: Callable[..., Rig], kind: str):
    """The outer name decides: it is the only one that hark can read."""
    outer = b"\0" + struct.pack(">HHBH", 1, 1, 7, 32) + os.urandom(32) + struct.pack(">H", 64)
    data = hello(HOST, os.urandom(32), extension(0xFE0D, outer + os.urandom(64)))
    one = rig(scripted())
    sock = one.connect()
    sock.sendall(data)
    assert record(sock)[0] == HANDSHAKE, kind
    other = one.connect()
    other.sendall(hello("", os.urandom(32), extension(0xFE0D, outer + os.urandom(64))))
    assert record(other) == (ALERT, b"\x02\x70")


def test_case_12_renegotiation(rig: Callable[..., Rig]):
    one = rig(read_all)
    with subprocess.Popen(
        s_client(one, "-tls1_2"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as client:
        assert client.stdin is not None
        one.recorder.wait(ConnTls)
        client.stdin.write(b"R\n")
        client.stdin.flush()
        one.recorder.wait(ConnClose)  # the client gives up: the wish was refused
        client.kill()
        said = client.stdout.read() if client.stdout else b""
    assert b"no renegotiation" in said
    assert len(one.recorder.of(ConnTls)) == 1


def test_case_13_flood_of_key_updates(rig: Callable[..., Rig]):
    """Each is answered when it comes, so that they cost their sender as much; nothing adds up."""
    one = rig(scripted(OK))
    with subprocess.Popen(
        s_client(one, "-tls1_3"),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as client:
        assert client.stdin is not None
        assert client.stderr is not None
        one.recorder.wait(ConnTls)
        before = one.mediator.ring.next_seq
        for _ in range(200):
            client.stdin.write(b"K\n")
            client.stdin.flush()
            while b"KEYUPDATE" not in (line := client.stderr.readline()):
                assert line
        assert one.mediator.ring.next_seq == before
        client.stdin.write(GET)
        client.stdin.flush()
        assert one.recorder.wait(ExchangeEnd)[0].reason == "complete"
        client.kill()


def test_case_14_no_early_data(rig: Callable[..., Rig]):
    one = rig(scripted(OK))
    ask = GET[:-2] + b"Connection: close\r\n\r\n"
    done = subprocess.run(
        s_client(one, "-tls1_3", "-ign_eof"), input=ask, capture_output=True, timeout=20, check=True
    )
    assert b"Max Early Data: 0" in done.stdout


def test_case_15_ticket_for_another_name(rig: Callable[..., Rig]):
    one = rig(scripted(OK, OK))
    context = ssl.create_default_context(cafile=str(one.ca))
    context.check_hostname = False
    with context.wrap_socket(one.connect(), server_hostname=HOST) as first:
        first.sendall(GET)
        read_exactly(first, 2, read_head(first)[1])
        session = first.session
    with context.wrap_socket(one.connect(), server_hostname=DENIED, session=session) as second:
        second.sendall(GET)
        assert read_head(second)[0].startswith(b"HTTP/1.1 403")
    assert [t.sni for t in one.recorder.wait(ConnTls, 2)] == [HOST, DENIED]
    assert one.recorder.wait(Refused)[0].reason == "host_denied"
    assert len(one.broker.dials) == 1


@pytest.mark.parametrize("wish", [ssl.CERT_OPTIONAL, ssl.CERT_REQUIRED])
def test_case_16_server_that_wants_a_certificate(rig: Callable[..., Rig], wish: ssl.VerifyMode):
    one = rig(scripted(OK))
    assert one.server is not None
    one.server.load_verify_locations(one.authority.ca_file)
    one.server.verify_mode = wish
    sock = one.tls()
    sock.sendall(GET)
    answer = read_head(sock)[0]
    if wish is ssl.CERT_OPTIONAL:
        assert answer.startswith(b"HTTP/1.1 200")
        return
    assert answer.startswith(b"HTTP/1.1 502")
    refused = one.recorder.wait(Refused)[0]
    assert refused.reason in {"upstream_closed", "upstream_tls"}
    assert b"certificate required" in refused.detail


def test_case_18_half_a_hello(rig: Callable[..., Rig]):
    one = rig(scripted(), limits={Limit.HELLO_MS: 200})
    sock = one.connect()
    sock.sendall(hello(HOST, b"")[:40])
    assert read_all(sock) == b""
    assert one.recorder.wait(Refused)[0].reason == "client_silent"


def test_case_22_tls_to_a_port_for_clear_text(rig: Callable[..., Rig]):
    one = rig(scripted(OK), mode=PortMode.PLAIN)
    sock = one.tls()
    sock.sendall(GET)
    assert read_head(sock)[0].startswith(b"HTTP/1.1 403")
    assert one.recorder.wait(Refused)[0].reason == "port_denied"


@pytest.mark.parametrize("reset", [True, False])
def test_case_23_and_26_broken_handshakes_leave_nothing(rig: Callable[..., Rig], reset: bool):
    """The next connection is not taken for the broken one: OpenSSL's queue of errors is empty."""
    one = rig(scripted(OK))
    good = one.tls()
    for _ in range(20):
        bad = one.connect()
        bad.sendall(hello(HOST, os.urandom(32)) + (b"" if reset else b"\x17\x03\x03\x00\x05aaaaa"))
        if reset:
            record(bad)
            bad.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            read_all(bad)
        bad.close()
    one.recorder.wait(Refused, 20)
    assert {r.reason for r in one.recorder.of(Refused)} == {"tls_handshake"}
    good.sendall(GET)
    assert read_head(good)[0].startswith(b"HTTP/1.1 200")


def test_case_46_trailers_without_end(rig: Callable[..., Rig]):
    """A server's trailer section is bounded too; what came before was already handed on."""

    def serve(sock: socket.socket) -> None:
        read_head(sock)
        sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n")
        for i in range(10_000):
            sock.sendall(b"X-%d: %s\r\n" % (i, b"a" * 100))

    one = rig(serve)
    sock = one.tls()
    sock.sendall(GET)
    got = read_all(sock)
    assert got.endswith(b"2\r\nok\r\n")  # and no last chunk: the client sees that it was cut
    assert one.recorder.wait(ExchangeEnd)[0].reason in {"bad_trailer", "bad_response"}


@pytest.mark.parametrize(
    "size", [b"FFFFFFFFFFFFFFFF", b"FFFFFFFFFFFFFFFFF", b"7FFFFFFFFFFFFFFF", b"-1", b"0x10"]
)
def test_case_31_chunk_sizes_of_a_server(rig: Callable[..., Rig], size: bytes):
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    one = rig(scripted(head + size + b"\r\nshort", close=True))
    sock = one.tls()
    sock.sendall(GET)
    assert not read_all(sock).endswith(b"0\r\n\r\n")
    assert one.recorder.wait(ExchangeEnd)[0].reason != "complete"


def test_case_50_counts_beyond_31_bits(rig: Callable[..., Rig]):
    """A length of 5 GiB is announced, handed on and counted as such; the body is cut short."""
    size = 5 << 30

    def serve(sock: socket.socket) -> None:
        read_head(sock)
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\npart" % size)

    one = rig(serve, credentials=False)
    sock = one.tls()
    sock.sendall(GET)
    head, rest = read_head(sock)
    assert b"Content-Length: %d\r\n" % size in head
    assert rest + read_all(sock) == b"part"
    end = one.recorder.wait(ExchangeEnd)[0]
    assert (end.reason, end.response_bytes) == ("upstream_truncated", 4)
    assert not any(r.end for r in one.recorder.of(ResponseBody))


def test_c25_many_event_streams_at_once(rig: Callable[..., Rig]):
    events = [b"data: %d\n\n" % i for i in range(50)]
    go = threading.Barrier(24, timeout=30)

    def serve(sock: socket.socket) -> None:
        read_head(sock)
        kind = b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        sock.sendall(b"HTTP/1.1 200 OK\r\n" + kind)
        go.wait()  # all are open before the first event
        for event in events:
            sock.sendall(b"%x\r\n%s\r\n" % (len(event), event))
        sock.sendall(b"0\r\n\r\n")
        read_all(sock)

    one = rig(serve)
    socks = [one.tls() for _ in range(24)]
    for sock in socks:
        sock.sendall(GET)
    for sock in socks:
        data = read_head(sock)[1]
        while not data.endswith(b"0\r\n\r\n"):
            data += sock.recv(65536)
    ends = one.recorder.wait(ExchangeEnd, 24)
    assert {e.response_bytes for e in ends} == {sum(map(len, events))}
    for end in ends:
        got = [r.data for r in one.recorder.of(ResponseBody) if r.exchange == end.exchange]
        assert [data for data in got if data] == events


def test_c22_407_leaves_the_connection_open(rig: Callable[..., Rig]):
    asked = b"HTTP/1.1 401 No\r\nWWW-Authenticate: Basic realm=x\r\nContent-Length: 2\r\n\r\nno"
    one = rig(scripted(asked.replace(b"401", b"407"), asked, OK))
    sock = one.tls()
    for status in (b"407", b"401", b"200"):
        sock.sendall(GET)
        head, rest = read_head(sock)
        assert head.split(b" ")[1] == status
        read_exactly(sock, 2, rest)
    assert len(one.broker.dials) == 1


def test_c18_and_c19_upload_that_waits_is_not_held_up(rig: Callable[..., Rig]):
    """Chunks arrive one by one while the client goes on, also after Expect: 100-continue."""
    got: list[bytes] = []
    step = threading.Semaphore(0)

    def serve(sock: socket.socket) -> None:
        _, rest = read_head(sock)
        sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        while not rest.endswith(b"0\r\n\r\n"):
            more = sock.recv(65536)
            got.append(more)
            rest += more
            step.release()
        sock.sendall(OK)
        read_all(sock)

    one = rig(serve)
    sock = one.tls()
    head = GET[:-2].replace(b"GET", b"POST") + b"Transfer-Encoding: chunked\r\n"
    sock.sendall(head + b"Expect: 100-continue\r\n\r\n")
    assert read_head(sock)[0].startswith(b"HTTP/1.1 100")
    for _ in range(5):
        sock.sendall(b"2\r\nab\r\n")
        assert step.acquire(timeout=10), "held back until more came"
    sock.sendall(b"0\r\n\r\n")
    assert read_head(sock)[0].startswith(b"HTTP/1.1 200")
    assert b"".join(got).count(b"2\r\nab\r\n") == 5


def test_c24_a_large_body_is_not_gathered(rig: Callable[..., Rig]):
    """The mediator holds a part of it only, whatever the server does not read."""

    def serve(sock: socket.socket) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        read_head(sock)
        threading.Event().wait(3)
        sock.sendall(OK)

    one = rig(serve, credentials=False, limits={Limit.LINGER_MS: 100})
    sock = one.tls()
    sock.settimeout(1)
    sock.sendall(GET[:-2].replace(b"GET", b"POST") + b"Content-Length: %d\r\n\r\n" % (1 << 30))
    sent = 0
    try:
        while sent < 1 << 28:
            sent += sock.send(bytes(1 << 16))
    except TimeoutError:
        pass
    assert sent < 1 << 26  # the client was made to wait
    sock.close()
