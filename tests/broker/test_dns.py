"""The resolver as a function: what is answered, and that no datagram breaks it."""

from __future__ import annotations

import socket

import pytest
from dnslib import CLASS, EDNS0, QTYPE, RCODE, DNSHeader, DNSQuestion, DNSRecord
from hypothesis import given
from hypothesis import strategies as st
from policies import compiled

from hark import limits
from hark.mediator import dns
from hark.mediator.dns import Rule, answer, synthetic_addresses

TABLE = compiled('allow_hosts = ["api.example.com", "b.example", "zz.example"]')


def query(name: str, qtype: str = "A", **header: int) -> bytes:
    record = DNSRecord(
        DNSHeader(id=4711, rd=1, **header), q=DNSQuestion(name, QTYPE.reverse[qtype])
    )
    return record.pack()


def test_an_allowed_name_has_stable_addresses_of_both_families() -> None:
    first, again = answer(query("b.example"), TABLE), answer(query("b.example"), TABLE)
    assert first == again
    assert (first.allowed, first.rule, first.rcode) == (True, Rule.ALLOWED, RCODE.NOERROR)
    assert socket.inet_ntoa(first.addresses[0]) == "198.18.0.2"
    six = answer(query("b.example", "AAAA"), TABLE)
    assert socket.inet_ntop(socket.AF_INET6, six.addresses[0]) == "fd68:6172:6b00:1::2"
    reply = DNSRecord.parse(first.reply)
    assert (reply.header.id, reply.header.qr, reply.header.ra) == (4711, 1, 1)
    assert [str(rr.rdata) for rr in reply.rr] == ["198.18.0.2"]
    assert reply.rr[0].ttl == limits.DNS_TTL_S


def test_a_denied_name_has_an_address_too() -> None:
    got = answer(query("evil.example"), TABLE)
    assert (got.allowed, got.rule, got.rcode) == (False, Rule.DENIED, RCODE.NOERROR)
    assert got.addresses[0][:2] == bytes((198, 19))
    assert got.addresses == answer(query("EVIL.example."), TABLE).addresses


def test_every_allowed_name_has_its_own_addresses() -> None:
    four, six = zip(*(synthetic_addresses("x", i) for i in range(4096)), strict=True)
    assert len(set(four)) == len(set(six)) == 4096


def test_case_comes_back_as_it_was_asked() -> None:
    got = answer(query("ApI.eXample.COM"), TABLE)
    assert got.allowed
    assert got.name == "api.example.com"
    assert b"\x03ApI\x07eXample\x03COM\x00" in got.reply


@pytest.mark.parametrize(
    "qtype", ["HTTPS", "SVCB", "TXT", "MX", "SRV", "PTR", "SOA", "NS", "CNAME"]
)
def test_other_types_have_no_data(qtype: str) -> None:
    kind = {"SVCB": 64}.get(qtype) or QTYPE.reverse[qtype]
    data = DNSRecord(DNSHeader(id=1), q=DNSQuestion("api.example.com", kind)).pack()
    got = answer(data, TABLE)
    assert (got.rcode, got.addresses, got.rule) == (RCODE.NOERROR, (), Rule.NO_SUCH_TYPE)
    reply = DNSRecord.parse(got.reply)
    assert reply.rr == []
    assert reply.auth[0].rtype == QTYPE.SOA


def test_any_gets_one_address() -> None:
    assert answer(query("b.example", "ANY"), TABLE).addresses == (bytes((198, 18, 0, 2)),)


@pytest.mark.parametrize("name", ["localhost", "a.b.localhost", "LOCALHOST."])
def test_localhost_is_loopback(name: str) -> None:
    assert answer(query(name), TABLE).addresses == (bytes((127, 0, 0, 1)),)
    assert answer(query(name, "AAAA"), TABLE).addresses == (bytes(15) + b"\1",)


@pytest.mark.parametrize(
    "name",
    ["_http._tcp.api.example.com", "-a.example", "a-.example", "10.0.0.1", "a.0x7f", "a b.example"],
)
def test_an_invalid_name_does_not_exist(name: str) -> None:
    labels = [label.encode() for label in name.split(".")]
    got = answer(DNSRecord(DNSHeader(id=1), q=DNSQuestion(labels)).pack(), TABLE)
    assert (got.rcode, got.rule, got.addresses) == (RCODE.NXDOMAIN, Rule.INVALID_NAME, ())


def test_bytes_in_a_name_are_recorded_escaped() -> None:
    labels = [b"a.b\x00\xc3\xbc\\", b"Example"]
    got = answer(DNSRecord(DNSHeader(id=1), q=DNSQuestion(labels)).pack(), TABLE)
    assert got.name == "a\\046b\\000\\195\\188\\092.example"
    assert not got.allowed


def test_a_dot_inside_a_label_is_not_a_separator() -> None:
    got = answer(DNSRecord(DNSHeader(id=1), q=DNSQuestion([b"b.example"])).pack(), TABLE)
    assert not got.allowed
    assert got.rule is Rule.INVALID_NAME


