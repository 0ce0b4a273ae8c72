"""The run's resolver as a pure function: one datagram in, one answer and its record out.

Every valid name has a stable, synthetic address, a denied one too: the connection then reaches the
mediator, which sees the name by SNI or Host, refuses it and records what would have left. Nothing
is ever forwarded, so a question carries no data out. Rules: no I/O, no state; hostile input gets
FORMERR or silence, never an exception. What is answered to what: docs/spec/policy.md, "Names".
Sources: RFC 1035 (messages), RFC 2308 (negative answers), RFC 6761 (localhost), RFC 6891 (EDNS),
RFC 8482 (ANY).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import blake3
from dnslib import (
    AAAA,
    CLASS,
    EDNS0,
    OPCODE,
    QR,
    QTYPE,
    RCODE,
    RR,
    SOA,
    A,
    DNSError,
    DNSHeader,
    DNSQuestion,
    DNSRecord,
)
from dnslib.label import DNSBuffer, DNSLabelError

from hark import limits
from hark.policy.names import MAX_LABEL, name_fault, normalise

if TYPE_CHECKING:
    from hark.policy.model import CompiledPolicy

__all__ = ["Answer", "Rule", "answer", "synthetic_addresses"]

_HEADER_BYTES = 12
_NAME_WIRE_MOST = 255  # RFC 1035 section 2.3.4
_LOOPBACK = (bytes((127, 0, 0, 1)), bytes(15) + b"\1")

# 198.18.0.0/15 is for benchmarks (RFC 2544) and never routed; the /48 is a unique local prefix
# (RFC 4193) that spells "hark". Allowed names by their place in the table, others by their hash.
_ALLOWED4 = bytes((198, 18))
_DENIED4 = bytes((198, 19))
_ALLOWED6 = bytes.fromhex("fd6861726b000001")
_DENIED6 = bytes.fromhex("fd6861726b000002")


class Rule(StrEnum):
    """Why a question was answered as it was; the ``rule`` of a dns event."""

    ALLOWED = "host-table"
    DENIED = "not-in-policy"
    LOCALHOST = "localhost"
    NO_SUCH_TYPE = "only-addresses"
    INVALID_NAME = "invalid-name"
    MALFORMED = "malformed"
    OPCODE = "opcode"
    CLASS = "class"
    EDNS_VERSION = "edns-version"
    RATE = "rate-limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    r"""What goes back (``reply``; empty: nothing) and what is recorded.

    ``name`` is lower case, without the trailing dot, bytes other than LDH and '_' as ``\\DDD``.
    """

    reply: bytes
    name: str = ""
    qtype: int = 0
    rcode: int = RCODE.FORMERR
    allowed: bool = False
    addresses: tuple[bytes, ...] = ()
    rule: Rule = Rule.MALFORMED


@dataclass(frozen=True, slots=True)
class Query:
    """A well-formed question. ``edns``: the version the client asks for, or -1."""

    header: DNSHeader
    question: DNSQuestion
    edns: int


def answer(datagram: bytes, table: CompiledPolicy) -> Answer:
    """Answer one datagram. A response, or less than a header, gets an empty reply."""
    header = parse_header(datagram)
    if header is None or header.qr == QR.RESPONSE:
        return Answer(reply=b"")
    if header.opcode != OPCODE.QUERY:
        return Answer(reply=bare(header, "NOTIMP"), rcode=RCODE.NOTIMP, rule=Rule.OPCODE)
    query = parse_query(datagram, header)
    if query is None:
        return Answer(reply=bare(header, "FORMERR"))
    return finish(query, decide(query, table))


def parse_header(datagram: bytes) -> DNSHeader | None:
    """Read the 12 bytes that any message has; None when even they are missing."""
    if not len(datagram) >= _HEADER_BYTES:
        return None
    return DNSHeader.parse(DNSBuffer(datagram[:_HEADER_BYTES]))


def parse_query(datagram: bytes, header: DNSHeader) -> Query | None:
    """Read exactly one question and at most one OPT record; None for anything else.

    A name that is compressed, too long, or has a label of the reserved kinds is malformed; so is
    what follows the last record. This keeps dnslib away from pointer chains.
    """
    if len(datagram) > limits.DNS_QUERY_MAX_BYTES or (header.q, header.a, header.auth) != (1, 0, 0):
        return None
    buffer = DNSBuffer(datagram)
    buffer.offset = _HEADER_BYTES
    try:
        question = DNSQuestion.parse(buffer)
        labels = question.qname.label
        wire = sum(len(label) + 1 for label in labels) + 1
        if wire > _NAME_WIRE_MOST or any(len(label) > MAX_LABEL for label in labels):
            return None
        if buffer.offset != _HEADER_BYTES + wire + 4:
            return None
        edns = -1
        if header.ar == 1 and datagram[buffer.offset : buffer.offset + 3] == b"\0\0\x29":
            edns = RR.parse(buffer).edns_ver
        elif header.ar:
            return None
    except (DNSError, DNSLabelError, ValueError):
        return None
    return Query(header, question, edns) if buffer.remaining() == 0 else None


def decide(query: Query, table: CompiledPolicy) -> Answer:
    """Decide what the question gets; the reply is filled in by ``finish``."""
    name = spell(query.question.qname.label)
    decided = Answer(reply=b"", name=name, qtype=query.question.qtype, rcode=RCODE.NOERROR)
    if query.edns > 0:
        return replace(decided, rcode=RCODE.NOERROR, rule=Rule.EDNS_VERSION)
    if query.question.qclass != CLASS.IN:
        return replace(decided, rcode=RCODE.REFUSED, rule=Rule.CLASS)
    if name_fault(name):
        return replace(decided, rcode=RCODE.NXDOMAIN, rule=Rule.INVALID_NAME)
    host = table.find(name)
    decided = replace(decided, allowed=host is not None, rule=Rule.ALLOWED if host else Rule.DENIED)
    v4, v6 = synthetic_addresses(name, host.index if host else None)
    if host is None and name.rpartition(".")[2] == "localhost":
        decided = replace(decided, rule=Rule.LOCALHOST)
        v4, v6 = _LOOPBACK
    if query.question.qtype in (QTYPE.A, QTYPE.ANY):
        return replace(decided, addresses=(v4,))
    if query.question.qtype == QTYPE.AAAA:
        return replace(decided, addresses=(v6,))
    return replace(decided, rule=Rule.NO_SUCH_TYPE)


def synthetic_addresses(name: str, index: int | None) -> tuple[bytes, bytes]:
    """Return the IPv4 and IPv6 address of ``name``; ``index`` is its place in the host table.

    Names outside the table share 65,536 IPv4 addresses by hash; nothing is decided by them.
    """
    if index is not None:
        place = index + 1
        return _ALLOWED4 + place.to_bytes(2, "big"), _ALLOWED6 + place.to_bytes(8, "big")
    digest = blake3.blake3(name.encode()).digest()
    return _DENIED4 + digest[:2], _DENIED6 + digest[:8]


def spell(labels: tuple[bytes, ...]) -> str:
    """Write a name's labels as text, in the form policies are compared in (RFC 1035, 5.1)."""
    return normalise(".".join("".join(map(spell_byte, label)) for label in labels))


