"""From a request to the ordered list of ops that ``hark-launch`` carries out.

``compile_plan`` is pure: the same request, host facts and capabilities give the same bytes, so
``--dry-run`` prints exactly what a run would do. What this kernel cannot do becomes a ``Downgrade``
with its effect in words; one that the policy does not allow is an error before anything is made.
"""

from __future__ import annotations

import re
import resource
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from hark import limits
from hark.errors import InputError, KernelUnsupported
from hark.launcher import landlock, network, ops, seccomp
from hark.launcher.ids import AGENT_OF_ROOT, IdMaps, Slot, agent_ids, id_maps, kernel_id
from hark.launcher.ops import NO_INDEX, Flag, IdRange, Op
from hark.launcher.resources import CGROUP_PREFIX, Enforced, Resources
from hark.locations import RUNS, RUNTIME
from hark.policy.environment import NAME_FOR_ROOT
from hark.policy.model import Determinism

if TYPE_CHECKING:
    from hark.launcher.host import HostFacts
    from hark.policy.capabilities import Capabilities
    from hark.policy.model import Limits, Workspace
    from hark.policy.person import Person

__all__ = [
    "LAYERS",
    "TRACER",
    "Downgrade",
    "GivenFile",
    "LaunchPlan",
    "LaunchRequest",
    "PathGrant",
    "WatchedProcess",
    "compile_plan",
    "plan_notes",
]

TRACER = "tracer-socket"  # the descriptor that leads hark-launch to hark-trace
LAYERS = "layers"  # folder of the run's folder: 0 workspace, 1.. write paths
_HOME = "home"
_MASK = "/.mask"  # staged: recordings in the workspace
_ASLR = "aslr"
_ADDR_NO_RANDOMIZE = 0x0040000  # personality(2)
_CONFIG = "/etc/hark"
_KERNEL = ("/proc", "/dev", "/sys")
_SHARED = ("/usr", "/etc")
_OWN_INSIDE = ("/", "/run", "/tmp", "/var", "/var/tmp")  # noqa: S108 - names, not uses
_NO_CGROUP = "no kernel sensors; init's end ends the run"
_ACCOUNT = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
_TMP = ("/tmp", "/var/tmp")  # noqa: S108 - the run's own, not the host's


@dataclass(frozen=True, slots=True)
class Downgrade:
    """A control this run would not have: which, why, and what that means."""

    feature: str
    cause: str
    effect: str


@dataclass(frozen=True, slots=True)
class PathGrant:
    """A path of the host that the agent sees, with the reason.

    Folders and files are real paths (no link in them); a link is made anew inside.
    """

    path: str
    kind: Literal["folder", "file", "link"]
    reason: str
    target: str = ""  # of a link


