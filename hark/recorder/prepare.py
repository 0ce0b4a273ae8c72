"""From the command line to everything a run is decided by, before anything is made.

Rules: reads files as the person, changes nothing, starts nothing. What this returns is what
``--dry-run`` shows and what ``startup`` carries out.
"""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ulid import ULID

from hark import limits
from hark.errors import InputError, KernelUnsupported, LaunchError
from hark.launcher import grants, trust
from hark.locations import SYSTEM_POLICY
from hark.policy.compile import compile_policy, compile_redirects
from hark.policy.environment import agent_environment, expand_path
from hark.policy.layers import load_policy
from hark.policy.model import TIERS, Determinism
from hark.policy.parse import parse_limit
from hark.policy.person import Person, find_person
from hark.policy.privileges import acting_as
from hark.policy.secrets import Secret, load_proxy_auth, load_secrets
from hark.recorder.ahead import require_root
from hark.recorder.hidden import hidden_recordings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hark.launcher.grants import Files
    from hark.launcher.plan import PathGrant
    from hark.policy.capabilities import Capabilities
    from hark.policy.model import CompiledPolicy, Redirect, Tier, Workspace
    from hark.recorder.ahead import Ahead

__all__ = ["TIER", "Destination", "Paths", "Prepared", "RunOptions", "prepare"]

TIER: Tier = "contain"  # what a run of this version is at most
# Who draws is known by the kernel sensors, and the answer is given through seccomp.
_LIGHT_NEEDS = ("kernel-6.1", "seccomp-notify", "cgroup2", "btf", "bpf")
_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
_NO_ATTACH = "3"  # Documentation/admin-guide/LSM/Yama.rst: nobody may, whatever its capabilities


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What ``hark run`` was asked for; ``None`` is "not said"."""

    command: tuple[bytes, ...]
    policy: Path | None = None
    out: Path | None = None
    person: str | None = None
    workspace: Workspace | None = None
    key: Path | None = None
    upstream: tuple[tuple[str, bytes, int], ...] = ()
    upstream_ca: Path | None = None
    publish: tuple[tuple[int, int], ...] = ()  # host's port, agent's port
    tty: bool | None = None
    limits: tuple[str, ...] = ()  # NAME=VALUE
    determinism: Determinism | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where the bundle goes: ``name`` in the folder ``fd``, which the person opened."""

    fd: int
    name: str
    shown: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """The program, and what the agent sees of the host, with reasons. ``notes`` are to print.

    ``absent``: what the policy names and this host or environment does not have.
    """

    file: str
    argv: tuple[bytes, ...]
    search: bytes  # PATH inside
    read: tuple[PathGrant, ...]
    write: tuple[PathGrant, ...]
    notes: tuple[str, ...]
    absent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A run that was decided, and of which nothing exists yet. ``development``: HARK_DEV=1.

    ``upstream_ca``: PEM of --upstream-ca; ``extra_ca``: of the policy's [upstream]. ``hidden``:
    recordings in the workspace. Of a replay: ``owner`` is whose files are read here and who gets
    the bundle, where that is not the person the agent sees itself as; ``unpacked`` folders come
    from the recording; ``links`` are shown instead of the host's.
    """

    run: ULID
    command: tuple[bytes, ...]
    cwd: str
    person: Person
    policy: CompiledPolicy
    paths: Paths
    secrets: tuple[Secret, ...]
    environment: tuple[tuple[bytes, bytes], ...]
    redirects: tuple[Redirect, ...]
    upstream_ca: bytes
    extra_ca: bytes
    proxy_auth: bytes = field(repr=False)
    publish: tuple[tuple[int, int], ...]
    capabilities: Capabilities
    destination: Destination
    key_fd: int
    tty: bool
    development: bool
    determinism: Determinism = Determinism.OFF
    owner: Person | None = None
    unpacked: frozenset[str] = frozenset()
    hidden: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()


def prepare(
    options: RunOptions,
    outer: Mapping[bytes, bytes] | None = None,
    ahead: Ahead | None = None,
) -> Prepared:
    """Decide a run. Raises HarkError with what is wrong, before anything was made.

    ``ahead``: who probes the kernel meanwhile; else it is done here.
    """
    outer = os.environb if outer is None else outer
    require_root()
    # Of a run it is looked at before anything is begun, and again when all modules are there.
    development = trust.is_development(os.environ) if ahead is not None else trust.check_tree()
    if (words := len(options.command)) > limits.COMMAND_WORDS_MOST:
        raise InputError(
            "the command has too many arguments",
            f"they are recorded in one event: {words} are more than {limits.COMMAND_WORDS_MOST}",
            "have the command read them from a file or from stdin, as xargs does",
        )
    run = ULID()
    person = find_person(options.person, outer)
    cwd = working_folder(person)
    policy = policy_of(options, person, cwd)
    secrets = load_secrets(policy.secrets, outer, run)
    with acting_as(person):
        paths = paths_of(options.command, policy, person, cwd, outer)
        destination = open_destination(options.out, run)
        hidden = hidden_recordings(cwd, options.command)
        upstream_ca = read_roots(options.upstream_ca)
        extra_ca = read_roots(extra_ca_path(policy, person))
        key_fd = open_key(options.key)
    capabilities = ahead.capabilities() if ahead is not None else probed()
    return Prepared(
        run=run,
        command=options.command,
        cwd=cwd,
        person=person,
        policy=policy,
        paths=paths,
        secrets=secrets,
        environment=with_path(agent_environment(policy, person, outer, secrets), paths.search),
        redirects=redirects_of(options, policy),
        upstream_ca=upstream_ca,
        extra_ca=extra_ca,
        proxy_auth=load_proxy_auth(policy.policy.way_out, outer),
        publish=options.publish,
        capabilities=capabilities,
        destination=destination,
        key_fd=key_fd,
        tty=wants_tty(options.tty),
        development=development,
        hidden=hidden,
        determinism=determinism_of(options.determinism, capabilities),
    )


def probed() -> Capabilities:
    """Probe the kernel."""
    from hark.kernel.probe import probe  # noqa: PLC0415 - a run has it done ahead

    return probe()


def determinism_of(asked: Determinism | None, capabilities: Capabilities) -> Determinism:
    """Return the mode: as asked for, else what this kernel can do."""
    lacking = [
        f"{name}: {capabilities.why_not(name)}"
        for name in _LIGHT_NEEDS
        if not capabilities.has(name)
    ]
    if forbids_attach(_YAMA):
        lacking.append("Yama forbids to write into another process: kernel.yama.ptrace_scope = 3")
    if asked is None:
        return Determinism.OFF if lacking else Determinism.LIGHT
    if asked is not Determinism.OFF and lacking:
        raise KernelUnsupported(
            f"--det={asked.value} is not possible here",
            lacking[0],
            "--det=off records without it; its replays have other random numbers",
        )
    return asked


def forbids_attach(yama: Path) -> bool:
    """Whether no process may write into another's memory; without Yama it may."""
    try:
        return yama.read_text(encoding="ascii").strip() == _NO_ATTACH
    except OSError:
        return False


