"""What to tell an operator about a refusal: the hint beside an event, and the lines at the end.

Pure. Rules: a hint names the one line to add or the one thing to check. Text that the agent made
is escaped before it stands in a line for a terminal.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hark import limits
from hark.policy.environment import CA_PATH
from hark.policy.model import HTTP_PORT

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NOTED", "Notices", "ca_hint", "hint", "printable"]

# Reasons the mediator reports without having refused anything (csrc/mediator/hark_reasons.h).
NOTED = frozenset(
    {
        "placeholder_elsewhere",
        "placeholder_denied_host",
        "upgrade_stripped",
        "chunk_extension",
        "eof_framed",
        "range_removed",
        "reflected",
    }
)

_NOTED_TEXT = {
    "placeholder_elsewhere": "a placeholder was sent outside the headers it is bound to",
    "placeholder_denied_host": "a placeholder was on its way to a denied host",
    "upgrade_stripped": "an Upgrade: h2c header was removed",
    "chunk_extension": "chunk extensions were removed",
    "eof_framed": "a response ended with its connection",
    "range_removed": "Range was removed from a request that may carry a credential",
    "reflected": "a credential came back from the host and was replaced",
}

_SECRET_DETAIL = re.compile(
    rb"secret (\d{1,5}) in (.*)\Z", re.DOTALL
)  # hark_exchange.c, note_secret
_HOST_NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)+\Z")

# Which variable a client reads for its CA certificates. The first part that a program's file name
# begins with wins. hark sets all of them, so a refusal means that the program lost its environment
# or brings its own roots.
_CA_VARIABLES = (
    ("node", "NODE_EXTRA_CA_CERTS"),
    ("bun", "NODE_EXTRA_CA_CERTS"),
    ("npm", "NODE_EXTRA_CA_CERTS"),
    ("deno", "DENO_CERT"),
    ("curl", "CURL_CA_BUNDLE"),
    ("git", "GIT_SSL_CAINFO"),
    ("pip", "PIP_CERT"),
    ("aws", "AWS_CA_BUNDLE"),
    ("cargo", "CARGO_HTTP_CAINFO"),
    ("uv", "SSL_CERT_FILE"),
    ("java", "JAVA_TOOL_OPTIONS"),
    ("python", "SSL_CERT_FILE (REQUESTS_CA_BUNDLE for requests)"),
)

_HINTS = {
    "no_sni": "connect by the host's name: hark decides by the TLS server name",
    "sni_invalid": "the client sent something that is no host name as TLS server name",
    "ip_literal": "use the host's name instead of its address, and allow that name",
    "host_mismatch": "the Host header differs from the TLS server name: one connection, one host",
    "connect_denied": "unset HTTPS_PROXY in the agent: hark needs no proxy settings",
    "upgrade_refused": "WebSocket and other upgrades are not mediated",
    "tcp_denied": "hosts are reached by their names, services of the host by [forward]",
    "not_http": "only TLS and HTTP/1 are mediated",
    "plain_http_on_tls_port": "the client spoke clear text to a TLS port: check its URL",
    "client_silent": "the client connected and sent nothing",
    "upstream_certificate": "if the host has a private CA, name it with --upstream-ca FILE",
    "dial_resolve": "the name does not resolve on this host",
    "proxy_unreachable": "check proxy in [upstream] of the policy",
    "proxy_auth": "check auth in [upstream]: its variable holds user:password",
    "proxy_refused": "the proxy in [upstream] does not allow this host; reach it by no_proxy?",
    "proxy_broken": "what proxy in [upstream] names does not answer as an HTTP proxy",
    "dial_unrecorded": "the recording failed, so the dial was not made",
}


# NAME and PORT are filled in. A name that is no host name never stands in a policy line.
_NAMED_HINTS = {
    "host_denied": 'if the agent may reach it, add "NAME" to allow_hosts',
    "host_denied_port": 'if the agent may reach it, add [[host]] name = "NAME", ports = [PORT]',
    "port_denied": 'if the agent may use this port, add PORT to ports of [[host]] name = "NAME"',
    "tcp_denied": (
        'if NAME speaks TLS or HTTP there, add [[host]] name = "NAME", ports = [PORT]; '
        "any other protocol leaves by [forward] alone"
    ),
    "plain_http_denied": (
        'if clear text is acceptable, add [[host]] name = "NAME", ports = [PORT], plain = true'
    ),
    "credential_wrong_host": (
        'if this host may get the secret, add "NAME" to hosts of its [secrets] table'
    ),
    "dial_private": 'if a private address is right, set private = true in [[host]] name = "NAME"',
}


def printable(text: str | bytes) -> str:
    """``text`` with everything but printable ASCII escaped."""
    if isinstance(text, bytes):
        text = text.decode("latin-1")
    return "".join(
        c if " " <= c <= "~" and c != "\\" else c.encode("unicode_escape").decode() for c in text
    )


def hint(reason: str, name: str, port: int | None) -> str:
    """Say what to do about one refusal of the mediator; empty when there is nothing to do."""
    if reason == "host_denied" and port not in (None, 443):
        reason = "plain_http_denied" if port == HTTP_PORT else "host_denied_port"
    template = _NAMED_HINTS.get(reason)
    if template is None:
        return _HINTS.get(reason, "")
    if not _HOST_NAME.match(name) or (port is None and "PORT" in template):
        return _HINTS.get(reason, "")
    return template.replace("NAME", name).replace("PORT", str(port))


def ca_hint(program: bytes) -> str:
    """Say what to do about a client that refused the run's CA, by its program's file name."""
    base = program.rsplit(b"/", 1)[-1].decode("latin-1").lower()
    for prefix, variable in _CA_VARIABLES:
        if base.startswith(prefix):
            return f"this program reads {variable}: do not unset or replace it inside the agent"
    return (
        "the program has its own list of CAs or pins certificates; have it trust the file in "
        f"SSL_CERT_FILE, {CA_PATH} inside the run"
    )


def noted_text(reason: str, detail: bytes, host: str, secret: Callable[[int], str | None]) -> str:
    """Say what a reason of ``NOTED`` is about: where, of which secret, to which host.

    ``detail`` is the mediator's; it names a secret by its index, which ``secret`` knows.
    """
    parts = [_NOTED_TEXT.get(reason, reason)]
    if match := _SECRET_DETAIL.match(detail):
        parts.append(f"secret {secret(int(match[1])) or '?'} in {printable(match[2])}")
    elif detail:
        parts.append(printable(detail))
    if host:
        parts.append(printable(host))
    return "; ".join(parts)


@dataclass(slots=True)
class Notices:
    """Which notices were given already, and the counts for the lines at the end."""

    seen: set[tuple[str, str]] = field(default_factory=set)
    hints: dict[tuple[str, str], str] = field(default_factory=dict)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def first(self, subject: str, about: str) -> bool:
        """Whether this is the first notice of its kind, and the run may still make some."""
        if (subject, about) in self.seen or len(self.seen) >= limits.NOTICE_MAX:
            return False
        self.seen.add((subject, about))
        return True

    def refused(self, reason: str, about: str, text: str) -> None:
        """Count one refusal for ``lines``."""
        key = (reason, about)
        if key in self.hints or len(self.hints) < limits.NOTICE_MAX:
            self.hints.setdefault(key, text)
            self.counts[key] += 1
        else:
            self.counts["other", ""] += 1

    def lines(self) -> list[str]:
        """Lines for the operator: the most frequent refusals, each with its hint."""
        out = []
        ranked = self.counts.most_common()
        for (reason, about), count in ranked[: limits.NOTICE_LINES_MOST]:
            what = f" {printable(about)}" if about else ""
            times = f" ({count} times)" if count > 1 else ""
            out.append(f"hark: refused: {reason.replace('_', ' ')}{what}{times}")
            if text := self.hints.get((reason, about)):
                out.append(f"hark: hint: {text}")
        if rest := sum(count for _, count in ranked[limits.NOTICE_LINES_MOST :]):
            out.append(f"hark: refused: {rest} more, see `hark inspect --kind denied`")
        return out
