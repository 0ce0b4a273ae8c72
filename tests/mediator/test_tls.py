"""The agent's side of TLS: which names, which ports, what happens to clients that speak badly."""

from __future__ import annotations

import os
import socket
import ssl
import struct
import subprocess
from typing import TYPE_CHECKING

import pytest
from cryptography import x509

from hark.mediator.config import Limit, PortMode
from hark.mediator.records import ConnClose, ConnOpen, ConnTls, ExchangeEnd, Refused, RequestHead

from .rig import DENIED, HOST, OTHER, read_all, read_head, scripted

if TYPE_CHECKING:
    from collections.abc import Callable

    from .rig import Rig

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
GET = b"GET / HTTP/1.1\r\nHost: " + HOST.encode() + b"\r\n\r\n"
ALERT = 21
UNRECOGNIZED_NAME = 112


def hello(name: str | None) -> bytes:
    """The bytes of a real ClientHello."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def with_sni(raw: bytes, old: str, new: bytes) -> bytes:
    """The same hello with other bytes of the same length for a name."""
    assert len(old) == len(new)
    assert raw.count(old.encode()) == 1
    return raw.replace(old.encode(), new)


def alert_of(sock: socket.socket) -> int:
    data = read_all(sock)
    assert data[:1] == bytes([ALERT]), data
    return data[6]


def test_no_name(rig: Callable[..., Rig]):
    one = rig(scripted(OK))
    sock = one.connect()
    sock.sendall(hello(None))
    assert alert_of(sock) == UNRECOGNIZED_NAME
    refused = one.recorder.wait(Refused)[0]
    assert (refused.reason, refused.denial, refused.exchange) == ("no_sni", True, 0)
    assert one.recorder.wait(ConnClose)[0].reason == "no_sni"


def test_the_alert_waits_until_the_refusal_is_on_disk(rig: Callable[..., Rig]):
    one = rig(scripted(OK))
    one.recorder.durable = False
    sock = one.connect()
    sock.sendall(hello(None))
    refused = one.recorder.wait(Refused)[0]
    sock.settimeout(0.3)
    with pytest.raises(TimeoutError):
        sock.recv(1)
    sock.settimeout(10)
    one.mediator.durable(refused.head.seq + 1)
    assert alert_of(sock) == UNRECOGNIZED_NAME


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (b"api.stub\0test", "sni_invalid"),
        (b"api.stub.tes.", "sni_invalid"),
        (b"api_stub.test", "sni_invalid"),
        (b"-pi.stub.test", "sni_invalid"),
        (b"api..tub.test", "sni_invalid"),
        (b"api.stub.te\xc3\xa9", "sni_invalid"),
        (b"127.000.0.001", "ip_literal"),
        (b"abc:def::0001", "ip_literal"),
        (b"a.b.c.d.0x7f1", "ip_literal"),
    ],
)
def test_names_that_are_none(rig: Callable[..., Rig], name: bytes, reason: str):
    one = rig(scripted(OK))
    sock = one.connect()
    sock.sendall(with_sni(hello(HOST), HOST, name))
    assert alert_of(sock) == UNRECOGNIZED_NAME
    refused = one.recorder.wait(Refused)[0]
    assert refused.reason == reason
    assert name in refused.detail
    assert not one.broker.dials


def test_upper_case_name_is_the_same_host(rig: Callable[..., Rig]):
    one = rig(scripted(OK))
    sock = one.connect()
    context = ssl.create_default_context(cafile=str(one.ca))
    tls = context.wrap_socket(sock, server_hostname="API.Stub.TEST")
    tls.sendall(GET)
    assert read_head(tls)[0].startswith(b"HTTP/1.1 200")
    assert one.recorder.wait(ConnTls)[0].sni == HOST


@pytest.mark.parametrize("size", [1, 16])
def test_fragmented_hello(rig: Callable[..., Rig], size: int):
    """In TLS records of a few bytes, and those in single segments."""
    raw = hello(HOST)
    body = raw[5:]
    records = b"".join(
        b"\x16\x03\x01" + struct.pack(">H", len(body[i : i + size])) + body[i : i + size]
        for i in range(0, len(body), size)
    )
    one = rig(scripted(OK))
    for data in (raw, records):
        sock = one.connect()
        for i in range(0, len(data), size):
            sock.sendall(data[i : i + size])
        assert sock.recv(1) == b"\x16"  # its ServerHello
        sock.close()


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\xff\xff" + b"\x01" * 70000,
        b"\x16\x03\x01\x40\x00\x01\xff\xff\xff" + b"A" * 16380,
        b"\x16\x03\x01\x00\x05hello",
        b"\x16" + bytes(300),
    ],
    ids=["record too long", "hello of 16 MB", "no hello", "zeros"],
)
def test_broken_hello(rig: Callable[..., Rig], data: bytes):
    one = rig(scripted(OK))
    sock = one.connect()
    sock.sendall(data)
    sock.shutdown(socket.SHUT_WR)
    read_all(sock)
    assert one.recorder.wait(Refused)[0].reason == "tls_handshake"
    assert one.recorder.wait(ConnClose)[0].reason == "tls_handshake"


def test_denied_host_gets_a_leaf_and_a_403(rig: Callable[..., Rig]):
    one = rig(scripted(OK))
    sock = one.tls(DENIED)
    sock.sendall(b"GET /secret HTTP/1.1\r\nHost: " + DENIED.encode() + b"\r\n\r\n")
    assert read_head(sock)[0].startswith(b"HTTP/1.1 403")
    refused = one.recorder.wait(Refused)[0]
    assert (refused.reason, refused.name, refused.denial) == ("host_denied", DENIED, True)
    head = one.recorder.of(RequestHead)[0]
    assert head.host == -1
    assert b"/secret" in head.raw
    assert not one.broker.dials
    assert one.upstream.connections == 0


def test_host_on_another_port(rig: Callable[..., Rig]):
    """The name is allowed, but its table entry has another port: the listener's is not in it."""
    one = rig(scripted(OK), mode=PortMode.PLAIN)
    context = ssl.create_default_context(cafile=str(one.ca))
    tls = context.wrap_socket(one.connect(), server_hostname=HOST)
    tls.sendall(GET)
    assert read_head(tls)[0].startswith(b"HTTP/1.1 403")
    assert one.recorder.wait(Refused)[0].reason == "port_denied"
    assert not one.broker.dials