def working_folder(person: Person) -> str:
    """Return the current folder, which the person must be able to enter."""
    try:
        cwd = os.getcwd()  # noqa: PTH109 - a string is what the plan carries
    except OSError as error:
        raise InputError(
            "the current folder is not there any more",
            error.strerror or "",
            "cd to a folder that exists",
        ) from error
    with acting_as(person):
        if not os.access(cwd, os.R_OK | os.X_OK, effective_ids=True):
            raise InputError(
                f"{person.name} cannot enter the folder {cwd}",
                "the agent works where hark was called",
                "cd to a folder of that user, or name another with --as",
            )
    return cwd


def policy_of(options: RunOptions, person: Person, cwd: str) -> CompiledPolicy:
    """Read, join and compile the policy files, as the person."""
    policy = load_policy(
        system=SYSTEM_POLICY, workspace=Path(cwd), explicit=options.policy, person=person
    )
    if TIERS.index(policy.tier) > TIERS.index(TIER):
        raise InputError(
            f"the policy asks for tier {policy.tier}", f"a run reaches {TIER}", f'tier = "{TIER}"'
        )
    if options.workspace is not None:
        policy = replace(policy, workspace=options.workspace)
    for text in options.limits:
        policy = replace(policy, limits=parse_limit(text, policy.limits))
    return compile_policy(policy)


def paths_of(
    command: tuple[bytes, ...],
    policy: CompiledPolicy,
    person: Person,
    cwd: str,
    outer: Mapping[bytes, bytes],
    *,
    files: Files | None = None,
) -> Paths:
    """Work out what the command needs to run, and what the policy shows; as the person."""
    files = files or grants.LocalFiles()
    read = [expand_path(path, person) for path in policy.policy.read_paths]
    write = [expand_path(path, person) for path in policy.policy.write_paths]
    resolved = grants.resolve(
        grants.Command(
            argv=tuple(os.fsdecode(word) for word in command),
            cwd=cwd,
            path=os.fsdecode(person.path),
            home=person.home,
            workspace=cwd,
            environment={os.fsdecode(k): os.fsdecode(v) for k, v in outer.items()},
        ),
        files,
        (*read, *write),
    )
    return Paths(
        file=resolved.file,
        argv=tuple(os.fsencode(word) for word in resolved.argv),
        search=os.fsencode(resolved.path),
        read=(*resolved.grants, *grants.shown(read, files, "read_paths")),
        write=grants.shown(write, files, "write_paths"),
        notes=resolved.notes,
        absent=_absent(policy, read, write, files, outer),
    )


