"""Payloads: parsed only as far as needed, canonical, and safe for any bytes of the agent."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hark.bundle import cbor
from hark.kernel import records as k
from hark.mediator import records as m
from hark.policy import control
from hark.recorder import translate
from hark.recorder.translate import Names

from . import transcript as t

NAMES = Names(("api.example",), ("KEY",))


@pytest.mark.parametrize(
    ("head", "line"),
    [
        (b"GET /v1?x=1 HTTP/1.1\r\nHost: a\r\n\r\n", (b"GET", b"/v1?x=1")),
        (b"POST * HTTP/1.1\r\n\r\n", (b"POST", b"*")),
        (b"GET", None),
        (b"", None),
        (b" / HTTP/1.1\r\n", None),
        (b"GET  HTTP/1.1\r\n", (b"GET", b"")),
    ],
)
def test_request_lines(head: bytes, line: tuple[bytes, bytes] | None):
    assert translate.request_line(head) == line


@given(st.binary(max_size=300))
def test_any_head_has_a_line_of_its_own_bytes_or_none(head: bytes):
    line = translate.request_line(head)
    if line is not None:
        assert head.startswith(line[0] + b" " + line[1])


def test_a_long_request_line_is_cut_in_the_event_and_whole_in_the_head():
    record = dataclasses.replace(
        t.request(1, 1, 1), raw=b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n"
    )
    payload = translate.request(record, NAMES)
    assert len(payload[7]) < 8192
    assert payload[8] == record.raw


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (bytes([1, 2, 3, 4]), bytes([1, 2, 3, 4])),
        (bytes(10) + b"\xff\xff\x01\x02\x03\x04", bytes([1, 2, 3, 4])),
        (bytes(15) + b"\x01", bytes(15) + b"\x01"),
        (b"", b""),
    ],
)
def test_mapped_addresses(raw: bytes, value: bytes):
    assert translate.address(raw) == value


def test_the_type_of_a_host_says_whose_word_it_is():
    assert NAMES.host_or_bytes("api.example") == "api.example"
    assert NAMES.host_or_bytes("evil.example") == b"evil.example"
    assert NAMES.host_or_bytes("\udcff.example") == b"\xff.example"
    assert NAMES.host_or_bytes("") is None
    assert (NAMES.host(0), NAMES.host(1), NAMES.host(-1)) == ("api.example", None, None)


TEXTS = st.binary(max_size=40).map(lambda b: b.decode("utf-8", "surrogateescape"))
ADDRESSES = st.sampled_from([b"", bytes(4), bytes(16), bytes(10) + b"\xff\xff" + bytes(4)])
PORTS = st.integers(0, 65535)


@given(name=TEXTS, detail=st.binary(max_size=40), address=ADDRESSES, port=PORTS, data=st.data())
def test_whatever_the_agent_sends_can_be_encoded(
    name: str, detail: bytes, address: bytes, port: int, data: st.DataObject
):
    head = m.Head(1, 2)
    opened = m.ConnOpen(head=head, conn=1, src=address, sport=port, dst=address, dport=port)
    packet = k.RefusedPacket(
        1, "hark", data.draw(st.integers(0, 255)), address, port, address, port
    )
    dns = dataclasses.replace(
        t.question(1, port, "x"),
        answers=data.draw(st.integers(0, 2**32 - 1)),
        family=data.draw(st.integers(0, 65535)),
        qtype=data.draw(PORTS),
    )
    dial = dataclasses.replace(
        t.dial(1, 1, result=True),
        status=data.draw(st.integers(0, 2**32 - 1)),
        host=data.draw(st.integers(0, 2**32 - 1)),
    )
    payloads = [
        translate.conn(opened, dataclasses.replace(t.handshake(1, 1), sni=name)),
        translate.refused(
            dataclasses.replace(t.refused(1, 1, name=name), detail=detail), NAMES, opened, "", name
        ),
        translate.request(dataclasses.replace(t.request(1, 1, 1), raw=detail), NAMES),
        translate.packet_denied(packet),
        translate.dns(dns),
        translate.dns_denied(dns),
        translate.dial(dial, NAMES),
    ]
    for payload in payloads:
        assert list(payload) == sorted(payload)
        assert cbor.encode(payload)


def test_all_dial_outcomes_have_names():
    names = {
        translate.dial(t.dial(1, 1, result=True, status=status), NAMES)[7]
        for status in control.DialStatus
    }
    page = (Path(__file__).parents[2] / "docs" / "spec" / "records.md").read_text()
    row = page.split("| 13 | dial |")[1].split("\n")[0]
    assert names == {*re.findall(r"`(\w+)`", row)} - {"dialling"}
    assert {"ok", "private", "proxy_auth"} <= names
