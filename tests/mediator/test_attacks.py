"""Attacks found by reading the mediator as an enemy: each was possible, or nearly, once."""

from __future__ import annotations

import datetime as dt
import http.client
import ipaddress
import os
import ssl
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from hark.mediator.config import Credential, Limit, MediatorConfig, PortMode
from hark.mediator.process import MediatorProcess
from hark.mediator.records import ExchangeEnd, Refused, RequestHead, Substituted

from .rig import (
    HOST,
    PLACEHOLDER,
    REAL,
    Broker,
    length_of,
    read_all,
    read_exactly,
    read_head,
    scripted,
)
from .test_credentials import everything, request, ring_bytes

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from stub.authority import Authority

    from .rig import Rig

MARK = PLACEHOLDER.encode()
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
GET = b"GET / HTTP/1.1\r\nHost: " + HOST.encode() + b"\r\n"


def answer_of(one: Rig, data: bytes, host: str = HOST) -> bytes:
    sock = one.tls(host)
    sock.sendall(data)
    head, rest = read_head(sock)
    return head + read_exactly(sock, length_of(head), rest)[0]


# --- one secret's name begins another's ---


def two_secrets(*hosts: tuple[int, ...]) -> tuple[Credential, ...]:
    names = ("k", "k_org")
    reals = (b"real-value-of-k", b"real-value-of-k-org")
    return tuple(
        Credential(
            secret=i,
            placeholder=f"hark-placeholder-01J8X-{name}",
            real=real,
            headers=("authorization",),
            hosts=where,
        )
        for i, (name, real, where) in enumerate(zip(names, reals, hosts, strict=True))
    )


def test_case_53_longer_name_gets_its_own_value(rig: Callable[..., Rig]):
    seen: list[bytes] = []
    one = rig(scripted(OK, seen=seen), bindings=two_secrets((0,), (0,)))
    answer_of(one, GET + b"Authorization: hark-placeholder-01J8X-k_org\r\n\r\n")
    assert b"Authorization: real-value-of-k-org\r\n" in seen[0]
    assert [r.secret for r in one.recorder.wait(Substituted)] == [1]


def test_case_53_longer_name_bound_elsewhere_is_not_the_shorter_one(rig: Callable[..., Rig]):
    data = GET + b"Authorization: hark-placeholder-01J8X-k_org\r\n\r\n"
    one = rig(scripted(OK), bindings=two_secrets((0,), (1,)))
    assert b" 403 " in answer_of(one, data)
    assert not one.broker.dials
    other = rig(scripted(OK), bindings=two_secrets((1,), (0,)))
    assert b" 200 " in answer_of(other, data)  # nor is the shorter one a reason to deny it


# --- reflection where nobody looks ---


@pytest.mark.parametrize(
    "line",
    [
        REAL + b": x",
        b"X-" + REAL + b"-Y: x",
        b"X-Pair: user:" + REAL,
        b"Location: https://" + REAL + b"@h.example/",
        b"Set-Cookie: a=" + REAL + b"; HttpOnly",
        b"WWW-Authenticate: Bearer error=" + REAL,
    ],
)
def test_case_54_in_any_part_of_a_field(rig: Callable[..., Rig], line: bytes):
    one = rig(scripted(b"HTTP/1.1 200 OK\r\n" + line + b"\r\nContent-Length: 2\r\n\r\nok"))
    got = answer_of(one, request(b"Authorization: " + MARK))
    assert line.replace(REAL, MARK) in got
    assert REAL not in got + everything(one) + ring_bytes(one)
    assert one.recorder.wait(Refused)[0].reason == "reflected"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 " + REAL + b"\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 103 Early\r\nLink: <" + REAL + b">\r\n\r\n" + OK,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-T: "
        + REAL
        + b"\r\n"
        + REAL
        + b": y\r\n\r\n",
    ],
    ids=["phrase", "interim", "trailers"],
)
def test_case_54_outside_fields(rig: Callable[..., Rig], answer: bytes):
    one = rig(scripted(answer, close=True))
    sock = one.tls()
    sock.sendall(request(b"Authorization: " + MARK, b"Connection: close"))
    got = read_all(sock)
    assert MARK in got
    assert REAL not in got + everything(one) + ring_bytes(one)


