"""From a verified recording to a run that can be carried out again, before anything is made.

Rules. A recording of a known signer gives the command, the folder, the environment, the person and
the policy; none of it is widened. A stranger's gives the command and the environment only: folder,
person and policy are the operator's. No secret is needed: the agent gets the recorded placeholders.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ulid import ULID

from hark import limits
from hark.errors import InputError, KernelUnsupported, PolicyError
from hark.kernel.probe import probe
from hark.launcher import trust
from hark.policy.compile import compile_policy
from hark.policy.model import Determinism
from hark.policy.parse import parse_layer
from hark.policy.person import find_person
from hark.policy.privileges import acting_as
from hark.policy.secrets import Secret
from hark.recorder import prepare
from hark.recorder.hidden import hidden_recordings
from hark.recorder.prepare import Destination, Prepared, RunOptions
from hark.replay import folders, lacking, surroundings
from hark.replay.rebuild import Rebuild
from hark.replay.stored import RecordedFiles
from hark.workspace.writes import Written

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import Literal

    from hark.policy.capabilities import Capabilities
    from hark.policy.model import CompiledPolicy
    from hark.policy.person import Person
    from hark.recorder.prepare import Paths
    from hark.replay.parent import Parent
    from hark.replay.stored import Stored

__all__ = ["Plan", "ReplayOptions", "plan", "standard_input"]

_ARGV, _CWD, _POLICY, _DIGEST, _ENVIRONMENT, _PERSON = 4, 5, 6, 7, 8, 13
_PLACEHOLDERS, _GRANTS = 18, 20
_DETERMINISM = 11
_NO_VALUE = b"no value in a replay"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """What ``hark replay`` was asked for. ``policy`` counts for strangers alone.

    ``workspace``: ``partial`` goes on where the content of some files is nowhere to be had.
    ``person``: for strangers, and where the recorded person is not known here.
    """

    out: Path | None = None
    key: Path | None = None
    workspace: Literal["start", "partial", "current"] = "start"
    untrusted: bool = False
    policy: Path | None = None
    person: str | None = None


@dataclass(slots=True, kw_only=True)
class Plan:
    """The run to carry out, and what the operator must know about it."""

    run: Prepared
    start: tuple[Written, ...] = ()
    rebuild: Rebuild | None = None
    notes: list[str] = field(default_factory=list)


def plan(parent: Parent, options: ReplayOptions, outer: Mapping[bytes, bytes]) -> Plan:
    """Decide a replay. Raises HarkError with what is wrong, before anything was made."""
    if os.geteuid() != 0:
        raise KernelUnsupported(
            "hark replay needs root",
            f"the effective user id is {os.geteuid()}",
            "sudo hark replay ...; the agent itself runs as you, without any privilege",
        )
    development = trust.check_tree()
    run = ULID()
    stored = parent.stored() if options.workspace != "current" else None
    environment = _environment(parent)
    person, host, notes = _people(parent, options, outer, is_stored=stored is not None)
    cwd = _folder(parent, options, host, is_stored=stored is not None)
    policy = _policy(parent, options, host, cwd)
    with acting_as(host):
        paths = _paths(parent, policy, person, cwd, stored)
        destination = (
            prepare.open_destination(options.out, run)
            if options.out is not None
            else Destination(fd=-1, name="", shown="")
        )
        key_fd = prepare.open_key(options.key)
        around = surroundings.look(
            parent,
            [one.folder for one in stored or ()],
            has_zone=b"TZ" in dict(environment),
            lenient=options.workspace == "current",
        )
        command = tuple(map(bytes, parent.start[_ARGV]))
        hidden = hidden_recordings(cwd, command) if stored is None else ()
        start, rebuild, more = _workspace(parent, options, stored, host)
    notes += [*around.notes, *_grants(parent, paths), *more]
    capabilities = probe()
    prepared = Prepared(
        run=run,
        command=command,
        cwd=cwd,
        person=person,
        policy=policy,
        paths=paths,
        secrets=_secrets(parent, policy),
        environment=environment,
        redirects=(),
        upstream_ca=b"",
        extra_ca=b"",
        proxy_auth=b"",
        publish=(),
        capabilities=capabilities,
        destination=destination,
        key_fd=key_fd,
        tty=False,
        development=development,
        determinism=_determinism(parent, capabilities),
        owner=host if host is not person else None,
        unpacked=frozenset(one.folder for one in stored or ()),
        links=around.links,
        hidden=hidden,
    )
    return Plan(run=prepared, start=start, rebuild=rebuild, notes=[_shown(note) for note in notes])


def _environment(parent: Parent) -> tuple[tuple[bytes, bytes], ...]:
    return tuple((bytes(k), bytes(v)) for k, v in parent.start.get(_ENVIRONMENT, []))


def _people(
    parent: Parent, options: ReplayOptions, outer: Mapping[bytes, bytes], *, is_stored: bool
) -> tuple[Person, Person, list[str]]:
    """Return whom the agent sees itself as, whose rights open files here, and what to say.

    The two differ where the recorded person is not known here, as on another machine: ids inside
    are the recording's, and rights on this host are the operator's, never those of whoever happens
    to have the recorded id.
    """
    if options.untrusted:
        person = find_person(options.person, outer)
        return person, person, []
    uid, gid, name = parent.start[_PERSON]
    cause = f"recorded with ids {uid}:{gid}"
    try:
        person = find_person(str(name), outer)
    except InputError:
        cause += ", and nobody of that name is here"
    else:
        if (person.uid, person.gid) == (uid, gid):
            return person, person, []
        cause += f", here {person.uid}:{person.gid}"
    if not is_stored:
        raise InputError(f"{name} is another user here", cause)
    host = find_person(options.person, outer)
    values = dict(_environment(parent))
    inside = replace(
        host,
        uid=int(uid),
        gid=int(gid),
        groups=(int(gid),),
        name=str(name),
        home=os.fsdecode(values.get(b"HOME", os.fsencode(host.home))),
        shell=os.fsdecode(values.get(b"SHELL", os.fsencode(host.shell))),
    )
    note = f"{name} is another user here ({cause}): files of this host are read as {host.name}"
    return inside, host, [note]


def _folder(parent: Parent, options: ReplayOptions, person: Person, *, is_stored: bool) -> str:
    cwd = os.fsdecode(parent.start[_CWD])
    if not cwd.startswith("/") or os.path.normpath(cwd) != cwd or "\0" in cwd:
        raise InputError("the recording's folder is no path", repr(cwd))
    if is_stored:
        return cwd
    if options.untrusted and cwd != os.getcwd():  # noqa: PTH109 - a string is what the plan carries
        raise InputError(
            f"the recording's folder is {cwd}", "a stranger's recording names no folder", "cd there"
        )
    with acting_as(person):
        if not os.access(cwd, os.R_OK | os.X_OK, effective_ids=True):
            raise InputError(
                f"{person.name} cannot enter the folder {cwd}", "the recorded agent worked there"
            )
    return cwd


def _policy(parent: Parent, options: ReplayOptions, person: Person, cwd: str) -> CompiledPolicy:
    if options.untrusted:
        chosen = RunOptions(command=(), policy=options.policy, workspace="overlay")
        return prepare.policy_of(chosen, person, cwd)
    if options.policy is not None:
        raise InputError("--policy without --untrusted", "a replay has the recorded policy")
    text = str(parent.start[_POLICY])
    layer = parse_layer(text.encode(), source="the recorded policy", folder=cwd)
    policy = compile_policy(layer.policy)
    if policy.digest != parent.start[_DIGEST]:
        raise PolicyError(
            "the recorded policy means something else to this hark", "", "use the recording's hark"
        )
    if layer.policy.workspace == "direct":  # never the person's own files
        return compile_policy(replace(layer.policy, workspace="overlay"))
    return policy


def _determinism(parent: Parent, capabilities: Capabilities) -> Determinism:
    """Return the recording's mode: another one would answer other calls."""
    mode = str(parent.start.get(_DETERMINISM, Determinism.OFF))
    if mode not in {known.value for known in Determinism}:
        raise InputError(f"the recording's determinism is {mode}", "a later hark made it")
    return prepare.determinism_of(Determinism(mode), capabilities)