@dataclass(frozen=True, slots=True)
class GivenFile:
    """A file whose content hark gives, at an absolute path inside."""

    path: str
    content: bytes
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class WatchedProcess:
    """A party of the run by the name of its descriptor, and its ``ExitCause``."""

    name: str
    cause: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """Everything about one run that the plan depends on. Paths are absolute and real."""

    run_id: str
    argv: tuple[bytes, ...]
    file: str  # program to execute, resolved
    cwd: str
    env: tuple[tuple[bytes, bytes], ...]
    person: Person
    slot: Slot
    workspace: str
    workspace_mode: Workspace
    seccomp: bytes
    limits: Limits  # as the policy states them, without defaults
    read: tuple[PathGrant, ...] = ()
    write: tuple[PathGrant, ...] = ()
    files: tuple[GivenFile, ...] = ()  # made inside
    covers: tuple[GivenFile, ...] = ()  # mounted over files that exist inside; else left out
    tty: tuple[int, int] | None = None  # rows, columns
    watched: tuple[WatchedProcess, ...] = ()
    hidden: tuple[str, ...] = ()  # names in the workspace that the agent does not see
    unpacked: frozenset[str] = frozenset()  # folders shown from a detached mount, "start:PATH"
    links: tuple[tuple[str, str], ...] = ()  # path and target, made inside
    owner: Person | None = None  # who owns the bundle, where that is not the person inside
    destination: str | None = None  # file name of the bundle below the descriptor "destination"
    hostname: str = "hark"
    runs_dir: str = str(RUNS)
    scratch: str = str(RUNTIME)
    allow_downgrades: tuple[str, ...] = ()
    determinism: Determinism = Determinism.OFF


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """The ops, the names of the descriptors they refer to by index, and what is missing.

    A descriptor called ``path:P`` is path P, opened by the person; all others the caller gives.
    ``start:P`` is a detached mount to be shown as P, whose files have ids of the run.
    """

    ops: tuple[Op, ...]
    fds: tuple[str, ...]
    downgrades: tuple[Downgrade, ...]
    limits: tuple[Enforced, ...] = ()
    notes: tuple[str, ...] = ()  # to print

    def encode(self) -> bytes:
        """Return the bytes for the sealed memfd."""
        return ops.encode(self.ops)

    def describe(self) -> list[str]:
        """Return one line per op, for ``--dry-run``."""
        return [_describe(op, self.fds) for op in self.ops]

    def sources(self) -> tuple[str, ...]:
        """Return the paths that the person must open, in the order of their descriptors."""
        return tuple(name.removeprefix("path:") for name in self.fds if name.startswith("path:"))


@dataclass(slots=True)
class _Builder:
    """The plan under construction; lives only inside ``compile_plan``."""

    request: LaunchRequest
    host: HostFacts
    caps: Capabilities
    ops: list[Op] = field(default_factory=list)
    fds: list[str] = field(default_factory=list)
    downgrades: list[Downgrade] = field(default_factory=list)

    def __post_init__(self) -> None:
        person, base = self.request.person, self.request.slot.base
        self.uid, self.gid = agent_ids(person.uid, person.gid)
        self.kuid, self.kgid = kernel_id(base, self.uid), kernel_id(base, self.gid)
        self.agent_maps, self.layer_maps = id_maps(base, person.uid, person.gid)
        self.layers_ns = 0 if self.agent_maps == self.layer_maps else 1
        self.resources = Resources(self.request.limits, self.host, self.request.run_id)

    uid: int = 0
    gid: int = 0
    kuid: int = 0
    kgid: int = 0
    agent_maps: IdMaps = field(default_factory=lambda: IdMaps((), ()))
    layer_maps: IdMaps = field(default_factory=lambda: IdMaps((), ()))
    layers_ns: int = 0
    resources: Resources = field(init=False)

    def fd(self, name: str) -> int:
        """Index of a descriptor, named once."""
        if name not in self.fds:
            self.fds.append(name)
        return self.fds.index(name)

    def fault(self, feature: str) -> str:
        """What the kernel answered when ``feature`` was probed, "" when that went well."""
        return next((f.detail for f in self.caps.features if f.name == feature and not f.ok), "")

    def lacks(self, feature: str, cause: str, effect: str, *, asked: bool = True) -> None:
        """Note a downgrade; refuse one the policy does not allow, unless nobody asked for it."""
        if asked and feature not in self.request.allow_downgrades:
            raise KernelUnsupported(
                f"this host lacks {feature}: {effect}",
                cause,
                f'allow it in the policy: allow_downgrades = ["{feature}"]',
            )
        self.downgrades.append(Downgrade(feature, cause, effect))


def compile_plan(request: LaunchRequest, caps: Capabilities, host: HostFacts) -> LaunchPlan:
    """Compile a request. Pure.

    Raises ``InputError`` for paths that cannot be shown together, ``KernelUnsupported`` for a
    downgrade the policy does not allow.
    """
    _check_paths(request)
    _check_home(request, host)
    b = _Builder(request, host, caps)
    _warden(b)
    _host_side(b)
    _root(b)
    _agent(b)
    return LaunchPlan(
        ops=tuple(b.ops),
        fds=tuple(b.fds),
        downgrades=tuple(b.downgrades),
        limits=b.resources.enforced(),
        notes=plan_notes(request, host),
    )


