"""Which header fields count, and the named rules for what does not (docs/spec/replay.md).

Pure, data first. Rules: a field that no list names is dropped as ``header:unlisted``, never
silently; a rule's pattern is text, never a regular expression, so it costs linear time whatever
the agent sends.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

__all__ = ["BUILTIN", "Rules", "Telemetry", "Volatile", "header_rule", "is_real_clock"]

VERSION = 1  # of the built-in telemetry rules and the header lists


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_KEPT = _words(
    "accept content-type content-encoding content-language content-range content-disposition "
    "content-md5 digest range cookie referer origin authorization proxy-authorization "
    "x-api-key api-key x-goog-api-key idempotency-key x-http-method-override prefer depth "
    "destination overwrite soapaction link slug location x-stainless-retry-count "
    "x-stainless-helper-method x-github-api-version notion-version stripe-version "
    "x-goog-user-project x-goog-fieldmask git-protocol last-event-id x-requested-with "
    "session_id session-id x-session-id"
)
_KEPT_PREFIXES = ("if-", "x-amz-", "anthropic-", "openai-", "mcp-", "grpc-")
_HOP = _words("connection keep-alive proxy-connection te trailer transfer-encoding upgrade expect")
_FRAMING = frozenset(("host", "content-length"))
_TRACE = _words(
    "traceparent tracestate b3 baggage x-request-id x-correlation-id x-client-request-id "
    "x-amzn-trace-id x-cloud-trace-context sentry-trace"
)
_TRACE_PREFIXES = ("x-b3-", "x-datadog-")
_CLIENT = _words("user-agent accept-encoding accept-language date dnt priority x-goog-api-client")
_CLIENT_PREFIXES = ("sec-", "x-stainless-", "amz-sdk-")


def header_rule(name: str) -> str | None:
    """Return the rule that drops a field, or None when it is kept; ``name`` is lower case."""
    if name in _KEPT:
        return None
    if name in _HOP:
        return "header:hop"
    if name in _FRAMING:
        return "header:framing"
    if name in _TRACE or name.startswith(_TRACE_PREFIXES):
        return "header:trace"
    if name in _CLIENT or name.startswith(_CLIENT_PREFIXES):
        return "header:client"
    return None if name.startswith(_KEPT_PREFIXES) else "header:unlisted"


def is_real_clock(determinism: str) -> bool:
    """Whether a run's determinism left the agent the real clock."""
    return determinism.rpartition("=")[2] not in ("epoch", "exact", "full")


def _glob(pattern: str, text: str) -> bool:
    """Match ``*`` only: fnmatch's brackets and question marks are ordinary characters here."""
    return fnmatchcase(text, pattern.replace("[", "[[]").replace("?", "[?]"))


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Requests whose bodies are not compared. ``path`` may hold ``*``; it excludes the query."""

    name: str
    host: str
    path: str
    method: str = "POST"

    def covers(self, method: str, host: str, path: str) -> bool:
        """Whether a request is this telemetry."""
        return (method, host) == (self.method, self.host) and _glob(self.path, path)


@dataclass(frozen=True, slots=True)
class Volatile:
    """A value that is not compared: a whole field, or ``length`` characters behind ``after``.

    ``field`` is a field name of the identity and may hold ``*``, as in ``body $.metadata.*``.
    """

    name: str
    host: str
    path: str
    field: str
    after: str = ""
    length: int = 0
    alphabet: str = "0123456789abcdef"

    def covers(self, host: str, path: str) -> bool:
        """Whether a request is one this rule speaks of."""
        return host == self.host and _glob(self.path, path)

    def apply(self, field: str, value: str) -> str | None:
        """Return the value without what is volatile, or None when the rule finds nothing."""
        if not _glob(self.field, field):
            return None
        if not self.after:
            return f"\0volatile:{self.name}\0"
        out, pos, found = [], 0, False
        while (at := value.find(self.after, pos)) >= 0:
            end = at + len(self.after)
            part = value[end : end + self.length]
            out.append(value[pos:end])
            pos = end
            if len(part) == self.length and all(c in self.alphabet for c in part):
                out.append(f"\0volatile:{self.name}\0")
                pos, found = end + self.length, True
        return "".join([*out, value[pos:]]) if found else None


@dataclass(frozen=True, slots=True)
class Rules:
    """The operator's and the built-in rules, and whether times are real."""

    telemetry: tuple[Telemetry, ...] = ()
    volatile: tuple[Volatile, ...] = ()
    real_times: bool = False

    def telemetry_of(self, method: str, host: str, path: str) -> str | None:
        """Return the name of the first telemetry rule for a request."""
        for rule in self.telemetry:
            if rule.covers(method, host, path):
                return rule.name
        return None

    def volatile_of(self, host: str, path: str) -> tuple[Volatile, ...]:
        """Return the volatile rules for a request."""
        return tuple(rule for rule in self.volatile if rule.covers(host, path))


# Bodies with process sizes, CPU numbers and batches whose cut depends on time.
BUILTIN = Rules(
    telemetry=(
        Telemetry("claude-event-log", "api.anthropic.com", "/api/event_logging/*"),
        Telemetry("openai-agents-traces", "api.openai.com", "/v1/traces/ingest"),
        Telemetry("codex-metrics", "ab.chatgpt.com", "/otlp/*"),
        Telemetry("gemini-log", "play.googleapis.com", "/log"),
    )
)
