"""A HelloRetryRequest makes the client say its name twice: only the same name twice is a name."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

import pytest

from hark.mediator.records import Refused

from .rig import DENIED, HOST, OTHER, scripted

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from .rig import Rig

X25519 = 29
RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
ALERT, HANDSHAKE = 21, 22


def extension(kind: int, data: bytes) -> bytes:
    return struct.pack(">HH", kind, len(data)) + data


def sized(data: bytes) -> bytes:
    return struct.pack(">H", len(data)) + data


def hello(name: str, share: bytes, more: bytes = b"") -> bytes:
    """A TLS 1.3 ClientHello in one record (RFC 8446, 4.1.2); ``share`` is its X25519 key share.

    ``more``: further extensions.
    """
    entry = struct.pack(">H", X25519) + sized(share) if share else b""
    extensions = (
        extension(0, sized(b"\0" + sized(name.encode())))
        + extension(43, b"\x02\x03\x04")
        + extension(10, sized(struct.pack(">H", X25519)))
        + extension(13, sized(b"\x04\x03\x08\x04"))
        + extension(51, sized(entry))
        + more
    )
    body = (
        b"\x03\x03" + bytes(range(32)) + b"\x20" + bytes(32) + sized(b"\x13\x01") + b"\x01\x00"
    ) + sized(extensions)
    message = b"\x01" + struct.pack(">I", len(body))[1:] + body
    return b"\x16\x03\x01" + sized(message)


def record(sock: socket.socket) -> tuple[int, bytes]:
    head = b""
    while len(head) < 5:
        head += sock.recv(5 - len(head)) or pytest.fail("closed")
    size = struct.unpack(">H", head[3:])[0]
    data = b""
    while len(data) < size:
        data += sock.recv(size - len(data)) or pytest.fail("closed")
    return head[0], data


def say_twice(one: Rig, first: str, second: str) -> tuple[int, bytes]:
    """What answers the second hello."""
    sock = one.connect()
    sock.sendall(hello(first, b""))
    kind, data = record(sock)
    assert (kind, data[6:38]) == (HANDSHAKE, RETRY)
    sock.sendall(hello(second, os.urandom(32)))
    kind, data = record(sock)
    while kind not in {ALERT, HANDSHAKE}:  # change_cipher_spec, for middleboxes
        kind, data = record(sock)
    return kind, data


@pytest.mark.parametrize(
    ("first", "second"), [(HOST, DENIED), (HOST, OTHER), (DENIED, HOST), (HOST, "")]
)
def test_case_17_another_name_after_a_retry(rig: Callable[..., Rig], first: str, second: str):
    one = rig(scripted())
    assert say_twice(one, first, second) == (ALERT, b"\x02\x70")  # fatal, unrecognized_name
    assert one.recorder.wait(Refused)[0].reason == "sni_invalid"


def test_case_17_the_same_name_is_served(rig: Callable[..., Rig]):
    one = rig(scripted())
    kind, data = say_twice(one, HOST, HOST)
    assert kind == HANDSHAKE
    assert data[0] == 2  # ServerHello
    assert data[6:38] != RETRY