def inside(path: str, folder: str) -> bool:
    """Whether ``path`` is ``folder`` or lies below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _check_paths(request: LaunchRequest) -> None:
    home = request.person.home
    if inside(home, request.workspace):
        raise InputError(
            f"the workspace {request.workspace} holds the whole home folder",
            f"{home} would be the agent's to change",
            "start hark in a project folder",
        )
    if _is_system(request.workspace):
        raise InputError(f"{request.workspace} cannot be a workspace", "it is a system folder")
    for grant in request.read:
        if grant.path in _OWN_INSIDE or any(inside(grant.path, p) for p in _KERNEL):
            raise InputError(
                f"{grant.path} cannot be shown",
                f"every run has its own ({grant.reason})",
                "name a folder below it",
            )
    for grant in request.write:
        if _is_system(grant.path):
            raise InputError(f"write_paths: {grant.path} is a system folder")
        if grant.kind == "file":
            raise InputError(
                f"write_paths: {grant.path} is a file",
                "a writable layer covers folders",
                "name its folder",
            )
    for path in (request.workspace, *(grant.path for grant in request.write)):
        if inside(request.runs_dir, path) or inside(path, request.runs_dir):
            raise InputError(
                f"{path} cannot be the agent's to change", "hark keeps the records of runs there"
            )


def _check_home(request: LaunchRequest, host: HostFacts) -> None:
    """A fresh HOME over a folder of the system would hide what is in it."""
    home = request.person.home
    links = [f"/{entry.name}" for entry in host.top]
    if home in _OWN_INSIDE or any(inside(home, p) for p in (*_KERNEL, *_SHARED, *links)):
        raise InputError(
            f"{home} cannot be the home folder of an agent",
            f"it is a system folder, and the user database says it is {request.person.name}'s",
            "run hark as another user, see --as",
        )


def _is_system(path: str) -> bool:
    return path in _OWN_INSIDE or any(inside(path, p) for p in (*_KERNEL, "/run", *_SHARED))


def plan_notes(request: LaunchRequest, host: HostFacts) -> tuple[str, ...]:
    """Return what the person should know about the run's paths, a sentence each."""
    return (*_direct_notes(request), *_hidden_mounts(request, host))


def _direct_notes(request: LaunchRequest) -> list[str]:
    if request.workspace_mode != "direct":
        return []
    return [
        (
            "direct workspace: the agent has no unix sockets, since those of the host would be in"
            " reach, and cannot set setuid or setgid bits"
        )
    ]


def _hidden_mounts(request: LaunchRequest, host: HostFacts) -> list[str]:
    """Mount points below what is shown: a cloned layer holds one file system only."""
    folders = [g.path for g in (*request.read, *request.write) if g.kind == "folder"]
    folders.append(request.workspace)
    return [
        f"{point} is a mount of its own: inside, it is empty"
        for point in host.mounts
        if point not in folders and any(inside(point, f) and point != f for f in folders)
    ]


def _warden(b: _Builder) -> None:
    r = b.request
    b.ops.append(
        ops.Deadlines(
            setup_ms=limits.LAUNCH_SETUP_MS,
            go_ms=limits.LAUNCH_GO_MS,
            seal_ms=limits.LAUNCH_SEAL_MS,
        )
    )
    b.ops += [ops.Hold(fd=b.fd(name)) for name in ("slot-lock", "run-lock")]
    b.ops += [ops.Watch(cause=w.cause, fd=b.fd(w.name)) for w in r.watched]
    b.ops.append(ops.RunDir(fd=b.fd("runs"), name=r.run_id))
    if r.destination is not None:
        p = r.owner or r.person
        b.ops.append(
            ops.Publish(
                fd=b.fd("destination"), name=r.destination, uid=p.uid, gid=p.gid, groups=p.groups
            )
        )
    b.ops.append(b.resources.meter())


