"""The processes of a run that the recorder is the parent of: who ended, and how.

When a process is killed, those that talk to it follow within microseconds, since its sockets
close. So whoever watches can meet a follower first. Only the parent learns how each one ended, and
that tells them apart: who is killed ends by a signal, who follows ends by itself.

Rules: the recorder is the parent, so asking needs no privilege; no wait without a deadline.
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from hark import limits

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Children"]

# Status 0 is a follower's. Of those that failed by themselves the mediator comes last: it also
# fails when it has lost its broker (csrc/mediator/hark_links.c).
_ORDER = ("broker", "signer", "tracer", "publisher", "mediator")
_STEP_S = 0.002


class Children:
    """Reaps the children that it was given, by name. ``launch`` may be among them."""

    def __init__(self, pids: Mapping[str, int] | None = None) -> None:
        """Take process ids of children of this process."""
        self._alive = dict(pids or {})
        self._ended: dict[str, int] = {}

    def reap(self) -> None:
        """Take note of those that have ended; does not wait."""
        for name, pid in list(self._alive.items()):
            try:
                found, status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:  # somebody else reaped it: how it ended is not known
                del self._alive[name]
                continue
            if found:
                del self._alive[name]
                self._ended[name] = os.waitstatus_to_exitcode(status)

    def culprit(self, wait_s: float = limits.CHILD_END_WAIT_S) -> tuple[str, str] | None:
        """Return who ended the run and how ("killed by SIGKILL"), ``None`` when nobody did.

        Call it when one of the services is known to be gone. Sockets close a moment before the
        parent can see the end, so this waits, at most ``wait_s``, until an end explains the others.
        """
        deadline = time.monotonic() + wait_s
        while True:
            self.reap()
            late = time.monotonic() > deadline or not self._alive
            found = self._killed() or self._failed(certain=not late)
            if found or late:
                return found
            time.sleep(_STEP_S)

    def wait(self, wait_s: float = limits.CHILD_END_WAIT_S) -> None:
        """Wait, at most ``wait_s``, until all are gone: their sockets were closed."""
        deadline = time.monotonic() + wait_s
        self.reap()
        while self._alive and time.monotonic() < deadline:
            time.sleep(_STEP_S)
            self.reap()

    def _killed(self) -> tuple[str, str] | None:
        for name in _ORDER:
            if (code := self._ended.get(name, 0)) < 0:
                return name, f"killed by {_signal_name(-code)}"
        return None

    def _failed(self, *, certain: bool) -> tuple[str, str] | None:
        """Return who left with a status; ``certain``: not while its reason may be still unseen.

        A mediator that fails may have lost its broker, whose own end may not be visible yet.
        """
        failed = [name for name in _ORDER if self._ended.get(name, 0) > 0]
        if not failed or (certain and failed == ["mediator"] and "broker" in self._alive):
            return None
        return failed[0], f"it left with status {self._ended[failed[0]]}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
