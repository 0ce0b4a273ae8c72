"""What a run may do, as frozen values: the policy as written, and the table compiled from it.

``parse`` makes a ``Policy`` from TOML, ``layers`` joins several, ``compile_policy`` makes the one
flat table that the mediator and the broker read. Rules: values only, no I/O, and no
secret value ever: those live in ``secrets.Secret``, whose repr hides them.
The format and the meaning of every key: docs/spec/policy.md.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

__all__ = [
    "BROAD_HEADERS",
    "FORWARD_DOMAIN",
    "HEX",
    "HTTPS_PORT",
    "HTTP_PORT",
    "TABLE_VERSION",
    "TIERS",
    "CompiledHost",
    "CompiledPolicy",
    "CompiledSecret",
    "Determinism",
    "Forward",
    "Host",
    "Limits",
    "Policy",
    "Proxy",
    "Redirect",
    "SecretBinding",
    "Telemetry",
    "Tier",
    "Volatile",
    "WayOut",
    "Workspace",
]

HTTPS_PORT = 443
HTTP_PORT = 80

# Services of `[forward]` have names below it. `.internal` is nobody's in public DNS: ICANN keeps it
# for private use (board resolution of 2024-07-29).
FORWARD_DOMAIN = "hark.internal"

TABLE_VERSION = 2  # raised when the meaning of CompiledHost or CompiledSecret changes
HEX = "0123456789abcdef"

Workspace = Literal["overlay", "direct"]


class Determinism(StrEnum):
    """What a run does so that another execution is the same (docs/spec/replay.md, "Modes")."""

    OFF = "off"
    LIGHT = "light"


Tier = Literal["record", "contain", "full"]
TIERS: tuple[Tier, ...] = ("record", "contain", "full")  # weakest first

# Where a client puts a bearer credential: RFC 9110 section 11.6.2, and the names that the larger
# HTTP APIs document (Anthropic, Azure, Google, GitLab, and many others).
BROAD_HEADERS = (
    "api-key",
    "authorization",
    "private-token",
    "x-api-key",
    "x-auth-token",
    "x-goog-api-key",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One ``[[host]]`` table, or one name of ``allow_hosts`` (port 443 and nothing else).

    ``ports`` and ``plain_ports`` ascend; ``plain_ports`` (a part of ``ports``) may also be spoken
    to without TLS. ``private``: the name may resolve to a private address.
    """

    name: str
    ports: tuple[int, ...] = (HTTPS_PORT,)
    plain_ports: tuple[int, ...] = ()
    private: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretBinding:
    """Where one secret may go. Holds the name of the variable, never its value.

    ``headers`` are lower case. ``queries``: parameters of the request target, as written.
    ``methods`` empty: any. ``broad``: written as ``name = "ENV"``, so
    ``hosts`` is empty and means every name of ``allow_hosts``, and ``headers`` is BROAD_HEADERS.
    """

    name: str
    env: str
    hosts: tuple[str, ...] = ()
    headers: tuple[str, ...] = BROAD_HEADERS
    queries: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    broad: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of the agent's tree. None: hark's default, or none where it has none.

    pids: tasks. memory: bytes. cpu: percent of one processor. disk: bytes of the agent's layers.
    tmp: bytes of each private tmpfs. open_files: per process. events: of the bundle. bytes: of the
    bundle's file. time: seconds from the start to the end of the agent.
    """

    pids: int | None = None
    memory: int | None = None
    cpu: int | None = None
    disk: int | None = None
    tmp: int | None = None
    open_files: int | None = None
    events: int | None = None
    bytes: int | None = None
    time: int | None = None


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Requests whose bodies a replay does not compare. ``path`` may hold ``*``; without query."""

    name: str
    host: str
    path: str
    method: str = "POST"


