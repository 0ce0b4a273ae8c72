"""The run's resolver on real UDP sockets, asked by the C library and by hand.

The sockets are made as hark-launch makes them, in a network namespace of the test's own: bound to
port 53, transparent, every address local. The broker itself stays in the host's namespace.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest
from dnslib import QTYPE, DNSRecord
from processes import WAIT_S, BrokerProcess, Listener

from hark import limits
from hark.mediator.resolver import Budget
from hark.policy.control import DialStatus, Dns, MsgType, Plain
from hark.policy.model import Redirect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.kernel

POLICY = 'allow_hosts = ["api.example", "b.example"]'

# Makes the namespaces and the sockets, passes the sockets out, and then runs one command a line.
INSIDE = textwrap.dedent(
    """
    import array, ctypes, os, socket, subprocess, sys
    libc = ctypes.CDLL(None)
    assert libc.unshare(0x40020000) == 0  # CLONE_NEWNET | CLONE_NEWNS
    def run(*command):
        subprocess.run(command, check=True)
    run("mount", "--make-rprivate", "/")
    run("mount", "--bind", sys.argv[2], "/etc/resolv.conf")
    run("mount", "--bind", sys.argv[3], "/etc/nsswitch.conf")
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1")
    run("ip", "addr", "add", "100.64.0.2/30", "dev", "v0")
    run("ip", "addr", "add", "fd00:1::2/126", "dev", "v0", "nodad")
    run("ip", "link", "set", "v0", "up")
    run("ip", "link", "set", "v1", "up")
    run("ip", "route", "add", "local", "0.0.0.0/0", "dev", "lo")
    run("ip", "-6", "route", "add", "local", "::/0", "dev", "lo")
    four = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    four.setsockopt(0, 19, 1)  # IP_TRANSPARENT
    four.bind(("0.0.0.0", 53))
    six = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    six.setsockopt(41, 75, 1)  # IPV6_TRANSPARENT
    six.setsockopt(41, 26, 1)
    six.bind(("::", 53))
    four_tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    six_tcp = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    six_tcp.setsockopt(41, 26, 1)
    for sock, any_address in ((four_tcp, "0.0.0.0"), (six_tcp, "::")):
        sock.setsockopt(1, 2, 1)
        sock.bind((any_address, 53))
        sock.listen(64)
    made = [four, six, four_tcp, six_tcp]
    out = socket.socket(fileno=int(sys.argv[1]))
    out.sendmsg([b"x"], [(1, 1, array.array("i", [sock.fileno() for sock in made]))])
    for sock in made:
        sock.close()
    for line in sys.stdin:
        done = subprocess.run(line, shell=True, capture_output=True)
        print(repr(done.stdout.decode() + done.stderr.decode()), flush=True)
    """
)


class Inside:
    """A shell in a network namespace whose port 53 the broker serves."""

    def __init__(self, tmp: Path, server: str) -> None:
        resolv, nsswitch = tmp / "resolv.conf", tmp / "nsswitch.conf"
        resolv.write_text(f"nameserver {server}\noptions timeout:5 attempts:1\n")
        nsswitch.write_text("hosts: files dns\n")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.process = subprocess.Popen(
            [sys.executable, "-c", INSIDE, str(theirs.fileno()), str(resolv), str(nsswitch)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            text=True,
        )
        theirs.close()
        ours.settimeout(WAIT_S)
        _, ancillary, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(16))
        ours.close()
        self.fds = struct.unpack("=4i", ancillary[0][2])

    def run(self, command: str) -> str:
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def end(self) -> None:
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(WAIT_S)


@pytest.fixture(params=["8.8.8.8", "2001:4860:4860::8888"])
def asked(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Inside]]:
    inside = Inside(tmp_path, request.param)
    yield request.param, inside
    inside.end()


def serve(run: BrokerProcess, fds: tuple[int, ...]) -> None:
    run.recorder.send(Plain(MsgType.RESOLVE_SOCKETS), fds=fds)
    for fd in fds:
        os.close(fd)


def question(run: BrokerProcess) -> Dns:
    got = run.recorder.recv(WAIT_S)
    assert got is not None
    assert isinstance(got.msg, Dns)
    return got.msg


def test_the_c_library_is_answered_from_the_address_it_asked(asked: tuple[str, Inside]) -> None:
    server, inside = asked
    run = BrokerProcess(POLICY)
    serve(run, inside.fds)
    said = inside.run("getent ahostsv4 b.example; getent ahostsv6 b.example")
    assert "198.18.0.2" in said
    assert "fd68:6172:6b00:1::2" in said
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    for _ in range(2):
        seen = question(run)
        size = 16 if family == socket.AF_INET6 else 4
        assert socket.inet_ntop(family, seen.dst[:size]) == server
        assert (seen.qname, seen.allowed, seen.rule) == ("b.example", 1, "host-table")
        assert (seen.answers, seen.family) == (1, family)
    assert run.end() == 0


def test_denied_and_impossible_names(asked: tuple[str, Inside]) -> None:
    _, inside = asked
    run = BrokerProcess(POLICY)
    serve(run, inside.fds)
    assert "198.19." in inside.run("getent ahostsv4 evil.example")
    seen = question(run)
    assert (seen.qname, seen.allowed, seen.rule, seen.qtype) == (
        "evil.example",
        0,
        "not-in-policy",
        QTYPE.A,
    )
    assert "198.1" not in inside.run("getent ahostsv4 not_a_host.example")
    assert question(run).rule == "invalid-name"
    assert run.end() == 0


@pytest.fixture
def pair() -> Iterator[tuple[BrokerProcess, socket.socket]]:
    """A broker on a loopback UDP socket, and a client connected to it."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.connect(server.getsockname())
    client.settimeout(WAIT_S)
    run = BrokerProcess(POLICY)
    serve(run, (server.detach(),))
    yield run, client
    client.close()
    run.end()


