"""The way out through a proxy: a real proxy process tunnels, refuses, or says nonsense.

The witnesses are the proxy's own log and a listener behind it. The control of each refusal is the
same dial through a proxy that opens the tunnel, and of each detour the same name in `no_proxy`.
"""

from __future__ import annotations

import base64
import errno
import os
import socket
import threading
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import WAIT_S, BrokerProcess, Listener

from hark import limits
from hark.mediator.lookup import Resolved
from hark.mediator.proxy import Answer, Verdict, connect_request
from hark.policy.control import DialStatus
from hark.policy.model import Redirect

if TYPE_CHECKING:
    from collections.abc import Callable

    Start = Callable[..., BrokerProcess]

LOOPBACK = bytes((127, 0, 0, 1))
AUTH = b"corp user:p\xc3\xa4ss:word"


class Proxy:
    """A CONNECT proxy on loopback. ``answer`` None: it tunnels to ``behind``, whoever is asked for.

    Else it answers with these bytes, and closes when ``close`` is set.
    """

    def __init__(self, behind: int = 0, answer: bytes | None = None, *, close: bool = True) -> None:
        self.heads: list[bytes] = []
        self._behind = behind
        self._answer = answer
        self._close = close
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(
                    target=self._serve, args=(self._listener.accept()[0],), daemon=True
                ).start()

    def _serve(self, client: socket.socket) -> None:
        client.settimeout(WAIT_S)
        head = b""
        with suppress(OSError):
            while b"\r\n\r\n" not in head and (more := client.recv(65536)):
                head += more
            self.heads.append(head)
            if self._answer is None:
                self._tunnel(client)
            else:
                client.sendall(self._answer)
        if self._close:
            client.close()
        else:
            self._open.append(client)

    def _tunnel(self, client: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", self._behind)) as server:
            client.sendall(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n")
            back = threading.Thread(target=pump, args=(server, client), daemon=True)
            back.start()
            pump(client, server)
            back.join(WAIT_S)

    def close(self) -> None:
        self._listener.close()
        for sock in self._open:
            sock.close()


def pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def policy(port: int, *more: str, host: str = "127.0.0.1") -> str:
    lines = [
        'allow_hosts = ["api.example"]',
        "[upstream]",
        f'proxy = "http://{host}:{port}"',
        *more,
    ]
    return "\n".join(lines)


def dial(run: BrokerProcess) -> tuple[DialStatus, int]:
    """Have api.example dialled to the end; return what the mediator is told."""
    run.ask("api.example", 443)
    intent, ident = run.intent()
    assert intent.proxied == 1
    run.recorded(ident)
    result, _ = run.result()
    assert result.proxied == 1
    dialed, got = run.dialed()
    got.close()
    assert (result.status, result.err) == (dialed.status, dialed.err)
    return DialStatus(dialed.status), dialed.err


@pytest.mark.kernel
def test_a_tunnel_carries_bytes_to_the_host(start: Start, listener: Listener) -> None:
    proxy = Proxy(listener.port)
    run = start(policy(proxy.port, 'auth = "X"'), proxy_auth=AUTH)
    run.ask("api.example", 443, ident=9, conn=5)
    intent, ident = run.intent()
    assert (intent.addr[:4], intent.port, intent.proxied) == (LOOPBACK, proxy.port, 1)
    assert run.mediator.recv(0.2) is None
    assert not proxy.heads
    run.recorded(ident)
    dialed, got = run.dialed()
    assert (dialed.status, got.ident, dialed.port) == (DialStatus.OK, 9, proxy.port)
    assert run.result()[0].status == DialStatus.OK
    credentials = base64.b64encode(AUTH).decode()
    assert proxy.heads == [
        b"CONNECT api.example:443 HTTP/1.1\r\nHost: api.example:443\r\n"
        + f"Proxy-Authorization: Basic {credentials}\r\n\r\n".encode()
    ]
    with socket.socket(fileno=got.fds[0]) as client, listener.accept() as server:
        assert not os.get_blocking(client.fileno())
        client.send(b"ping")
        server.settimeout(WAIT_S)
        assert server.recv(4) == b"ping"
        server.sendall(b"pong")
        client.settimeout(WAIT_S)
        assert client.recv(4) == b"pong"
    proxy.close()


@pytest.mark.kernel
def test_the_name_is_the_proxys_to_resolve(start: Start, listener: Listener) -> None:
    def resolve(name: str) -> Resolved:
        return Resolved(name, (LOOPBACK,) if name == "proxy.example" else (), errno.ENOENT)

    proxy = Proxy(listener.port)
    run = start(policy(proxy.port, host="proxy.example"), resolve=resolve)
    assert dial(run) == (DialStatus.OK, 0)
    assert b"CONNECT api.example:443 " in proxy.heads[0]
    proxy.close()


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("answer", "status", "code"),
    [
        (b"HTTP/1.1 407 no\r\nProxy-Authenticate: Basic\r\n\r\n", DialStatus.PROXY_AUTH, 407),
        (b"HTTP/1.1 403 no\r\n\r\n<html>", DialStatus.PROXY_REFUSED, 403),
        (b"HTTP/1.1 405 no\r\n\r\n", DialStatus.PROXY_REFUSED, 405),
        (b"HTTP/1.0 502 no\r\n\r\n", DialStatus.PROXY_FAILED, 502),
        (b"HTTP/1.1 504 no\r\n\r\n", DialStatus.PROXY_FAILED, 504),
        (b"HTTP/1.1 302 go\r\nLocation: http://x/\r\n\r\n", DialStatus.PROXY_BROKEN, 302),
        (b"HTTP/1.1 101 up\r\n\r\n", DialStatus.PROXY_BROKEN, 101),
        (b"HTTP/1.1 200 ok\r\n\r\nmore", DialStatus.PROXY_BROKEN, 200),
        (b"HTTP/1.1 200 ok\r\n", DialStatus.PROXY_BROKEN, 0),
        (b"SSH-2.0-x\r\n", DialStatus.PROXY_BROKEN, 0),
        (b"", DialStatus.PROXY_BROKEN, 0),
        (b"HTTP/1.1 200 ok\r\nx: " + b"y" * 20000, DialStatus.PROXY_BROKEN, 0),
    ],
)
def test_answers_that_open_nothing(
    start: Start, answer: bytes, status: DialStatus, code: int
) -> None:
    proxy = Proxy(answer=answer)
    assert dial(start(policy(proxy.port))) == (status, code)
    proxy.close()


@pytest.mark.kernel
def test_a_proxy_that_is_not_there(start: Start, listener: Listener) -> None:
    port = listener.port
    listener.close()
    assert dial(start(policy(port))) == (DialStatus.PROXY_UNREACHABLE, errno.ECONNREFUSED)


@pytest.mark.kernel
@pytest.mark.parametrize("found", [(), (bytes((169, 254, 169, 254)),)])
def test_a_proxy_that_has_no_address(start: Start, found: tuple[bytes, ...]) -> None:
    run = start(policy(3128, host="proxy.example"), resolve=lambda n: Resolved(n, found))
    run.ask("api.example", 443)
    assert run.result()[0].status == DialStatus.PROXY_UNREACHABLE
    assert run.dialed()[0].status == DialStatus.PROXY_UNREACHABLE


@pytest.mark.kernel
def test_a_proxy_that_is_silent(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BROKER_DIAL_NS", 300_000_000)
    proxy = Proxy(answer=b"HTTP/1.1 2", close=False)
    assert dial(start(policy(proxy.port))) == (DialStatus.TIMEOUT, errno.ETIMEDOUT)
    proxy.close()


@pytest.mark.kernel
@pytest.mark.parametrize("entry", ["api.example", ".example"])
def test_a_name_of_no_proxy_is_dialled_directly(
    start: Start, listener: Listener, entry: str
) -> None:
    proxy = Proxy(listener.port)
    text = policy(proxy.port, f'no_proxy = ["{entry}"]').replace(
        'allow_hosts = ["api.example"]\n', ""
    )
    table = f'\n[[host]]\nname = "api.example"\nports = [{listener.port}]\nprivate = true\n'
    run = start(text + table, resolve=lambda n: Resolved(n, (LOOPBACK,)))
    run.ask("api.example", listener.port)
    intent, ident = run.intent()
    assert (intent.port, intent.proxied) == (listener.port, 0)
    run.recorded(ident)
    assert run.dialed()[0].status == DialStatus.OK
    assert listener.connections() == 1
    assert not proxy.heads
    proxy.close()


@pytest.mark.kernel
def test_a_redirect_and_a_forward_take_no_detour(start: Start, listener: Listener) -> None:
    proxy = Proxy(listener.port)
    text = policy(proxy.port) + f'\n[forward.db]\nto = "127.0.0.1:{listener.port}"\nport = 5432\n'
    redirect = Redirect(host="api.example", address=LOOPBACK, port=listener.port)
    run = start(text, (redirect,))
    for host, port in (("api.example", 443), ("db.hark.internal", 5432)):
        run.ask(host, port)
        intent, ident = run.intent()
        assert (intent.addr[:4], intent.port, intent.proxied) == (LOOPBACK, listener.port, 0)
        run.recorded(ident)
        assert run.dialed()[0].status == DialStatus.OK
        assert run.result()[0].status == DialStatus.OK
    assert listener.connections() == 2
    assert not proxy.heads
    proxy.close()


@pytest.mark.kernel
def test_a_forward_has_one_port(start: Start, listener: Listener) -> None:
    other = Listener()
    run = start(f'[forward.db]\nto = "127.0.0.1:{listener.port}"\nport = 5432\n')
    for port in (listener.port, other.port, 22):
        run.ask("db.hark.internal", port)
        assert run.result()[0].status == DialStatus.DENIED
        assert run.dialed()[0].status == DialStatus.DENIED
    assert (listener.connections(), other.connections()) == (0, 0)
    run.ask("db.hark.internal", 5432)  # the control
    run.recorded(run.intent()[1])
    assert run.dialed()[0].status == DialStatus.OK
    other.close()


@pytest.mark.kernel
def test_nobody_reads_the_password_from_the_process(start: Start, listener: Listener) -> None:
    proxy = Proxy(listener.port)
    run = start(policy(proxy.port, 'auth = "X"'), proxy_auth=AUTH)
    assert dial(run) == (DialStatus.OK, 0)  # it is there to be found
    for name in ("cmdline", "environ", "comm", "status"):
        assert b"p\xc3\xa4ss:word" not in Path(f"/proc/{run.pid}/{name}").read_bytes()
    child = os.fork()
    if child == 0:  # another user of the machine
        os.setresuid(65534, 65534, 65534)
        readable = [n for n in ("environ", "mem", "maps") if opens(f"/proc/{run.pid}/{n}")]
        os._exit(len(readable))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    proxy.close()


def opens(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError:
        return False
    return True


# --- the answer, byte by byte ---------------------------------------------------------------------


def verdict(*pieces: bytes) -> Verdict | None:
    answer = Answer()
    for piece in pieces:
        if (said := answer.feed(piece)) is not None:
            return said
    return answer.feed(b"")


GOOD = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nVia: 1.1 x\r\n\r\n"


@given(st.lists(st.integers(1, len(GOOD) - 1), max_size=8))
def test_however_an_answer_is_cut_it_means_the_same(cuts: list[int]) -> None:
    at = sorted({0, *cuts, len(GOOD)})
    pieces = [GOOD[a:b] for a, b in pairwise(at)]
    assert verdict(*pieces) == Verdict(DialStatus.OK, 200)


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_any_bytes_give_a_verdict_and_never_a_tunnel(data: bytes) -> None:
    said = verdict(data)
    assert said is not None
    assert said.status is not DialStatus.OK or data.startswith(b"HTTP/1.")
    bytewise = verdict(*(data[i : i + 1] for i in range(len(data))))
    assert bytewise is not None
    assert bytewise.status is not DialStatus.OK or data.startswith(b"HTTP/1.")


def test_only_so_many_interim_answers() -> None:
    interim = b"HTTP/1.1 100 x\r\n\r\n"
    end = b"HTTP/1.1 200 x\r\n\r\n"
    most = limits.PROXY_INTERIM_MOST
    assert verdict(interim * most + end) == Verdict(DialStatus.OK, 200)
    assert verdict(interim * (most + 1) + end) == Verdict(DialStatus.PROXY_BROKEN, 100)


def test_what_is_no_http_is_not_waited_for() -> None:
    assert Answer().feed(b"HTT") is None
    assert Answer().feed(b"\x15\x03\x01") == Verdict(DialStatus.PROXY_BROKEN)


def test_the_request_without_credentials() -> None:
    assert connect_request("a.example", 80, b"") == (
        b"CONNECT a.example:80 HTTP/1.1\r\nHost: a.example:80\r\n\r\n"
    )
