"""A replay's mediator: answers come as PLAY, nothing is dialled, and it lives without a network.

The test is the player. It alone writes to the control socket here, so nothing is reported durable.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hark.mediator.records import (
    ConnClose,
    ExchangeEnd,
    Refused,
    RequestHead,
    ResponseBody,
    ResponseHead,
    Upstream,
)
from hark.policy.control import PeerClosed, Play, PlayFlag, PlayWanted, PlayWhat

from .rig import HOST, PLACEHOLDER, WAIT_S, Rig, read_all, read_head

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

DATA = 4096
LENGTH, CHUNKED, EOF = 1, 2, 3
GET = f"GET /x HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()
TRUNCATED = 46  # any reason of an upstream will do


def never(_sock: socket.socket) -> None:
    raise AssertionError("dialled")


def piece(exchange: int, what: int, data: bytes = b"", **more: int) -> Play:
    fields = {"length": 0, "size": len(data), "flags": 0, "status": 0, "framing": 0, "reason": 0}
    values = {**fields, **more}
    return Play(exchange=exchange, what=what, data=data.ljust(DATA, b"\0"), **values)


class Player:
    """The other end of a mediator's control socket."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.rig.recorder.durable = False
        self.control = rig.mediator.control

    def wanted(self) -> int:
        got = self.control.recv(WAIT_S)
        assert got is not None
        assert isinstance(got.msg, PlayWanted)
        return got.msg.exchange

    def send(self, *messages: Play) -> None:
        for message in messages:
            self.control.send(message, timeout_s=WAIT_S)

    def head(self, exchange: int, framing: int, text: bytes, **more: int) -> None:
        self.send(
            piece(exchange, PlayWhat.HEAD, text, status=200, framing=framing, **more),
        )


@pytest.fixture
def played(rig: Callable[..., Rig]) -> tuple[Rig, Player]:
    made = rig(never, play=True)
    return made, Player(made)


def assert_nothing_dialled(rig: Rig) -> None:
    assert rig.upstream.connections == 0
    assert not rig.recorder.of(Upstream)


def test_deliveries_arrive_one_by_one_and_are_recorded_as_they_are(played: tuple[Rig, Player]):
    rig, player = played
    with rig.tls() as sock:
        sock.sendall(GET)
        exchange = player.wanted()
        (request,) = rig.recorder.wait(RequestHead)
        assert (request.exchange, request.raw) == (exchange, GET)
        text = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        player.head(exchange, CHUNKED, text)
        assert read_head(sock) == (text, b"")
        for part in (b"data: 1\n\n", b"data: 2\n\n"):
            player.send(piece(exchange, PlayWhat.BODY, part))
            assert sock.recv(65536) == b"9\r\n" + part + b"\r\n"
        player.send(piece(exchange, PlayWhat.TRAILERS, b"X-T: 1\r\n"))
        player.send(piece(exchange, PlayWhat.END))
        assert sock.recv(65536) == b"0\r\nX-T: 1\r\n\r\n"
        (end,) = rig.recorder.wait(ExchangeEnd)
        assert (end.reason, end.response_bytes) == ("complete", 18)
        bodies = [r.data for r in rig.recorder.wait(ResponseBody, 3)]
        assert bodies == [b"data: 1\n\n", b"data: 2\n\n", b""]
        (head,) = rig.recorder.of(ResponseHead)
        assert (head.raw, head.own) == (text, False)
        # The connection goes on.
        sock.sendall(GET)
        assert player.wanted() == exchange + 1
    assert_nothing_dialled(rig)


def test_a_delivery_larger_than_a_message_is_one_delivery(played: tuple[Rig, Player]):
    rig, player = played
    data = random.Random(1).randbytes(3 * DATA + 5)  # noqa: S311 - repeatable
    with rig.tls() as sock:
        sock.sendall(GET)
        exchange = player.wanted()
        player.head(exchange, LENGTH, b"HTTP/1.1 200 OK\r\n\r\n", length=len(data))
        parts = [data[at : at + DATA] for at in range(0, len(data), DATA)]
        for part in parts[:-1]:
            player.send(piece(exchange, PlayWhat.BODY, part, flags=PlayFlag.MORE))
        player.send(piece(exchange, PlayWhat.BODY, parts[-1]))
        player.send(piece(exchange, PlayWhat.END))
        (body,) = rig.recorder.wait(ResponseBody)
        assert (body.data, body.end) == (data, True)
        _, rest = read_head(sock)
        while len(rest) < len(data):
            rest += sock.recv(65536)
        assert rest == data


def test_a_cut_ends_the_connection_and_a_close_after_the_end_too(played: tuple[Rig, Player]):
    rig, player = played
    with rig.tls() as sock:
        sock.sendall(GET)
        exchange = player.wanted()
        player.head(exchange, LENGTH, b"HTTP/1.1 200 OK\r\n\r\n", length=10)
        player.send(piece(exchange, PlayWhat.BODY, b"half"))
        player.send(piece(exchange, PlayWhat.CUT, b"why", reason=TRUNCATED))
        assert read_all(sock).endswith(b"\r\n\r\nhalf")
    (end,) = rig.recorder.wait(ExchangeEnd)
    assert end.reason != "complete"
    assert rig.recorder.wait(Refused)[-1].detail == b"why"
    with rig.tls() as sock:
        sock.sendall(GET)
        exchange = player.wanted()
        player.head(exchange, EOF, b"HTTP/1.1 200 OK\r\n\r\n", flags=PlayFlag.CLOSE)
        player.send(piece(exchange, PlayWhat.BODY, b"all"), piece(exchange, PlayWhat.END))
        assert read_all(sock).endswith(b"\r\n\r\nall")