def ask(client: socket.socket, name: str = "api.example") -> DNSRecord:
    client.send(DNSRecord.question(name).pack())
    return DNSRecord.parse(client.recv(2000))


def test_bytes_that_are_no_question_do_not_stop_it(
    pair: tuple[BrokerProcess, socket.socket],
) -> None:
    run, client = pair
    whole = DNSRecord.question("api.example").pack()
    for cut in range(len(whole)):
        client.send(whole[:cut])
    for junk in (b"\xff" * 100, bytes(5000), b"\0" * 12, os.urandom(300)[:2] + b"\x80" + bytes(99)):
        client.send(junk)
    malformed = 0
    client.send(whole)
    while True:
        seen = question(run)
        if seen.rule == "host-table":
            break
        malformed += 1
        assert seen.rule in ("malformed", "opcode")
    assert malformed == len(whole) - 12 + 2  # \xff bytes are a response
    assert run.end() == 0


def test_a_flood_is_not_answered_but_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    del tmp_path
    monkeypatch.setattr(limits, "DNS_BURST", 20)
    monkeypatch.setattr(limits, "DNS_PER_S", 20)
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.connect(server.getsockname())
    listener = Listener()
    redirect = Redirect(host="api.example", address=bytes((127, 0, 0, 1)), port=listener.port)
    for _ in range(150):  # they wait in the socket's queue
        client.send(DNSRecord.question("api.example").pack())
    run = BrokerProcess(POLICY, (redirect,))
    serve(run, (server.detach(),))
    run.ask("api.example", 443)
    answered, counted = 0, 0
    dialled = False
    while not counted:
        got = run.recorder.recv(WAIT_S)
        assert got is not None
        if got.msg.kind is MsgType.DIAL_INTENT:
            run.recorded(got.ident)
            assert run.dialed()[0].status == DialStatus.OK
            dialled = True
        elif isinstance(got.msg, Dns) and got.msg.rule == "rate-limit":
            counted = int(got.msg.qname.split()[0])
        else:
            answered += 1
    assert dialled
    assert counted >= 100
    assert answered + counted <= 152
    assert run.end() == 0
    client.close()
    listener.close()


def test_the_recorder_knows_before_the_client(pair: tuple[BrokerProcess, socket.socket]) -> None:
    run, client = pair
    assert str(ask(client).rr[0].rdata) == "198.18.0.1"
    got = run.recorder.recv(0)  # no waiting: it is there already
    assert got is not None
    seen = got.msg
    assert isinstance(seen, Dns)
    assert seen.sport == client.getsockname()[1]
    assert seen.src[:4] == bytes((127, 0, 0, 1))
    assert seen.answer[:4] == bytes((198, 18, 0, 1))


def drain(run: BrokerProcess) -> list[Dns]:
    """Say STOP; return what comes before DRAINED."""
    run.recorder.send(Plain(MsgType.STOP))
    seen: list[Dns] = []
    while (got := run.recorder.recv(WAIT_S)) is not None:
        if got.msg == Plain(MsgType.DRAINED):
            return seen
        assert isinstance(got.msg, Dns)
        seen.append(got.msg)
    raise AssertionError("never drained")


def held(count: int) -> tuple[BrokerProcess, socket.socket]:
    """A broker that gets a socket with ``count`` questions in its queue, and the client."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 131_072)
    server.bind(("127.0.0.1", 0))
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.connect(server.getsockname())
    for _ in range(count):
        client.send(DNSRecord.question("api.example").pack())
    run = BrokerProcess(POLICY)
    serve(run, (server.detach(),))
    return run, client


def test_what_the_socket_still_holds_is_answered_before_it_is_drained() -> None:
    run, client = held(150)
    with client:
        seen = drain(run)
        assert len(seen) == 150
        for _ in range(150):
            assert str(DNSRecord.parse(client.recv(2000, socket.MSG_DONTWAIT)).rr[0].rdata)
    assert run.end() == 0


def test_questions_over_the_rate_and_of_a_full_socket_are_counted_when_drained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "DNS_BURST", 20)
    monkeypatch.setattr(limits, "DNS_PER_S", 1)
    run, client = held(5000)  # more than the socket takes
    with client:
        seen = drain(run)
    counted = [int(dns.qname.split()[0]) for dns in seen if dns.rule == "rate-limit"]
    assert len(seen) - len(counted) + sum(counted) == 5000
    assert run.end() == 0


def test_resolver_sockets_are_taken_once(pair: tuple[BrokerProcess, socket.socket]) -> None:
    run, _ = pair
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        run.recorder.send(Plain(MsgType.RESOLVE_SOCKETS), fds=[other.fileno()])
    assert run.wait() == 125


def test_the_token_bucket() -> None:
    budget = Budget(3, 10)
    second = 1_000_000_000
    assert [budget.take(second) for _ in range(4)] == [True, True, True, False]
    due = budget.next_ns()
    assert not budget.take(due - 1)
    assert budget.take(due)
    assert [budget.take(100 * second) for _ in range(4)] == [True, True, True, False]
