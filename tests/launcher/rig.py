"""Drives hark-launch alone: this test process is the recorder, and no other party exists."""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import shutil
import signal
import time
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hark.launcher import host, ids, netrules, rundir, seccomp, sources
from hark.launcher.plan import LaunchPlan, LaunchRequest, PathGrant, compile_plan
from hark.launcher.process import Launcher, RunNetwork
from hark.policy import control
from hark.policy.capabilities import Capabilities
from hark.policy.control import Exited, MsgType, Plain, Published, Sealed
from hark.policy.model import Limits
from hark.policy.person import Person

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / os.environ.get("HARK_TEST_LAUNCH", "build/bin/hark-launch")
ALICE_ID = 4100
PATH = "/usr/local/bin:/usr/bin:/bin"
CAPS = Capabilities(kernel="", landlock_abi=7, cgroup2="", features=())
WAIT_S = 20.0


@dataclass
class Result:
    status: int  # exit code, or -signal
    out: str
    err: str
    exited: Exited
    launch_code: int
    shown: bytes = b""  # what a terminal showed


@dataclass
class Box:
    """One run's request and surroundings; ``start`` begins it."""

    tmp: Path
    request: LaunchRequest
    extra_fds: dict[str, int] = field(default_factory=dict)
    publish: bool = True

    launcher: Launcher | None = None
    net: RunNetwork | None = None
    plan: LaunchPlan | None = None
    pipes: dict[str, int] = field(default_factory=dict)
    master: int = -1
    started: control.Started | None = None
    run_dir: rundir.RunDir | None = None
    caps: Capabilities = CAPS
    prepare_as: str = ""  # opened in place of the first path
    facts: dict[str, object] = field(default_factory=dict)  # of the host, replaced
    reaped: bool = False
    slot_closed: bool = False
    on_network: Callable[[RunNetwork], None] | None = None
    program: Path = PROGRAM

    def change(self, **values: object) -> Box:
        self.request = replace(self.request, **values)
        return self

    @property
    def runs(self) -> Path:
        return Path(self.request.runs_dir)

    @property
    def upper(self) -> Path:
        return self.runs / self.request.run_id / "layers" / "0" / "upper"

    def start(self) -> Box:
        self.prepare()
        self.net = self.launcher.wait_network()
        netrules.apply(self.net.netns)
        if self.on_network:
            self.on_network(self.net)
        self.launcher.go()
        self.started, self.master = self.launcher.wait_started()
        return self

    def prepare(self) -> None:
        """Everything up to hark-launch holding its plan."""
        self.plan = compile_plan(self.request, self.caps, replace(host.read_facts(), **self.facts))
        self.run_dir = rundir.create(self.runs, self.request.run_id)
        (self.run_dir.path / rundir.BUNDLE_NAME).write_bytes(b"bundle")
        fds = {
            "slot-lock": self.request.slot.lock_fd,
            "run-lock": self.run_dir.lock_fd,
            "runs": self.run_dir.runs_fd,
            **self.extra_fds,
        }
        paths = self.plan.sources()
        opened = sources.open_sources(paths, self.request.person)
        if self.prepare_as:
            os.close(opened[0])
            opened[0] = os.open(self.prepare_as, os.O_PATH | os.O_CLOEXEC)
        fds |= {f"path:{p}": fd for p, fd in zip(paths, opened, strict=True)}
        theirs = []
        for name in ("stdin", "stdout", "stderr"):
            r, w = os.pipe2(os.O_CLOEXEC)
            mine, other = (w, r) if name == "stdin" else (r, w)
            self.pipes[name] = mine
            fds[name] = other
            theirs.append(other)
        if self.request.destination is not None and "destination" not in fds:
            folder = self.tmp / "dest"
            folder.mkdir(exist_ok=True)
            os.chown(folder, self.request.person.uid, self.request.person.gid)
            fds["destination"] = sources.open_folder(str(folder), self.request.person)
            opened.append(fds["destination"])
        rundir.make_layers(self.plan, fds, self.request.person)
        self.launcher = Launcher.start(self.plan, fds, program=self.program)
        for fd in (*opened, *theirs):
            os.close(fd)

    def run(self, stdin: bytes = b"") -> Result:
        self.start()
        return self.finish(stdin)

    def finish(self, stdin: bytes = b"") -> Result:
        out = self.pump(stdin)
        exited = self.wait_exited()
        return self.seal(exited, out)

    def wait_exited(self) -> Exited:
        msg, _ = self.launcher.channel.expect(Exited, WAIT_S)
        return msg

    def seal(self, exited: Exited, out: dict[str, bytes]) -> Result:
        self.launcher.channel.send(Sealed(int(self.publish)))
        self.launcher.channel.expect(Published, WAIT_S)
        code = self.wait()
        self.close()
        return Result(
            os.waitstatus_to_exitcode(exited.wait_status),
            out["stdout"].decode(errors="replace"),
            out["stderr"].decode(errors="replace"),
            exited,
            code,
            out["tty"],
        )

    def pump(self, stdin: bytes = b"") -> dict[str, bytes]:
        """Feed stdin, read until every stream has ended."""
        os.write(self.pipes["stdin"], stdin) if stdin else None
        os.close(self.pipes.pop("stdin"))
        out = {"stdout": b"", "stderr": b"", "tty": b""}
        with selectors.DefaultSelector() as sel:
            for name in ("stdout", "stderr"):
                sel.register(self.pipes[name], selectors.EVENT_READ, name)
            if self.master >= 0:
                sel.register(self.master, selectors.EVENT_READ, "tty")
            end = time.monotonic() + WAIT_S
            while sel.get_map():
                assert time.monotonic() < end, f"the agent does not end: {out}"
                for key, _ in sel.select(1.0):
                    data = b""
                    with contextlib.suppress(OSError):  # EIO: the terminal's last user is gone
                        data = os.read(key.fd, 65536)
                    out[key.data] += data
                    if not data:
                        sel.unregister(key.fd)
        return out

    def kill_agent(self, signo: int = signal.SIGKILL) -> None:
        self.launcher.channel.send(control.Signal(signo))

    def abandon(self) -> None:
        """End what a test left running, and free the slot."""
        self.close()
        if self.launcher and not self.reaped:
            self.wait()
        if self.request.slot.lock_fd >= 0 and not self.slot_closed:
            os.close(self.request.slot.lock_fd)
            self.slot_closed = True

    def wait(self) -> int:
        """Reap hark-launch."""
        self.reaped = True
        return self.launcher.wait()

    def close(self) -> None:
        for fd in self.pipes.values():
            os.close(fd)
        self.pipes.clear()
        if self.master >= 0:
            os.close(self.master)
            self.master = -1
        if self.net:
            names = {item.name for item in fields(self.net)} - {"cgroup_id", "netns_cookie"}
            for fd in (getattr(self.net, name) for name in names):
                if fd >= 0:
                    os.close(fd)
            self.net = None
        if self.launcher:
            self.launcher.close()
        if self.run_dir:
            self.run_dir.close()
            self.run_dir = None