def test_case_54_unasked_bytes_are_recorded_without_it(rig: Callable[..., Rig]):
    go = threading.Event()

    def serve(sock: socket.socket) -> None:
        read_head(sock)
        sock.sendall(OK)
        go.wait(10)
        sock.sendall(b"HTTP/1.1 408 Idle\r\n\r\nyour key " + REAL + b" " + REAL[:-1])
        read_all(sock)

    one = rig(serve)
    answer_of(one, request(b"Authorization: " + MARK))
    go.set()
    refused = one.recorder.wait(Refused, where=lambda r: r.reason == "response_smuggled")[0]
    assert refused.detail.endswith(b"your key " + MARK + b" ")
    assert REAL not in ring_bytes(one)


def test_case_54_no_part_of_a_resource_with_a_credential(rig: Callable[..., Rig]):
    seen: list[bytes] = []
    one = rig(scripted(OK, OK, seen=seen))
    fields = (b"Range: bytes=3-5", b'If-Range: "x"')
    answer_of(one, request(*fields, b"Authorization: " + MARK))
    assert b"range" not in seen[0].lower()
    assert "range_removed" in [r.reason for r in one.recorder.wait(Refused)]
    assert b"Range: bytes=3-5" in one.recorder.of(RequestHead)[0].raw
    answer_of(one, request(*fields))  # the control
    assert b"Range: bytes=3-5" in seen[1]


def test_only_hark_says_that_hark_refused(rig: Callable[..., Rig]):
    one = rig(scripted(OK.replace(b"\r\n\r\n", b"\r\nX-Hark-Error: host_denied\r\n\r\n")))
    assert b"hark" not in answer_of(one, GET + b"\r\n").lower()


# --- queues of responses ---


def test_case_45_body_that_a_server_takes_for_a_request(rig: Callable[..., Rig]):
    """It ignores the body of a GET, and would answer it to whoever asks next."""
    inner = b"GET /hidden HTTP/1.1\r\nHost: " + HOST.encode() + b"\r\n\r\n"

    def serve(sock: socket.socket) -> None:
        rest = b""
        for _ in range(2):
            head, rest = read_head(sock, rest)
            body = head.split(b" ")[1]
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        read_all(sock)

    one = rig(serve)
    got = answer_of(one, GET + b"Content-Length: %d\r\n\r\n" % len(inner) + inner)
    assert got.endswith(b"\r\n\r\n/")
    one.recorder.wait(ExchangeEnd)
    assert answer_of(one, GET.replace(b"GET /", b"GET /mine") + b"\r\n").endswith(b"/mine")
    assert len(one.broker.dials) == 2


# --- certificates ---


