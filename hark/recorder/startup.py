"""Brings up a run's processes in order, then becomes the recorder.

Order, and why. Broker, signer and mediator are started first (``hark.recorder.parties``).
hark-launch then makes the network; rules and sensors are in place, and the start is signed and on
disk, before this process gives up root. Only then the agent may exist.

Rules: root until ``give_up_root``, and nothing of the agent or the network is parsed before it.
Whatever fails, closing our ends of the control sockets ends everything that was started.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import struct
import sys
import termios
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import blake3

from hark import __version__, limits
from hark.bundle.events import Kind
from hark.bundle.format import Header
from hark.bundle.sealing import KEM_X25519
from hark.bundle.writer import BundleWriter, create
from hark.errors import HarkError, KernelUnsupported, RecordingFailed
from hark.kernel.nflog import Reader
from hark.kernel.sensors import NoSensors, Sensors
from hark.launcher import netrules, ops, reap, rundir, trust
from hark.launcher.host import read_facts
from hark.launcher.ids import Slot, claim_slot
from hark.launcher.plan import (
    LAYERS,
    Downgrade,
    GivenFile,
    LaunchPlan,
    LaunchRequest,
    WatchedProcess,
    compile_plan,
    inside,
    plan_notes,
)
from hark.launcher.process import Launcher
from hark.launcher.removal import remove_tree
from hark.launcher.seccomp import load_filter
from hark.launcher.sources import open_sources
from hark.locations import RUNS
from hark.policy import control, privileges
from hark.policy.control import ExitCause, MsgType, Plain, SealedFlag
from hark.policy.environment import CA_PATH, ca_bind_targets
from hark.policy.java_store import java_store
from hark.policy.model import Determinism, Limits
from hark.recorder.children import Children
from hark.recorder.contents import Contents
from hark.recorder.notice import printable
from hark.recorder.parties import begin
from hark.recorder.session import Session, SessionInputs, sign_by
from hark.recorder.stdio import PipeRelay
from hark.recorder.surroundings import Named, send_surroundings
from hark.recorder.translate import compact
from hark.workspace.contents import Rest
from hark.workspace.start import Listing, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from hark.launcher.host import HostFacts
    from hark.launcher.process import RunNetwork
    from hark.launcher.rundir import RunDir
    from hark.recorder.inputs import Replay
    from hark.recorder.parties import Begun, Parties
    from hark.recorder.prepare import Prepared
    from hark.recorder.session import RunResult
    from hark.recorder.stdio import Relay
    from hark.workspace.writes import Written

__all__ = ["explain", "explain_paths", "record"]

_WATCHED = (
    WatchedProcess("mediator", ExitCause.MEDIATOR),
    WatchedProcess("broker", ExitCause.BROKER),
    WatchedProcess("signer", ExitCause.SIGNER),
)
_TRACER = WatchedProcess("tracer", ExitCause.TRACER)
_SENSORS = "sensors"  # as `hark doctor` calls them
_NO_SENSORS = "no processes, sockets and system calls on record; exchanges without an owner"
_WINSIZE = struct.Struct("=HHHH")


@dataclass(slots=True)
class _Streams:
    """The agent's standard streams: our ends, and what hark-launch is given."""

    relay: Callable[[], Relay | tuple[int, int]]
    given: dict[str, int]


