"""The run's resolver by TCP: the same answers, and nothing that a client does keeps it busy."""

from __future__ import annotations

import os
import signal
import socket
import sys
from typing import TYPE_CHECKING

import pytest
from processes import BrokerProcess
from test_resolver import POLICY, Inside, question, serve

from hark import limits
from hark.mediator.dns import Rule
from hark.policy.control import MsgType, Plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.kernel

CLIENT = """
import socket, sys
from dnslib import DNSRecord
def ask(*names):
    return b"".join(
        len(q).to_bytes(2, "big") + q for q in (DNSRecord.question(n).pack() for n in names)
    )
def read(sock):
    data = b""
    while len(data) < 2 or len(data) < 2 + int.from_bytes(data[:2], "big"):
        more = sock.recv(65536)
        if not more:
            return "closed"
        data += more
    said = DNSRecord.parse(data[2:])
    return said.header.rcode, [str(rr.rdata) for rr in said.rr]
def connect():
    sock = socket.create_connection((sys.argv[1], 53))
    sock.settimeout(30)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock
"""


@pytest.fixture(params=["8.8.8.8", "2001:4860:4860::8888"])
def client(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[[str], tuple[str, BrokerProcess, str]]]:
    """Runs clients inside, against one broker; returns the server, the broker and what it said."""
    inside = Inside(tmp_path, request.param)
    made: list[BrokerProcess] = []

    def run(text: str) -> tuple[str, BrokerProcess, str]:
        if not made:
            made.append(BrokerProcess(POLICY))
            serve(made[0], inside.fds)
        script = tmp_path / "client.py"
        script.write_text(CLIENT + text)
        said = inside.run(f"{sys.executable} {script} {request.param}")
        return request.param, made[-1], eval(said).strip()  # noqa: S307 - repr() of our own text

    yield run
    inside.end()
    for process in made:
        process.end()


def test_several_questions_on_one_connection(
    client: Callable[[str], tuple[str, BrokerProcess, str]],
) -> None:
    server, run, said = client(
        "s = connect()\n"
        "for byte in ask('b.example'): s.send(bytes([byte]))\n"
        "print(read(s))\n"
        "s.send(ask('nope.example', 'no_host'))\n"
        "print(read(s)[0], read(s)[0])\n"
    )
    assert said.splitlines()[0] == "(0, ['198.18.0.2'])"
    assert said.splitlines()[1] == "0 3"
    told = [question(run) for _ in range(3)]
    assert [(t.qname, t.tcp, t.allowed) for t in told] == [
        ("b.example", 1, 1),
        ("nope.example", 1, 0),
        ("no_host", 1, 0),
    ]
    raw = socket.inet_pton(socket.AF_INET6 if ":" in server else socket.AF_INET, server)
    assert all(t.dst.startswith(raw) for t in told)
    assert run.recorder.recv(0) is None


@pytest.mark.parametrize(
    ("does", "reply"),
    [
        ("pass", None),
        ("s.send(b'\\0')", None),
        ("s.send(ask('b.example')[:-1])", None),
        ("s.send(b'\\xff\\xffGET / HTTP/1.1')", "closed"),
        ("s.send(b'GET / HTTP/1.1\\r\\n\\r\\n')", "closed"),
        ("s.send(b'\\0\\0')", "closed"),
        ("s.send(b'\\0\\x0c' + bytes(12))", "(1, [])"),
    ],
)
def test_what_is_no_question_is_told_and_ends(
    client: Callable[[str], tuple[str, BrokerProcess, str]], does: str, reply: str | None
) -> None:
    more = "print(read(s))" if reply else "print(None)"
    _, run, said = client(f"s = connect()\n{does}\n{more}\ns.close()\n")
    assert said == str(reply)
    told = question(run)
    assert (told.rule, told.tcp, told.qname) == (Rule.MALFORMED, 1, "")
    # The control: the next client is served.
    _, run, said = client("s = connect()\ns.send(ask('b.example'))\nprint(read(s))\n")
    assert said == "(0, ['198.18.0.2'])"
    assert question(run).qname == "b.example"


def test_an_idle_connection_is_closed(
    client: Callable[[str], tuple[str, BrokerProcess, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DNS_STREAM_IDLE_NS", 200_000_000)
    _, run, said = client("print(read(connect()))")
    assert said == "closed"
    assert question(run).rule == Rule.MALFORMED


def test_more_connections_than_are_served(
    client: Callable[[str], tuple[str, BrokerProcess, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DNS_STREAMS_MOST", 2)
    _, run, said = client(
        "a, b = connect(), connect()\n"
        "for s in (a, b): s.send(ask('b.example')); read(s)\n"
        "print(read(connect()))\n"
        "a.send(ask('b.example')); print(read(a))\n"
    )
    assert said.splitlines() == ["closed", "(0, ['198.18.0.2'])"]
    rules = [question(run).rule for _ in range(4)]
    assert rules == [Rule.ALLOWED, Rule.ALLOWED, Rule.RATE, Rule.ALLOWED]


def test_a_flood_on_one_connection_ends_it(
    client: Callable[[str], tuple[str, BrokerProcess, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DNS_BURST", 3)
    monkeypatch.setattr(limits, "DNS_PER_S", 1)
    names = "'b.example'," * 40
    _, run, said = client(f"s = connect()\ns.send(ask({names}))\nwhile read(s) != 'closed': pass\n")
    assert said == ""
    rules = []
    while (got := run.recorder.recv(0)) is not None:
        rules.append(got.msg.rule)
    assert rules[-1] == Rule.RATE
    assert set(rules[:-1]) == {Rule.ALLOWED}
    assert len(rules) < 40


def test_what_is_left_is_answered_before_it_is_drained(
    client: Callable[[str], tuple[str, BrokerProcess, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what one read does not hold, of a client that is gone before anybody read of it."""
    monkeypatch.setattr(limits, "DNS_STREAM_READ_BYTES", 32)
    _, run, _ = client("s = connect()\ns.send(ask('b.example'))\nread(s)\n")
    assert question(run).qname == "b.example"
    os.kill(run.pid, signal.SIGSTOP)
    names = "'b.example'," * 20
    client(f"s = connect()\ns.sendall(ask({names}))\n")
    run.recorder.send(Plain(MsgType.STOP))
    os.kill(run.pid, signal.SIGCONT)
    told = [question(run) for _ in range(20)]
    assert {(t.qname, t.rule) for t in told} == {("b.example", Rule.ALLOWED)}
    got = run.recorder.recv(30)
    assert got is not None
    assert got.msg == Plain(MsgType.DRAINED)
