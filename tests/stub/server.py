"""The stub's server: one listener on 127.0.0.1, a thread per connection, real TLS.

Rules. Everything a client did is kept: connections that never finished a handshake too. A test
reads ``connections()`` and ``requests()``; a stand-alone stub also appends one JSON line per
request to its log. The certificate is chosen by SNI from a fixed list of names; a name that is
not on it is refused with an alert, and counted.
"""

from __future__ import annotations

import base64
import gzip
import json
import socket
import ssl
import struct
import threading
import time
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self, TextIO

from stub import mcp
from stub.apis import STUB_NOTICE, answer
from stub.authority import Authority, Leaf
from stub.aws import Bucket
from stub.reply import Reply
from stub.wire import Request, WireError, chunk, last_chunk, read_request

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

__all__ = ["ConnectionSeen", "RequestSeen", "Stub"]

_IDLE_S = 30.0


@dataclass(frozen=True, slots=True)
class RequestSeen:
    """One request as it arrived, and the response as it was sent.

    ``head`` and ``response_head`` are raw; ``body`` and ``response_body`` have the transfer coding
    removed and any content coding kept. ``parts`` are the sizes of the response's chunks.
    """

    connection: int
    host: str
    method: str
    target: str
    head: bytes
    body: bytes
    status: int
    response_head: bytes
    response_body: bytes
    parts: tuple[int, ...]


@dataclass(slots=True)
class ConnectionSeen:
    """One accepted TCP connection. ``sni`` is what the hello named, "" until then."""

    number: int
    peer_port: int
    sni: str = ""
    handshake: bool = False
    failure: str = ""
    received: int = 0
    requests: int = 0


@dataclass(slots=True)
class _Witness:
    lock: threading.Lock = field(default_factory=threading.Lock)
    connections: list[ConnectionSeen] = field(default_factory=list)
    requests: list[RequestSeen] = field(default_factory=list)


def _response_head(reply: Reply, extra: dict[str, str]) -> bytes:
    phrase = "OK" if reply.status == 200 else "Stub"
    fields = {
        "Content-Type": reply.content_type,
        "X-Hark-Stub": STUB_NOTICE,
        **extra,
        "Connection": "close" if reply.close else "keep-alive",
    }
    rows = [*fields.items(), *reply.fields]
    lines = [f"HTTP/1.1 {reply.status} {phrase}", *(f"{k}: {v}" for k, v in rows)]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def _encoded(request: Request, reply: Reply) -> tuple[Reply, dict[str, str]]:
    """Apply gzip when the client asked for it and the reply allows it."""
    asked = request.field("accept-encoding").lower()
    if not reply.compressible or "gzip" not in asked:
        return reply, {}
    packed = gzip.compress(b"".join(reply.parts), mtime=0)
    return replace(reply, parts=(packed,)), {"Content-Encoding": "gzip"}