def _host_side(b: _Builder) -> None:
    ipv6 = b.host.ipv6
    if not ipv6:
        b.lacks("ipv6", "the kernel has no IPv6", "the agent has no IPv6 either")
    b.ops += [
        ops.NetNs(
            m4=network.MEDIATOR_V4.packed,
            a4=network.AGENT_V4.packed,
            len4=network.PREFIX_V4,
            m6=network.MEDIATOR_V6.packed,
            a6=network.AGENT_V6.packed,
            len6=network.PREFIX_V6,
            ipv6=int(ipv6),
        ),
        ops.Listen(tcp_port=network.TCP_PORT, dns_port=network.DNS_PORT, backlog=network.BACKLOG),
        ops.NfLog(group=network.LOG_GROUP, copy_bytes=network.LOG_COPY_BYTES),
    ]
    if not b.host.cgroup:
        b.lacks("cgroup2", "no cgroup v2 is mounted", _NO_CGROUP)
    elif fault := b.fault("cgroup2"):
        b.lacks("cgroup2", fault, _NO_CGROUP)
    else:
        b.ops.append(ops.CGroup(path=f"{b.host.cgroup}/{CGROUP_PREFIX}{b.request.run_id}"))
    b.ops += b.resources.cgroups()
    for gap in b.resources.missing():
        b.lacks(gap.feature, gap.cause, gap.effect, asked=gap.asked)
    for maps in (b.agent_maps, b.layer_maps)[: 1 + b.layers_ns]:
        b.ops.append(ops.UserNs(owner=b.request.slot.owner, uids=maps.uids, gids=maps.gids))
    if b.request.workspace_mode == "overlay":
        who, recorder = b.request.person, b.request.slot.recorder
        uids, gids = IdRange(who.uid, recorder, 1), IdRange(who.gid, recorder, 1)
        b.ops.append(ops.View(owner=b.request.slot.owner, uids=(uids,), gids=(gids,)))
    if b.request.determinism is not Determinism.OFF:
        b.ops.append(ops.Trace(fd=b.fd(TRACER), userns=0))


def _root(b: _Builder) -> None:
    r, base = b.request, b.request.slot.base
    tmp = b.resources.bounds.tmp or limits.TMP_DEFAULT_BYTES
    b.ops += [
        ops.Hostname(name=r.hostname),
        ops.Root(scratch=r.scratch, owner=base, size=limits.LAUNCH_ROOT_BYTES),
        *_staged_files(b),
        *_staged_home(b),
        *_mask(b),
    ]
    for entry in b.host.top:
        path = f"/{entry.name}"
        if entry.target:
            b.ops.append(ops.Link(target=entry.target, path=path))
        else:
            b.ops.append(_system_tree(path))
    b.ops += [_system_tree(path) for path in (*_SHARED, *b.host.submounts)]
    b.ops += [
        ops.Dev(shm_size=tmp),
        ops.Proc(),
        *(ops.TmpFs(path=p, mode=0o1777, uid=base, gid=base, size=tmp) for p in _TMP),
        ops.TmpFs(path="/run", mode=0o755, uid=base, gid=base, size=limits.LAUNCH_RUN_BYTES),
    ]
    b.ops += _person_mounts(b)
    for n, cover in enumerate(r.covers):
        b.ops.append(ops.Cover(staged=f"/.covers/{n}", path=cover.path, flags=Flag.OPTIONAL))
    b.ops.append(ops.Pivot())


def _system_tree(path: str) -> Op:
    """A tree of the system: shown also where it cannot be idmapped, its owners then unknown."""
    optional = Flag.NONE if path in _SHARED else Flag.OPTIONAL
    flags = Flag.STAGED | Flag.IDMAP_OPTIONAL | optional
    return ops.Tree(source=path, path=path, userns=0, flags=flags)


