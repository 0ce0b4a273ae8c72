"""What the services of the fidelity suite answer: each path is one behaviour of the outside.

Rules. One service per pair, so that every count starts at nothing. Latencies are random on
purpose: a recording must hold what chance decided, and a replay must not depend on it again.
"""

from __future__ import annotations

import base64
import gzip
import json
import secrets
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import zstandard
from stub import Stub
from stub.apis import pattern
from stub.reply import Reply

if TYPE_CHECKING:
    from pathlib import Path

    from stub.wire import Request

__all__ = ["API", "EVIL", "MCP", "NEWS", "OTHER", "Service"]

API, NEWS, OTHER, EVIL = "api.openai.com", "news.example", "other.example", "evil.example"
MCP = "mcp.example"
# "brotli says hello" by the reference encoder: no Python of the test host has one.
BROTLI = base64.b64decode("CwiAYnJvdGxpIHNheXMgaGVsbG8D")
_LATENCY_S = 0.03


def _json(value: Any, status: int = 200, **more: Any) -> Reply:
    return Reply(status, "application/json", (json.dumps(value).encode(),), **more)


def _moved(location: str) -> Reply:
    return Reply(302, "text/plain", (b"moved\n",), fields=(("Location", location),))


class Service(Stub):
    """The suite's outside. ``counts``: requests by path, to tell whether a shape happened."""

    def __init__(self, directory: Path) -> None:
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        super().__init__(directory, (API, NEWS, OTHER, EVIL, MCP))

    def count(self, start: str) -> int:
        """Return how many requests there were for paths that begin so."""
        with self._lock:
            return sum(n for path, n in self.counts.items() if path.startswith(start))

    def _answer(self, request: Request) -> Reply:
        """Answer one request; the number of its turn is known under the lock alone."""
        path = request.target.partition("?")[0]
        with self._lock:
            self.counts[path] += 1
            turn = self.counts[path]
        word, *rest = path.lstrip("/").split("/")
        is_mcp = request.field("host").startswith(MCP)
        known = None if is_mcp else getattr(self, f"_{word}", None)
        return known(request, turn, *rest) if known else super()._answer(request)

    # --- one method per first word of a path ------------------------------------------------------

    def _late(self, _request: Request, turn: int, name: str) -> Reply:
        """Answer after a random time with a random number, so that chance decides the order."""
        wait = secrets.randbelow(int(_LATENCY_S * 1e6)) / 1e6
        return _json({"name": name, "turn": turn, "n": secrets.randbelow(1000)}, waits=(wait,))

    def _retry(self, _request: Request, turn: int, status: str, failures: str) -> Reply:
        """Fail so many times, then work."""
        if turn <= int(failures):
            return _json({"error": "try again"}, int(status), fields=(("Retry-After", "0.05"),))
        return _json({"worked": turn})

    def _poll(self, _request: Request, turn: int, empty: str) -> Reply:
        if turn <= int(empty):
            return Reply(204, "text/plain", (), waits=(_LATENCY_S,))
        return _json({"news": turn})

    def _hop(self, _request: Request, _turn: int, left: str) -> Reply:
        host = OTHER if int(left) % 2 else NEWS
        return _moved(f"https://{host}/hop/{int(left) - 1}") if int(left) else _json({"end": True})

    def _leak(self, _request: Request, _turn: int) -> Reply:
        return _moved(f"https://{EVIL}/collect?data=secret")

    def _back(self, request: Request, turn: int) -> Reply:
        """Give back the id that came, and one of this service."""
        given = json.loads(request.body or b"{}")
        return _json({"id": given.get("id"), "server": secrets.token_hex(8), "turn": turn})

    def _packed(self, request: Request, _turn: int, coding: str) -> Reply:
        body = json.dumps({"got": len(request.body), "text": "packed " * 40}).encode()
        packed = {
            "gzip": lambda: gzip.compress(body),
            "zstd": lambda: zstandard.ZstdCompressor().compress(body),
            "br": lambda: BROTLI,
        }[coding]()
        return Reply(200, "application/json", (packed,), fields=(("Content-Encoding", coding),))

    def _gzback(self, request: Request, _turn: int) -> Reply:
        """Give back the id that came, in a coded body."""
        given = json.loads(request.body or b"{}")
        packed = gzip.compress(json.dumps({"id": given.get("id"), "pad": "x" * 500}).encode())
        return Reply(200, "application/json", (packed,), fields=(("Content-Encoding", "gzip"),))

    def _feed(self, _request: Request, _turn: int, count: str, pause_ms: str = "0") -> Reply:
        """A stream of events, each after a pause."""
        parts = tuple(f"data: {secrets.token_hex(4)} {i}\n\n".encode() for i in range(int(count)))
        waits = (0.0, *([int(pause_ms) / 1000] * len(parts)))
        return Reply(200, "text/event-stream", parts, streamed=True, waits=waits)

    def _silent(self, _request: Request, _turn: int, *_: str) -> Reply:
        return Reply(200, "text/plain", (), streamed=True, waits=(600.0,))

    def _cut(self, _request: Request, turn: int, failures: str) -> Reply:
        is_cut = turn <= int(failures)
        return Reply(200, "application/octet-stream", (pattern(2000),), cut=is_cut)

    def _big(self, _request: Request, _turn: int, count: str) -> Reply:
        return Reply(200, "application/octet-stream", (pattern(int(count)),))

    def _took(self, request: Request, _turn: int) -> Reply:
        return _json({"took": len(request.body)})

    def _trailed(self, _request: Request, _turn: int) -> Reply:
        parts = (b"with ", b"trailers")
        trailers = (("X-Sum", secrets.token_hex(8)),)
        return Reply(200, "text/plain", parts, streamed=True, trailers=trailers)

    def _mcp(self, request: Request, _turn: int) -> Reply:
        call = json.loads(request.body)
        result: dict[str, Any] = {"protocolVersion": "2025-06-18", "capabilities": {}}
        if call["method"] == "tools/list":
            result = {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}
        elif call["method"] == "tools/call":
            arguments = call["params"]["arguments"]
            result = {"content": [{"type": "text", "text": str(sum(arguments.values()))}]}
        return _json({"jsonrpc": "2.0", "id": call["id"], "result": result})

    def _now(self, _request: Request, _turn: int) -> Reply:
        return _json({"now": time.time()})