class Stub:
    """A running stub; use it as a context manager.

    ``names`` are the hosts it has certificates for. ``leaves`` overrides a host's certificate
    (expired, wrong name). ``files`` are bodies by host and path, as a package index has them.
    Raises ``OSError`` when no port can be had.
    """

    def __init__(
        self,
        directory: Path,
        names: tuple[str, ...],
        *,
        leaves: dict[str, Leaf] | None = None,
        authority: Authority | None = None,
        port: int = 0,
        log: Path | None = None,
        files: dict[tuple[str, str], bytes] | None = None,
    ) -> None:
        self.authority = authority or Authority(directory / "ca")
        self.names = names
        self._contexts = {
            name: self._context((leaves or {}).get(name) or self.authority.leaf(name))
            for name in names
        }
        self.files = files or {}
        self.bucket = Bucket()
        self._witness = _Witness()
        self._stopping = threading.Event()
        self._open: set[socket.socket] = set()
        self._log: TextIO | None = log.open("w", encoding="ascii") if log else None
        self._note({"stub": STUB_NOTICE, "names": list(names)})
        self._listener = socket.create_server(("127.0.0.1", port), backlog=256)
        self.port = int(self._listener.getsockname()[1])
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    @property
    def ca_file(self) -> Path:
        """The certificate a client must trust."""
        return self.authority.ca_file

    @property
    def address(self) -> str:
        """``127.0.0.1:PORT``, as ``--upstream HOST=`` wants it."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop accepting and cut every connection; safe to call twice."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        # close() alone does not wake accept(); shutdown() does.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._witness.lock:
            for sock in self._open:
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue
        self._acceptor.join(timeout=5)
        if self._log:
            self._log.close()

    def connections(self, sni: str | None = None) -> list[ConnectionSeen]:
        """List the connections accepted so far, those of one SNI name, or all."""
        with self._witness.lock:
            return [c for c in self._witness.connections if sni is None or c.sni == sni]

    def requests(self, host: str | None = None) -> list[RequestSeen]:
        """List the requests answered so far, in the order their responses were begun."""
        with self._witness.lock:
            return [r for r in self._witness.requests if host is None or r.host == host]

    def wait_for_request(self, target: str, seconds: float = 30.0) -> RequestSeen:
        """Block until a request for ``target`` arrived; a deadline, never a verdict on speed."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for seen in self.requests():
                if seen.target == target:
                    return seen
            time.sleep(0.02)
        raise TimeoutError(f"no request for {target} arrived within {seconds} s")

    def _context(self, leaf: Leaf) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(leaf.certificate, leaf.key)
        context.set_alpn_protocols(["http/1.1"])
        return context

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                sock, peer = self._listener.accept()
            except OSError:
                return
            with self._witness.lock:
                seen = ConnectionSeen(len(self._witness.connections) + 1, int(peer[1]))
                self._witness.connections.append(seen)
                self._open.add(sock)
            threading.Thread(target=self._serve, args=(sock, seen), daemon=True).start()

    def _handshake(self, sock: socket.socket, seen: ConnectionSeen) -> ssl.SSLSocket:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

        def choose(tls: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> int | None:
            seen.sni = name or ""
            chosen = self._contexts.get(seen.sni)
            if chosen is None:
                return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
            tls.context = chosen
            return None

        context.sni_callback = choose
        context.set_alpn_protocols(["http/1.1"])
        return context.wrap_socket(sock, server_side=True)

    def _serve(self, sock: socket.socket, seen: ConnectionSeen) -> None:
        current: socket.socket = sock
        try:
            sock.settimeout(_IDLE_S)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            tls = self._handshake(sock, seen)
            seen.handshake = True
            with self._witness.lock:
                self._open.discard(sock)
                self._open.add(tls)
            current = tls
            self._exchange_all(tls, seen)
        except (OSError, WireError, ValueError) as error:
            seen.failure = seen.failure or f"{type(error).__name__}: {error}"
        finally:
            with self._witness.lock:
                self._open.discard(current)
            current.close()

    def _exchange_all(self, tls: ssl.SSLSocket, seen: ConnectionSeen) -> None:
        kept = bytearray()

        def receive(count: int) -> bytes:
            data = tls.recv(count)
            seen.received += len(data)
            return data

        def proceed() -> None:
            tls.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")

        while (request := read_request(receive, kept, proceed)) is not None:
            reply, extra = _encoded(request, self._answer(request))
            self._respond(tls, seen, request, reply, extra)
            if reply.close or request.field("connection").lower() == "close":
                tls.unwrap()
                return

    def _answer(self, request: Request) -> Reply:
        host, path = request.field("host"), request.target.partition("?")[0]
        if (host, path) in self.files:
            kind = "application/octet-stream" if "." in path.rpartition("/")[2] else "text/html"
            return Reply(200, kind, (self.files[host, path],))
        if host.endswith(".amazonaws.com"):
            return self.bucket.answer(request)
        return mcp.answer(request) if host.startswith("mcp.") else answer(request)

    def _respond(
        self,
        tls: ssl.SSLSocket,
        seen: ConnectionSeen,
        request: Request,
        reply: Reply,
        extra: dict[str, str],
    ) -> None:
        body = b"".join(reply.parts)
        if reply.streamed:
            head = _response_head(reply, {**extra, "Transfer-Encoding": "chunked"})
        else:
            size = len(body) + (1000 if reply.cut else 0)
            head = _response_head(reply, {**extra, "Content-Length": str(size)})
        if request.method == "HEAD":
            body, reply = b"", replace(reply, parts=())
        self._keep(seen, request, reply, head, body)
        waits = iter(reply.waits)
        self._stopping.wait(next(waits, 0))
        tls.sendall(head)
        for part in reply.parts:
            self._stopping.wait(next(waits, 0))
            tls.sendall(chunk(part) if reply.streamed else part)
        if reply.hold:
            self._stopping.wait()
        elif reply.cut:
            tls.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raise WireError("cut, as asked")
        elif reply.streamed:
            tls.sendall(last_chunk(reply.trailers))

    def _keep(
        self, seen: ConnectionSeen, request: Request, reply: Reply, head: bytes, body: bytes
    ) -> None:
        record = RequestSeen(
            connection=seen.number,
            host=request.field("host"),
            method=request.method,
            target=request.target,
            head=request.head,
            body=request.body,
            status=reply.status,
            response_head=head,
            response_body=body,
            parts=tuple(len(part) for part in reply.parts),
        )
        with self._witness.lock:
            seen.requests += 1
            self._witness.requests.append(record)
        self._note(asdict(record))

    def _note(self, value: dict[str, Any]) -> None:
        if not self._log:
            return
        plain = {
            key: base64.b64encode(item).decode() if isinstance(item, bytes) else item
            for key, item in value.items()
        }
        with self._witness.lock:
            self._log.write(json.dumps(plain) + "\n")
            self._log.flush()