def record(run: Prepared, replay: Replay | None = None, begun: Begun | None = None) -> RunResult:
    """Carry out a prepared run: returns when its bundle is at its place.

    ``begun``: what ``begin`` has started for it. With ``replay`` its requests are answered from a
    recording, nothing is dialled, and what it wrote is thrown away. Raises HarkError when the run
    could not begin; then nothing of it is left.
    """
    begun, folder, facts, mounts = _begun(run, replay, begun)
    slot, parties = begun.slot, begun.parties
    with begun.undo as undo:
        bundle = _new_bundle(folder, replay)
        plan, given = _plan(run, slot, folder, facts, parties.mediator.ca_pem())
        given |= mounts
        rundir.make_layers(plan, given, run.person, slot.base)
        start = _Start(_known_start(plan, replay), _keeps(replay))
        start.begin(run, plan, given, folder, undo)
        streams = _streams(run, replay)
        fds = given | streams.given | parties.descriptors()
        launcher = Launcher.start(plan, fds)
        undo.callback(launcher.close)
        try:
            network = launcher.wait_network()
            netrules.apply(network.netns)
            sensors, lost = _attach(run, network)
        except HarkError:
            parties.explain()  # hark-launch takes all down when one of them ends
            raise
        undo.callback(sensors.detach)
        begun.ahead.close()
        _hand_network(parties, network)
        start.finish(undo)
        starts = _starts(run, slot, plan, state=start.state, written=start.written, replay=replay)
        starts = chain(starts, _seeded(parties, sensors, replay))
        writer = _begin_bundle(run, bundle, parties, (*plan.downgrades, *lost), starts)
        _close_given(fds, network)
        _give_up_root(slot)
        undo.pop_all()
        return Session(
            SessionInputs(
                writer=writer,
                hosts=tuple(host.name for host in run.policy.hosts),
                secrets=tuple(secret.binding.name for secret in run.secrets),
                netns_cookie=network.netns_cookie,
                launch=launcher.channel,
                mediator=parties.mediator.control,
                broker=parties.broker,
                signer=parties.signer,
                tracer=parties.tracer.control if parties.tracer is not None else None,
                ring=parties.mediator.ring,
                sensors=sensors,
                packets=Reader(network.nflog),
                relay=streams.relay(),
                bundle=str(folder.path / rundir.BUNDLE_NAME),
                output=run.destination.shown,
                run=str(run.run),
                written=start.written,
                contents=start.contents,
                children=Children(parties.pids | start.pids | {"launch": launcher.pid}),
                player=replay.player if replay is not None else None,
                proxy=_proxy(run),
                publisher=parties.publisher,
                sealed=_sealed(replay),
                limits=Limits(**{bound.name: bound.value for bound in plan.limits}),
            )
        ).run()


def _hand_network(parties: Parties, network: RunNetwork) -> None:
    """Give the mediator, the broker and the publisher what is theirs of the namespaces."""
    parties.wait_broker()
    parties.mediator.listen([network.tcp4, network.tcp6])
    resolver = [network.udp4, network.udp6, network.dns4, network.dns6]
    parties.broker.send(Plain(MsgType.RESOLVE_SOCKETS), fds=resolver)
    parties.publish(network.agent_netns)


def _watched(run: Prepared) -> tuple[WatchedProcess, ...]:
    """Return whom hark-launch watches."""
    tracer = () if run.determinism is Determinism.OFF else (_TRACER,)
    publisher = (WatchedProcess("publisher", ExitCause.PUBLISHER),) if run.publish else ()
    return (*_WATCHED, *tracer, *publisher)


def _proxy(run: Prepared) -> str | None:
    """Return host and port of the policy's proxy."""
    proxy = run.policy.policy.way_out.proxy
    return proxy.shown if proxy is not None else None


def _remove(folder: Path) -> None:
    with contextlib.suppress(OSError):
        remove_tree(folder)


def _keeps(replay: Replay | None) -> bool:
    """Whether the bundle will be there to be read: else no contents are read for it."""
    return replay is None or replay.keep


def _begun(
    run: Prepared, replay: Replay | None, begun: Begun | None
) -> tuple[Begun, RunDir, HostFacts, dict[str, int]]:
    """Make the run's folder, unpack into it what a replay needs, and have the parties started.

    In this order: unpacking may take longer than a party waits for its run to begin.
    """
    with ExitStack() as undo:
        if begun is not None:
            undo.enter_context(begun.undo)
        slot = begun.slot if begun is not None else claim_slot()
        trust.check_tree()  # now that all modules are there
        facts = read_facts()
        reap.reap(facts)
        folder = rundir.create(RUNS, str(run.run))
        undo.callback(_remove, folder.path)
        mounts = _unpacked(replay, folder, slot)
        if begun is None:
            begun = begin(run, is_replay=replay is not None, slot=slot)
            undo.enter_context(begun.undo)
        begun.undo = undo.pop_all()
        return begun, folder, facts, mounts


