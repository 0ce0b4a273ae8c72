"""hark-trace as a child process: started, given its seed, watched.

Rules: Python only starts it; nothing between fork and exec but what ``subprocess`` does in C. It
begins as root and gives that up when hark-launch brings the run's user namespace
(``csrc/trace/main.c``). Closing our end of its control socket ends it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import TYPE_CHECKING

from hark import limits
from hark.errors import LaunchError
from hark.locations import libexec
from hark.policy import control
from hark.policy.control import Channel

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["TracerProcess"]


class TracerProcess:
    """One running ``hark-trace``, in its own process group.

    ``control``: the recorder's end of its control socket. ``launch``: the descriptor that the
    launch plan calls "tracer"; hark-launch gets a copy, and this one is closed after that.
    """

    def __init__(self, uid: int, gid: int, *, program: Path | None = None) -> None:
        """Start it; ``uid`` and ``gid`` are whom it becomes. Raises LaunchError."""
        ours, theirs = control.socket_pair()
        launch, launched = control.socket_pair()
        fds = [theirs.fileno(), launched.fileno()]
        try:
            self._child = subprocess.Popen(
                [program or libexec("hark-trace"), *map(str, (*fds, uid, gid))],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={},
                pass_fds=fds,
                process_group=0,
            )
        except OSError as error:
            ours.close()
            launch.close()
            raise LaunchError(
                "hark-trace cannot be started", f"{error.filename}: {error.strerror}", "make build"
            ) from None
        finally:
            theirs.close()
            launched.close()
        self.pid = self._child.pid
        self.control = Channel(ours)
        self.launch = launch.detach()

    def seed(self, seed: bytes, spawns: int) -> None:
        """Give it the run's 32 bytes and the map of spawn paths (-1: there is none)."""
        self.control.send(control.Seed(seed), fds=[spawns] if spawns >= 0 else [])

    def close(self) -> None:
        """End it: close its socket, wait a moment, kill."""
        self.control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(limits.MEDIATOR_END_S)
        if self._child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._child.wait()