def test_it_has_no_network(played: tuple[Rig, Player]):
    rig, _ = played
    pid = rig.mediator.pid
    host = Path("/proc/self/ns/net").readlink()
    assert Path(f"/proc/{pid}/ns/net").readlink() != host
    rows = Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]
    assert [row.split(":")[0].strip() for row in rows] == ["lo"]


def test_a_live_mediator_has_the_host_network_and_takes_no_play(rig: Callable[..., Rig]):
    live = rig(never)
    assert (
        Path(f"/proc/{live.mediator.pid}/ns/net").readlink() == Path("/proc/self/ns/net").readlink()
    )
    player = Player(live)
    player.send(piece(1, PlayWhat.END))
    assert live.mediator.wait(WAIT_S) == 1


def test_answers_to_an_exchange_that_is_over_are_ignored(played: tuple[Rig, Player]):
    rig, player = played
    with rig.tls() as sock:
        sock.sendall(GET)
        exchange = player.wanted()
    rig.recorder.wait(ConnClose)
    player.head(exchange, LENGTH, b"HTTP/1.1 200 OK\r\n\r\n", length=1)
    player.send(piece(exchange, PlayWhat.BODY, b"x"), piece(77, PlayWhat.END))
    with rig.tls() as sock:
        sock.sendall(GET)
        exchange = player.wanted()
        player.head(exchange, LENGTH, b"HTTP/1.1 204 OK\r\n\r\n")
        player.send(piece(exchange, PlayWhat.END))
        assert read_head(sock)[0].startswith(b"HTTP/1.1 204")


@pytest.mark.parametrize(
    "message",
    [
        piece(1, PlayWhat.BODY, b"x", size=DATA + 1),
        piece(1, 7),
        piece(1, PlayWhat.HEAD, b"x", framing=4),
        piece(1, PlayWhat.CUT, b"x", reason=60_000),
    ],
    ids=["size", "what", "framing", "reason"],
)
def test_a_malformed_message_ends_it(played: tuple[Rig, Player], message: Play):
    rig, player = played
    with rig.tls() as sock:
        sock.sendall(GET)
        player.wanted()
        player.send(message)
        assert rig.mediator.wait(WAIT_S) == 1


def test_more_than_an_exchange_may_hold_ends_it(played: tuple[Rig, Player]):
    rig, player = played
    with rig.tls() as sock:
        sock.sendall(GET)
        exchange = player.wanted()
        player.head(exchange, EOF, b"HTTP/1.1 200 OK\r\n\r\n")
        data = bytes(DATA)
        # The agent does not read; a recorder that does not count is stopped, while it sends.
        with contextlib.suppress(PeerClosed, OSError):
            for _ in range(4096):
                player.send(piece(exchange, PlayWhat.BODY, data))
        assert rig.mediator.wait(WAIT_S) == 1


@pytest.mark.parametrize("seed", range(8))
def test_random_messages_and_agents(rig: Callable[..., Rig], seed: int):
    """Whatever is played to agents that come, ask and leave: it goes on, or ends in order."""
    made = rig(never, play=True)
    player = Player(made)
    rng = random.Random(seed)  # noqa: S311 - repeatable
    socks: list[socket.socket] = []
    exchanges = [1]
    for _ in range(300):
        try:
            play_one(made, player, rng, socks, exchanges)
        except (PeerClosed, OSError):  # it ended: the rig looks at how
            break
    for sock in socks:
        sock.close()


def play_one(
    rig: Rig, player: Player, rng: random.Random, socks: list[socket.socket], exchanges: list[int]
) -> None:
    choice = rng.random()
    if choice < 0.15 and len(socks) < 8:
        sock = rig.tls()
        sock.sendall(GET.replace(b"/x", f"/{PLACEHOLDER}".encode()) if choice < 0.02 else GET)
        socks.append(sock)
    elif choice < 0.2 and socks:
        socks.pop(rng.randrange(len(socks))).close()
    elif choice < 0.4:
        got = player.control.recv(0.01)
        if got is not None and isinstance(got.msg, PlayWanted):
            exchanges.append(got.msg.exchange)
    else:
        data = rng.randbytes(rng.choice((0, 1, 40, DATA)))
        player.send(
            piece(
                rng.choice(exchanges),
                rng.randrange(7),
                data,
                flags=rng.randrange(4),
                framing=rng.randrange(4),
                status=rng.choice((100, 200, 204)),
                reason=rng.choice((0, TRUNCATED)),
                length=rng.choice((0, 4, 40)),
            )
        )


def test_curl_takes_a_played_answer(played: tuple[Rig, Player]):
    rig, player = played
    url = f"https://{HOST}:{rig.port}/x"
    words = ["curl", "-sS", "--noproxy", "*", "--cacert", rig.ca]
    words += ["--connect-to", f"{HOST}:{rig.port}:127.0.0.1:{rig.port}", "-d", "ping", url]
    client = subprocess.Popen(words, stdout=subprocess.PIPE)
    exchange = player.wanted()
    player.head(exchange, LENGTH, b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n", length=4)
    player.send(piece(exchange, PlayWhat.BODY, b"pong"), piece(exchange, PlayWhat.END))
    assert client.communicate(timeout=WAIT_S)[0] == b"pong"
    assert_nothing_dialled(rig)