def _sealed(replay: Replay | None) -> int:
    """Return what becomes of the bundle and of the run's folder."""
    if replay is None:
        return SealedFlag.PUBLISH
    return SealedFlag.DISCARD | (SealedFlag.PUBLISH if replay.keep else 0)


def explain(run: Prepared) -> list[str]:
    """Return what ``--dry-run`` prints: the compiled policy and each step of the plan."""
    request = launch_request(run, Slot(0), b"(the run's CA)\n")
    plan = compile_plan(request, run.capabilities, read_facts())
    lost = [f"downgrade {d.feature}: {d.cause}; {d.effect}" for d in plan.downgrades]
    return [*run.policy.text.splitlines(), "", *plan.describe(), *lost, *_notes(run, plan.notes)]


def explain_paths(run: Prepared) -> list[str]:
    """Return what ``--explain-paths`` prints: each granted path with its reason."""
    rows = [("read", grant) for grant in run.paths.read]
    rows += [("write", grant) for grant in (*run.paths.write,)]
    lines = [f"{mode:<6} {grant.path}  ({grant.reason})" for mode, grant in rows]
    workspace = f"write  {run.cwd}  (workspace, {run.policy.policy.workspace})"
    return [
        f"run    {run.paths.file}",
        workspace,
        *lines,
        *_notes(run, plan_notes(launch_request(run, Slot(0), b""), read_facts())),
    ]


def _notes(run: Prepared, more: tuple[str, ...]) -> list[str]:
    published = (
        f"port {inside} of the agent is reached at 127.0.0.1:{outside} of this host"
        for outside, inside in run.publish
    )
    told = (*run.paths.notes, *run.paths.absent, *more, *published)
    return [f"note   {printable(note)}" for note in told]


# --- the plan -------------------------------------------------------------------------------------


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names, not paths
    except OSError:
        return []


def launch_request(run: Prepared, slot: Slot, ca_pem: bytes) -> LaunchRequest:
    """Return what the launch plan depends on."""
    policy = run.policy.policy
    shown = [grant.path for grant in run.paths.read if grant.kind == "folder"]
    writable = (run.cwd, *(grant.path for grant in run.paths.write))
    targets = [
        target
        for target in ca_bind_targets(os.path.exists, _names_in, ("/usr", "/usr/local", *shown))
        if not any(inside(target.path, folder) for folder in writable)
    ]
    return LaunchRequest(
        run_id=str(run.run),
        argv=run.paths.argv,
        file=run.paths.file,
        cwd=run.cwd,
        env=run.environment,
        person=run.person,
        slot=slot,
        workspace=run.cwd,
        workspace_mode=policy.workspace,
        seccomp=load_filter(),
        limits=policy.limits,
        read=run.paths.read,
        write=run.paths.write,
        files=(GivenFile(CA_PATH, ca_pem),),
        covers=tuple(
            GivenFile(t.path, ca_pem if t.form == "pem" else java_store(ca_pem)) for t in targets
        ),
        tty=_terminal_size() if run.tty else None,
        watched=_watched(run),
        determinism=run.determinism,
        hidden=run.hidden,
        unpacked=run.unpacked,
        links=run.links,
        owner=run.owner,
        destination=run.destination.name or None,  # a replay may keep no bundle
        allow_downgrades=policy.allow_downgrades,
    )


def _plan(
    run: Prepared, slot: Slot, folder: RunDir, facts: HostFacts, ca_pem: bytes
) -> tuple[LaunchPlan, dict[str, int]]:
    """Compile the plan, and open what it names."""
    request = launch_request(run, slot, ca_pem)
    plan = compile_plan(request, run.capabilities, facts)
    sys.stderr.write("".join(f"hark: note: {printable(note)}\n" for note in plan.notes))
    sources = plan.sources()
    opened = open_sources(sources, run.owner or run.person)
    fds = {f"path:{path}": fd for path, fd in zip(sources, opened, strict=True)}
    fds |= {
        "slot-lock": slot.lock_fd,
        "run-lock": folder.lock_fd,
        "runs": folder.runs_fd,
        "destination": run.destination.fd,
    }
    return plan, fds


