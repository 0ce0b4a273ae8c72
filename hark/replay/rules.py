"""Which header fields count, and the named rules for what does not (docs/spec/replay.md).

Pure, data first. Rules: a field that no list names is dropped as ``header:unlisted``, never
silently; a rule's pattern is text, never a regular expression, so it costs linear time whatever
the agent sends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TypeVar

from hark.policy.model import Telemetry, Volatile

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hark.policy.model import Policy

__all__ = ["BUILTIN", "FieldRules", "Rules", "Telemetry", "Volatile"]
__all__ += ["header_rule", "is_real_clock"]

_R = TypeVar("_R", bound=Telemetry | Volatile)
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


def covers(rule: Telemetry, method: str, host: str, path: str) -> bool:
    """Whether a request is what a telemetry rule speaks of."""
    return (method, host) == (rule.method, rule.host) and _glob(rule.path, path)


def without(rule: Volatile, value: str) -> str | None:
    """Return a value without what is volatile in it, or None when the rule finds nothing."""
    if not rule.after:
        return f"\0volatile:{rule.name}\0"
    out, pos, found = [], 0, False
    while (at := value.find(rule.after, pos)) >= 0:
        end = at + len(rule.after)
        part = value[end : end + rule.length]
        out.append(value[pos:end])
        pos = end
        if len(part) == rule.length and all(c in rule.alphabet for c in part):
            out.append(f"\0volatile:{rule.name}\0")
            pos, found = end + rule.length, True
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
            if covers(rule, method, host, path):
                return rule.name
        return None

    def with_policy(self, policy: Policy) -> Rules:
        """Return these rules and the policy's own; of one name the policy's counts."""
        return replace(
            self,
            telemetry=tuple(_joined(self.telemetry, policy.telemetry)),
            volatile=tuple(_joined(self.volatile, policy.volatile)),
        )

    def of_request(self, host: str, path: str) -> FieldRules:
        """Return the volatile rules for a request."""
        chosen = (r for r in self.volatile if r.host == host and _glob(r.path, path))
        return FieldRules((rule.field, rule) for rule in chosen if host)

    def of_output(self, stream: str) -> FieldRules:
        """Return the volatile rules for an output stream."""
        chosen = [rule for rule in self.volatile if rule.output == stream]
        whole = [("length", rule) for rule in chosen if not rule.after]
        return FieldRules([*whole, *(("text", rule) for rule in chosen)])

    def of_file(self, path: str) -> str | None:
        """Return the name of the first rule by which a written file's content does not count."""
        rules = (rule for rule in self.volatile if rule.file)
        return next((rule.name for rule in rules if _glob(rule.file, path)), None)


class FieldRules:
    """Volatile rules with the fields they are about; ``used`` holds a name for each use."""

    def __init__(self, rules: Iterable[tuple[str, Volatile]]) -> None:
        self._rules = tuple(rules)
        self.used: list[str] = []

    def apply(self, field: str, value: str) -> str:
        """Return the value without what is volatile."""
        for pattern, rule in self._rules:
            if _glob(pattern, field) and (left := without(rule, value)) is not None:
                value = left
                self.used.append(rule.name)
        return value


def _joined(old: Iterable[_R], new: Iterable[_R]) -> Iterable[_R]:
    return {rule.name: rule for rule in (*old, *new)}.values()


# Bodies with process sizes, CPU numbers and batches whose cut depends on time.
BUILTIN = Rules(
    telemetry=(
        Telemetry("claude-event-log", "api.anthropic.com", "/api/event_logging/*"),
        Telemetry("openai-agents-traces", "api.openai.com", "/v1/traces/ingest"),
        Telemetry("codex-metrics", "ab.chatgpt.com", "/otlp/*"),
        Telemetry("gemini-log", "play.googleapis.com", "/log"),
    )
)
