"""The run's own terminal: job control, sizes, and that it is not the operator's."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import termios
import time
from typing import TYPE_CHECKING

import pytest

from hark.policy.control import Job, Signal

if TYPE_CHECKING:
    from collections.abc import Callable

    from launcher.rig import Box

    MakeBox = Callable[..., Box]

pytestmark = pytest.mark.kernel
SIZE = (33, 101)


def until(one: Box, text: bytes) -> bytes:
    """Read the terminal until it has shown ``text``."""
    out, end = b"", time.monotonic() + 15
    while text not in out:
        assert time.monotonic() < end, out
        if select.select([one.master], [], [], 0.5)[0]:
            out += os.read(one.master, 4096)
    return out


def test_the_terminal_is_the_runs_own_and_has_its_size(box: MakeBox):
    one = box(["/bin/sh", "-c", "tty; stty size; ls -l /dev/pts; echo x > /dev/tty"], tty=SIZE)
    result = one.run()
    lines = result.shown.decode().split("\r\n")
    assert lines[:2] == ["/dev/pts/0", "33 101"]
    assert lines[-2] == "x"
    assert result.status == 0


def test_pipes_mean_no_terminal_at_all(box: MakeBox):
    result = box(["/bin/sh", "-c", "echo x > /dev/tty; tty"]).run()
    assert result.out == "not a tty\n"
    assert "/dev/tty: No such device or address" in result.err


def test_ctrl_c_interrupts_and_ctrl_z_stops_the_job(box: MakeBox):
    one = box(["/bin/sh", "-c", "echo ready; read line; echo got $line"], tty=SIZE).start()
    until(one, b"ready")
    os.write(one.master, b"\x1a")
    job, _ = one.launcher.channel.expect(Job, 10)
    assert job.stopped == 1
    one.launcher.channel.send(Signal(signal.SIGCONT))
    job, _ = one.launcher.channel.expect(Job, 10)
    assert job.stopped == 0
    os.write(one.master, b"hello\n")
    until(one, b"got hello")
    assert one.finish().status == 0
    one = box(["/usr/bin/cat"], tty=SIZE).start()
    os.write(one.master, b"line\n")
    until(one, b"line\r\nline")
    os.write(one.master, b"\x03")
    assert one.finish().status == -signal.SIGINT


def test_a_shell_has_job_control(box: MakeBox):
    one = box(
        ["/bin/bash", "--norc", "-i"], tty=SIZE, env={"PATH": "/usr/bin", "PS1": "$ "}
    ).start()
    until(one, b"$ ")
    os.write(one.master, b"sleep 100\n")
    until(one, b"sleep 100\r\n")
    time.sleep(0.3)  # the shell hands the terminal over; there is nothing to wait on
    os.write(one.master, b"\x1a")
    until(one, b"Stopped")
    os.write(one.master, b"kill -9 %1; wait; stty size; exit 9\n")
    until(one, b"33 101")
    assert one.finish().status == 9


def test_a_new_size_reaches_the_agent(box: MakeBox):
    one = box(
        [
            "/bin/bash",
            "-c",
            "trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.1; done",
        ],
        tty=SIZE,
    ).start()
    until(one, b"ready")
    fcntl.ioctl(one.master, termios.TIOCSWINSZ, struct.pack("4H", 50, 80, 0, 0))
    until(one, b"50 80")
    assert one.finish().status == 0


def test_the_agents_end_ends_the_terminal(box: MakeBox):
    one = box(["/bin/sh", "-c", "setsid sleep 1000 & echo bye"], tty=SIZE)
    result = one.run()
    assert b"bye" in result.shown
    assert result.exited.stragglers == 1