def test_clear_text_on_a_tls_port(rig: Callable[..., Rig]):
    one = rig(scripted(OK))
    sock = one.connect()
    sock.sendall(GET)
    assert read_head(sock)[0].startswith(b"HTTP/1.1 400")
    assert one.recorder.wait(Refused)[0].reason == "plain_http_on_tls_port"
    assert not one.broker.dials


@pytest.mark.parametrize(
    ("host", "reason"),
    [(DENIED, "host_denied"), ("192.0.2.1", "ip_literal"), ("[::1]", "ip_literal")],
)
def test_clear_text_to_denied_hosts(rig: Callable[..., Rig], host: str, reason: str):
    one = rig(scripted(OK), mode=PortMode.PLAIN)
    sock = one.connect()
    sock.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert read_head(sock)[0].startswith(b"HTTP/1.1 403")
    assert one.recorder.wait(Refused)[0].reason == reason
    assert not one.broker.dials


def test_bytes_of_another_protocol(rig: Callable[..., Rig]):
    one = rig(scripted(OK))
    sock = one.connect()
    sock.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
    read_all(sock)
    assert one.recorder.wait(Refused)[0].reason == "not_http"
    assert one.recorder.of(RequestHead)[0].raw.startswith(b"SSH-2.0")


def test_client_that_does_not_trust_us(rig: Callable[..., Rig]):
    one = rig(scripted(OK))
    with pytest.raises(ssl.SSLCertVerificationError):
        ssl.create_default_context().wrap_socket(one.connect(), server_hostname=HOST)
    refused = one.recorder.wait(Refused)[0]
    assert (refused.reason, refused.name) == ("client_rejected_ca", HOST)
    assert not refused.denial
    assert not one.broker.dials


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("read", [False, True], ids=["before the certificate", "at it"])
def test_client_that_leaves_without_a_word(
    rig: Callable[..., Rig], version: ssl.TLSVersion, read: bool
):
    """Only who could have seen the certificate is said to have left because of it."""
    one = rig(scripted(OK))
    context = ssl.create_default_context()
    context.minimum_version = context.maximum_version = version
    out, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(back, out, server_hostname=HOST)
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    hello = out.read()
    with one.connect() as sock:
        sock.sendall(hello if read else hello[:40])
        if read:
            assert sock.recv(1)
            sock.shutdown(socket.SHUT_WR)
            read_all(sock)
    refused = one.recorder.wait(Refused)[0]
    expected = ("client_left_at_certificate", HOST) if read else ("tls_handshake", "")
    assert (refused.reason, refused.name) == expected
    assert not one.broker.dials


def test_silent_client(rig: Callable[..., Rig]):
    one = rig(scripted(OK), limits={Limit.HELLO_MS: 100, Limit.HEAD_MS: 100})
    assert read_all(one.connect()) == b""
    assert one.recorder.wait(Refused)[0].reason == "client_silent"
    tls = one.tls()
    assert read_all(tls) == b""
    one.recorder.wait(ConnClose, 2)


