"""The merge as transcripts: records in, events out, and who is named."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from hark import limits
from hark.bundle.events import COMMON, FIELDS, Kind
from hark.kernel import records as k
from hark.mediator.reasons import NOTES
from hark.recorder.lineage import Connections, Flows, Processes
from hark.recorder.merge import DialRecorded, Merged, Merger, RingDurable
from hark.recorder.notice import NOTED

from .transcript import (
    AGENT,
    DIGEST,
    EXE,
    MS,
    NAMES,
    SITE,
    Playbook,
    accepted,
    closed,
    connect,
    delivery,
    dial,
    disconnected,
    ended,
    execed,
    forked,
    handshake,
    khead,
    line,
    packet,
    question,
    refused,
    request,
    task,
    udp,
)

if TYPE_CHECKING:
    from random import Random

    import pytest


def test_an_exchange_names_the_thread_that_connected():
    run = Playbook()
    run.at(1, forked(1, 10, 20), execed(2, 20))
    run.merger.digested(EXE, DIGEST, "read")
    run.at(10, connect(3, 20, 4000, tid=21), accepted(4, 1, 4000), handshake(5, 1))
    run.at(11, request(6, 1, 1), delivery(7, 1, b"abc"), ended(8, 1), disconnected(9, 1))
    run.end()
    assert run.lines() == [
        "fork@1 10/10:?",
        "exec@2 20/20:0001",
        "connect@3 20/21:0001",
        "conn@5 20/21:0001",
        "request@6 20/21:0001",
        "delivery@7 20/21:0001",
        "end@8 20/21:0001",
        "conn_close@9 20/21:0001",
    ]
    request_event = run.out[4].payload
    assert request_event[5] == "api.example"
    assert (request_event[6], request_event[7]) == (b"GET", b"/v1")
    assert run.out[3].payload[3] == 4000  # the kernel's cookie


def test_nothing_is_written_before_the_hold_is_over():
    run = Playbook()
    assert run.at(1, connect(1, 20, 4000)) == []
    assert run.merger.next_due_ns() == 21 * MS
    assert run.at(20.9) == []
    assert [line(e) for e in run.at(21)] == ["connect@1 20/20:?"]
    assert run.merger.next_due_ns() is None


def test_streams_are_merged_by_time():
    run = Playbook()
    run.at(5, accepted(4, 1, 4000), handshake(5, 1))
    run.at(6, connect(3, 20, 4000))
    run.at(30)
    assert run.lines() == ["connect@3 20/20:?", "conn@5 20/20:?"]


def test_an_accept_waits_for_its_connect_up_to_the_hold_and_then_is_never_guessed():
    run = Playbook()
    run.at(100, accepted(4, 1, 4000), handshake(5, 1))  # read late: its own time is long over
    assert run.at(119) == []
    assert [line(e) for e in run.at(120)] == ["conn@5 -"]
    run.at(121, connect(3, 20, 4000), request(122, 1, 1))
    run.end()
    assert run.lines() == ["conn@5 -", "connect@3 20/20:?", "request@122 -"]
    assert run.merger.differences()["conns_unattributed"] == 1


def test_a_connect_within_the_wait_is_used():
    run = Playbook()
    run.at(100, accepted(4, 1, 4000), handshake(5, 1))
    assert [line(e) for e in run.at(119, connect(3, 20, 4000))] == [
        "connect@3 20/20:?",
        "conn@5 20/20:?",
    ]


def test_the_newest_connect_before_the_accept_wins():
    run = Playbook()
    run.at(1, connect(1, 20, 4000, cookie=1), accepted(2, 1, 4000), handshake(3, 1))
    run.at(4, disconnected(4, 1), closed(5, 1))
    run.at(9, connect(8, 30, 4000, cookie=2), accepted(9, 2, 4000), handshake(10, 2))
    run.end()
    assert [line(e) for e in run.out if e.kind is Kind.CONN] == [
        "conn@3 20/20:?",
        "conn@10 30/30:?",
    ]


def test_a_later_connect_does_not_own_an_earlier_accept():
    run = Playbook()
    run.at(9, connect(8, 30, 4000))
    assert [line(e) for e in run.at(30)] == ["connect@8 30/30:?"]
    run.at(31, accepted(2, 1, 4000), handshake(3, 1))  # read very late
    run.at(32, udp(30, 40, 5353))
    run.at(55)
    run.at(60, question(29, 5353))
    run.end()
    assert [line(e) for e in run.out if e.kind in (Kind.CONN, Kind.DNS)] == ["conn@3 -", "dns@29 -"]


def test_at_equal_times_the_connect_comes_first():
    run = Playbook()
    run.at(5, accepted(3, 1, 4000), handshake(3, 1), connect(3, 20, 4000))
    run.at(23)
    assert run.lines() == ["connect@3 20/20:?", "conn@3 20/20:?"]


def test_a_connection_that_was_cut_before_its_accept_is_not_given_to_the_next_owner_of_its_port():
    # Both wait in the accept queue: the first was reset with its request in it.
    run = Playbook()
    run.at(1, connect(1, 20, 4000, cookie=1), closed(2, 1), connect(3, 30, 4000, cookie=2))
    run.at(5, accepted(4, 1, 4000), accepted(5, 2, 4000), handshake(6, 1), handshake(7, 2))
    run.end()
    assert [line(e) for e in run.out if e.kind is Kind.CONN] == ["conn@6 -", "conn@7 30/30:?"]


def test_a_port_that_its_own_thread_uses_again_needs_no_telling_apart():
    run = Playbook()
    run.at(1, connect(1, 20, 4000, cookie=1), closed(2, 1), connect(3, 20, 4000, cookie=2))
    run.at(5, accepted(4, 1, 4000), accepted(5, 2, 4000), handshake(6, 1), handshake(7, 2))
    run.end()
    assert [line(e) for e in run.out if e.kind is Kind.CONN] == ["conn@6 20/20:?", "conn@7 20/20:?"]


def test_a_socket_that_another_process_connects_again_does_not_change_its_first_accept():
    run = Playbook()
    run.at(1, connect(1, 20, 4000, cookie=1), connect(3, 30, 4000, cookie=1))
    run.at(5, accepted(4, 1, 4000), accepted(5, 2, 4000), handshake(6, 1), handshake(7, 2))
    run.end()
    assert [line(e) for e in run.out if e.kind is Kind.CONN] == ["conn@6 -", "conn@7 30/30:?"]


def test_a_udp_port_that_two_processes_share_names_neither():
    run = Playbook()
    run.at(1, udp(1, 20, 5353), udp(2, 30, 5353), udp(3, 20, 5354), udp(4, 20, 5354))
    run.at(5, question(4, 5353), question(4, 5354))
    run.end()
    assert [line(e) for e in run.out if e.kind is Kind.DNS] == ["dns@4 -", "dns@4 20/20:?"]


def test_a_udp_port_is_its_new_owners_when_nothing_of_the_former_can_be_left():
    later = 3 + limits.SOCKET_LINGER_NS // MS
    run = Playbook()
    run.at(1, udp(1, 20, 5353), udp(2, 30, 5353))
    run.at(later, question(later, 5353))
    run.end()
    assert [line(e) for e in run.out if e.kind is Kind.DNS] == [f"dns@{later} 30/30:?"]


def test_a_packet_is_not_given_to_the_next_owner_of_its_port():
    # The log has no time of its own: the packet may be read after the port was used again.
    run = Playbook()
    run.at(1, connect(1, 20, 4000, cookie=1), closed(2, 1), connect(3, 30, 4000, cookie=2))
    run.at(6, connect(5, 40, 4001, cookie=3))
    run.at(7, packet(6, 4000, dport=443), packet(6, 4001, dport=443))
    run.end()
    assert [line(e) for e in run.out if e.kind is Kind.DENIED] == ["denied@6 -", "denied@6 40/40:?"]


def test_a_port_used_again_without_a_record_of_its_own_stays_unknown():
    run = Playbook()
    run.at(1, connect(1, 20, 4000), accepted(2, 1, 4000), handshake(3, 1))
    run.at(9, accepted(9, 2, 4000), handshake(10, 2))
    run.end()
    assert [line(e) for e in run.out if e.kind is Kind.CONN] == ["conn@3 20/20:?", "conn@10 -"]


def test_a_socket_that_closed_before_its_accept_is_still_known():
    run = Playbook()
    run.at(1, connect(1, 20, 4000), closed(2, 4000))
    run.at(30, accepted(3, 1, 4000), handshake(4, 1))
    run.end()
    assert run.lines() == ["connect@1 20/20:?", "socket_close@2 20/20:?", "conn@4 20/20:?"]


def test_closed_tuples_are_forgotten_after_a_while():
    later = limits.SOCKET_LINGER_NS // MS + 10
    run = Playbook()
    run.at(1, connect(1, 20, 4000), closed(2, 4000))
    run.at(later, connect(later, 20, 4001))
    run.at(later + 30, accepted(later + 5, 1, 4000), handshake(later + 6, 1))
    run.end()
    assert run.lines()[-1].endswith(" -")
    assert run.merger.differences()["connects_unmet"] == 2


def test_mapped_addresses_are_the_same_tuple():
    run = Playbook()
    run.at(1, connect(1, 20, 4000), accepted(2, 1, 4000, mapped=True), handshake(3, 1))
    run.end()
    assert run.lines()[-1] == "conn@3 20/20:?"
    assert run.out[-1].payload[6] == AGENT


def test_digests_follow_the_program_not_the_process_id():
    other = k.ExeId(8, 78, 5)
    run = Playbook()
    run.at(1, execed(1, 20))
    run.merger.digested(EXE, DIGEST, "read")
    run.at(3, connect(2, 20, 4000), execed(3, 20, other, b"/usr/bin/python3"))
    run.merger.digested(other, DIGEST[::-1], "cached")
    run.at(9, connect(5, 20, 4001))
    run.at(9, accepted(6, 1, 4000), handshake(7, 1), accepted(8, 2, 4001), handshake(9, 2))
    run.end()
    assert [line(e) for e in run.out if e.kind is Kind.CONN] == [
        "conn@7 20/20:0001",
        "conn@9 20/20:1f1e",
    ]


def test_an_exec_and_all_behind_it_wait_for_the_digest_within_a_bound():
    wait = limits.EXEC_DIGEST_WAIT_NS // MS
    run = Playbook()
    run.at(1, execed(1, 20), connect(2, 20, 4000))
    assert run.at(wait) == []
    assert run.merger.next_due_ns() == (wait + 1) * MS
    assert [line(e) for e in run.at(wait + 1)] == ["exec@1 20/20:?", "connect@2 20/20:?"]
    assert run.out[0].payload[8] == "unknown: not hashed in time"
    assert 7 not in run.out[0].payload
    run.merger.digested(EXE, DIGEST, "read")
    run.at(wait + 10, connect(wait + 5, 20, 4001))
    run.end()
    assert run.lines()[-1] == f"connect@{wait + 5:g} 20/20:0001"


def test_an_executable_that_cannot_be_read_says_why():
    run = Playbook()
    run.at(1, execed(1, 20))
    run.merger.digested(EXE, None, "unknown: changed while it was read")
    run.at(30)
    assert run.out[0].payload[8] == "unknown: changed while it was read"
    assert run.out[0].payload[1] == [20, 20, 20000, None]


def test_a_child_runs_what_its_parent_runs_until_it_execs():
    run = Playbook()
    run.at(1, execed(1, 20))
    run.merger.digested(EXE, DIGEST, "read")
    run.at(3, forked(2, 20, 30), connect(3, 30, 4000), connect(3.5, 40, 4001))
    run.end()
    assert run.lines()[1:] == [
        "fork@2 20/20:0001",
        "connect@3 30/30:0001",
        "connect@3.5 40/40:?",
    ]


def test_a_question_names_the_socket_that_asked():
    run = Playbook()
    run.at(2, question(2, 5353))
    run.at(3, udp(1, 20, 5353), question(3, 5353, "files.example"), question(4, 5454))
    run.end()
    assert [line(e) for e in run.out if e.kind is Kind.DNS] == [
        "dns@2 20/20:?",
        "dns@3 20/20:?",
        "dns@4 -",
    ]
    first = run.out[1].payload
    assert (first[4], first[7], first[10]) == (b"api.example", [SITE], bytes([10, 0, 0, 1]))
    assert run.merger.differences()["dns_unattributed"] == 1


def test_a_question_that_got_an_error_is_a_denial_too():
    run = Playbook()
    bad = dataclasses.replace(question(2, 5353, "\\000.example"), rcode=3, allowed=0, answers=0)
    run.at(30, udp(1, 20, 5353), dataclasses.replace(bad, rule="invalid-name"))
    run.end()
    assert run.lines()[1:] == ["dns@2 20/20:?", "denied@2 20/20:?"]
    denied = run.out[-1].payload
    assert (denied[4], denied[6], denied[9]) == ("dns", "invalid-name", b"\\000.example")


def test_lost_kernel_records_end_what_is_known_about_udp_ports():
    run = Playbook()
    run.at(30, udp(1, 20, 5353), question(2, 5353))
    run.merger.lost()
    run.at(60, question(31, 5353))
    run.end()
    assert [line(e) for e in run.out if e.kind is Kind.DNS] == ["dns@2 20/20:?", "dns@31 -"]


def test_a_refusal_is_written_at_once_with_everything_older():
    run = Playbook()
    run.at(1, connect(1, 20, 4000), accepted(2, 1, 4000))
    new = run.at(10, refused(3, 1, seq=41), connect(9, 20, 4001))
    assert [line(e) for e in new] == ["connect@1 20/20:?", "conn@3 20/20:?", "denied@3 20/20:?"]
    assert [e.ahead for e in new] == [None, None, RingDurable(42)]
    denied = new[-1].payload
    assert (denied[4], denied[5], denied[9]) == ("mediator", "host_denied", b"evil.example")
    assert denied[14] == 'if the agent may reach it, add "evil.example" to allow_hosts'
    assert denied[17] is True


def test_a_dial_is_written_at_once_and_its_result_is_not():
    run = Playbook()
    new = run.at(3, connect(1, 20, 4000), accepted(2, 1, 4000), handshake(2.5, 1), dial(3, 1))
    assert [line(e) for e in new][-1] == "dial@3 20/20:?"
    assert new[-1].ahead == DialRecorded(1)
    assert new[-1].payload[7] == "dialling"
    assert run.at(4, dial(4, 1, result=True)) == []
    run.end()
    assert run.out[-1].payload[7] == "ok"
    assert run.out[-1].ahead is None


def test_a_handshake_after_the_event_gives_a_second_event():
    run = Playbook()
    run.at(
        5,
        connect(1, 20, 4000),
        accepted(2, 1, 4000),
        refused(3, 1),
        handshake(4, 1, "evil.example"),
    )
    run.end()
    conns = [e.payload for e in run.out if e.kind is Kind.CONN]
    assert [5 in c for c in conns] == [False, True]
    assert conns[1][5] == b"evil.example"


def test_the_order_of_the_mediator_is_kept_whatever_its_times_say():
    run = Playbook()
    run.at(9, delivery(5, 1, b"one"), delivery(4, 1, b"two"), delivery(99, 1, b"three"))
    run.end()
    assert [e.payload[4] for e in run.out] == [b"one", b"two", b"three"]


def test_refused_packets_and_calls_are_denials():
    run = Playbook()
    run.at(1, connect(1, 20, 4000), execed(0, 20))
    run.merger.digested(EXE, DIGEST, "read")
    syscall = k.SyscallRefused(head=khead(3, 20, 21), nr=425, errno=1, ia32=False)
    killed = k.SyscallKilled(head=khead(4, 20), nr=1, ia32=True)
    tcp = k.RefusedPacket(2 * MS, "hark:deny", 6, AGENT, 4000, SITE, 443)
    run.at(5, tcp, syscall, killed, packet(4.5, 4001), packet(4.6, 0, proto=1))
    run.end()
    assert run.lines()[2:] == [
        "denied@2 20/20:0001",
        "denied@3 20/21:0001",
        "denied@4 20/20:0001",
        "signal@4 20/20:0001",
        "denied@4.5 -",
        "denied@4.6 -",
    ]
    assert [e.payload[4] for e in run.out if e.kind is Kind.DENIED] == [
        "nft",
        "seccomp",
        "seccomp",
        "nft",
        "nft",
    ]
    assert 11 not in run.out[-1].payload  # ICMP has no ports
    assert run.merger.differences() == {"connects": 1}


def test_a_tuple_of_another_network_namespace_names_nothing():
    run = Playbook(merger=Merger(NAMES, netns_cookie=7))
    foreign = dataclasses.replace(connect(1, 20, 4000), netns=8)
    run.at(1, foreign, accepted(2, 1, 4000), handshake(3, 1))
    own = dataclasses.replace(connect(4, 20, 4001), netns=7)
    run.at(5, own, accepted(5, 2, 4001), handshake(6, 2))
    run.end()
    conns = [line(e) for e in run.out if e.kind is Kind.CONN]
    assert conns == ["conn@3 -", "conn@6 20/20:?"]


def test_a_call_answered_as_absent_is_on_record_and_no_denial():
    run = Playbook()
    probe = k.SyscallRefused(head=khead(1, 20, 21), nr=435, errno=38, ia32=False)
    keyctl = dataclasses.replace(probe, nr=250, errno=1)
    killed = k.SyscallKilled(head=khead(2, 20), nr=20, ia32=True)
    run.at(2, *[probe] * (limits.DENIALS_ONE_BY_ONE + 5), keyctl, killed)
    run.end()
    denied = [e.payload for e in run.out if e.kind is Kind.DENIED]
    assert [p[5] for p in denied if p[7] == 435] == ["syscall_absent"] * limits.DENIALS_ONE_BY_ONE
    assert [p[5] for p in denied if p[7] != 435] == ["syscall_refused", "syscall_killed"]
    assert run.merger.totals["denied"] == 2
    assert run.merger.totals["syscalls_absent"] == limits.DENIALS_ONE_BY_ONE
    assert [(p[5], p[19]) for _, p in run.merger.repeats()] == [("syscall_absent", 5)]
    assert run.merger.notices.lines() == [
        "hark: refused: system call keyctl",
        "hark: refused: system call i386 20, killed",
    ]


def test_equal_refusals_are_told_one_by_one_up_to_a_bound_and_then_counted():
    run = Playbook()
    call = k.SyscallRefused(head=khead(1, 20, 21), nr=425, errno=1, ia32=False)
    other = dataclasses.replace(call, nr=426)
    run.at(2, *[call] * 250, other, *(packet(1, 4000 + n) for n in range(130)))
    run.end()
    shown = [e.payload for e in run.out]
    assert len([p for p in shown if p.get(7) == 425]) == limits.DENIALS_ONE_BY_ONE
    assert len([p for p in shown if p.get(7) == 426]) == 1
    assert len([p for p in shown if p[4] == "nft"]) == limits.DENIALS_ONE_BY_ONE
    repeats = [payload for _, payload in run.merger.repeats()]
    assert [(p[4], p[19]) for p in repeats] == [("seccomp", 150), ("nft", 30)]
    assert repeats[0][1] == [20, 21, 20000, None]
    assert run.merger.totals["denied"] == 201


def test_local_connections_are_not_missed():
    run = Playbook()
    local = k.Connect(
        head=khead(1, 20),
        cookie=9,
        src=bytes([127, 0, 0, 1]),
        sport=1,
        dst=bytes([127, 0, 0, 1]),
        dport=2,
    )
    run.at(2, local)
    run.end()
    assert run.merger.differences() == {"connects": 1}


def test_a_client_that_refuses_the_ca_is_told_once_with_its_variable():
    run = Playbook()
    run.at(1, execed(1, 20, name=b"/usr/bin/node"))
    run.merger.digested(EXE, DIGEST, "read")
    for n in (1, 2):
        run.at(9 * n, connect(2 * n, 20, 4000 + n), accepted(3 * n, n, 4000 + n))
        run.at(9 * n, refused(4 * n, n, "client_rejected_ca", "api.example"))
        run.at(9 * n, disconnected(5 * n, n, "client_rejected_ca"))
    run.end()
    notices = [e.payload for e in run.out if e.kind is Kind.NOTICE]
    assert [n[4] for n in notices] == ["client_rejected_ca"]
    assert "NODE_EXTRA_CA_CERTS" in notices[0][6]
    denied = [e.payload for e in run.out if e.kind is Kind.DENIED]
    assert [d[14] for d in denied] == [notices[0][6]] * 2
    assert run.merger.notices.lines() == [
        "hark: refused: client rejected ca api.example (2 times)",
        f"hark: hint: {notices[0][6]}",
    ]


def test_a_broken_handshake_leaves_the_name_that_was_asked_for():
    run = Playbook()
    run.at(9, accepted(3, 1, 4001), refused(4, 1, "client_rejected_ca", "api.example"))
    run.at(9, accepted(3, 2, 4002), refused(4, 2, "tls_handshake", ""))
    run.end()
    conns = [e.payload for e in run.out if e.kind is Kind.CONN]
    assert [c.get(5) for c in conns] == [b"api.example", None]
    assert not [c for c in conns if 10 in c]


def test_noted_reasons_are_notices_and_still_durable():
    run = Playbook()
    new = run.at(3, refused(3, 1, "reflected", "api.example", seq=7))
    assert [(e.kind, e.ahead) for e in new] == [(Kind.NOTICE, RingDurable(8))]


def test_what_refuses_nothing_is_never_written_as_denied():
    assert NOTED == NOTES  # the mediator's reasons and the recorder's list
    run = Playbook()
    for reason in sorted(NOTES):
        detail = b"secret 0 in x-other\x1b" if reason == "placeholder_elsewhere" else b""
        run.at(3, dataclasses.replace(refused(3, 1, reason, "api.example"), detail=detail))
    run.end()
    told = {e.payload[4]: e.payload[5] for e in run.out if e.kind is Kind.NOTICE}
    assert set(told) == NOTES
    assert all(" " in text and text.endswith("api.example") for text in told.values())
    assert told["placeholder_elsewhere"].endswith(
        "; secret OPENAI_API_KEY in x-other\\x1b; api.example"
    )
    assert not [e for e in run.out if e.kind is Kind.DENIED]
    assert not run.merger.notices.lines()


def test_a_crowd_is_written_without_waiting(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "MERGE_HELD_MAX_BYTES", 10_000)
    run = Playbook()
    run.at(1, execed(1, 20))
    new = run.at(2, *(delivery(2, 1, bytes(6000)) for _ in range(2)))
    assert [line(e) for e in new] == ["exec@1 20/20:?", "delivery@2 -"]
    assert run.merger.held_bytes < 10_000


def test_tables_are_bounded_and_count_what_they_forget():
    processes = Processes(limit=2)
    processes.forked(task(1), task(2))
    processes.forked(task(1), task(3))
    processes.ended(task(2))
    processes.forked(task(1), task(4))
    assert processes.forgotten == 0
    processes.forked(task(1), task(5))
    assert processes.forgotten == 1
    connections = Connections(limit=2)
    for port in range(1, 5):
        connections.connected(connect(port, 20, port), None)
    assert connections.forgotten == 2
    assert connections.find((AGENT, 1, SITE, 443), 99 * MS) is None
    flows = Flows(limit=1)
    flows.began(udp(1, 20, 1), None)
    flows.began(udp(2, 20, 2), None)
    assert flows.forgotten == 1


def test_a_socket_that_connects_again_leaves_nothing_behind():
    connections = Connections()
    for port in range(1, 50):
        connections.connected(connect(port, 20, port, cookie=5), None)
    later = 50 + limits.SOCKET_LINGER_NS // MS
    connections.connected(connect(later, 20, 50, cookie=5), None)
    connections.closed(5, later * MS)
    connections.connected(connect(2 * later, 20, 51, cookie=6), None)
    assert len(connections._by_tuple) == len(connections._owners) == 1
    assert connections.finish() == 51  # and each was missed


def test_one_port_used_in_a_loop_does_not_fill_the_table():
    connections = Connections()
    for at in range(1, 2000):
        connections.connected(connect(at, 20, 4000, cookie=at), None)
    assert len(connections._owners) == limits.RECORDER_MAX_SAME_TUPLE
    assert connections.finish() == 1999


def test_every_key_that_is_written_is_in_the_table():
    run = Playbook()
    run.at(1, *_story())
    run.merger.digested(EXE, DIGEST, "read")
    for event in run.end():
        allowed = COMMON | FIELDS[event.kind]
        assert set(event.payload) <= set(allowed)
        assert list(event.payload) == sorted(event.payload)
        assert all(type(key) is int for key in event.payload)


def _story() -> list[object]:
    return [
        forked(1, 10, 20),
        execed(2, 20),
        udp(3, 20, 5353),
        question(4, 5353),
        connect(5, 20, 4000, cookie=1),
        accepted(6, 1, 4000),
        handshake(7, 1),
        request(8, 1, 1),
        dial(9, 1),
        dial(9.5, 1, result=True),
        delivery(10, 1, b"data"),
        ended(11, 1),
        disconnected(12, 1),
        closed(13, 1),
        connect(14, 20, 4000, cookie=2),
        accepted(15, 2, 4000),
        refused(16, 2),
        disconnected(17, 2),
        forked(17.5, 20, 30),
        connect(18, 30, 4001, cookie=3),
        packet(18.5, 4001, dport=443),
    ]


def _who(events: list[Merged]) -> list[str]:
    return sorted(line(e) for e in events)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 19), min_size=21, max_size=21), st.randoms(use_true_random=False))
def test_any_interleaving_within_the_hold_gives_the_same_attribution(
    delays: list[int], random: Random
):
    """Each record arrives up to 19 ms after its time, and equal arrivals in any order.

    Records of one source keep their order, as a ring and a socket do.
    """
    story = _story()
    straight = Playbook()
    straight.merger.digested(EXE, None, "")
    for record in story:
        straight.take(record, 20 * MS)
    straight.merger.digested(EXE, DIGEST, "read")
    straight.end()

    arrivals = []
    latest = 0.0
    for record, delay in zip(story, delays, strict=True):
        when = _time(record) + delay
        if not _is_kernel(record):
            when = latest = max(when, latest)
        arrivals.append((when, random.random() if _is_kernel(record) else 0.5, record))
    arrivals.sort(key=lambda a: a[:2])
    shuffled = Playbook()
    waiting = [record for _, _, record in arrivals]
    for when, _, record in arrivals:
        if record not in waiting:
            continue
        batch = [record]
        if not _is_kernel(record):  # the kernel's rings are read after the mediator and the broker
            batch += [r for r in waiting if _is_kernel(r) and _time(r) <= _time(record)]
        for ready in batch:
            waiting.remove(ready)
            shuffled.take(ready, int(when * MS))
        shuffled.merger.digested(EXE, DIGEST, "read")
        shuffled.out += shuffled.merger.due(int(when * MS))
    shuffled.end()
    assert _attributed(shuffled.out) == _attributed(straight.out)


def _time(record: object) -> float:
    head = getattr(record, "head", record)
    return head.boot_ns / MS  # type: ignore[attr-defined]


def _is_kernel(record: object) -> bool:
    return isinstance(getattr(record, "head", None), k.Head) or isinstance(record, k.RefusedPacket)


def _attributed(events: list[Merged]) -> list[tuple[str, object]]:
    return sorted((line(e), e.payload.get(3, 0)) for e in events)


def test_the_order_is_that_of_times_when_all_is_in_time():
    run = Playbook()
    records = [connect(float(ms), 20, 4000 + ms) for ms in range(1, 40)]
    for record in reversed(records):
        run.take(record, 40 * MS)
    run.end()
    times = [e.boot_ns for e in run.out]
    assert times == sorted(times)


def test_merger_names_nothing_when_nothing_is_known():
    run = Playbook(merger=Merger(NAMES))
    run.at(1, request(1, 1, 9, host=-1))
    run.end()
    assert run.lines() == ["request@1 -"]
    assert 5 not in run.out[0].payload


def test_an_answered_call_is_no_refusal():
    """To the sensors both look alike; hark's own filter refuses none of the calls it answers."""
    for answered, events in ((frozenset({318}), 0), (frozenset(), 1)):
        run = Playbook(merger=Merger(NAMES, answered=answered))
        call = k.SyscallRefused(head=khead(1, 20, 21), nr=318, errno=22, ia32=False)
        run.at(1, call)
        run.end()
        assert len(run.out) == events
    run = Playbook(merger=Merger(NAMES, answered=frozenset({318})))
    run.at(1, k.SyscallRefused(head=khead(1, 20, 21), nr=318, errno=1, ia32=True))
    run.end()
    assert len(run.out) == 1, "the number of another call there"