def _secrets(parent: Parent, policy: CompiledPolicy) -> tuple[Secret, ...]:
    """Return the recorded placeholders. They stand for nothing: no request leaves."""
    known = {str(name): str(text) for name, text in parent.start.get(_PLACEHOLDERS, [])}
    return tuple(
        Secret(binding=one, placeholder=known[one.name], value=_NO_VALUE)
        for one in policy.secrets
        if one.name in known
    )


def _paths(
    parent: Parent,
    policy: CompiledPolicy,
    person: Person,
    cwd: str,
    stored: Sequence[Stored] | None,
) -> Paths:
    values = dict(_environment(parent))
    here = replace(person, path=values.get(b"PATH", person.path))
    command = tuple(map(bytes, parent.start[_ARGV]))
    files = RecordedFiles(parent.bundle, stored) if stored is not None else None
    paths = prepare.paths_of(command, policy, here, cwd, values, files=files)
    paths = replace(paths, absent=())  # told when it was recorded
    file, name = parent.first
    if file == os.fsencode(paths.file):  # behind a shim argv[0] was the program's own path
        return replace(paths, argv=(name, *paths.argv[1:]))
    return paths


def _grants(parent: Parent, paths: Paths) -> list[str]:
    then = {bytes(path) for path, _ in parent.start.get(_GRANTS, [])}
    now = {os.fsencode(grant.path) for grant in (*paths.read, *paths.write)}
    words = [("no longer shown", then - now), ("shown now and not then", now - then)]
    return [f"{os.fsdecode(path)} is {what}" for what, some in words for path in sorted(some)]


