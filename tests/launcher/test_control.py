"""hark/policy/control.py says what csrc/hark_control.h says, and its channel refuses the rest."""

from __future__ import annotations

import os
import re
import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import cffi
import pytest

from hark.policy import control as c

if TYPE_CHECKING:
    from enum import IntEnum

HEADER = Path(__file__).parents[2] / "csrc" / "hark_control.h"


@pytest.fixture(scope="module")
def ffi() -> cffi.FFI:
    out = cffi.FFI()
    out.cdef(re.sub(r"(?m)^#.*$", "", HEADER.read_text()))
    return out


@pytest.mark.parametrize(
    ("enum", "cls", "prefix"),
    [
        ("hark_msg_type", c.MsgType, "HARK_MSG_"),
        ("hark_dial_status", c.DialStatus, "HARK_DIAL_"),
        ("hark_exit_cause", c.ExitCause, "HARK_EXIT_"),
        ("hark_over", c.Over, "HARK_OVER_"),
        ("hark_sealed", c.SealedFlag, "HARK_SEALED_"),
        ("hark_play_what", c.PlayWhat, "HARK_PLAY_"),
        ("hark_play_flag", c.PlayFlag, "HARK_PLAY_"),
    ],
)
def test_enums_equal_the_header(ffi: cffi.FFI, enum: str, cls: type[IntEnum], prefix: str) -> None:
    header = {k.removeprefix(prefix): v for k, v in ffi.typeof(f"enum {enum}").relements.items()}
    assert header == {m.name: m.value for m in cls}


@pytest.mark.parametrize("cls", c.CLASSES, ids=lambda cls: cls.__name__)
def test_layout_equals_the_header(ffi: cffi.FFI, cls: type[c.Message]) -> None:
    real = ffi.typeof(f"struct {cls.STRUCT}")
    assert ffi.sizeof(real) == struct.calcsize("=HHIQ" + cls.LAYOUT)
    names = [n for n, _ in real.fields if n != "head" and not n.startswith("pad")]
    assert names == c.field_names(cls)
    parts = re.findall(r"(\d*)([a-zA-Z])", cls.LAYOUT)
    offsets, at = [], 16
    for count, code in parts:
        run = int(count or 1)
        if code in "sx":
            offsets += [at] * (code == "s")
            at += run
            continue
        for _ in range(run):
            offsets.append(at)
            at += struct.calcsize("=" + code)
    assert [ffi.offsetof(real, n) for n in names] == offsets


def test_every_type_has_a_class():
    assert {t for cls in c.CLASSES for t in cls.TYPES} == set(c.MsgType)


def _sample(cls: type[c.Message]) -> c.Message:
    values: list[object] = [cls.TYPES[0]] if "type" in cls.__slots__ else []
    names = iter(c.field_names(cls))
    for count, code in re.findall(r"(\d*)([a-wyzA-Z])", cls.LAYOUT):
        run = int(count or 1)
        if code == "s":
            text = next(names) in ("what", "hint", "qname", "rule")
            values.append("text" if text else b"x" * run)
        else:
            values += [7 for _ in range(run) if next(names)]
    return cls(*values)


@pytest.mark.parametrize("cls", c.CLASSES, ids=lambda cls: cls.__name__)
def test_round_trip_and_every_cut_is_refused(cls: type[c.Message]) -> None:
    msg = _sample(cls)
    data = c.pack(msg, ident=9, seq=3)
    assert c.unpack(data) == (msg, 9, 3)
    for n in [*range(0, len(data), 7), len(data) - 1]:
        with pytest.raises(c.PeerBroken):
            c.unpack(data[:n])
    with pytest.raises(c.PeerBroken):
        c.unpack(data + b"\0")


def test_text_that_does_not_fit_is_an_error():
    with pytest.raises(ValueError, match="does not fit"):
        c.pack(c.Failed(1, 0, "x" * 257, ""))


def test_channel_passes_descriptors_and_ends():
    left, right = map(c.Channel, c.socket_pair())
    r, w = os.pipe()
    left.send(c.Started(5, 4), fds=[w])
    os.close(w)
    msg, fds = right.expect(c.Started, 1.0)
    assert msg == c.Started(5, 4)
    assert not os.get_inheritable(fds[0])
    os.write(fds[0], b"hi")
    assert os.read(r, 2) == b"hi"
    os.close(fds[0])
    os.close(r)
    assert right.recv() is None
    left.close()
    with pytest.raises(c.PeerClosed):
        right.recv()
    with pytest.raises(c.PeerClosed):
        right.send(c.Plain(c.MsgType.GO))
    right.close()


def test_a_repeated_or_unknown_packet_is_refused_and_its_descriptors_closed():
    a, b = c.socket_pair()
    right = c.Channel(b)
    a.send(c.pack(c.Signal(15), seq=0))
    assert right.recv(1.0).msg == c.Signal(15)
    r, w = os.pipe()
    socket.send_fds(a, [c.pack(c.Signal(15), seq=0)], [w])
    os.close(w)
    with pytest.raises(c.PeerBroken, match="where 1 was due"):
        right.recv(1.0)
    assert os.read(r, 1) == b""  # the passed copy was the last writer
    a.send(struct.pack("=HHIQ", 999, 16, 0, 1))
    with pytest.raises(c.PeerBroken):
        right.recv(1.0)
    os.close(r)
    a.close()
    right.close()
