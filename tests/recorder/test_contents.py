"""The recorder's side of the workspace's contents: bounded, and never a failure of the run."""

from __future__ import annotations

import os
import socket
import struct
from typing import TYPE_CHECKING, Any

import pytest

from hark import limits
from hark.bundle import cbor
from hark.bundle.events import Kind
from hark.recorder.contents import Contents

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = b"/w"


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        yield ours, theirs


def frame(payload: Any, kind: int = Kind.WORKSPACE_CONTENT) -> bytes:
    data = cbor.encode(payload)
    return struct.pack(">IH", len(data), kind) + data


def entry(path: bytes, data: bytes) -> dict[int, Any]:
    return {4: FOLDER, 5: [[path, 0, None, data]]}


END = {4: FOLDER, 5: [], 6: 1, 7: 3, 8: [], 9: True}


def test_byte_by_byte(ends: tuple[socket.socket, socket.socket]):
    ours, theirs = ends
    contents = Contents(ours, ["/w"])
    sent = frame(entry(b"a", b"abc")) + frame({4: [], 5: 2}, Kind.SURROUNDINGS) + frame(END)
    got, now = [], 1
    for at in range(len(sent)):
        theirs.send(sent[at : at + 1])
        now += limits.WORKSPACE_KEPT_IDLE_NS
        got += contents.take(now)
    assert [payload for _, payload in got] == [entry(b"a", b"abc"), {4: [], 5: 2}, END]
    assert [kind for kind, _ in got] == [30, 31, 30]
    theirs.close()
    assert list(contents.finish()) == []
    assert contents.lines() == []


def test_no_more_than_the_rate_while_the_agent_lives(ends: tuple[socket.socket, socket.socket]):
    ours, theirs = ends
    theirs.setblocking(False)
    contents = Contents(ours, ["/w"])
    taken, now, filler = 0, 1, bytearray()
    step = limits.WORKSPACE_KEPT_IDLE_NS
    for _ in range(400):  # 8 s
        if len(filler) < 1 << 20:
            filler += frame(entry(b"a", bytes(1 << 18))) * 8
        while filler:
            try:
                del filler[: theirs.send(filler)]
            except BlockingIOError:
                break
        now += step
        taken += sum(len(payload[5][0][3]) for _, payload in contents.take(now))
    seconds = 400 * step / 1e9
    most = limits.WORKSPACE_KEPT_BURST + seconds * limits.WORKSPACE_KEPT_RATE + (1 << 20)
    assert taken <= most
    assert taken > limits.WORKSPACE_KEPT_BURST


BROKEN = {
    "an early end": b"",
    "half a frame": frame(entry(b"a", b"abc"))[:-1],
    "a huge length": struct.pack(">IH", 1 << 31, 30),
    "another kind": frame(END, Kind.RUN_END),
    "no CBOR": struct.pack(">IH", 3, 30) + b"\xff\xff\xff",
    "not canonical": struct.pack(">IH", 2, 30) + b"\xa1\x18",
    "no map": frame([1, 2]),
    "another folder": frame({4: b"/elsewhere", 5: []}),
    "no folder": frame({5: []}),
    "a folder of a wrong type": frame({4: [1], 5: []}),
    "two ends": frame(END) + frame(END),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_stream_is_said_and_no_more(ends: tuple[socket.socket, socket.socket], case: str):
    ours, theirs = ends
    contents = Contents(ours, ["/w", "/x"])
    theirs.send(BROKEN[case])
    theirs.close()
    events = [*contents.take(1), *contents.finish()]
    last = {payload[4]: payload for _, payload in events if 9 in payload}
    assert set(last) == {b"/w", b"/x"}
    assert last[b"/x"][9] is False
    assert "early" in last[b"/x"][10]
    assert last[b"/w"][9] is (case == "two ends")
    (line,) = contents.lines()
    assert "only partly" in line


def test_a_reader_that_hangs_holds_the_end_for_the_bound_only(
    ends: tuple[socket.socket, socket.socket],
):
    ours, theirs = ends
    contents = Contents(ours, ["/w"])
    theirs.send(frame(entry(b"a", b"abc")))
    events = list(contents.finish(0.05))
    assert [payload.get(9) for _, payload in events] == [None, False]
    assert "0.05 s" in events[-1][1][10]
    with pytest.raises(BrokenPipeError):
        theirs.send(b"x" * 10)


def test_the_reader_learns_that_the_run_is_over(ends: tuple[socket.socket, socket.socket]):
    ours, theirs = ends
    contents = Contents(ours, ["/w"])
    pid = os.fork()
    if pid == 0:
        ours.close()
        over = theirs.recv(1) == b""
        theirs.sendall(frame(END))
        os._exit(0 if over else 1)
    theirs.close()
    assert [payload for _, payload in contents.finish()] == [END]
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