def _absent(
    policy: CompiledPolicy,
    read: Sequence[str],
    write: Sequence[str],
    files: Files,
    outer: Mapping[bytes, bytes],
) -> tuple[str, ...]:
    """Say which paths and variables of the policy are not here: a typo would pass in silence."""
    paths = [
        f"{key} names {path}: there is no such file or folder"
        for key, given in (("read_paths", read), ("write_paths", write))
        for path in given
        if not files.kind(path)
    ]
    names = [
        f"pass_env names {name}, which is not set"
        for name in policy.policy.pass_env
        if name.encode() not in outer
    ]
    return (*paths, *names)


def with_path(
    environment: tuple[tuple[bytes, bytes], ...], search: bytes
) -> tuple[tuple[bytes, bytes], ...]:
    """Set PATH to the folders that exist inside."""
    return tuple((name, search if name == b"PATH" else value) for name, value in environment)


def redirects_of(options: RunOptions, policy: CompiledPolicy) -> tuple[Redirect, ...]:
    """Check ``--upstream``: each host must be one that the policy allows."""
    redirects = compile_redirects(options.upstream, policy)
    if options.upstream_ca is not None and not redirects:
        raise InputError("--upstream-ca without --upstream", "it is trusted for those hosts alone")
    return redirects


def open_destination(out: Path | None, run: ULID) -> Destination:
    """Open the folder the bundle goes to; a file that exists is refused now, not at the end."""
    path = out or Path(f"run-{run}.hark")
    if path.name in {"", ".", ".."}:
        raise InputError(f"{path} is not a file name")
    try:
        fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise InputError(
            f"cannot open the folder {path.parent}",
            error.strerror or "",
            "name a file in a folder that exists with -o",
        ) from error
    try:
        os.stat(path.name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        pass
    except OSError as error:
        os.close(fd)
        raise InputError(
            f"cannot write {path}", error.strerror or "", "name another file with -o"
        ) from error
    else:
        os.close(fd)
        raise InputError(
            f"{path} exists", "a bundle is never overwritten", "name another file with -o"
        )
    if not os.access(path.parent, os.W_OK | os.X_OK, effective_ids=True):
        os.close(fd)
        raise InputError(
            f"cannot write into the folder {path.parent}",
            "permission denied to the person whose run it is",
            "name a file elsewhere with -o, or another person with --as",
        )
    return Destination(fd=fd, name=path.name, shown=str(path))


def extra_ca_path(policy: CompiledPolicy, person: Person) -> Path | None:
    """Return the file that ``ca`` of [upstream] names."""
    path = policy.policy.way_out.ca
    return Path(expand_path(path, person)) if path else None


def read_roots(path: Path | None) -> bytes:
    """Read PEM certificates: ``--upstream-ca``, or ``ca`` of [upstream]."""
    if path is None:
        return b""
    try:
        with path.open("rb") as file:
            data = file.read(limits.UPSTREAM_CA_MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}", error.strerror or "") from error
    if len(data) > limits.UPSTREAM_CA_MAX_BYTES or b"-----BEGIN CERTIFICATE-----" not in data:
        raise InputError(f"{path} holds no certificate", "no PEM block in it, or too long")
    return data


def open_key(path: Path | None) -> int:
    """Open ``--key``; -1: the host's key."""
    if path is None:
        return -1
    try:
        # Without O_NONBLOCK a named pipe would hold the start up.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise InputError(
            f"cannot open the key {path}", error.strerror or "", "make one: hark keygen --out FILE"
        ) from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise InputError(
            f"the key {path} is not a regular file", "", "make one: hark keygen --out FILE"
        )
    return fd


def wants_tty(chosen: bool | None) -> bool:
    """Say whether the agent gets a terminal: as chosen, else when both ends here are one."""
    here = sys.stdin.isatty() and sys.stdout.isatty()
    if chosen and not here:
        raise LaunchError("--tty without a terminal", "stdin and stdout must both be terminals")
    return here if chosen is None else chosen