def new_box(tmp: Path, argv: list[str], **values: object) -> Box:
    """A box for the person alice (or ``person``), with a project folder of her own."""
    person = values.pop("person", None) or alice(tmp)
    work = Path(str(values.pop("workspace", tmp / "project")))
    for folder in (Path(person.home), work):
        if not folder.exists():
            folder.mkdir(parents=True)
            os.chown(folder, person.uid, person.gid)
    tmp.chmod(0o755)
    env = values.pop("env", {"PATH": PATH, "HOME": person.home, "LANG": "C.UTF-8"})
    defaults: dict[str, object] = {
        "run_id": "T" + secrets.token_hex(8).upper(),
        "argv": tuple(a.encode() for a in argv),
        "file": values.pop("file", None) or shutil.which(argv[0], path=PATH) or argv[0],
        "cwd": str(work),
        "env": tuple((os.fsencode(k), os.fsencode(v)) for k, v in env.items()),
        "person": person,
        "slot": values.pop("slot", None) or ids.claim_slot(),
        "workspace": str(work),
        "workspace_mode": "overlay",
        "seccomp": FILTER,
        "limits": Limits(pids=256, tmp=64 << 20),
        "runs_dir": str(tmp / "runs"),
        "scratch": "/run/hark",
    }
    return Box(tmp, LaunchRequest(**(defaults | values)))


def alice(tmp: Path) -> Person:
    return Person(
        uid=ALICE_ID,
        gid=ALICE_ID,
        groups=(ALICE_ID,),
        name="alice",
        home=str(tmp / "home"),
        shell="",
    )


FILTER = seccomp.compile_filter()
__all__ = ["ALICE_ID", "Box", "MsgType", "PathGrant", "Plain", "Result", "alice", "new_box"]
