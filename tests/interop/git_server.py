"""git's own HTTP backend behind TLS and Basic authorization, on loopback.

Rules. It is the external witness: it keeps the head of every request and a digest of its body, and
its repositories are looked at with git itself. Only POST and GET of git's smart protocol are passed
on.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import ssl
import subprocess
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import IO, TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pathlib import Path

    from stub.authority import Authority

__all__ = ["GitServer"]


class GitServer:
    """Serves the bare repositories below ``root`` to whoever has ``user`` and ``password``."""

    def __init__(self, root: Path, authority: Authority, host: str, login: tuple[str, str]) -> None:
        self.root = root
        self.heads: list[tuple[str, dict[str, str]]] = []
        self.bodies: list[str] = []  # SHA-256 of each request's body
        self.wanted = "Basic " + base64.b64encode(":".join(login).encode()).decode()
        leaf = authority.leaf(host)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(leaf.certificate, leaf.key)
        handler = type("Handler", (_Handler,), {"git": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    git: GitServer

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        self.git.heads.append((f"{self.command} {self.path}", dict(self.headers)))
        with tempfile.TemporaryFile() as body:
            size = self._take_body(body)
            self.git.bodies.append(hashlib.file_digest(body, "sha256").hexdigest())
            body.seek(0)
            if self.headers.get("Authorization") != self.git.wanted:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="git"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            with tempfile.TemporaryFile() as answer:
                subprocess.run(
                    ["git", "http-backend"],
                    stdin=body,
                    stdout=answer,
                    env=self._environment(size),
                    check=True,
                )
                answer.seek(0)
                self._answer(answer)

    def _take_body(self, to: IO[bytes]) -> int:
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                to.write(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
        else:
            to.write(self.rfile.read(int(self.headers.get("Content-Length", "0"))))
        size = to.tell()
        to.seek(0)
        return size

    def _environment(self, size: int) -> dict[str, str]:
        path, _, query = self.path.partition("?")
        return {
            "CONTENT_LENGTH": str(size),
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "GIT_CONFIG_COUNT": "2",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "GIT_CONFIG_KEY_1": "http.receivepack",
            "GIT_CONFIG_VALUE_1": "true",
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_PROJECT_ROOT": str(self.git.root),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "PATH": "/usr/bin:/bin",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REMOTE_USER": "agent",
            "REQUEST_METHOD": self.command,
        }

    def _answer(self, answer: IO[bytes]) -> None:
        fields = []
        while line := answer.readline().strip():
            fields.append(line.decode().split(": ", 1))
        status = dict(fields).get("Status", "200 OK")
        self.send_response(int(status.split()[0]))
        for name, value in fields:
            if name != "Status":
                self.send_header(name, value)
        start = answer.tell()
        self.send_header("Content-Length", str(answer.seek(0, 2) - start))
        self.end_headers()
        answer.seek(start)
        shutil.copyfileobj(answer, self.wfile)