@dataclass(frozen=True, slots=True)
class Volatile:
    """A value that a replay does not compare: all of it, or ``length`` characters behind ``after``.

    About a request: ``host``, ``path`` and ``field``, a field name of the identity; both may hold
    ``*``. Or about an ``output`` stream, or the content of each written ``file`` (``*`` allowed).
    """

    name: str
    host: str = ""
    path: str = ""
    field: str = ""
    after: str = ""
    length: int = 0
    alphabet: str = HEX
    output: str = ""
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """An HTTP proxy that tunnels by CONNECT. ``host``: a name or an address.

    ``auth``: the variable that holds ``user:password``, or empty. ``direct``: names that are
    dialled without it; one that begins with a dot stands for every name below it.
    """

    host: str
    port: int
    auth: str = ""
    direct: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """Host and port, as messages and records have them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def carries(self, name: str) -> bool:
        """Whether the host ``name`` is reached through it."""
        return not any(
            name.endswith(entry) if entry.startswith(".") else name == entry
            for entry in self.direct
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WayOut:
    """``[upstream]``. ``ca``: a file with CAs that are trusted beside the system's, or empty."""

    proxy: Proxy | None = None
    ca: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """A service of the host's own network that the agent may use under a name of its own.

    ``address`` (as ``ipaddress`` writes it) and ``target`` are where it is; ``port`` is where the
    agent finds it. ``http``: spoken to as HTTP and recorded so; else bytes pass as they are.
    """

    name: str
    address: str
    target: int
    port: int
    http: bool = False

    @property
    def host(self) -> str:
        """The name the agent uses."""
        return f"{self.name}.{FORWARD_DOMAIN}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A whole policy. The defaults are the policy of a run that names none: nothing is allowed.

    Lists are sorted and without duplicates. Paths are absolute or begin with ``~/``.
    ``from_presets``: which presets (name and version) ``allow_hosts`` and ``hosts`` were made of
    in part; it allows nothing by itself.
    """

    allow_hosts: tuple[str, ...] = ()
    hosts: tuple[Host, ...] = ()
    read_paths: tuple[str, ...] = ()
    write_paths: tuple[str, ...] = ()
    secrets: tuple[SecretBinding, ...] = ()
    pass_env: tuple[str, ...] = ()
    workspace: Workspace = "overlay"
    tier: Tier = "contain"
    allow_downgrades: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    way_out: WayOut = field(default_factory=WayOut)
    forwards: tuple[Forward, ...] = ()
    from_presets: tuple[str, ...] = ()
    volatile: tuple[Volatile, ...] = ()
    telemetry: tuple[Telemetry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledHost:
    """One row of the host table. ``index`` is its place, and its name in every message.

    ``forward``: a row of ``[forward]``, dialled at its own address and nowhere else.
    """

    index: int
    name: str
    ports: tuple[int, ...]
    plain_ports: tuple[int, ...]
    private: bool
    forward: Forward | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledSecret:
    """One row of the secret table. ``hosts`` are indexes into the host table, ascending."""

    index: int
    name: str
    env: str
    hosts: tuple[int, ...]
    headers: tuple[str, ...]
    queries: tuple[str, ...]
    methods: tuple[str, ...]
    broad: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledPolicy:
    """What is enforced. ``hosts`` is sorted by name (bytewise), ``secrets`` too.

    ``limits`` has hark's defaults filled in; what is None there is not bounded.

    ``text`` is the canonical TOML of ``policy`` and parses back to it; ``digest`` is the BLAKE3
    digest (32 bytes) of ``text`` in UTF-8. The tables follow from the text alone.
    """

    version: int
    policy: Policy
    hosts: tuple[CompiledHost, ...]
    secrets: tuple[CompiledSecret, ...]
    limits: Limits
    text: str
    digest: bytes

    def find(self, name: str) -> CompiledHost | None:
        """Return the row of exactly ``name`` (lower case, no trailing dot), or None."""
        at = bisect_left(self.hosts, name, key=lambda host: host.name)
        if at < len(self.hosts) and self.hosts[at].name == name:
            return self.hosts[at]
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Redirect:
    """``--upstream HOST=IP:PORT``: dial ``address`` (4 or 16 bytes) and ``port`` instead of HOST.

    The name that is checked stays HOST. The only exemption from the address rules.
    """

    host: str
    address: bytes
    port: int