def _workspace(
    parent: Parent, options: ReplayOptions, stored: Sequence[Stored] | None, host: Person
) -> tuple[tuple[Written, ...], Rebuild | None, list[str]]:
    """Decide what the agent's folders will hold; as the person."""
    if options.workspace == "current":
        return (), None, ["the workspace is the current one, not the recorded"]
    if stored is not None:
        return _recorded(parent, options, stored, host)
    start, notes = _unchanged(parent, options)
    return start, None, notes


def _recorded(
    parent: Parent, options: ReplayOptions, stored: Sequence[Stored], host: Person
) -> tuple[tuple[Written, ...], Rebuild, list[str]]:
    """Find the contents that are not in the recording; refuse to go on without them."""
    supplied = [
        lacking.supply(one, is_own=not options.untrusted, partial=options.workspace == "partial")
        for one in stored
    ]
    size = sum(one.bytes() for one in stored)
    if size > limits.REPLAY_UNPACK_BYTES:
        raise InputError(
            "the recorded workspace is too large to be made anew",
            f"{size >> 20} MiB are more than {limits.REPLAY_UNPACK_BYTES >> 20}",
            "--workspace=current runs against the files as they are",
        )
    ids = (host.uid, host.gid) if options.untrusted else _recorded_ids(parent)
    rebuild = Rebuild(parent.bundle, [one.folder for one in supplied], ids, host)
    start = tuple(
        Written(os.fsdecode(held.folder), _memory(held.manifest or b""), held.digest)
        for held in parent.held
    )
    return start, rebuild, [note for one in supplied for note in one.notes]


def _recorded_ids(parent: Parent) -> tuple[int, int]:
    uid, gid, _ = parent.start[_PERSON]
    return int(uid), int(gid)


def _unchanged(parent: Parent, options: ReplayOptions) -> tuple[tuple[Written, ...], list[str]]:
    """Check that the folders are what they were: of a recording without contents."""
    if options.untrusted:
        raise InputError(
            "a stranger's recording says nothing about your files",
            "",
            "--workspace=current runs against the files as they are",
        )
    if not parent.held:
        raise InputError(
            "the recording does not say what the workspace held",
            "its agent worked on the folder itself, or the folder was too large, or an older hark"
            " recorded it",
            "--workspace=current runs against the files as they are",
        )
    seen = [folders.look(held) for held in parent.held]
    changed = [line for found in seen for line in found.changed]
    if changed:
        most = limits.REPLAY_SHOWN_ROWS
        rest = [f"and {len(changed) - most} more"] if len(changed) > most else []
        raise InputError(
            "the workspace is not what it was when this was recorded",
            "; ".join([*map(_shown, changed[:most]), *rest]),
            "--workspace=current runs against the files as they are",
        )
    start = tuple(
        Written(
            os.fsdecode(held.folder),
            _memory(b"" if held.manifest is None else held.manifest),
            held.digest,
            frozenset(found.bundles),
        )
        for held, found in zip(parent.held, seen, strict=True)
    )
    return start, [_shown(note) for found in seen for note in found.notes]


def _shown(text: str) -> str:
    """Escape what a file name may hold."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _memory(data: bytes) -> int:
    """Return a file in memory that holds ``data``."""
    fd = os.memfd_create("hark-replay", os.MFD_CLOEXEC)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def standard_input(parent: Parent) -> int:
    """Return a descriptor with the recorded standard input; it ends where that ended."""
    data = b"".join(parent.bundle.read_body(part) for part in parent.stdin)
    if not parent.stdin_ended and len(data) <= limits.REPLAY_STDIN_HELD_BYTES:
        reader, writer = os.pipe2(os.O_CLOEXEC)
        view = memoryview(data)
        while view:
            view = view[os.write(writer, view) :]
        return reader  # the writer stays open: nothing more comes, and no end
    return _memory(data)
