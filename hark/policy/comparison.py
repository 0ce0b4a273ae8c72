"""``[[volatile]]`` and ``[[telemetry]]``: what of a replay is not compared, each under a name.

Rules: pure. A rule says what it is for by its name, and the verdict counts each use of it. There
are no regular expressions: a rule costs linear time whatever an agent sends. The meaning of each
key: docs/spec/policy.md, "What a replay does not compare".
"""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import msgspec

from hark import limits
from hark.policy.checked import host_name
from hark.policy.model import HEX, Telemetry, Volatile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hark.policy.source import PathSteps, Source

__all__ = [
    "RULE_TABLES",
    "TelemetryTable",
    "VolatileTable",
    "check_telemetry",
    "check_volatile",
    "rule_lines",
]

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*\Z")
_METHOD = re.compile(r"[A-Z]+\Z")
OUTPUTS = ("stdout", "stderr", "terminal")


class VolatileTable(msgspec.Struct, forbid_unknown_fields=True):
    """``[[volatile]]`` as written."""

    name: str
    host: str = ""
    path: str = ""
    field: str = ""
    output: str = ""
    file: str = ""
    after: str = ""
    length: int = 0
    alphabet: str = ""


class TelemetryTable(msgspec.Struct, forbid_unknown_fields=True):
    """``[[telemetry]]`` as written."""

    name: str
    host: str
    path: str
    method: str = "POST"


RULE_TABLES: dict[str | int, tuple[str, type[msgspec.Struct]]] = {
    "volatile": ("[[volatile]]", VolatileTable),
    "telemetry": ("[[telemetry]]", TelemetryTable),
}


def check_volatile(given: list[VolatileTable], src: Source) -> tuple[Volatile, ...]:
    """``[[volatile]]``: each name once, each table about one kind of place."""
    _once(given, src, "volatile")
    rules = [_volatile(table, src, ("volatile", i)) for i, table in enumerate(given)]
    return tuple(sorted(rules, key=lambda rule: rule.name))


def check_telemetry(given: list[TelemetryTable], src: Source) -> tuple[Telemetry, ...]:
    """``[[telemetry]]``: each name once."""
    _once(given, src, "telemetry")
    rules = []
    for i, table in enumerate(given):
        at: PathSteps = ("telemetry", i)
        if not _METHOD.match(table.method):
            src.fail((*at, "method"), f"({table.method!r}) is no request method", "such as POST")
        path = _glob(table.path, src, (*at, "path"))
        host = host_name(table.host, src, (*at, "host"))
        rules.append(Telemetry(table.name, host, path, table.method))
    return tuple(sorted(rules, key=lambda rule: rule.name))


def _once(given: list[Any], src: Source, key: str) -> None:
    if len(given) > limits.POLICY_MAX_RULES:
        src.fail((key,), f"has more than {limits.POLICY_MAX_RULES} tables")
    names: set[str] = set()
    for i, table in enumerate(given):
        at: PathSteps = (key, i, "name")
        if not _NAME.match(table.name) or len(table.name) > limits.PLACEHOLDER_NAME_MAX_CHARS:
            hint = "the verdict names the rule: small letters, digits, '-', '_' and '.'"
            src.fail(at, f"({table.name!r}) is no name of a rule", hint)
        if table.name in names:
            src.fail(at, f"({table.name!r}) has a table already")
        names.add(table.name)


def _volatile(table: VolatileTable, src: Source, at: PathSteps) -> Volatile:
    places = [key for key in ("host", "output", "file") if getattr(table, key)]
    if len(places) != 1:
        hint = 'host and field of a request, output = "stdout", or file = "logs/*"'
        src.fail(at, "must be about exactly one of host, output and file", hint)
    (place,) = places
    if place != "host" and (table.path or table.field):
        src.fail(at, f"has path or field beside {place}", "these belong to host")
    if place == "host" and not table.field:
        src.fail((*at, "field"), "is missing", "a field as a divergence prints it: body $.seed")
    if place == "output" and table.output not in OUTPUTS:
        src.fail(
            (*at, "output"), f"({table.output!r}) is no stream", f"one of {', '.join(OUTPUTS)}"
        )
    _check_part(table, place, src, at)
    return Volatile(
        table.name,
        host_name(table.host, src, (*at, "host")) if table.host else "",
        _glob(table.path or "*", src, (*at, "path")) if table.host else "",
        table.field,
        table.after,
        table.length,
        table.alphabet or HEX,
        output=table.output,
        file=_glob(table.file, src, (*at, "file")) if table.file else "",
    )


def _check_part(table: VolatileTable, place: str, src: Source, at: PathSteps) -> None:
    """Check ``after``, ``length`` and ``alphabet``: all of a part, or none."""
    if place == "file" and (table.after or table.length):
        src.fail(at, "has after or length beside file", "a file is compared as a whole, or not")
    if bool(table.after) != bool(table.length):
        src.fail(at, "needs after and length together", "how many characters follow which text")
    if table.alphabet and not table.after:
        src.fail((*at, "alphabet"), "stands without after and length")
    if not 0 <= table.length <= limits.POLICY_MAX_VOLATILE_CHARS:
        most = limits.POLICY_MAX_VOLATILE_CHARS
        src.fail((*at, "length"), f"is {table.length}; it must be 1 to {most}")
    for key in ("field", "after", "alphabet"):
        if any(ord(c) < ord(" ") or c == "\x7f" for c in getattr(table, key)):
            src.fail((*at, key), "holds a control character")


def _glob(text: str, src: Source, at: PathSteps) -> str:
    if not text or any(ord(c) < ord(" ") or c == "\x7f" for c in text):
        src.fail(at, f"({text!r}) is no path", "a path; * stands for any characters")
    return text


def rule_lines(
    volatile: Iterable[Volatile], telemetry: Iterable[Telemetry], text: Any
) -> Iterator[str]:
    """Write the tables, only what is not a default; ``text`` writes one TOML string."""
    for title, rules in (("[[volatile]]", volatile), ("[[telemetry]]", telemetry)):
        for rule in rules:
            yield title
            for item in fields(rule):
                value = getattr(rule, item.name)
                if value not in (item.default, ""):
                    yield f"{item.name} = {value if isinstance(value, int) else text(value)}"
