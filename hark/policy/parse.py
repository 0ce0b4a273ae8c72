"""Policy TOML to a ``Layer``: the keys one file states, checked, with the line in every error.

Rules: pure. Every unknown key, wrong type and impossible value is a PolicyError that names the
file, the line where it can be found, the key and what to write instead. The meaning of each key:
docs/spec/policy.md.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from hark import limits
from hark.errors import InputError
from hark.policy.checked import MAX_PORT, file_path, host_name, unique, variable
from hark.policy.comparison import (
    RULE_TABLES,
    TelemetryTable,
    VolatileTable,
    check_telemetry,
    check_volatile,
)
from hark.policy.model import (
    BROAD_HEADERS,
    FORWARD_DOMAIN,
    HTTP_PORT,
    HTTPS_PORT,
    TIERS,
    Forward,
    Host,
    Limits,
    Policy,
    SecretBinding,
    Tier,
    Workspace,
)
from hark.policy.presets import Preset, expand, presets
from hark.policy.source import PathSteps, Source, UnknownKey, convert, decode, read_toml
from hark.policy.way_out import ForwardTable, UpstreamTable, check_forward, check_upstream

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FORMAT", "Layer", "parse_layer", "parse_limit"]

FORMAT = 1  # the optional key `version`

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

_SLUG = re.compile(r"[a-z][a-z0-9_.-]*\Z")
_PRESET_LABEL = re.compile(r"[a-z0-9-]+ [0-9]+\Z")
_SECRET_NAME = re.compile(r"[A-Za-z0-9_-]+\Z")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+\Z")  # RFC 9110 section 5.6.2
_PARAMETER = re.compile(r"[A-Za-z0-9._~-]+\Z")  # RFC 3986 section 2.3: never percent-encoded
_SIZE = re.compile(r"([0-9]{1,15}) ?([KMGT]?)(?:i?B)?\Z")
_TIME = re.compile(r"([0-9]{1,9}) ?([smhd]?)\Z")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

# Framing and routing fields: hark rewrites these itself, so no secret may be bound to them.
_NOT_FOR_SECRETS = frozenset(
    {"connection", "content-length", "host", "te", "trailer", "transfer-encoding", "upgrade"}
)


class HostTable(msgspec.Struct, forbid_unknown_fields=True):
    """``[[host]]`` as written."""

    name: str
    ports: list[int] | UnsetType = UNSET
    private: bool = False
    plain: bool | list[int] = False


class SecretTable(msgspec.Struct, forbid_unknown_fields=True):
    """``[secrets.NAME]`` as written."""

    env: str
    hosts: list[str]
    header: str | list[str] = []
    query: str | list[str] = []
    methods: list[str] = []


class LimitsTable(msgspec.Struct, forbid_unknown_fields=True):
    """``[limits]`` as written; sizes may be text such as ``"512M"``, times such as ``"90m"``."""

    pids: int | UnsetType = UNSET
    memory: int | str | UnsetType = UNSET
    cpu: int | UnsetType = UNSET
    disk: int | str | UnsetType = UNSET
    tmp: int | str | UnsetType = UNSET
    open_files: int | UnsetType = UNSET
    events: int | UnsetType = UNSET
    bytes: int | str | UnsetType = UNSET
    time: int | str | UnsetType = UNSET


class PolicyFile(msgspec.Struct, forbid_unknown_fields=True):
    """A policy file as written: every key is optional."""

    version: int | UnsetType = UNSET
    allow_hosts: list[str] | UnsetType = UNSET
    host: list[HostTable] | UnsetType = UNSET
    read_paths: list[str] | UnsetType = UNSET
    write_paths: list[str] | UnsetType = UNSET
    secrets: dict[str, Any] | UnsetType = UNSET  # values: str or SecretTable, converted one by one
    pass_env: list[str] | UnsetType = UNSET
    workspace: Workspace | UnsetType = UNSET
    tier: Tier | UnsetType = UNSET
    allow_downgrades: list[str] | UnsetType = UNSET
    limits: LimitsTable | UnsetType = UNSET
    upstream: UpstreamTable | UnsetType = UNSET
    forward: dict[str, Any] | UnsetType = UNSET  # values: ForwardTable, converted one by one
    preset: list[str] | UnsetType = UNSET
    from_presets: list[str] | UnsetType = UNSET
    volatile: list[VolatileTable] | UnsetType = UNSET
    telemetry: list[TelemetryTable] | UnsetType = UNSET


TABLES: dict[str | int, tuple[str, type[msgspec.Struct]]] = {
    "host": ("[[host]]", HostTable),
    "secrets": ("[secrets.NAME]", SecretTable),
    "limits": ("[limits]", LimitsTable),
    "upstream": ("[upstream]", UpstreamTable),
    "forward": ("[forward.NAME]", ForwardTable),
    **RULE_TABLES,
}


HINTS = {
    "host": "write [[host]], with two brackets, once for each host",
    "telemetry": "write [[telemetry]], with two brackets, once for each rule",
    "tier": f"one of {', '.join(TIERS)}",
    "volatile": "write [[volatile]], with two brackets, once for each rule",
    "workspace": "one of overlay, direct",
    "secrets": 'write [secrets] and below it name = "VARIABLE"',
}


@dataclass(frozen=True, slots=True)
class Layer:
    """One checked file. ``stated`` names the Policy fields, and ``limits.x``, that it gives."""

    source: str
    stated: frozenset[str]
    policy: Policy


def parse_layer(data: bytes, *, source: str, folder: str) -> Layer:
    """Check one policy file. ``folder`` is what its relative paths are relative to (absolute).

    Raises PolicyError for anything that is not exactly a policy.
    """
    src = Source(source, decode(data, source), PurePosixPath(folder))
    raw = shape(read_toml(src), PolicyFile, src, ())
    if raw.version not in (UNSET, FORMAT):
        src.fail(("version",), f"is {raw.version}; this hark reads version {FORMAT}")
    values: dict[str, Any] = {}
    for key, field_name, check in FIELDS:
        given = getattr(raw, key)
        if given is not UNSET:
            values[field_name] = check(given, src)
    if not isinstance(raw.preset, UnsetType):
        add_presets(values, check_preset(raw.preset, src))
    stated = set(values)
    if raw.limits is not UNSET:
        stated.discard("limits")
        stated.update(f"limits.{k}" for k in LIMIT_KEYS if getattr(raw.limits, k) is not UNSET)
    return Layer(source, frozenset(stated), Policy(**values))


def shape(raw: object, kind: type[S], src: Source, at: PathSteps) -> S:
    """Convert one table; an unknown key is reported with the nearest known one."""
    try:
        return convert(raw, kind, src, at, HINTS)
    except UnknownKey as error:
        table, struct = TABLES.get(error.at[0] if error.at else "", ("a policy", PolicyFile))
        known = [f.encode_name for f in msgspec.structs.fields(struct)]
        near = difflib.get_close_matches(error.key, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
        src.fail((*error.at, error.key), f"is not a key of {table}", hint)


# --- the keys -------------------------------------------------------------------------------------


def check_hosts(given: list[str], src: Source) -> tuple[str, ...]:
    """``allow_hosts``."""
    return host_names(given, src, ("allow_hosts",))


def host_names(given: list[str], src: Source, at: PathSteps) -> tuple[str, ...]:
    """Exact host names, in normal form, sorted, each once."""
    if len(given) > limits.POLICY_MAX_HOSTS:
        src.fail(at, f"has more than {limits.POLICY_MAX_HOSTS} names")
    return unique(host_name(text, src, (*at, i)) for i, text in enumerate(given))


def check_preset(given: list[str], src: Source) -> tuple[Preset, ...]:
    """``preset``: names of hark's own data."""
    known = presets()
    for i, text in enumerate(given):
        if text not in known:
            near = difflib.get_close_matches(text, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"presets: {', '.join(known)}"
            src.fail(("preset", i), f"({text!r}) is no preset", hint, text)
    return tuple(known[name] for name in unique(given))


def add_presets(values: dict[str, Any], chosen: tuple[Preset, ...]) -> None:
    """Add to a file's values what its presets stand for; their hosts are then stated by it."""
    names, tables = expand(chosen, values.get("allow_hosts", ()), values.get("hosts", ()))
    values["allow_hosts"] = names
    if tables:
        values["hosts"] = tables
    labels = (preset.label for preset in chosen)
    values["from_presets"] = unique((*values.get("from_presets", ()), *labels))


def check_from_presets(given: list[str], src: Source) -> tuple[str, ...]:
    """``from_presets``: as hark writes it into a run's policy text."""
    for i, text in enumerate(given):
        if not _PRESET_LABEL.match(text):
            hint = 'write preset = ["NAME"]; hark writes from_presets itself'
            src.fail(("from_presets", i), f"({text!r}) is no preset and version", hint, text)
    return unique(given)


def check_forwards(given: dict[str, Any], src: Source) -> tuple[Forward, ...]:
    """``[forward]``."""
    return check_forward(given, src, shape)


def check_host_tables(given: list[HostTable], src: Source) -> tuple[Host, ...]:
    """``[[host]]``: each name once."""
    if len(given) > limits.POLICY_MAX_HOSTS:
        src.fail(("host",), f"has more than {limits.POLICY_MAX_HOSTS} tables")
    hosts = [host_table(table, src, ("host", i)) for i, table in enumerate(given)]
    names: set[str] = set()
    for i, host in enumerate(hosts):
        if host.name in names:
            hint = "join the tables: one name, all its ports, plain = [the ports without TLS]"
            src.fail(("host", i, "name"), f"({host.name!r}) has a table already", hint)
        names.add(host.name)
    return tuple(sorted(hosts, key=lambda h: h.name))


def host_table(table: HostTable, src: Source, at: PathSteps) -> Host:
    """One ``[[host]]`` table."""
    name = host_name(table.name, src, (*at, "name"))
    if name.endswith(f".{FORWARD_DOMAIN}"):
        hint = f"write [forward.NAME]; hark names it NAME.{FORWARD_DOMAIN}"
        src.fail((*at, "name"), f"({name!r}) is a name of hark's own", hint, table.name)
    default = [HTTP_PORT] if table.plain is True else [HTTPS_PORT]
    given = default if isinstance(table.ports, UnsetType) else table.ports
    ports = port_list(given, src, (*at, "ports"))
    if isinstance(table.plain, bool):
        plain = ports if table.plain else ()
    else:
        plain = port_list(table.plain, src, (*at, "plain"))
    for port in plain:
        if port not in ports:
            hint = f"add {port} to ports"
            src.fail((*at, "plain"), f"names port {port}, which is not in ports", hint)
    return Host(name=name, ports=ports, plain_ports=plain, private=table.private)


def port_list(given: list[int], src: Source, at: PathSteps) -> tuple[int, ...]:
    """Ports 1..65535, ascending, each once."""
    if not given and at[-1] == "ports":
        src.fail(at, "is empty", "leave the key out for 443")
    if len(given) > limits.POLICY_MAX_PORTS_PER_HOST:
        src.fail(at, f"has more than {limits.POLICY_MAX_PORTS_PER_HOST} ports")
    for port in given:
        if not 1 <= port <= MAX_PORT:
            src.fail(at, f"holds {port}; ports are 1 to 65535")
    return tuple(sorted(set(given)))


def check_read(given: list[str], src: Source) -> tuple[str, ...]:
    """``read_paths``."""
    return path_list(given, src, "read_paths")


def check_write(given: list[str], src: Source) -> tuple[str, ...]:
    """``write_paths``: never the whole file system."""
    paths = path_list(given, src, "write_paths")
    if "/" in paths:
        src.fail(("write_paths",), "names /", "name the folders the agent may change")
    return paths


def path_list(given: list[str], src: Source, key: str) -> tuple[str, ...]:
    """Absolute paths, or paths below the person's home as ``~/...``."""
    if len(given) > limits.POLICY_MAX_PATHS:
        src.fail((key,), f"has more than {limits.POLICY_MAX_PATHS} paths")
    return unique(file_path(text, src, (key, i)) for i, text in enumerate(given))


def check_secrets(given: dict[str, Any], src: Source) -> tuple[SecretBinding, ...]:
    """``[secrets]``: text binds broadly, a table narrowly."""
    if len(given) > limits.POLICY_MAX_SECRETS:
        src.fail(("secrets",), f"has more than {limits.POLICY_MAX_SECRETS} entries")
    bindings = [secret(name, raw, src) for name, raw in sorted(given.items())]
    envs: dict[str, str] = {}
    for binding in bindings:
        other = envs.setdefault(binding.env, binding.name)
        if other != binding.name:
            at = ("secrets", binding.name)
            src.fail(at, f"reads {binding.env}, which {other!r} reads already")
    return tuple(bindings)


def secret(name: str, raw: object, src: Source) -> SecretBinding:
    """One entry of ``[secrets]``."""
    at: PathSteps = ("secrets", name)
    longest = limits.PLACEHOLDER_NAME_MAX_CHARS
    if not _SECRET_NAME.match(name) or len(name) > longest:
        src.fail(at, f"is no secret name: at most {longest} letters, digits, '_' and '-'")
    if isinstance(raw, str):
        return SecretBinding(name=name, env=variable(raw, src, at), broad=True)
    if not isinstance(raw, dict):
        hint = f'write {name} = "VARIABLE", or a table [secrets.{name}]'
        src.fail(at, "must be the name of a variable, or a table", hint)
    table = shape(raw, SecretTable, src, at)
    if not table.hosts:
        src.fail((*at, "hosts"), "is empty", "name the hosts the secret may go to")
    if not table.header and not table.query:
        src.fail(at, "says no place for the secret", 'such as header = "authorization"')
    return SecretBinding(
        name=name,
        env=variable(table.env, src, (*at, "env")),
        hosts=host_names(table.hosts, src, (*at, "hosts")),
        headers=header_names(listed(table.header), src, (*at, "header")),
        queries=parameter_names(listed(table.query), src, (*at, "query")),
        methods=unique(method(m, src, (*at, "methods", i)) for i, m in enumerate(table.methods)),
    )


def listed(given: str | list[str]) -> list[str]:
    """One text, or a list of them, as a list."""
    return [given] if isinstance(given, str) else given


def parameter_names(given: list[str], src: Source, at: PathSteps) -> tuple[str, ...]:
    """Names of query parameters that may carry a secret; they are case-sensitive."""
    if len(given) > limits.POLICY_MAX_HEADERS_PER_SECRET:
        src.fail(at, f"names more than {limits.POLICY_MAX_HEADERS_PER_SECRET} parameters")
    for text in given:
        if not _PARAMETER.match(text):
            src.fail(at, f"({text!r}) is no name of a query parameter", "such as 'key'", text)
    return unique(given)


def header_names(given: list[str], src: Source, at: PathSteps) -> tuple[str, ...]:
    """Field names that may carry a secret, lower case."""
    if len(given) > limits.POLICY_MAX_HEADERS_PER_SECRET:
        src.fail(at, f"names more than {limits.POLICY_MAX_HEADERS_PER_SECRET} header fields")
    names = unique(text.lower() for text in given)
    for name in names:
        if not _TOKEN.match(name) or name in _NOT_FOR_SECRETS:
            hint = f"such as {BROAD_HEADERS[1]!r} or 'x-api-key'"
            src.fail(at, f"({name!r}) is no header field a secret can stand in", hint)
    return names


def method(text: str, src: Source, at: PathSteps) -> str:
    """One request method; they are case-sensitive (RFC 9110 section 9.1)."""
    if not _TOKEN.match(text) or text != text.upper():
        src.fail(at, f"({text!r}) is no request method", 'such as "GET" or "POST"', text)
    return text


def check_pass_env(given: list[str], src: Source) -> tuple[str, ...]:
    """``pass_env``."""
    return unique(variable(text, src, ("pass_env", i)) for i, text in enumerate(given))


def check_downgrades(given: list[str], src: Source) -> tuple[str, ...]:
    """``allow_downgrades``: names of features, as `hark doctor` prints them."""
    for i, text in enumerate(given):
        if not _SLUG.match(text):
            hint = "use the names that `hark doctor` prints"
            src.fail(("allow_downgrades", i), f"({text!r}) is no feature name", hint, text)
    return unique(given)


def check_limits(given: LimitsTable, src: Source) -> Limits:
    """``[limits]``."""
    values: dict[str, int] = {}
    for key, (least, most) in LIMIT_KEYS.items():
        raw = getattr(given, key)
        if raw is UNSET:
            continue
        at: PathSteps = ("limits", key)
        value = amount(key, raw, src, at) if isinstance(raw, str) else raw
        if not least <= value <= most:
            src.fail(at, f"is {value}; it must be {least} to {most}")
        values[key] = value
    return Limits(**values)


def parse_limit(text: str, base: Limits) -> Limits:
    """Return ``base`` with one limit set as an option states it: ``NAME=VALUE``."""
    name, equals, value = text.partition("=")
    names = ", ".join(LIMIT_KEYS)
    if not equals or name not in LIMIT_KEYS:
        raise InputError(f"--limit {text}: not NAME=VALUE", "", f"names: {names}")
    src = Source(f"--limit {text}", "", PurePosixPath("/"))
    given: Any = int(value) if value.isascii() and value.isdecimal() else value
    if not isinstance(given, int) and name not in TEXT_LIMITS:
        src.fail(("limits", name), f"({value!r}) is no number")
    checked = check_limits(LimitsTable(**{name: given}), src)
    return replace(base, **{name: getattr(checked, name)})


def amount(key: str, text: str, src: Source, at: PathSteps) -> int:
    """Read a limit that was written as text: a time or a size."""
    return seconds(text, src, at) if key == "time" else size(text, src, at)


def seconds(text: str, src: Source, at: PathSteps) -> int:
    """Seconds of a time such as ``90m``."""
    match = _TIME.match(text)
    if not match:
        src.fail(at, f"({text!r}) is no time", 'write seconds, or "90s", "30m", "8h", "2d"')
    return int(match[1]) * _SECONDS[match[2]]


def size(text: str, src: Source, at: PathSteps) -> int:
    """Bytes of a size such as ``512M``: powers of 1024."""
    match = _SIZE.match(text)
    if not match:
        src.fail(at, f"({text!r}) is no size", 'write bytes, or "512M", "2G"')
    return int(match[1]) * _UNITS[match[2]]


def as_written(given: T, _src: Source) -> T:
    """Return a value that msgspec has checked completely."""
    return given


TEXT_LIMITS = frozenset({"memory", "disk", "tmp", "bytes", "time"})  # with a unit

LIMIT_KEYS: dict[str, tuple[int, int]] = {
    "pids": (limits.PIDS_LEAST, limits.PIDS_MOST),
    "memory": (limits.MEMORY_LEAST_BYTES, limits.MEMORY_MOST_BYTES),
    "cpu": (limits.CPU_LEAST_PERCENT, limits.CPU_MOST_PERCENT),
    "disk": (limits.DISK_LEAST_BYTES, limits.DISK_MOST_BYTES),
    "tmp": (limits.TMP_LEAST_BYTES, limits.MEMORY_MOST_BYTES),
    "open_files": (limits.OPEN_FILES_LEAST, limits.OPEN_FILES_MOST),
    "events": (limits.EVENTS_LEAST, limits.EVENTS_MOST),
    "bytes": (limits.BUNDLE_LEAST_BYTES, limits.BUNDLE_MOST_BYTES),
    "time": (limits.TIME_LEAST_S, limits.TIME_MOST_S),
}

FIELDS: tuple[tuple[str, str, Callable[[Any, Source], Any]], ...] = (
    ("allow_hosts", "allow_hosts", check_hosts),
    ("host", "hosts", check_host_tables),
    ("read_paths", "read_paths", check_read),
    ("write_paths", "write_paths", check_write),
    ("secrets", "secrets", check_secrets),
    ("pass_env", "pass_env", check_pass_env),
    ("workspace", "workspace", as_written),
    ("tier", "tier", as_written),
    ("allow_downgrades", "allow_downgrades", check_downgrades),
    ("limits", "limits", check_limits),
    ("upstream", "way_out", check_upstream),
    ("forward", "forwards", check_forwards),
    ("from_presets", "from_presets", check_from_presets),
    ("volatile", "volatile", check_volatile),
    ("telemetry", "telemetry", check_telemetry),
)