def _staged_files(b: _Builder) -> list[Op]:
    base = b.request.slot.base
    given = [
        GivenFile("/etc/resolv.conf", f"nameserver {network.MEDIATOR_V4}\n".encode()),
        GivenFile("/etc/hosts", _hosts(b.request.hostname)),
        GivenFile("/etc/hostname", b.request.hostname.encode() + b"\n"),
        *_accounts(b),
        *b.request.files,
        *(GivenFile(f"/.covers/{n}", c.content, c.mode) for n, c in enumerate(b.request.covers)),
    ]
    last = {g.path: g for g in given}  # the request's own file wins
    return [
        # Of the host's own: policies, keys. The agent sees what it is given there and no more.
        ops.StageDir(path=_CONFIG, mode=0o755, uid=base, gid=base, flags=Flag.OPAQUE),
        *(
            ops.StageFile(path=g.path, mode=g.mode, uid=base, gid=base, content=g.content)
            for g in last.values()
        ),
        *(ops.Link(target=to, path=path, flags=Flag.STAGED) for path, to in b.request.links),
    ]


def _hosts(hostname: str) -> bytes:
    return f"127.0.0.1 localhost {hostname}\n::1 localhost ip6-localhost\n".encode()


def _accounts(b: _Builder) -> list[GivenFile]:
    """Name the agent's id where nobody's passwd has it: a person who is root, or not from here."""
    person = b.request.person
    passwd, group = b"", b""
    if person.uid == 0:
        passwd = f"{NAME_FOR_ROOT}:x:{b.uid}:{b.gid}::{person.home}:{person.shell}\n".encode()
    if person.gid == 0:
        group = f"{NAME_FOR_ROOT}:x:{AGENT_OF_ROOT}:\n".encode()
    out = []
    if b.request.owner is not None and _ACCOUNT.fullmatch(person.name):
        line = f"{person.name}:x:{b.uid}:{b.gid}::{person.home}:{person.shell}\n".encode()
        out.append(GivenFile("/etc/passwd", line + _ended(b.host.passwd)))  # the first one counts
        line = f"{person.name}:x:{b.gid}:\n".encode()
        out.append(GivenFile("/etc/group", line + _ended(b.host.group)))
        return out
    if passwd:
        out.append(GivenFile("/etc/passwd", _ended(b.host.passwd) + passwd))
    if group:
        out.append(GivenFile("/etc/group", _ended(b.host.group) + group))
    return out


def _ended(text: bytes) -> bytes:
    return text if text.endswith(b"\n") or not text else text + b"\n"


def _mask(b: _Builder) -> list[Op]:
    if not _has_mask(b):
        return []
    names = tuple(name.encode() for name in b.request.hidden)
    return [ops.Mask(path=_MASK, names=names)]


def _has_mask(b: _Builder) -> bool:
    return bool(b.request.hidden) and b.request.workspace_mode == "overlay"


def _staged_home(b: _Builder) -> list[Op]:
    """HOME's lower layer: empty, but for the places other mounts need.

    Made there, they are no change of the agent's; made through the overlay they would look so.
    """
    home = b.request.person.home
    folders = {home: 0o700}
    files, links = [], []
    for path, kind, target in _below_home(b):
        parts = path[len(home) :].strip("/").split("/")
        if kind == "file":
            files.append(path)
        elif kind == "link":
            links.append((path, target))
        if kind != "folder":
            parts = parts[:-1]
        for n in range(1, len(parts) + 1):
            folders.setdefault("/".join([home, *parts[:n]]), 0o755)
    uid, gid = b.kuid, b.kgid
    return [
        *(ops.StageDir(path=p, mode=mode, uid=uid, gid=gid) for p, mode in sorted(folders.items())),
        *(ops.StageFile(path=p, mode=0o644, content=b"", uid=uid, gid=gid) for p in sorted(files)),
        *(ops.Link(target=to, path=p, flags=Flag.STAGED) for p, to in sorted(links)),
    ]


