"""One real client through the real mediator."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

from hark.mediator.records import (
    ConnOpen,
    ConnTls,
    ExchangeEnd,
    Refused,
    RequestBody,
    RequestHead,
    ResponseBody,
    ResponseHead,
    Substituted,
    Upstream,
)

from .rig import DENIED, HOST, PLACEHOLDER, REAL

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from .rig import Rig


def serve_once(seen: list[bytes]) -> Callable[[socket.socket], None]:
    def serve(sock: socket.socket) -> None:
        data = b""
        while b"\r\n\r\n" not in data or not data.endswith(b"ping"):
            data += sock.recv(65536)
        seen.append(data)
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npong")
        sock.recv(1)

    return serve


def curl(rig: Rig, host: str, *args: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [
            "curl",
            "-sS",
            "--noproxy",
            "*",
            "--cacert",
            rig.ca,
            "--connect-to",
            f"{host}:443:127.0.0.1:{rig.port}",
            *args,
        ],
        capture_output=True,
        timeout=20,
        check=False,
    )


def test_curl_and_its_records(rig: Callable[..., Rig]):
    seen: list[bytes] = []
    one = rig(serve_once(seen))
    got = curl(
        one,
        HOST,
        "-H",
        f"Authorization: Bearer {PLACEHOLDER}",
        "-d",
        "ping",
        f"https://{HOST}:{one.port}/x",
        "--resolve",
        f"{HOST}:{one.port}:127.0.0.1",
    )
    assert got.returncode == 0, got.stderr
    assert got.stdout == b"pong"
    assert b"Authorization: Bearer " + REAL in seen[0]
    rec = one.recorder
    end = rec.wait(ExchangeEnd)[0]
    assert end.reason == "complete"
    assert (end.request_bytes, end.response_bytes) == (4, 4)
    assert rec.of(ConnOpen)[0].dport == one.port
    assert rec.of(ConnTls)[0].sni == HOST
    head = rec.of(RequestHead)[0].raw
    assert PLACEHOLDER.encode() in head
    assert b"".join(b.data for b in rec.of(RequestBody)) == b"ping"
    assert b"".join(b.data for b in rec.of(ResponseBody)) == b"pong"
    assert rec.of(ResponseHead)[0].status == 200
    assert rec.of(Upstream)[0].port == one.upstream.address[1]
    assert [(s.secret, s.header) for s in rec.of(Substituted)] == [(7, "authorization")]
    assert not rec.of(Refused)


def test_denied_host_is_answered(rig: Callable[..., Rig]):
    one = rig(serve_once([]))
    got = curl(
        one,
        DENIED,
        "-H",
        f"Authorization: Bearer {PLACEHOLDER}",
        "-d",
        "stolen",
        "-w",
        "%{http_code}",
        f"https://{DENIED}/drop",
    )
    assert got.returncode == 0, got.stderr
    body, status = got.stdout[:-3], got.stdout[-3:]
    assert status == b"403"
    assert json.loads(body)["error"]["reason"] == "host_denied"
    assert not one.broker.dials
    refused = one.recorder.wait(Refused)
    assert (refused[0].reason, refused[0].name, refused[0].denial) == ("host_denied", DENIED, True)
    one.recorder.wait(ExchangeEnd)
    assert b"".join(b.data for b in one.recorder.of(RequestBody)) == b"stolen"