def _new_bundle(folder: RunDir, replay: Replay | None) -> int:
    bundle = create(folder.path / rundir.BUNDLE_NAME)
    if replay is not None:
        replay.bundle = os.dup(bundle)
    return bundle


def _unpacked(replay: Replay | None, folder: RunDir, slot: Slot) -> dict[str, int]:
    """Return the recorded folders as detached mounts, by the names the plan has for them."""
    if replay is None or replay.unpack is None:
        return {}
    return {f"start:{path}": fd for path, fd in replay.unpack(folder.path, slot).items()}


def _layers(plan: LaunchPlan) -> list[ops.Workspace]:
    """Return the writable layers that lie over folders of the person, by their numbers.

    That is the order in which hark-launch opens them for the recorder at the end.
    """
    found = [op for op in plan.ops if isinstance(op, ops.Workspace) and op.fd != ops.NO_INDEX]
    layers = [op for op in found if Path(op.layer).parent.name == LAYERS]
    return sorted(layers, key=lambda op: int(Path(op.layer).name))


def _known_start(plan: LaunchPlan, replay: Replay | None) -> tuple[Written, ...]:
    """Return a replay's start, with what was not there then out of sight (overlayfs' mark)."""
    known = {start.folder: start for start in replay.start} if replay is not None else {}
    layers = _layers(plan)
    if not known or any(op.source not in known for op in layers):
        return ()
    for op in layers:
        for name in known[op.source].hidden:
            os.mknod(Path(op.layer) / "upper" / name, stat.S_IFCHR, os.makedev(0, 0))
    return tuple(known[op.source] for op in layers)


@dataclass(slots=True)
class _Start:
    """What the writable folders held: known from a recording, or listed beside the rest.

    ``keeps``: whether contents are read too. Neither: the agent works on the folders themselves
    (--workspace=direct).
    """

    written: tuple[Written, ...]
    keeps: bool
    state: bytes | None = None
    contents: Contents = field(default_factory=Contents)
    pids: dict[str, int] = field(default_factory=dict)
    listing: Listing | None = None

    def begin(
        self,
        run: Prepared,
        plan: LaunchPlan,
        fds: dict[str, int],
        folder: RunDir,
        undo: ExitStack,
    ) -> None:
        """Begin to list the folders below the writable layers, unless they are known."""
        layers = _layers(plan)
        if self.written or not layers:
            return
        sources = [
            Source(
                int(Path(op.layer).name),
                op.source,
                fds[plan.fds[op.fd]],
                run.hidden if op.mask else (),
            )
            for op in layers
        ]
        rest = Rest(tuple(secret.value for secret in run.secrets), _named(run))
        arguments = tuple(grant.path for grant in run.paths.read if grant.kind == "file")
        named = Named(run.paths.file, os.fsdecode(run.paths.search), arguments, run.cwd)
        self.listing = Listing.begin(
            folder.path,
            str(run.run),
            run.person,
            sources,
            rest=rest if self.keeps else None,
            first=(lambda out: send_surroundings(out, named)) if self.keeps else None,
        )
        undo.callback(self.listing.close)

    def finish(self, undo: ExitStack) -> None:
        """Wait for the list: the agent must not exist before."""
        if self.listing is None:
            return
        listed = self.listing.finish()
        undo.callback(listed.contents.close)
        self.state, self.written = listed.state, listed.written
        self.pids = {"files": listed.pid}
        folders = [layer.folder for layer in self.written] if self.keeps else []
        self.contents = Contents(listed.contents, folders)


def _named(run: Prepared) -> frozenset[str]:
    """Return the paths below the workspace that words of the command name."""
    below = run.cwd.rstrip("/") + "/"
    words = [os.fsdecode(word) for word in run.command]
    paths = [os.path.normpath(os.path.join(below, word)) for word in words]  # noqa: PTH118
    return frozenset(path.removeprefix(below) for path in paths if path.startswith(below))


