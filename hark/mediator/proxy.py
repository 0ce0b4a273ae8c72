"""A proxy's CONNECT tunnel: what is asked, and what its answer means.

Rules: pure. The answer is hostile bytes: a bounded head, one status line, nothing read from its
fields. Bytes behind the head of a 2xx are a fault: they would be taken for the host's, and neither
a TLS nor an HTTP server speaks first.
Sources: RFC 9110 section 9.3.6 (CONNECT), section 15 (status codes); RFC 9112 section 4 (status
line); RFC 7617 (Basic).
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field

from hark import limits
from hark.policy.control import DialStatus

__all__ = ["Answer", "Verdict", "connect_request"]

_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])(?: [^\r\n\0]*)?\r?\n")
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_PROXY_AUTHENTICATION_REQUIRED = 407


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a proxy's answer means. ``code``: the HTTP status, 0 where there is none."""

    status: DialStatus
    code: int = 0


def connect_request(host: str, port: int, auth: bytes) -> bytes:
    """Return the request for a tunnel to ``host`` (a name) and ``port``."""
    lines = [f"CONNECT {host}:{port} HTTP/1.1".encode(), f"Host: {host}:{port}".encode()]
    if auth:
        lines.append(b"Proxy-Authorization: Basic " + base64.b64encode(auth))
    return b"\r\n".join([*lines, b"", b""])


@dataclass(slots=True)
class Answer:
    """A proxy's answer, as it comes in."""

    data: bytearray = field(default_factory=bytearray)
    interim: int = 0

    def feed(self, data: bytes) -> Verdict | None:
        """Take more bytes; empty: the proxy closed. None: the answer is not complete yet."""
        self.data += data
        while (end := _HEAD_END.search(self.data)) and end.end() <= limits.PROXY_ANSWER_MAX_BYTES:
            line = _STATUS_LINE.match(self.data)
            if line is None:
                return Verdict(DialStatus.PROXY_BROKEN)
            code = int(line[1])
            del self.data[: end.end()]
            if code >= 200 or code == 101:  # noqa: PLR2004 - RFC 9110 section 15.2
                return self.final(code)
            self.interim += 1
            if self.interim > limits.PROXY_INTERIM_MOST:
                return Verdict(DialStatus.PROXY_BROKEN, code)
        if not data or len(self.data) > limits.PROXY_ANSWER_MAX_BYTES or self.is_not_http():
            return Verdict(DialStatus.PROXY_BROKEN)
        return None

    def is_not_http(self) -> bool:
        """Whether what is there cannot begin a status line: do not wait for the rest."""
        begin = b"HTTP/1."
        return bytes(self.data[: len(begin)]) != begin[: len(self.data)]

    def final(self, code: int) -> Verdict:
        """Judge the final answer; what is left in ``data`` came behind its head."""
        if 200 <= code < 300:  # noqa: PLR2004 - RFC 9110 section 15.3
            return Verdict(DialStatus.PROXY_BROKEN if self.data else DialStatus.OK, code)
        if code == _PROXY_AUTHENTICATION_REQUIRED:
            return Verdict(DialStatus.PROXY_AUTH, code)
        by_class = {4: DialStatus.PROXY_REFUSED, 5: DialStatus.PROXY_FAILED}
        return Verdict(by_class.get(code // 100, DialStatus.PROXY_BROKEN), code)