def test_edns_is_answered_and_other_versions_refused() -> None:
    record = DNSRecord.question("b.example")
    record.add_ar(EDNS0(udp_len=4096))
    reply = DNSRecord.parse(answer(record.pack(), TABLE).reply)
    assert [rr.rtype for rr in reply.ar] == [QTYPE.OPT]
    record = DNSRecord.question("b.example")
    record.add_ar(EDNS0(version=1))
    got = answer(record.pack(), TABLE)
    assert (got.rule, got.addresses) == (Rule.EDNS_VERSION, ())
    assert DNSRecord.parse(got.reply).ar[0].edns_rcode == 1


def test_class_and_opcode() -> None:
    chaos = DNSRecord(DNSHeader(id=1), q=DNSQuestion("version.bind", 16, CLASS.CH)).pack()
    assert answer(chaos, TABLE).rcode == RCODE.REFUSED
    update = query("b.example", opcode=5)
    got = answer(update, TABLE)
    assert (got.rcode, got.rule) == (RCODE.NOTIMP, Rule.OPCODE)
    assert DNSHeader.parse(dns.DNSBuffer(got.reply)).opcode == 5


def test_a_response_is_never_answered() -> None:
    assert answer(query("b.example", qr=1), TABLE).reply == b""


HEADER = query("b.example")[:12]
NAME = b"\x01b\x07example\x00"
TAIL = b"\x00\x01\x00\x01"


@pytest.mark.parametrize(
    "datagram",
    [
        HEADER + b"\xc0\x0c" + TAIL,  # a name that points at itself
        HEADER + b"\xc0\x00" + TAIL,  # into the header
        HEADER + b"\x01b\xc0\x0c" + TAIL,
        HEADER + b"\x40" + b"a" * 64 + b"\x00" + TAIL,  # reserved label type
        HEADER + b"\x7f" + b"a" * 127 + b"\x00" + TAIL,
        HEADER + (b"\x3f" + b"a" * 63) * 4 + b"\x00" + TAIL,  # 257 bytes of name
        HEADER + NAME + TAIL + b"x",  # something after the last record
        HEADER[:4] + b"\0\0" + HEADER[6:],  # no question
        HEADER[:4] + b"\0\2" + HEADER[6:] + (NAME + TAIL) * 2,
        HEADER[:6] + b"\0\1" + HEADER[8:] + NAME + TAIL,  # an answer is announced
        HEADER[:10] + b"\xff\xff" + NAME + TAIL,
        HEADER[:10] + b"\0\1" + NAME + TAIL + NAME + TAIL + b"\0\0\0\0\0\0",  # not an OPT
        HEADER[:10] + b"\0\1" + NAME + TAIL + b"\0\x00\x29\x10\0\0\0\0\0\xff\xff",  # OPT cut short
        HEADER + NAME + TAIL + bytes(limits.DNS_QUERY_MAX_BYTES),
    ],
)
def test_malformed_messages(datagram: bytes) -> None:
    got = answer(datagram, TABLE)
    assert (got.rcode, got.rule, got.allowed) == (RCODE.FORMERR, Rule.MALFORMED, False)
    reply = DNSRecord.parse(got.reply)
    assert (reply.header.id, reply.header.rcode, reply.questions) == (4711, RCODE.FORMERR, [])


def test_the_longest_name_is_fine() -> None:
    name = ".".join(["a" * 63] * 3 + ["b" * 61])
    got = answer(query(name), TABLE)
    assert (got.rcode, got.name) == (RCODE.NOERROR, name)


def test_every_prefix_gets_silence_or_formerr() -> None:
    whole = query("api.example.com", "AAAA")
    for cut in range(len(whole)):
        got = answer(whole[:cut], TABLE)
        assert got.rule is Rule.MALFORMED
        assert (got.reply == b"") == (cut < 12)


@given(st.binary(max_size=600))
def test_any_bytes(datagram: bytes) -> None:
    check(datagram, answer(datagram, TABLE))


@given(st.integers(0, 65535), st.binary(max_size=200))
def test_any_bytes_behind_a_good_header(count: int, rest: bytes) -> None:
    datagram = HEADER[:10] + (count & 1).to_bytes(2, "big") + rest
    check(datagram, answer(datagram, TABLE))


@given(st.lists(st.binary(min_size=1, max_size=63), max_size=5), st.integers(0, 65535))
def test_any_well_formed_question(labels: list[bytes], qtype: int) -> None:
    wire = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    datagram = HEADER + wire + qtype.to_bytes(2, "big") + b"\0\1"
    got = answer(datagram, TABLE)
    check(datagram, got)
    if len(wire) <= 255 and all(decodes(label) for label in labels):
        assert datagram[12:] in got.reply


def decodes(label: bytes) -> bool:
    """Whether dnslib takes the label: it must be UTF-8."""
    try:
        label.decode()
    except UnicodeDecodeError:
        return False
    return True


def check(datagram: bytes, got: dns.Answer) -> None:
    """Check what holds for every answer."""
    assert len(got.reply) <= 512
    assert got.name.isascii()
    if not got.reply:
        assert len(datagram) < 12 or datagram[2] & 0x80
        return
    reply = DNSRecord.parse(got.reply)
    assert got.reply[:2] == datagram[:2]
    assert reply.header.qr == 1
    assert len(reply.rr) == len(got.addresses) <= 1
