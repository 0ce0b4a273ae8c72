"""Starting and speaking with ``hark-launch``.

The program gets one descriptor (3, the control socket), no argument and no environment; the plan
and everything it names travel over that socket.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from hark import limits
from hark.errors import InternalError, LaunchError
from hark.locations import libexec
from hark.policy.control import (
    Channel,
    Failed,
    Message,
    MsgType,
    NetReady,
    PeerBroken,
    PeerClosed,
    Plain,
    Started,
    socket_pair,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hark.launcher.plan import LaunchPlan

__all__ = ["Launcher", "RunNetwork"]

_CONTROL_FD = 3
M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class RunNetwork:
    """What NET_READY brought: descriptors (the caller's to close) and ids.

    ``netns`` is M, ``agent_netns`` A. ``udp4``, ``udp6``, ``dns4`` and ``dns6`` are port 53, the
    last two by TCP. ``cgroup`` is -1 on a host without cgroup v2.
    """

    netns: int
    tcp4: int
    tcp6: int
    udp4: int
    udp6: int
    nflog: int
    agent_netns: int
    dns4: int
    dns6: int
    cgroup: int
    cgroup_id: int
    netns_cookie: int


class Launcher:
    """A running ``hark-launch`` and the recorder's end of its control socket."""

    def __init__(self, pid: int, channel: Channel, plan: LaunchPlan) -> None:
        self.pid = pid
        self.channel = channel
        self._plan = plan

    @classmethod
    def start(
        cls, plan: LaunchPlan, fds: Mapping[str, int], *, program: Path | None = None
    ) -> Launcher:
        """Start the program and hand it the plan with copies of ``fds`` (by the plan's names)."""
        missing = [name for name in plan.fds if name not in fds]
        if missing:
            raise InternalError(f"the launch plan names descriptors that are not there: {missing}")
        ours, theirs = socket_pair()
        try:
            pid = _spawn(program or libexec("hark-launch"), theirs.fileno())
        except OSError as exc:
            ours.close()
            raise LaunchError("hark-launch cannot be started", exc.strerror or "") from exc
        finally:
            theirs.close()
        launcher = cls(pid, Channel(ours), plan)
        launcher._send_plan([fds[name] for name in plan.fds])
        return launcher

    def _send_plan(self, fds: list[int]) -> None:
        step = limits.LAUNCH_FDS_PER_MESSAGE
        for at in range(0, len(fds), step):
            self.channel.send(Plain(MsgType.FDS), fds=fds[at : at + step])
        memfd = _sealed(self._plan.encode())
        try:
            self.channel.send(Plain(MsgType.PLAN), fds=[memfd])
        finally:
            os.close(memfd)

    def wait_network(self) -> RunNetwork:
        """Wait for NET_READY. Raises ``LaunchError`` when the set-up failed."""
        msg, fds = self._expect(NetReady)
        netns, tcp4, tcp6, udp4, udp6, nflog, agent_netns, dns4, dns6, *cgroup = fds
        return RunNetwork(
            netns=netns,
            tcp4=tcp4,
            tcp6=tcp6,
            udp4=udp4,
            udp6=udp6,
            nflog=nflog,
            agent_netns=agent_netns,
            dns4=dns4,
            dns6=dns6,
            cgroup=cgroup[0] if cgroup else -1,
            cgroup_id=msg.cgroup_id,
            netns_cookie=msg.netns_cookie,
        )

    def go(self) -> None:
        """Let the agent start: the run's start is on disk."""
        self.channel.send(Plain(MsgType.GO))

    def wait_started(self) -> tuple[Started, int]:
        """Wait for STARTED: pids, and the terminal's master side or -1."""
        msg, fds = self._expect(Started)
        return msg, fds[0] if fds else -1

    def _expect(self, cls: type[M]) -> tuple[M, tuple[int, ...]]:
        """Wait for one message; FAILED and the program's death become a ``LaunchError``."""
        wait_s = (limits.LAUNCH_SETUP_MS + limits.LAUNCH_GO_MS) / 1000
        try:
            got = self.channel.recv(wait_s)
        except (PeerClosed, PeerBroken) as exc:
            raise LaunchError("hark-launch died", exc.what, "see the kernel log") from exc
        if got is None:
            raise LaunchError("hark-launch does not answer", f"nothing came in {wait_s:.0f} s")
        if isinstance(got.msg, Failed):
            raise self.failure(got.msg)
        if not isinstance(got.msg, cls):
            got.close()
            raise LaunchError("hark-launch is confused", f"it sent {type(got.msg).__name__}")
        return got.msg, got.fds

    def failure(self, failed: Failed) -> LaunchError:
        """Return the error a FAILED message stands for."""
        ops = self._plan.describe()
        where = ops[failed.op] if failed.op < len(ops) else ""
        cause = f"at plan step {failed.op}: {where[:200]}" if where else ""
        return LaunchError(failed.what or "the sandbox cannot be built", cause, failed.hint)

    def wait(self) -> int:
        """Reap the program; return its exit code."""
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        """Close the control socket: a run that still lives ends."""
        self.channel.close()


def _spawn(program: Path, control: int) -> int:
    """Start it in a process group of its own: a terminal's Ctrl-C is not for it."""
    if control == _CONTROL_FD:  # dup2 onto itself would keep close-on-exec
        os.set_inheritable(control, True)
    return os.posix_spawn(
        program,
        ["hark-launch"],
        {},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDWR, 0),
            (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_RDWR, 0),
            (os.POSIX_SPAWN_DUP2, control, _CONTROL_FD),
        ],
        setpgroup=0,
        setsigmask=[],
        setsigdef=[s for s in range(1, 32) if s not in (signal.SIGKILL, signal.SIGSTOP)],
    )


def _sealed(data: bytes) -> int:
    """Return a memfd that nobody can change any more."""
    fd = os.memfd_create("hark-plan", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with contextlib.ExitStack() as undo:
        undo.callback(os.close, fd)
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
        undo.pop_all()
    return fd
