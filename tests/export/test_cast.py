"""A recorded terminal as an asciicast."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hark.bundle.events import Kind
from hark.export.cast import cast_lines

START = 5_000_000_000


@dataclass(frozen=True)
class Row:
    kind: int
    time_ns: int
    payload: dict[int, Any] | None


def started(**environment: str) -> Row:
    names = [[name.encode(), value.encode()] for name, value in environment.items()]
    return Row(Kind.RUN_START, START, {4: [b"vi", b"a b"], 8: names})


def stdio(ms: int, stream: int, data: bytes | None = None, **more: Any) -> Row:
    payload: dict[int, Any] = {4: stream}
    if data is not None:
        payload[5] = data
    if more.get("end"):
        payload[6] = True
    if "size" in more:
        payload[7] = more["size"]
    return Row(Kind.STDIO, START + ms * 1_000_000, payload)


def cast(*rows: Row, keys: bool = False) -> list[Any]:
    lines = cast_lines(rows, created_unix_s=1_700_000_000, read=bytes, keys=keys)
    return [json.loads(line) for line in lines]


def test_what_a_terminal_showed_with_its_times_and_sizes():
    header, *events = cast(
        started(TERM="xterm", SHELL="/bin/sh", HOME="/h"),
        stdio(1, 4, size=[33, 101]),
        stdio(2, 4, b"$ "),
        stdio(3, 3, b"l\r"),
        stdio(1500, 4, b"\x1b[1mok\r\n"),
        stdio(1600, 4, size=[50, 132]),
        stdio(1700, 4, b"bye"),
    )
    assert header == {
        "version": 2,
        "width": 101,
        "height": 33,
        "timestamp": 1_700_000_000,
        "title": "vi a b",
        "env": {"TERM": "xterm", "SHELL": "/bin/sh"},
    }
    assert events == [
        [0.002, "o", "$ "],
        [1.5, "o", "\x1b[1mok\r\n"],
        [1.6, "r", "132x50"],
        [1.7, "o", "bye"],
    ]


def test_typed_keys_only_on_demand_and_never_those_without_echo():
    rows = (started(), stdio(1, 4, size=[24, 80]), stdio(2, 3, b"l\r"), stdio(3, 3))
    assert cast(*rows)[1:] == []
    assert cast(*rows, keys=True)[1:] == [[0.002, "i", "l\r"]]


def test_pipes_get_the_line_ends_of_a_terminal():
    header, *events = cast(started(), stdio(1, 1, b"a\nb"), stdio(2, 2, b"c\n"), stdio(3, 0, b"x"))
    assert (header["width"], header["height"]) == (80, 24)
    assert [text for _, _, text in events] == ["a\r\nb", "c\r\n"]


def test_a_run_that_said_nothing_is_still_a_cast():
    (header,) = cast(started(), Row(Kind.STDIO, START, None))
    assert header["version"] == 2


@given(st.binary(max_size=40), st.data())
def test_bytes_cut_anywhere_show_the_same(data: bytes, draw: st.DataObject):
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=5)))
    parts = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    rows = [stdio(n, 4, part) for n, part in enumerate(parts)]
    events = cast(started(), *rows, stdio(99, 4, b"", end=True))[1:]
    assert "".join(text for _, _, text in events) == data.decode("utf-8", "replace")


@pytest.mark.parametrize("payload", [{}, {4: 4, 7: 3}, {4: 4, 5: 7, 6: True}, {4: []}])
def test_a_payload_of_another_shape_is_an_error(payload: dict[int, Any]):
    rows = [started(), Row(Kind.STDIO, START, payload)]
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        list(cast_lines(rows, created_unix_s=0, read=lambda data: data.strip()))