def _below_home(b: _Builder) -> list[tuple[str, str, str]]:
    r = b.request
    granted = [(g.path, g.kind, g.target) for g in (*r.read, *r.write) if not _seen(b, g.path)]
    home = r.person.home
    places = [(r.workspace, "folder", ""), *granted]
    return [place for place in places if inside(place[0], home) and place[0] != home]


def _seen(b: _Builder, path: str) -> bool:
    """Whether the path is visible without a mount of its own."""
    folders = [g.path for g in b.request.read if g.kind == "folder" and g.path != path]
    if any(inside(path, shared) for shared in _SHARED):
        return True
    around = [f for f in (b.request.workspace, *folders) if inside(path, f)]
    between = [m for m in b.host.mounts if inside(path, m)]
    return any(not any(m != f and inside(m, f) for m in between) for f in around)


def _person_mounts(b: _Builder) -> list[Op]:
    """Mounts of the person's files, outer ones first, so that inner ones stay visible."""
    r = b.request
    found: dict[str, Op] = {}
    for grant in r.read:
        if _seen(b, grant.path):
            continue
        if grant.kind != "link":
            found[grant.path] = _granted(b, grant)
        elif not inside(grant.path, r.person.home):
            found[grant.path] = ops.Link(target=grant.target, path=grant.path)
    found[r.person.home] = _home(b, r.person.home in found)
    found[r.workspace] = _writable(b, r.workspace, 0)
    for n, grant in enumerate(r.write, 1):
        if inside(grant.path, r.workspace):
            continue
        if grant.kind != "link":
            found[grant.path] = _writable(b, grant.path, n)
        elif not inside(grant.path, r.person.home):
            found[grant.path] = ops.Link(target=grant.target, path=grant.path)
    return [found[path] for path in sorted(found, key=lambda p: (p.count("/"), p))]


def _granted(b: _Builder, grant: PathGrant) -> Op:
    fd = b.fd(f"path:{grant.path}")
    if grant.kind == "file":
        return ops.OneFile(
            fd=fd, userns=0, source=grant.path, path=grant.path, flags=Flag.IDMAP_OPTIONAL
        )
    return ops.Tree(fd=fd, userns=0, source=grant.path, path=grant.path, flags=Flag.IDMAP_OPTIONAL)


def _home(b: _Builder, granted: bool) -> Op:
    """A fresh HOME: what the agent writes there is thrown away. Granted whole, it lies below."""
    home, layer = b.request.person.home, _run_path(b, _HOME)
    if granted:
        fd = b.fd(f"path:{home}")
        return ops.Workspace(
            fd=fd, userns=b.layers_ns, source=home, path=home, layer=layer, flags=Flag.STAGED
        )
    flags = Flag.STAGED | Flag.NO_SOURCE
    return ops.Workspace(userns=b.layers_ns, source="", path=home, layer=layer, flags=flags)


def _writable(b: _Builder, path: str, n: int) -> Op:
    layer = _run_path(b, f"{LAYERS}/{n}")
    if path in b.request.unpacked:
        fd, ns = b.fd(f"start:{path}"), b.layers_ns
        return ops.Workspace(
            fd=fd, userns=ns, source=path, path=path, layer=layer, flags=Flag.RUN_IDS
        )
    fd = b.fd(f"path:{path}")
    if b.request.workspace_mode == "direct":
        return ops.Direct(fd=fd, userns=b.layers_ns, source=path, path=path)
    mask = _MASK if path == b.request.workspace and _has_mask(b) else ""
    return ops.Workspace(fd=fd, userns=b.layers_ns, source=path, path=path, layer=layer, mask=mask)


def _run_path(b: _Builder, name: str) -> str:
    return f"{b.request.runs_dir}/{b.request.run_id}/{name}"


