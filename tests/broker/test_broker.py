"""The broker as a process: what it dials, what it refuses, and who must know before.

The witness of a refusal is a listener that saw no connection; the same listener, dialled under a
policy that allows it, is the positive control.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from processes import UID, WAIT_S, BrokerProcess, Listener

from hark import limits
from hark.mediator.lookup import Resolved
from hark.policy.control import DialStatus, MsgType, PeerClosed, Plain
from hark.policy.model import Redirect

if TYPE_CHECKING:
    from collections.abc import Callable

    Start = Callable[..., BrokerProcess]

pytestmark = pytest.mark.kernel

LOOPBACK = bytes((127, 0, 0, 1))


def table(name: str, port: int, *, private: bool = False) -> str:
    return f'[[host]]\nname = "{name}"\nports = [{port}]\nprivate = {str(private).lower()}\n'


def test_a_dial_is_recorded_before_it_happens(start: Start, listener: Listener) -> None:
    redirect = Redirect(host="api.example", address=LOOPBACK, port=listener.port)
    run = start('allow_hosts = ["api.example"]', (redirect,))
    run.ask("api.example", 443, ident=9, conn=5)
    intent, ident = run.intent()
    assert (intent.conn, intent.host, intent.port) == (5, 0, listener.port)
    assert intent.addr[:4] == LOOPBACK
    assert run.mediator.recv(0.2) is None
    assert listener.connections() == 0
    run.recorded(ident)
    dialed, got = run.dialed()
    assert (dialed.status, got.ident, dialed.family) == (DialStatus.OK, 9, socket.AF_INET)
    result, result_ident = run.result()
    assert (result.status, result.conn, result_ident) == (DialStatus.OK, 5, ident)
    with socket.socket(fileno=got.fds[0]) as client, listener.accept() as server:
        assert not os.get_blocking(client.fileno())  # as the mediator needs it
        server.sendall(b"hello")
        client.settimeout(WAIT_S)
        assert client.recv(5) == b"hello"


def test_without_word_from_the_recorder_nothing_is_dialled(
    start: Start, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BROKER_RECORD_NS", 50_000_000)
    redirect = Redirect(host="api.example", address=LOOPBACK, port=listener.port)
    run = start('allow_hosts = ["api.example"]', (redirect,))
    run.ask("api.example", 443)
    _, ident = run.intent()
    assert run.dialed()[0].status == DialStatus.UNRECORDED
    assert run.result()[0].status == DialStatus.UNRECORDED
    run.recorded(ident)  # too late: it must not connect now
    run.ask("api.example", 443, ident=2)
    _, ident = run.intent()
    assert listener.connections() == 0
    run.recorded(ident)
    assert run.dialed()[0].status == DialStatus.OK
    assert listener.connections() == 1


@pytest.mark.parametrize(("row", "port"), [(1, 443), (0xFFFFFFFF, 443), (0, 80), (0, 0)])
def test_what_is_not_in_the_table_is_denied(
    start: Start, listener: Listener, row: int, port: int
) -> None:
    redirect = Redirect(host="api.example", address=LOOPBACK, port=listener.port)
    run = start('allow_hosts = ["api.example"]', (redirect,))
    run.ask(row, port, ident=3)
    result, ident = run.result()
    assert (result.status, result.host, result.port, ident) == (DialStatus.DENIED, row, port, 0)
    dialed, got = run.dialed()
    assert (dialed.status, dialed.err, got.ident) == (DialStatus.DENIED, errno.EACCES, 3)
    assert listener.connections() == 0


def test_a_name_on_loopback_is_refused_unless_private(start: Start, listener: Listener) -> None:
    refused = start(table("localhost", listener.port))
    refused.ask("localhost", listener.port)
    result, _ = refused.result()
    assert result.status == DialStatus.PRIVATE
    assert result.addr != bytes(16)
    assert refused.dialed()[0].status == DialStatus.PRIVATE
    assert listener.connections() == 0
    allowed = start(table("localhost", listener.port, private=True))
    allowed.ask("localhost", listener.port)
    while True:  # the host's own resolver may name ::1 first, where nobody listens
        event, ident = allowed.event()
        if event.kind is MsgType.DIAL_INTENT:
            allowed.recorded(ident)
        elif event.status == DialStatus.OK:
            break
    assert allowed.dialed()[0].status == DialStatus.OK
    assert listener.connections() == 1


@pytest.mark.parametrize("address", ["169.254.169.254", "::ffff:169.254.169.254", "fe80::1"])
def test_metadata_is_refused_even_when_private(start: Start, address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    raw = socket.inet_pton(family, address)
    run = start(table("a.example", 80, private=True), resolve=lambda n: Resolved(n, (raw,)))
    run.ask("a.example", 80)
    assert run.result()[0].status == DialStatus.PRIVATE
    assert run.dialed()[0].status == DialStatus.PRIVATE


def test_only_the_good_addresses_of_a_name_are_tried(start: Start, listener: Listener) -> None:
    found = (bytes((169, 254, 169, 254)), LOOPBACK, bytes(4))
    run = start(
        table("a.example", listener.port, private=True), resolve=lambda n: Resolved(n, found)
    )
    run.ask("a.example", listener.port)
    intent, ident = run.intent()
    assert intent.addr[:4] == LOOPBACK
    run.recorded(ident)
    assert run.dialed()[0].status == DialStatus.OK
    assert run.result()[0].status == DialStatus.OK


def test_a_refused_address_leads_to_the_next(start: Start, listener: Listener) -> None:
    found = (bytes((127, 0, 0, 9)), LOOPBACK)
    run = start(
        table("a.example", listener.port, private=True), resolve=lambda n: Resolved(n, found)
    )
    run.ask("a.example", listener.port)
    _, first = run.intent()
    run.recorded(first)
    result, ident = run.result()
    assert (ident, result.status, result.err) == (first, DialStatus.CONNECT, errno.ECONNREFUSED)
    _, second = run.intent()
    run.recorded(second)
    assert run.dialed()[0].status == DialStatus.OK


def test_when_every_address_fails_the_last_error_is_told(start: Start, listener: Listener) -> None:
    found = (bytes((127, 0, 0, 9)), bytes((127, 0, 0, 10)))
    run = start(
        table("a.example", listener.port, private=True), resolve=lambda n: Resolved(n, found)
    )
    run.ask("a.example", listener.port)
    for _ in found:
        _, ident = run.intent()
        run.recorded(ident)
        assert run.result()[0].status == DialStatus.CONNECT
    dialed, _ = run.dialed()
    assert (dialed.status, dialed.err) == (DialStatus.CONNECT, errno.ECONNREFUSED)


def test_a_silent_address_does_not_hold_up_the_next(start: Start, listener: Listener) -> None:
    silent = Listener("127.0.0.3", listener.port, backlog=0)
    fill = [socket.socket() for _ in range(2)]
    for sock in fill:  # the queue is full: further SYNs get no answer
        sock.setblocking(False)
        sock.connect_ex(("127.0.0.3", listener.port))
    found = (bytes((127, 0, 0, 3)), LOOPBACK)
    run = start(
        table("a.example", listener.port, private=True), resolve=lambda n: Resolved(n, found)
    )
    run.ask("a.example", listener.port)
    _, first = run.intent()
    run.recorded(first)
    intent, second = run.intent()
    assert intent.addr[:4] == LOOPBACK
    run.recorded(second)
    assert run.dialed()[0].addr[:4] == LOOPBACK
    ends = {ident: (result.status, result.err) for result, ident in (run.result(), run.result())}
    assert ends == {
        second: (DialStatus.OK, 0),
        first: (DialStatus.CONNECT, errno.ECANCELED),
    }
    for sock in (*fill, silent):
        sock.close()


def test_a_dial_has_a_deadline(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BROKER_DIAL_NS", 300_000_000)
    silent = Listener("127.0.0.4", 0, backlog=0)
    fill = [socket.socket() for _ in range(2)]
    for sock in fill:
        sock.setblocking(False)
        sock.connect_ex(("127.0.0.4", silent.port))
    redirect = Redirect(host="a.example", address=bytes((127, 0, 0, 4)), port=silent.port)
    run = start('allow_hosts = ["a.example"]', (redirect,))
    run.ask("a.example", 443)
    run.recorded(run.intent()[1])
    assert run.dialed()[0].status == DialStatus.TIMEOUT
    assert run.result()[0].status == DialStatus.TIMEOUT
    for sock in (*fill, silent):
        sock.close()


def test_a_slow_name_holds_up_no_other(
    start: Start, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang, release = os.pipe()

    def resolve(name: str) -> Resolved:
        if name == "slow.example":
            os.read(hang_in_child[0], 1)
        return Resolved(name, (LOOPBACK,))

    hang_in_child = [hang]
    monkeypatch.setattr(
        "hark.policy.privileges.close_all_but", keep_also(hang, "hark.policy.privileges")
    )
    text = "".join(
        table(name, listener.port, private=True) for name in ("slow.example", "z.example")
    )
    run = start(text, resolve=resolve)
    for ident in range(1, 4):
        run.ask("slow.example", listener.port, ident=ident)
    run.ask("z.example", listener.port, ident=4)
    run.recorded(run.intent()[1])
    dialed, got = run.dialed()
    assert (dialed.status, got.ident) == (DialStatus.OK, 4)
    assert run.result()[0].status == DialStatus.OK
    assert len(list(Path(f"/proc/{run.pid}/task").iterdir())) == 2  # one thread for three dials
    os.write(release, b"x")
    for _ in range(3):
        run.recorded(run.intent()[1])
    answers = [run.dialed()[1] for _ in range(3)]
    assert sorted(got.ident for got in answers) == [1, 2, 3]
    os.close(hang)
    os.close(release)


def keep_also(fd: int, module: str) -> Callable[[list[int]], None]:
    """Return close_all_but with one more descriptor, for a resolver that waits on it."""
    import importlib  # noqa: PLC0415

    real = importlib.import_module(module).close_all_but
    return lambda keep: real([*keep, fd])


def test_a_name_that_does_not_exist(start: Start) -> None:
    run = start('allow_hosts = ["a.example"]', resolve=lambda n: Resolved(n, (), errno.ENOENT))
    run.ask("a.example", 443)
    assert run.result()[0].err == errno.ENOENT
    dialed, _ = run.dialed()
    assert (dialed.status, dialed.err) == (DialStatus.RESOLVE, errno.ENOENT)


def test_a_resolver_that_raises_is_a_failed_look_up(start: Start) -> None:
    def resolve(name: str) -> Resolved:
        raise ValueError(name)

    run = start('allow_hosts = ["a.example"]', resolve=resolve)
    run.ask("a.example", 443)
    assert run.result()[0].status == DialStatus.RESOLVE
    assert run.dialed()[0].status == DialStatus.RESOLVE


def test_many_dials_at_once(start: Start, listener: Listener) -> None:
    redirect = Redirect(host="a.example", address=LOOPBACK, port=listener.port)
    run = start('allow_hosts = ["a.example"]', (redirect,))
    for ident in range(16):
        run.ask("a.example", 443, ident=ident)
    for ident in [run.intent()[1] for _ in range(16)]:
        run.recorded(ident)
    received = [run.dialed()[1] for _ in range(16)]
    assert sorted(got.ident for got in received) == list(range(16))
    for got in received:
        got.close()
    assert listener.connections() == 16
    for _ in range(16):
        assert run.result()[0].status == DialStatus.OK


def test_too_many_dials_are_turned_down(
    start: Start, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BROKER_DIALS_MOST", 2)
    redirect = Redirect(host="a.example", address=LOOPBACK, port=listener.port)
    run = start('allow_hosts = ["a.example"]', (redirect,))
    idents = []
    for ident in range(2):
        run.ask("a.example", 443, ident=ident)
        idents.append(run.intent()[1])
    run.ask("a.example", 443, ident=2)
    assert run.result()[0].err == errno.EAGAIN
    dialed, got = run.dialed()
    assert (dialed.err, got.ident) == (errno.EAGAIN, 2)
    for ident in idents:
        run.recorded(ident)
    assert {run.dialed()[1].ident for _ in idents} == {0, 1}


def test_the_process_is_nobody_and_holds_nothing(start: Start) -> None:
    with Path("/etc/shadow").open("rb"):  # an open file of the parent that must not come along
        run = start('allow_hosts = ["a.example"]')
    status = Path(f"/proc/{run.pid}/status").read_text()
    assert "Name:\thark-broker\n" in status
    assert f"Uid:\t{UID}\t{UID}\t{UID}\t{UID}\n" in status
    assert "CapEff:\t0000000000000000\n" in status
    assert "NoNewPrivs:\t1\n" in status
    links = [str(e.readlink()) for e in Path(f"/proc/{run.pid}/fd").iterdir()]
    assert sorted(link.split(":[")[0] for link in links) == [
        "/dev/null",
        "/dev/null",
        "/dev/null",
        "anon_inode",
        "anon_inode",
        "socket",
        "socket",
    ]
    assert os.getpgid(run.pid) == run.pid


@pytest.mark.parametrize("peer", ["recorder", "mediator"])
def test_the_end_of_a_peer_is_its_end(start: Start, listener: Listener, peer: str) -> None:
    redirect = Redirect(host="a.example", address=LOOPBACK, port=listener.port)
    run = start('allow_hosts = ["a.example"]', (redirect,))
    run.ask("a.example", 443)
    run.intent()
    getattr(run, peer).close()
    assert run.wait() == 0
    assert listener.connections() == 0


def test_when_it_is_killed_both_peers_know(start: Start) -> None:
    run = start('allow_hosts = ["a.example"]')
    os.kill(run.pid, signal.SIGKILL)
    for channel in (run.recorder, run.mediator):
        with pytest.raises(PeerClosed):
            channel.recv(WAIT_S)
    assert run.wait() == -signal.SIGKILL


@pytest.mark.parametrize("peer", ["recorder", "mediator"])
@pytest.mark.parametrize("junk", [b"x", bytes(16), bytes(4000)])
def test_a_peer_that_breaks_the_protocol_ends_it(start: Start, peer: str, junk: bytes) -> None:
    run = start('allow_hosts = ["a.example"]')
    getattr(run, peer).sock.send(junk)
    assert run.wait() == 125


@pytest.mark.parametrize("peer", ["recorder", "mediator"])
def test_a_message_that_is_not_for_it_ends_it(start: Start, peer: str) -> None:
    run = start('allow_hosts = ["a.example"]')
    getattr(run, peer).send(Plain(MsgType.GO))
    assert run.wait() == 125


def test_word_about_an_unknown_intent_is_ignored(start: Start, listener: Listener) -> None:
    redirect = Redirect(host="a.example", address=LOOPBACK, port=listener.port)
    run = start('allow_hosts = ["a.example"]', (redirect,))
    run.recorded(12345)
    run.ask("a.example", 443)
    run.recorded(run.intent()[1])
    assert run.dialed()[0].status == DialStatus.OK
