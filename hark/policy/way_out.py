"""``[upstream]`` and ``[forward.NAME]`` of a policy file: how a run's connections leave, checked.

Rules: pure. What the tables mean: docs/spec/policy.md, "The way out" and "Forwards".
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from hark import limits
from hark.policy.checked import MAX_PORT, file_path, unique, variable
from hark.policy.model import FORWARD_DOMAIN, Forward, Proxy, WayOut
from hark.policy.names import name_fault, normalise

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from hark.policy.source import PathSteps, Source

__all__ = ["ForwardTable", "UpstreamTable", "check_forward", "check_upstream"]

_FORWARD_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?\Z")


class UpstreamTable(msgspec.Struct, forbid_unknown_fields=True):
    """``[upstream]`` as written."""

    proxy: str = ""
    auth: str = ""
    no_proxy: list[str] = []
    ca: str = ""


class ForwardTable(msgspec.Struct, forbid_unknown_fields=True):
    """``[forward.NAME]`` as written."""

    to: str
    port: int = 0
    http: bool = False


def check_upstream(given: UpstreamTable, src: Source) -> WayOut:
    """``[upstream]``."""
    ca = file_path(given.ca, src, ("upstream", "ca")) if given.ca else ""
    if given.proxy:
        return WayOut(proxy=proxy(given, src), ca=ca)
    for key, value in (("auth", given.auth), ("no_proxy", given.no_proxy)):
        if value:
            src.fail(("upstream", key), "is there, and no proxy", 'add proxy = "http://HOST:PORT"')
    return WayOut(ca=ca)


def proxy(given: UpstreamTable, src: Source) -> Proxy:
    """Check the proxy, what it wants to know, and who is reached without it."""
    host, port = proxy_address(given.proxy, src)
    at: PathSteps = ("upstream", "no_proxy")
    if len(given.no_proxy) > limits.POLICY_MAX_HOSTS:
        src.fail(at, f"has more than {limits.POLICY_MAX_HOSTS} names")
    return Proxy(
        host=host,
        port=port,
        auth=variable(given.auth, src, ("upstream", "auth")) if given.auth else "",
        direct=unique(direct(text, src, (*at, i)) for i, text in enumerate(given.no_proxy)),
    )


def proxy_address(text: str, src: Source) -> tuple[str, int]:
    """Return host (a name or an address) and port of ``http://HOST:PORT``."""
    at: PathSteps = ("upstream", "proxy")
    hint = 'write proxy = "http://HOST:PORT"'
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        src.fail(at, "is no URL", hint)
    if "@" in parts.netloc:  # not echoed: it may hold the password
        hint = 'write auth = "VARIABLE", and put user:password into that variable'
        src.fail(at, "holds a user or a password", hint)
    if parts.scheme != "http":
        src.fail(at, "is spoken to in clear text, so its URL begins with http://", hint)
    if parts.path not in ("", "/") or parts.query or parts.fragment or not port or not host:
        src.fail(at, "must be a host and a port, and nothing more", hint)
    if not is_address(host) and (fault := name_fault(normalise(host))):
        src.fail(at, f"({host!r}) {fault}", hint)
    return normalise(host), port


def is_address(text: str) -> bool:
    """Whether ``text`` is an IPv4 or IPv6 address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def direct(text: str, src: Source, at: PathSteps) -> str:
    """One entry of ``no_proxy``: a name, or a dot and a name for all names below it."""
    name = normalise(text)
    if fault := name_fault(name.removeprefix(".")):
        hint = 'write a name, or ".corp.example" for all names below it'
        src.fail(at, f"({text!r}) {fault}", hint, text)
    return name


def check_forward(
    given: dict[str, Any],
    src: Source,
    shape: Callable[[object, type[ForwardTable], Source, PathSteps], ForwardTable],
) -> tuple[Forward, ...]:
    """``[forward]``: a table for each service. ``shape`` gives one its form."""
    if len(given) > limits.POLICY_MAX_FORWARDS:
        src.fail(("forward",), f"has more than {limits.POLICY_MAX_FORWARDS} entries")
    forwards = []
    for name, raw in sorted(given.items()):
        at: PathSteps = ("forward", name)
        if not isinstance(raw, dict):
            src.fail(at, "must be a table", f'write [forward.{name}] and to = "127.0.0.1:PORT"')
        forwards.append(forward(name, shape(raw, ForwardTable, src, at), src, at))
    return tuple(forwards)


def forward(name: str, table: ForwardTable, src: Source, at: PathSteps) -> Forward:
    """One ``[forward.NAME]`` table."""
    if not _FORWARD_NAME.match(name) or name_fault(f"{name}.{FORWARD_DOMAIN}"):
        src.fail(at, "is no service name: a-z, 0-9 and inner hyphens, at most 63")
    address, port = service_address(table.to, src, (*at, "to"))
    inside = table.port or port
    if not 1 <= inside <= MAX_PORT:
        src.fail((*at, "port"), f"is {inside}; ports are 1 to {MAX_PORT}")
    return Forward(name=name, address=address, target=port, port=inside, http=table.http)


def service_address(text: str, src: Source, at: PathSteps) -> tuple[str, int]:
    """Return address, as ``ipaddress`` writes it, and port of ``ADDRESS:PORT``."""
    hint = 'write an address and a port, such as "127.0.0.1:11434" or "[::1]:5432"'
    host, _, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not port.isascii() or not port.isdigit() or not is_address(bare) or "%" in bare:
        src.fail(at, f"({text!r}) is no address with a port", hint, text)
    if ((":" in bare) != host.startswith("[")) or not 1 <= int(port) <= MAX_PORT:
        src.fail(at, f"({text!r}) is no address with a port", hint, text)
    address = ipaddress.ip_address(bare)
    if not address.is_private or address.is_unspecified or address.is_link_local:
        hint = "a public host is reached by name: [[host]]"
        src.fail(at, f"({text!r}) is no address of this host or of its own network", hint, text)
    return str(address), int(port)
