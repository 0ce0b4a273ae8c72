"""Other places a credential may be bound to: query parameters, and Basic authorization's base64."""

from __future__ import annotations

import base64
import http.client
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from hark.mediator.config import Credential
from hark.mediator.records import ExchangeEnd, Refused, RequestHead, ResponseHead, Substituted

from .rig import HOST, OTHER, PLACEHOLDER, REAL, read_exactly, read_head, scripted
from .test_credentials import everything, request, ring_bytes

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from .rig import Rig

MARK = PLACEHOLDER.encode()
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
ODD = b"a/b+c d%&=?#\xc3\xa9-secret"  # every byte that a URL must not hold as it is


def bound(**changes: object) -> tuple[Credential, ...]:
    plain = {
        "secret": 7,
        "placeholder": PLACEHOLDER,
        "real": REAL,
        "headers": ("authorization",),
        "hosts": (0,),
        "queries": ("key", "token"),
    }
    return (Credential(**{**plain, **changes}),)  # type: ignore[arg-type]


def exchange(one: Rig, data: bytes, host: str = HOST) -> bytes:
    sock = one.tls(host)
    sock.sendall(data)
    head, rest = read_head(sock)
    if head.startswith(b"HTTP/1.1 200"):
        read_exactly(sock, 2, rest)
    return head


def target_of(seen: bytes) -> bytes:
    return seen.split(b" ")[1]


@pytest.mark.parametrize(
    ("sent", "arrives"),
    [
        (b"/v1?key=%b", b"/v1?key=%b"),
        (b"/v1?a=1&token=%b&b=2", b"/v1?a=1&token=%b&b=2"),
        (b"/?key=%b&key=%b", b"/?key=%b&key=%b"),
        (b"/?key=pre-%b-post", b"/?key=pre-%b-post"),
    ],
)
def test_case_52_query_parameter(rig: Callable[..., Rig], sent: bytes, arrives: bytes):
    seen: list[bytes] = []
    one = rig(scripted(OK, seen=seen), bindings=bound(real=ODD))
    exchange(one, request(target=sent.replace(b"%b", MARK)))
    assert target_of(seen[0]) == arrives.replace(b"%b", quote(ODD, safe="").encode())
    one.recorder.wait(ExchangeEnd)
    told = one.recorder.wait(Substituted)
    assert {(r.secret, r.header) for r in told} == {(7, "(request target)")}
    assert len(told) == sent.count(b"%b")
    for spelled in (ODD, quote(ODD, safe="").encode()):
        assert spelled not in everything(one) + ring_bytes(one)
    assert MARK in one.recorder.of(RequestHead)[0].raw


@pytest.mark.parametrize(
    "sent",
    [b"/%b?key=1", b"/?Key=%b", b"/?%b", b"/?key%b=1", b"/?other=%b", b"/?k%65y=%b", b"/x#key=%b"],
)
def test_case_52_not_in_other_parts_of_the_target(rig: Callable[..., Rig], sent: bytes):
    seen: list[bytes] = []
    one = rig(scripted(OK, seen=seen), bindings=bound())
    exchange(one, request(target=sent.replace(b"%b", MARK)))
    assert REAL not in b"".join(seen)
    assert "placeholder_elsewhere" in [r.reason for r in one.recorder.wait(Refused)]
    assert not one.recorder.of(Substituted)


def test_query_parameter_of_another_method(rig: Callable[..., Rig]):
    seen: list[bytes] = []
    one = rig(scripted(OK, seen=seen), bindings=bound(methods=("GET",)))
    exchange(one, request(target=b"/?key=" + MARK))  # POST
    assert REAL not in seen[0]
    assert one.recorder.wait(Refused)[0].reason == "placeholder_elsewhere"


def test_query_parameter_to_the_wrong_host(rig: Callable[..., Rig]):
    one = rig(scripted(OK), bindings=bound())
    head = exchange(one, request(target=b"/?key=" + MARK, host=OTHER), OTHER)
    assert head.startswith(b"HTTP/1.1 403")
    assert one.recorder.wait(Refused)[0].reason == "credential_wrong_host"


def basic(user: bytes, password: bytes) -> bytes:
    return base64.b64encode(user + b":" + password)