def certificate(
    authority: Authority,
    directory: Path,
    *,
    names: list[x509.GeneralName],
    common: str = HOST,
    bits: int = 2048,
) -> ssl.SSLContext:
    key = rsa.generate_private_key(65537, bits)
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)]))
        .issuer_name(authority.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    made = builder.sign(authority._key, hashes.SHA256())
    directory.mkdir()
    (directory / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (directory / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.load_cert_chain(directory / "cert.pem", directory / "key.pem")
    return context


GOOD = {
    "exact": [HOST],
    "wildcard": ["*.stub.test"],  # one label, as RFC 9525 has it
}
BAD = {
    "in CN only": [],
    "part of a label": ["ap*.stub.test"],
    "two labels": ["*.test"],
    "everything": ["*"],
    "NUL": [HOST + "\0.evil.example"],
    "another": ["evil.example"],
    "weak": [HOST],
}


@pytest.mark.parametrize("name", [*GOOD, *BAD])
def test_case_24_certificates(
    rig: Callable[..., Rig], authority: Authority, tmp_path: Path, name: str
):
    names = (GOOD | BAD)[name]
    bits = 1024 if name == "weak" else 2048
    good = name in GOOD
    dns = [x509.DNSName(name) for name in names]
    server = certificate(authority, tmp_path / "leaf", names=[*dns], bits=bits)
    one = rig(scripted(OK), server=server)
    assert (b" 200 " in answer_of(one, GET + b"\r\n")) == good
    if not good:
        assert one.recorder.wait(Refused)[0].reason in {"upstream_certificate", "upstream_tls"}


def test_case_24_address_in_the_certificate_is_no_name(
    rig: Callable[..., Rig], authority: Authority, tmp_path: Path
):
    names: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    server = certificate(authority, tmp_path / "leaf", names=names)
    one = rig(scripted(OK), server=server)
    assert b"X-Hark-Error: upstream_certificate" in answer_of(one, GET + b"\r\n")


# --- many at once ---


@pytest.mark.skipif("HARK_TEST_MEDIATOR" in os.environ, reason="slow in that build")
def test_case_39_many_slow_heads_end_together(rig: Callable[..., Rig]):
    """Their heads together are more than the ring holds, and all time out in one tick."""
    one = rig(scripted(OK), mode=PortMode.PLAIN, limits={Limit.HEAD_MS: 1500})
    part = GET + b"".join(b"X-%d: %s\r\n" % (i, b"a" * 30_000) for i in range(2))
    socks = [one.connect() for _ in range(400)]
    for sock in socks:
        sock.sendall(part)
    ends = one.recorder.wait(ExchangeEnd, len(socks))
    assert {e.reason for e in ends} <= {"head_timeout", "bad_request"}
    assert all(read_all(sock).startswith(b"HTTP/1.1 408") for sock in socks)
    for sock in socks:
        sock.close()
    with one.connect() as sock:  # and it still works
        sock.sendall(GET + b"\r\n")
        assert read_head(sock)[0].startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("size", [8, 9, 300, 8192])
@pytest.mark.parametrize("split", [1000, 3])
def test_case_54_shortest_and_longest_value(rig: Callable[..., Rig], size: int, split: int):
    real = os.urandom(4096).hex()[:size].encode()
    body = b"<" + real + b"|" + real[:-1] + b"|" + real[1:] + real + b">"

    def serve(sock: socket.socket) -> None:
        head, _ = read_head(sock)
        assert b"authorization: " + real + b"\r\n" in head.lower()
        sock.sendall(b"HTTP/1.1 200 OK\r\nX-Echo: " + real + b"\r\n")
        sock.sendall(b"Transfer-Encoding: chunked\r\n\r\n")
        for i in range(0, len(body), split):
            part = body[i : i + split]
            sock.sendall(b"%x\r\n%s\r\n" % (len(part), part))
        sock.sendall(b"0\r\n\r\n")
        read_all(sock)

    one = rig(serve, real=real)
    connection = http.client.HTTPSConnection(HOST)
    connection.sock = one.tls()
    connection.request("GET", "/", headers={"Authorization": PLACEHOLDER})
    answer = connection.getresponse()
    assert answer.read() == body.replace(real, MARK)
    assert answer.getheader("x-echo") == PLACEHOLDER
    assert real not in ring_bytes(one)


@pytest.mark.skipif("HARK_TEST_MEDIATOR" in os.environ, reason="that build has no cage")
@pytest.mark.parametrize("uid", ["another", "its own"])
def test_no_other_process_reads_its_memory(uid: str):
    """Not dumpable: /proc and ptrace are closed to its own uid as well."""
    broker = Broker()
    mine, stranger = 65533, 65532
    config = MediatorConfig(hosts=(), ids=(mine, mine))
    mediator = MediatorProcess(config, broker.theirs)
    try:
        mediator.ca_pem()
        while "Seccomp:\t2" not in Path(f"/proc/{mediator.pid}/status").read_text():
            time.sleep(0.01)
        look = (
            "import sys, ctypes\n"
            "for name in ('mem', 'environ', 'maps', 'auxv', 'stack', 'syscall', 'fd/0'):\n"
            "    try: open(f'/proc/{sys.argv[1]}/{name}', 'rb').read(1); print('read', name)\n"
            "    except OSError: pass\n"
            "libc = ctypes.CDLL(None, use_errno=True)\n"
            "print('attached' if libc.ptrace(16, int(sys.argv[1]), 0, 0) == 0 else 'refused')\n"
        )
        done = subprocess.run(
            ["/usr/bin/python3", "-c", look, str(mediator.pid)],
            user=mine if uid == "its own" else stranger,
            group=mine,
            extra_groups=[],
            cwd="/",
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == ["refused"]
        control = subprocess.run(  # root may: what was refused above is there
            ["/usr/bin/python3", "-c", look, str(mediator.pid)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert "maps" in control.stdout
    finally:
        mediator.close()
        broker.close()