def _terminal_size() -> tuple[int, int]:
    rows, columns, _, _ = _WINSIZE.unpack(fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(_WINSIZE.size)))
    return rows or limits.TTY_DEFAULT_ROWS, columns or limits.TTY_DEFAULT_COLUMNS


def _streams(run: Prepared, replay: Replay | None) -> _Streams:
    """Make the agent's pipes; with a terminal, hark-launch makes the pty instead."""
    source, out, err = (replay.stdin, *replay.outputs) if replay is not None else (0, 1, 2)
    if run.tty:
        return _Streams(relay=lambda: (0, 1), given={})
    stdin_r, stdin_w = os.pipe2(os.O_CLOEXEC)
    stdout_r, stdout_w = os.pipe2(os.O_CLOEXEC)
    stderr_r, stderr_w = os.pipe2(os.O_CLOEXEC)

    def relay() -> PipeRelay:
        # Made after root is gone: it starts threads, and ids are dropped by a single thread.
        return PipeRelay(stdin=(source, stdin_w), stdout=(stdout_r, out), stderr=(stderr_r, err))

    return _Streams(relay=relay, given={"stdin": stdin_r, "stdout": stdout_w, "stderr": stderr_w})


# --- the sensors ---------------------------------------------------------------------------------


def _attach(
    run: Prepared, network: RunNetwork
) -> tuple[Sensors | NoSensors, tuple[Downgrade, ...]]:
    """Attach the kernel's sensors, or do without where the policy allows it.

    Without a cgroup there are none: the plan's own downgrade said so.
    """
    if network.cgroup < 0:
        return NoSensors(), ()
    try:
        return Sensors.attach(network.cgroup, network.cgroup_id), ()
    except KernelUnsupported as error:
        if _SENSORS not in run.policy.policy.allow_downgrades:
            allow = f'to record without them, set allow_downgrades = ["{_SENSORS}"]'
            hint = "; ".join(filter(None, (error.hint, allow)))
            raise KernelUnsupported(error.what, error.cause, hint) from error
        return NoSensors(), (Downgrade(_SENSORS, error.cause or error.what, _NO_SENSORS),)


# --- the start of the record ----------------------------------------------------------------------


def _begin_bundle(
    run: Prepared,
    fd: int,
    parties: Parties,
    downgrades: tuple[Downgrade, ...],
    starts: Iterable[tuple[Kind, dict[int, Any]]],
) -> BundleWriter:
    """Write header and start events, sign head 0 and the first count, and wait for the disk."""
    writer = BundleWriter(
        fd,
        Header(
            run_id=run.run.bytes,
            created_unix_ns=time.time_ns(),  # at one moment with created_boot_ns
            recorder=f"hark/{__version__}",
            public_key=parties.public_key(),
            created_boot_ns=_boot_ns(),
            policy_digest=run.policy.digest,
        ),
        sign_by(parties.signer),
        now_boot_ns=_boot_ns,
        now_unix_ns=time.time_ns,
    )
    writer.head()
    for kind, payload in starts:
        writer.append(kind, _boot_ns(), payload)
    for lost in downgrades:
        writer.append(Kind.DOWNGRADE, _boot_ns(), {4: lost.feature, 5: lost.cause, 6: lost.effect})
    writer.head()
    return writer


def _starts(
    run: Prepared,
    slot: Slot,
    plan: LaunchPlan,
    *,
    state: bytes | None,
    written: Sequence[Written],
    replay: Replay | None,
) -> Iterator[tuple[Kind, dict[int, Any]]]:
    """Yield run_start, and what the writable folders held."""
    note = f"replay of {replay.parent}" if replay is not None else None
    bounds = [[bound.name, bound.value, bound.by] for bound in plan.limits]
    yield Kind.RUN_START, compact(_run_start(run, slot, state) | {23: note, 26: bounds})
    yield from ((Kind.NOTICE, {4: "policy_absent", 5: text}) for text in run.paths.absent)
    yield from ((Kind.WORKSPACE_START, _held(item)) for item in written)
    yield from replay.events if replay is not None else ()


