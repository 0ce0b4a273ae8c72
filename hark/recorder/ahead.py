"""What `hark run` begins before it has read a policy: loading the sensors, probing the kernel.

Both take tens of milliseconds of another core and depend on nothing that was asked for. They are
done in a forked child, which imports what they need itself. Rules: nothing here is needed for a
run to be right: whoever misses the child's work does it again.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
from typing import TYPE_CHECKING

from hark import limits
from hark.errors import KernelUnsupported
from hark.launcher import trust
from hark.policy import privileges

if TYPE_CHECKING:
    from hark.policy.capabilities import Capabilities

__all__ = ["Ahead", "require_root"]

_PR_SET_PDEATHSIG = 1  # prctl(2)
_READ_BYTES = 65536
_NO_RUN = 0  # no cgroup has this id


def require_root() -> None:
    """The sandbox, the sensors and the own ids all need root to be made."""
    if os.geteuid() != 0:
        raise KernelUnsupported(
            "hark run needs root",
            f"the effective user id is {os.geteuid()}",
            "sudo hark run ...; the agent itself runs as you, without any privilege",
        )
    if lacking := privileges.missing_root():
        raise KernelUnsupported(
            "hark run needs all of root", lacking, "run it where root keeps these capabilities"
        )


def require_descriptors() -> None:
    """A run opens some dozens of descriptors: fewer would fail in the middle of the start."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if most != resource.RLIM_INFINITY and most < limits.DESCRIPTORS_LEAST:
        raise KernelUnsupported(
            "hark run has too few file descriptors",
            f"the limit is {most} open files, a run needs {limits.DESCRIPTORS_LEAST}",
            f"ulimit -n {limits.DESCRIPTORS_ADVISED}, then run it again",
        )


class Ahead:
    """The child, and what it found. ``close`` it after the sensors are attached."""

    def __init__(self) -> None:
        """Start it, as root, and only from a tree that is root's own. Raises HarkError."""
        require_root()
        require_descriptors()
        trust.check_tree()
        parent = os.getpid()
        self._answer, theirs = os.pipe2(os.O_CLOEXEC)
        self._pid = os.fork()
        if self._pid == 0:
            _child(theirs, parent)
        os.close(theirs)

    def capabilities(self) -> Capabilities:
        """Return what was probed; call it once."""
        from hark.policy.capabilities import Capabilities, Feature  # noqa: PLC0415 - read late

        text = b""
        while part := os.read(self._answer, _READ_BYTES):
            text += part
        os.close(self._answer)
        if not text:
            from hark.kernel.probe import probe  # noqa: PLC0415 - the child has failed

            return probe()
        kernel, abi, cgroup2, rows = json.loads(text)
        features = tuple(Feature(*row) for row in rows)
        return Capabilities(kernel=kernel, landlock_abi=abi, cgroup2=cgroup2, features=features)

    def close(self) -> None:
        """End the child. Harmless when repeated."""
        if self._pid > 0:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = -1

    def abandon(self) -> None:
        """There will be no run: end the child and take down what it loaded, unless runs use it."""
        if self._pid < 0:
            return
        self.close()
        from hark.kernel import sensors  # noqa: PLC0415 - after an error

        sensors.leave(_NO_RUN)


def _child(answer: int, parent: int) -> None:
    """Never returns: probe, tell, load the sensors and hold them until killed."""
    try:
        privileges.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before that
            return
        from hark.kernel import probe, sensors  # noqa: PLC0415 - on another core than the parent's

        trust.check_tree()
        found = probe.probe()
        rows = [[feature.name, feature.ok, feature.detail] for feature in found.features]
        value = [found.kernel, found.landlock_abi, found.cgroup2, rows]
        os.write(answer, json.dumps(value).encode())  # some kilobytes: a pipe takes them at once
        os.close(answer)
        with contextlib.suppress(Exception):  # for attach to find out and to tell
            sensors.hold()
    finally:
        os._exit(0)