def test_slow_head(rig: Callable[..., Rig]):
    one = rig(scripted(OK), limits={Limit.HEAD_MS: 200})
    tls = one.tls()
    tls.sendall(b"GET / HTTP/1.1\r\nHost: ")
    assert read_head(tls)[0].startswith(b"HTTP/1.1 408")
    assert one.recorder.wait(ExchangeEnd)[0].reason == "head_timeout"


def test_slow_body(rig: Callable[..., Rig]):
    one = rig(read_all, limits={Limit.BODY_MS: 200})
    tls = one.tls()
    tls.sendall(GET.replace(b"GET", b"POST")[:-2] + b"Content-Length: 100\r\n\r\nsome")
    assert read_head(tls)[0].startswith(b"HTTP/1.1 408")
    assert one.recorder.wait(ExchangeEnd)[0].reason == "body_timeout"


def test_connection_for_one_host_is_not_one_for_another(rig: Callable[..., Rig]):
    one = rig(scripted(OK))
    tls = one.tls(HOST)
    tls.sendall(GET.replace(HOST.encode(), OTHER.encode()))
    assert read_head(tls)[0].startswith(b"HTTP/1.1 421")
    assert one.recorder.wait(Refused)[0].denial


def test_leaf_dates_suit_a_replayed_clock(rig: Callable[..., Rig]):
    one = rig(scripted(OK))
    with one.tls() as tls:
        leaf = x509.load_der_x509_certificate(tls.getpeercert(binary_form=True) or b"")
    ca = x509.load_pem_x509_certificate(one.ca.read_bytes())
    for certificate in (leaf, ca):
        years = (certificate.not_valid_after_utc - certificate.not_valid_before_utc).days / 365
        assert years > 39
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [HOST]


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_sessions_resume(rig: Callable[..., Rig], version: str):
    one = rig(scripted(OK, OK))
    base = ["openssl", "s_client", "-connect", f"127.0.0.1:{one.port}", "-servername", HOST]
    base += ["-CAfile", str(one.ca), "-ign_eof", version]
    session = str(one.directory / "session")
    ask = GET[:-2] + b"Connection: close\r\n\r\n"
    for option in ("-sess_out", "-sess_in"):
        done = subprocess.run(
            [*base, option, session], input=ask, capture_output=True, timeout=20, check=True
        )
        assert b"HTTP/1.1 200" in done.stdout
    assert [t.resumed for t in one.recorder.wait(ConnTls, 2)] == [False, True]


@pytest.mark.parametrize("version", ["-tls1", "-tls1_1"])
def test_old_versions_are_refused(rig: Callable[..., Rig], version: str):
    one = rig(scripted(OK))
    done = subprocess.run(
        [
            *("openssl", "s_client", "-connect", f"127.0.0.1:{one.port}", "-servername", HOST),
            *(version, "-cipher", "ALL:@SECLEVEL=0"),
        ],
        input=b"",
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert b"alert protocol version" in done.stderr
    assert one.recorder.wait(Refused)[0].reason == "tls_handshake"


def test_alpn_is_http_1_1(rig: Callable[..., Rig]):
    one = rig(scripted(OK))
    context = ssl.create_default_context(cafile=str(one.ca))
    context.set_alpn_protocols(["h2", "http/1.1"])
    tls = context.wrap_socket(one.connect(), server_hostname=HOST)
    assert tls.selected_alpn_protocol() == "http/1.1"
    assert one.recorder.wait(ConnTls)[0].alpn == "http/1.1"


def test_too_many_connections_wait(rig: Callable[..., Rig]):
    """At the limit the backlog waits: nobody is turned away, nothing is lost."""
    one = rig(scripted(OK), limits={Limit.CONNECTIONS: 2})
    held = [one.tls(), one.tls()]
    waiting = one.connect()
    waiting.sendall(hello(HOST))
    one.recorder.wait(Refused, where=lambda r: r.reason == "conn_limit")
    assert len(one.recorder.of(ConnOpen)) == 2
    held[0].close()
    assert waiting.recv(1) == b"\x16"


@pytest.mark.skipif("HARK_TEST_MEDIATOR" in os.environ, reason="no limits in that build")
def test_out_of_descriptors(rig: Callable[..., Rig]):
    one = rig(scripted(OK), limits={Limit.DESCRIPTORS: 16})
    socks = [one.connect() for _ in range(12)]
    one.recorder.wait(Refused, where=lambda r: r.detail == b"descriptors")
    for sock in socks:
        sock.close()
    tls = one.tls()
    assert tls.version() == "TLSv1.3"