@pytest.mark.parametrize("pair", [(b"me", MARK), (MARK, b""), (MARK, MARK), (b"", MARK + b"!")])
def test_case_52_basic_authorization(rig: Callable[..., Rig], pair: tuple[bytes, bytes]):
    seen: list[bytes] = []
    one = rig(scripted(OK, seen=seen), bindings=bound())
    exchange(one, request(b"Authorization: basic " + basic(*pair)))
    user, password = (part.replace(MARK, REAL) for part in pair)
    assert b"Authorization: basic " + basic(user, password) + b"\r\n" in seen[0]
    one.recorder.wait(ExchangeEnd)
    assert {(r.secret, r.header) for r in one.recorder.of(Substituted)} == {(7, "authorization")}
    assert basic(user, password) not in everything(one) + ring_bytes(one)
    assert REAL not in everything(one) + ring_bytes(one)


@pytest.mark.parametrize(
    "value",
    [
        b"Basic " + basic(b"me", MARK)[:-1] + b"!",
        b"Basic " + basic(b"me", MARK) + b" x",
        b"Bearer " + basic(b"me", MARK),
        b"Basic" + basic(b"me", MARK),
    ],
)
def test_base64_that_is_none_stays(rig: Callable[..., Rig], value: bytes):
    seen: list[bytes] = []
    one = rig(scripted(OK, seen=seen), bindings=bound())
    exchange(one, request(b"Authorization: " + value))
    assert value in seen[0]
    assert not one.recorder.of(Substituted)


@pytest.mark.parametrize(
    ("field", "host", "reason"),
    [
        (b"Proxy-Auth: ", HOST, "placeholder_elsewhere"),
        (b"Authorization: ", OTHER, "credential_wrong_host"),
    ],
)
def test_basic_in_the_wrong_place(rig: Callable[..., Rig], field: bytes, host: str, reason: str):
    seen: list[bytes] = []
    one = rig(scripted(OK, seen=seen), bindings=bound())
    exchange(one, request(field + b"Basic " + basic(b"me", MARK), host=host), host)
    assert one.recorder.wait(Refused)[0].reason == reason
    assert basic(b"me", REAL) not in b"".join(seen)


@pytest.mark.parametrize("user", [b"", b"m", b"me", b"you"])
@pytest.mark.parametrize("same", [True, False])
def test_case_54_basic_reflected(rig: Callable[..., Rig], user: bytes, same: bool):
    """Servers that echo their request's fields echo the base64: headers, body and split chunks."""
    real = REAL[: len(MARK)].ljust(len(MARK), b"z") if same else REAL

    def serve(sock: socket.socket) -> None:
        head, _ = read_head(sock)
        sent = head.split(b"Basic ")[1].split(b"\r\n")[0]
        sock.sendall(
            b"HTTP/1.1 401 No\r\nX-Echo: " + sent + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        for byte in b"you sent " + sent + b" and " + real:
            sock.sendall(b"1\r\n%c\r\n" % byte)
        sock.sendall(b"0\r\n\r\n")
        sock.recv(1)

    one = rig(serve, bindings=bound(real=real))
    connection = http.client.HTTPSConnection(HOST)
    connection.sock = one.tls()
    placeholder = basic(user, MARK).decode()
    connection.request("GET", "/", headers={"Authorization": f"Basic {placeholder}"})
    answer = connection.getresponse()
    body = answer.read()
    echoed = answer.getheader("x-echo") or ""
    for text in (body, echoed.encode(), everything(one), ring_bytes(one)):
        assert real not in text
        assert basic(user, real)[4:-4] not in text
    assert MARK in body
    if same:  # all but the digits that mix its first and last bits with what stands beside them
        assert MARK[1:-1] in base64.b64decode(echoed)
        assert len(body) == len(b"you sent  and ") + len(placeholder) + len(MARK)
    assert "reflected" in [r.reason for r in one.recorder.wait(Refused)]


def test_case_54_query_reflected_in_a_redirect(rig: Callable[..., Rig]):
    spelled = quote(ODD, safe="").encode()
    answer = (
        b"HTTP/1.1 302 Found\r\nLocation: https://x.example/?key=" + spelled + b"\r\n"
        b"Set-Cookie: k=" + ODD + b"\r\nContent-Length: 2\r\n\r\nok"
    )
    one = rig(scripted(answer), bindings=bound(real=ODD))
    head = exchange(one, request(target=b"/?key=" + MARK))
    assert b"Location: https://x.example/?key=" + MARK in head
    assert b"Set-Cookie: k=" + MARK in head
    assert one.recorder.wait(ResponseHead)[0].raw == head
