"""Who ended first, told from how each ended: real processes with real ends."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from hark.recorder.children import Children

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def fork() -> Iterator[Callable[..., int]]:
    """Return a function that makes a child which exits with a status when ``after`` has ended."""
    pids = []

    def make(status: int | None, after: int | None = None) -> int:
        pidfd = os.pidfd_open(after) if after else -1
        pid = os.fork()
        if pid == 0:
            if pidfd >= 0:
                import select  # noqa: PLC0415 - in the child

                poller = select.poll()
                poller.register(pidfd, select.POLLIN)
                poller.poll()
            elif status is None:
                signal.pause()
            os._exit(status or 0)
        if pidfd >= 0:
            os.close(pidfd)
        pids.append(pid)
        return pid

    yield make
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


def test_the_killed_one_outranks_its_follower(fork: Callable[..., int]):
    mediator = fork(None)
    broker = fork(0, after=mediator)
    signer = fork(None)
    children = Children({"broker": broker, "mediator": mediator, "signer": signer})
    assert children.culprit(0.0) is None, "positive control: all are alive"
    os.kill(mediator, signal.SIGKILL)
    assert children.culprit() == ("mediator", "killed by SIGKILL")


def test_a_mediator_that_lost_its_broker_is_not_blamed(fork: Callable[..., int]):
    broker = fork(None)
    mediator = fork(1, after=broker)
    os.kill(broker, signal.SIGTERM)
    children = Children({"broker": broker, "mediator": mediator})
    assert children.culprit() == ("broker", "killed by SIGTERM")


@pytest.mark.parametrize(
    ("broker", "mediator", "expected"),
    [
        (0, 1, ("mediator", "it left with status 1")),
        (125, 1, ("broker", "it left with status 125")),
        (0, 0, None),
    ],
)
def test_a_failure_outranks_an_orderly_end(
    fork: Callable[..., int], broker: int, mediator: int, expected: tuple[str, str] | None
):
    pids = {"broker": fork(broker), "mediator": fork(mediator)}
    assert Children(pids).culprit() == expected


def test_a_failed_mediator_is_blamed_at_the_deadline_while_the_broker_lives(
    fork: Callable[..., int],
):
    children = Children({"broker": fork(None), "mediator": fork(1)})
    assert children.culprit(0.2) == ("mediator", "it left with status 1")


def test_all_are_reaped(fork: Callable[..., int]):
    pids = [fork(0), fork(3)]
    children = Children({"broker": pids[0], "launch": pids[1]})
    children.wait()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_child_that_somebody_else_reaped_is_nobodys_fault(fork: Callable[..., int]):
    pid = fork(1)
    os.waitpid(pid, 0)
    assert Children({"signer": pid}).culprit() is None


def test_the_wait_ends_at_its_deadline(fork: Callable[..., int]):
    pid = fork(None)
    Children({"signer": pid}).wait(0.05)
    os.kill(pid, 0)  # still there
