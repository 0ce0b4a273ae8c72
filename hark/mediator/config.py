"""What the mediator is told at start: one compiled table, written here, read by C.

Rules: pure, values in, bytes out. The layout is that of ``csrc/mediator/hark_policy.h``; texts are
``{u32 length, bytes, 0}``. The table holds credentials: it travels in a memfd only, and its bytes
are shown to nobody.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from struct import pack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hark.policy.model import CompiledHost, CompiledPolicy
    from hark.policy.secrets import Secret

__all__ = [
    "Credential",
    "HostEntry",
    "Limit",
    "MediatorConfig",
    "PortMode",
    "config_of",
    "encode",
    "port_mode",
]

SYSTEM_CA = "/etc/ssl/certs/ca-certificates.crt"  # Debian's ca-certificates

_MAGIC = 0x4D4B5248
_VERSION = 1


class _Op(IntEnum):
    """``enum hark_config_op``."""

    HOST = 1
    CRED = 2
    HOST_CA = 3
    SYSTEM_CA = 4
    LIMIT = 5
    IDS = 6
    PLAY = 7
    EXTRA_CA = 8


class PortMode(IntEnum):
    """Bits of ``enum hark_port_mode``."""

    TLS = 1
    PLAIN = 2
    BOTH = 3
    OPAQUE = 4


class Limit(IntEnum):
    """``enum hark_limit``: bounds with defaults in C that a table may change."""

    CONNECTIONS = 0
    HELLO_MS = 1
    HEAD_MS = 2
    IDLE_MS = 3
    BODY_MS = 4
    DENIED_MS = 5
    DENIED_BODY = 6
    DIAL_MS = 7
    RESPONSE_MS = 8
    POOL_MS = 9
    LINGER_MS = 10
    DESCRIPTORS = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEntry:
    """One host: its index in the run's table, its normalised name, its ports with their modes.

    ``ca_pem``: the only CAs trusted for it (``--upstream-ca``); empty: the system's.
    """

    index: int
    name: str
    ports: tuple[tuple[int, PortMode], ...]
    ca_pem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A secret and where it may go. A placeholder as long as its value keeps response lengths.

    ``queries``: parameters of the request target.
    """

    secret: int
    placeholder: str
    real: bytes = field(repr=False)
    headers: tuple[str, ...]
    hosts: tuple[int, ...]
    methods: tuple[str, ...] = ()
    queries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MediatorConfig:
    """The whole table. ``ids``: (uid, gid) to drop to; None keeps the starter's, for tests.

    ``play``: a replay, with answers from the recorder (HARK_MSG_PLAY) and without a network.
    ``extra_ca``: PEM of CAs that are trusted beside ``system_ca``.
    """

    hosts: tuple[HostEntry, ...]
    credentials: tuple[Credential, ...] = ()
    ids: tuple[int, int] | None = None
    system_ca: str = SYSTEM_CA
    limits: Mapping[Limit, int] = field(default_factory=dict)
    play: bool = False
    extra_ca: str = ""


def config_of(
    policy: CompiledPolicy,
    secrets: Sequence[Secret],
    *,
    ids: tuple[int, int],
    upstream_ca: Mapping[str, str] | None = None,
    play: bool = False,
    extra_ca: str = "",
) -> MediatorConfig:
    """Return the mediator's table for a compiled policy.

    ``upstream_ca``: host name to PEM text. ``extra_ca``: PEM text for all others.
    """
    cas = upstream_ca or {}
    hosts = tuple(
        HostEntry(
            index=host.index,
            name=host.name,
            ports=tuple((port, port_mode(host, port)) for port in host.ports),
            ca_pem=cas.get(host.name, ""),
        )
        for host in policy.hosts
    )
    credentials = tuple(
        Credential(
            secret=secret.binding.index,
            placeholder=secret.placeholder,
            real=secret.value,
            headers=secret.binding.headers,
            hosts=secret.binding.hosts,
            methods=secret.binding.methods,
            queries=secret.binding.queries,
        )
        for secret in secrets
        if secret.binding.hosts
    )
    return MediatorConfig(
        hosts=hosts, credentials=credentials, ids=ids, play=play, extra_ca=extra_ca
    )


def port_mode(host: CompiledHost, port: int) -> PortMode:
    """Return how a port of a host is spoken to."""
    if host.forward is not None:
        return PortMode.PLAIN if host.forward.http else PortMode.OPAQUE
    return PortMode.BOTH if port in host.plain_ports else PortMode.TLS


def encode(config: MediatorConfig) -> bytes:
    """Return the table's bytes. Raises ValueError for a text that holds a NUL."""
    items = [_host(host) for host in config.hosts]
    items += [_credential(credential) for credential in config.credentials]
    items += [
        _item(_Op.HOST_CA, pack("=I", host.index) + _text(host.ca_pem))
        for host in config.hosts
        if host.ca_pem
    ]
    items.append(_item(_Op.SYSTEM_CA, _text(config.system_ca)))
    items += [_item(_Op.LIMIT, pack("=IQ", which, n)) for which, n in config.limits.items()]
    if config.extra_ca:
        items.append(_item(_Op.EXTRA_CA, _text(config.extra_ca)))
    if config.play:
        items.append(_item(_Op.PLAY, b""))
    if config.ids is not None:
        items.append(_item(_Op.IDS, pack("=II", *config.ids)))
    return pack("=III", _MAGIC, _VERSION, len(items)) + b"".join(items)


def _item(op: _Op, body: bytes) -> bytes:
    return pack("=HHI", op, 0, len(body)) + body


def _text(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    if b"\0" in raw:
        raise ValueError("a text for the mediator holds a NUL")
    return pack("=I", len(raw)) + raw + b"\0"


def _texts(texts: Sequence[str]) -> bytes:
    return pack("=H", len(texts)) + b"".join(_text(text) for text in texts)


def _host(host: HostEntry) -> bytes:
    ports = b"".join(pack("=HH", port, mode) for port, mode in host.ports)
    return _item(
        _Op.HOST,
        pack("=I", host.index) + _text(host.name) + pack("=H", len(host.ports)) + ports,
    )


def _credential(credential: Credential) -> bytes:
    return _item(
        _Op.CRED,
        pack("=I", credential.secret)
        + _text(credential.placeholder)
        + _text(credential.real)
        + _texts([header.lower() for header in credential.headers])
        + pack(f"=H{len(credential.hosts)}I", len(credential.hosts), *credential.hosts)
        + _texts(credential.methods)
        + _texts(credential.queries),
    )