def _agent(b: _Builder) -> None:
    r = b.request
    if r.tty:
        b.ops.append(ops.Tty(rows=r.tty[0], columns=r.tty[1], uid=b.kuid, gid=b.kgid))
    else:
        names = ("stdin", "stdout", "stderr")
        stdin, stdout, stderr = (b.fd(name) for name in names)
        b.ops.append(ops.Stdio(stdin=stdin, stdout=stdout, stderr=stderr, uid=b.kuid, gid=b.kgid))
    # 1, not 0: a core program of the host (core_pattern "|...") is started at any other limit.
    b.ops.append(ops.Rlimit(resource=resource.RLIMIT_CORE, soft=1, hard=1))
    b.ops += b.resources.rlimits()
    _addresses(b)
    b.ops += [ops.Creds(userns=0, uid=b.uid, gid=b.gid), ops.Cwd(path=r.cwd)]
    b.ops += _landlock(b)
    b.ops += [
        ops.Env(strings=tuple(name + b"=" + value for name, value in r.env)),
        _filter(r),
        ops.Exec(file=r.file, argv=r.argv),
    ]


def _addresses(b: _Builder) -> None:
    """Have addresses repeat, where the policy takes that they are easier to guess then."""
    if b.request.determinism is Determinism.OFF or _ASLR not in b.request.allow_downgrades:
        return
    b.lacks(_ASLR, "the policy allows it", "addresses repeat, and an attacker can know them")
    b.ops.append(ops.Personality(bits=_ADDR_NO_RANDOMIZE))


def _filter(request: LaunchRequest) -> Op:
    blob, flags = request.seccomp, Flag.NONE
    if request.workspace_mode == "direct":
        blob = seccomp.prepend(seccomp.DIRECT, blob)
    if request.determinism is not Determinism.OFF:
        blob, flags = seccomp.listen(blob), Flag.NOTIFY
    return ops.Seccomp(blob=blob, flags=flags)


def _landlock(b: _Builder) -> list[Op]:
    abi = b.caps.landlock_abi
    if abi < 1:
        b.lacks("landlock", b.caps.why_not("landlock"), "file rules rest on the mounts alone")
    r = b.request
    writable = [r.workspace, r.person.home, *(g.path for g in r.write)]
    grants = [
        landlock.Grant("/", landlock.READ),
        *(landlock.Grant(p, landlock.WRITE) for p in writable),
        *(landlock.Grant(p, landlock.WRITE) for p in (*_TMP, "/run", "/dev/shm")),  # noqa: S108
        landlock.Grant("/dev", landlock.DEVICE),
        landlock.Grant("/proc", landlock.PROC),
    ]
    ruleset = landlock.compile_ruleset(tuple(grants), abi)
    return [ruleset] if ruleset else []


def _describe(op: Op, fds: tuple[str, ...]) -> str:
    words = []
    for name, value in ops.values(op):
        if name in ("fd", "stdin", "stdout", "stderr") and isinstance(value, int):
            if value != NO_INDEX:
                words.append(f"{name}={fds[value]}")
        elif name == "userns" and value == NO_INDEX:
            continue
        else:
            words.append(f"{name}={_shown(value)}")
    if op.flags:
        words.append(
            "(" + ", ".join(str(f.name).lower() for f in Flag if f and f in op.flags) + ")"
        )
    return " ".join([op.CODE.name.lower().replace("_", "-"), *words])


def _shown(value: object) -> str:
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, ops.IdRange):
        return f"{value.inside}:{value.outside}:{value.count}"
    if isinstance(value, ops.PathRule):
        return f"{value.path}:{value.access:#x}"
    if isinstance(value, tuple):
        if value and isinstance(value[0], bytes):
            return "[" + " ".join(repr(v.decode(errors="backslashreplace")) for v in value) + "]"
        return "[" + " ".join(_shown(v) for v in value) + "]"
    return repr(value) if isinstance(value, str) and not value.isprintable() else str(value)