def spell_byte(byte: int) -> str:
    """Write one byte of a label: letters, digits, '-' and '_' as they are."""
    char = chr(byte)
    return char if char.isascii() and (char.isalnum() or char in "-_") else f"\\{byte:03d}"


def finish(query: Query, decided: Answer) -> Answer:
    """Build the reply: the question as it came, then the addresses or an SOA to cache by."""
    reply = DNSRecord(
        DNSHeader(id=query.header.id, bitmap=0, qr=1, ra=1, rd=query.header.rd), q=query.question
    )
    reply.header.rcode = decided.rcode
    for address in decided.addresses:
        rdata, kind = (A, QTYPE.A) if len(address) == 4 else (AAAA, QTYPE.AAAA)  # noqa: PLR2004
        reply.add_answer(
            RR(query.question.qname, kind, rdata=rdata(tuple(address)), ttl=limits.DNS_TTL_S)
        )
    if not decided.addresses and decided.rule in (Rule.NO_SUCH_TYPE, Rule.INVALID_NAME):
        times = (1, 0, 0, 0, limits.DNS_TTL_S)
        reply.add_auth(
            RR("", QTYPE.SOA, rdata=SOA("hark.invalid", "hark.invalid", times), ttl=times[-1])
        )
    if query.edns >= 0:
        badvers = 1 if decided.rule is Rule.EDNS_VERSION else 0  # RFC 6891 section 6.1.3
        reply.add_ar(EDNS0(udp_len=limits.DNS_QUERY_MAX_BYTES, ext_rcode=badvers))
    return replace(decided, reply=reply.pack())


def bare(header: DNSHeader, rcode: str) -> bytes:
    """Return a reply that is a header alone."""
    reply = DNSHeader(id=header.id, bitmap=0, qr=1, ra=1, rd=header.rd)
    reply.opcode = header.opcode
    reply.rcode = getattr(RCODE, rcode)
    buffer = DNSBuffer()
    reply.pack(buffer)
    return bytes(buffer.data)