def _seeded(
    parties: Parties, sensors: Sensors | NoSensors, replay: Replay | None
) -> list[tuple[Kind, dict[int, Any]]]:
    """Give hark-trace the run's seed, and return the event that keeps it, sealed.

    A replay has the seed of its recording, where the signing key can open it.
    """
    if parties.tracer is None:
        return []
    parties.public_key()
    seed = None
    if replay is not None and replay.sealed_seed is not None:
        seed = parties.unwrap(replay.sealed_seed)
        replay.has_seed = seed is not None
    seed = seed or os.urandom(control.SECRET_BYTES)
    sealed = parties.wrap(seed)
    parties.tracer.seed(seed, sensors.spawns())
    return [(Kind.SEED, {4: KEM_X25519, 5: sealed.sealed, 6: sealed.recipient})]


def _held(layer: Written) -> dict[int, Any]:
    """Return the payload of workspace_start (docs/spec/records.md, kind 29)."""
    size = os.fstat(layer.manifest).st_size
    fits = size <= limits.WORKSPACE_RECORDED_BYTES
    manifest = os.pread(layer.manifest, size, 0) if fits else None
    return compact({4: os.fsencode(layer.folder), 5: manifest, 6: layer.digest})


def _run_start(run: Prepared, slot: Slot, workspace: bytes | None) -> dict[int, Any]:
    """Return the payload of run_start (docs/spec/records.md, kind 1)."""
    caps = {f.name: f.ok for f in run.capabilities.features}
    return compact(
        {
            4: list(run.command),
            5: os.fsencode(run.cwd),
            6: run.policy.text,
            7: run.policy.digest,
            8: [list(pair) for pair in run.environment],
            9: {name: caps[name] for name in sorted(caps, key=lambda n: (len(n), n))},
            10: "contain",
            11: run.determinism.value,
            12: [[r.host, f"{_shown(r.address)}:{r.port}"] for r in run.redirects],
            13: [run.person.uid, run.person.gid, run.person.name],
            14: slot.base,
            15: __version__,
            17: run.capabilities.kernel,
            18: [[s.binding.name, s.placeholder] for s in run.secrets],
            19: run.policy.policy.workspace,
            20: [[os.fsencode(g.path), g.reason] for g in (*run.paths.read, *run.paths.write)],
            21: run.development,
            22: [host.name for host in run.policy.hosts],
            24: workspace,
            27: [list(pair) for pair in run.publish] or None,
            25: blake3.blake3(run.extra_ca).digest() if run.extra_ca else None,
        }
    )


def _shown(address: bytes) -> str:
    import ipaddress  # noqa: PLC0415 - only with --upstream

    ip = ipaddress.ip_address(address)
    return f"[{ip}]" if ip.version == 6 else str(ip)  # noqa: PLR2004 - IPv6


def _boot_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


# --- giving up root -------------------------------------------------------------------------------


def _close_given(fds: dict[str, int], network: RunNetwork) -> None:
    """Close what others have their own copies of; the recorder keeps nothing it does not read."""
    for fd in fds.values():
        with contextlib.suppress(OSError):
            os.close(fd)
    for fd in (
        network.netns,
        network.tcp4,
        network.tcp6,
        network.udp4,
        network.udp6,
        network.agent_netns,
        network.dns4,
        network.dns6,
        network.cgroup,
    ):
        if fd >= 0:
            os.close(fd)


def _give_up_root(slot: Slot) -> None:
    """Become the recorder: own ids, no capability, a network without an interface."""
    try:
        privileges.prctl_name(b"hark-recorder")
        privileges.leave_network()
    except OSError as error:
        raise RecordingFailed(
            "the recorder cannot give up the network", error.strerror or ""
        ) from error
    sys.stdout.flush()
    sys.stderr.flush()
    privileges.drop(slot.recorder, slot.recorder)
