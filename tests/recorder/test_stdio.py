"""The relays on real pipes and terminals: nothing lost, nothing kept that was not echoed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import selectors
import signal
import struct
import subprocess
import sys
import termios
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hark import limits
from hark.recorder.stdio import OperatorOutput, PipeRelay

from .rig import WAIT_S, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


class Log:
    """A sink that keeps streams apart."""

    def __init__(self) -> None:
        self.data: dict[int, bytes] = defaultdict(bytes)
        self.ended: list[int] = []

    def __call__(self, stream: int, data: bytes | None, *, end: bool) -> None:
        self.data[stream] += data or b""
        if end:
            self.ended.append(stream)


class Pipes:
    """A PipeRelay with both far ends in the test's hands."""

    def __init__(self, stdin: int | None = None) -> None:
        self.agent_in, to_agent = os.pipe()
        out_r, self.agent_out = os.pipe()
        err_r, self.agent_err = os.pipe()
        self.operator_out, op_out = os.pipe()
        self.operator_err, op_err = os.pipe()
        self.typing = -1
        if stdin is None:
            stdin, self.typing = os.pipe()
        self.log = Log()
        self.selector = selectors.DefaultSelector()
        self.relay = PipeRelay(
            stdin=(stdin, to_agent), stdout=(out_r, op_out), stderr=(err_r, op_err)
        )
        self.op_out, self.op_err = op_out, op_err
        self.relay.attach(self.selector, self.log)

    def turn(self, seconds: float = 0.0) -> bool:
        events = self.selector.select(seconds)
        for key, _ in events:
            if key.fd in self.selector.get_map():
                key.data()
        return bool(events)

    def until(self, condition: Callable[[], bool]) -> None:
        def met() -> bool:
            self.turn(0.01)
            return condition()

        wait_for(met)


def test_output_reaches_the_operator_and_the_record():
    run = Pipes()
    os.write(run.agent_out, b"to out")
    os.write(run.agent_err, b"to err")
    run.until(lambda: run.log.data[1] and run.log.data[2])
    assert os.read(run.operator_out, 99) == b"to out"
    assert os.read(run.operator_err, 99) == b"to err"
    os.close(run.agent_out)
    run.until(lambda: run.log.ended == [1])
    run.relay.finish(lambda: False)
    assert run.log.ended == [1, 0, 2]


def test_input_is_recorded_as_the_agent_gets_it():
    run = Pipes()
    os.write(run.typing, b"question")
    run.until(lambda: bool(run.log.data[0]))
    assert os.read(run.agent_in, 99) == b"question" == run.log.data[0]
    os.close(run.typing)
    run.until(lambda: run.log.ended == [0])
    assert os.read(run.agent_in, 99) == b""


def test_an_agent_that_does_not_read_holds_the_input_back():
    run = Pipes()
    sent = 0
    os.set_blocking(run.typing, False)
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        with contextlib.suppress(BlockingIOError):
            sent += os.write(run.typing, bytes(4096))
        run.turn()
    assert len(run.log.data[0]) == 65536  # what the agent's pipe holds
    assert sent <= 65536 * 2 + limits.STDIO_CHUNK_BYTES
    got = b""
    while len(got) < sent:
        if select.select([run.agent_in], [], [], 0)[0]:
            got += os.read(run.agent_in, 65536)
        run.turn()
    assert got == bytes(sent)
    run.until(lambda: len(run.log.data[0]) == sent)


@pytest.mark.parametrize("content", [b"", b"x" * 300_000])
def test_input_from_a_file(tmp_path: Path, content: bytes):
    source = tmp_path / "in"
    source.write_bytes(content)
    run = Pipes(os.open(source, os.O_RDONLY))
    got = b""
    while 0 not in run.log.ended or select.select([run.agent_in], [], [], 0)[0]:
        run.turn(0.01)
        if select.select([run.agent_in], [], [], 0)[0]:
            data = os.read(run.agent_in, 65536)
            got += data
            if not data:
                break
    assert got == content == run.log.data[0]


def test_dev_null_is_an_input():
    run = Pipes(os.open("/dev/null", os.O_RDONLY))
    run.until(lambda: run.log.ended == [0])
    assert os.read(run.agent_in, 9) == b""


def test_an_agent_that_closed_its_input_stops_the_reading():
    run = Pipes()
    os.close(run.agent_in)
    os.write(run.typing, b"late")
    run.until(lambda: run.log.ended == [0])
    assert run.log.data[0] == b""


def test_an_operator_who_does_not_read_makes_the_agent_wait_and_nothing_is_lost():
    run = Pipes()
    os.set_blocking(run.agent_out, False)
    written = 0
    stuck = 0
    while stuck < 50:
        try:
            written += os.write(run.agent_out, bytes(range(256)) * 16)
            stuck = 0
        except BlockingIOError:
            stuck += not run.turn(0.005)
    # Held: the agent's pipe, our buffer, the operator's pipe; one chunk may be on its way.
    assert written <= 2 * 65536 + limits.STDIO_BUFFER_BYTES + 2 * limits.STDIO_CHUNK_BYTES
    os.close(run.agent_out)
    got = b""
    while len(got) < written:
        run.turn()
        if select.select([run.operator_out], [], [], 0.01)[0]:
            got += os.read(run.operator_out, 65536)
    assert got == bytes(range(256)) * (written // 256)
    run.until(lambda: run.log.ended == [1])
    assert run.log.data[1] == got


def test_a_broken_operator_pipe_breaks_the_agents():
    run = Pipes()
    os.close(run.operator_out)
    os.write(run.agent_out, b"nobody reads this")
    run.until(lambda: run.log.ended == [1])
    assert run.log.data[1] == b"nobody reads this"
    with pytest.raises(BrokenPipeError):
        os.write(run.agent_out, b"more")


def test_what_a_dead_agent_left_in_its_pipes_is_kept_past_any_limit(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(limits, "STDIO_BUFFER_BYTES", 10)
    run = Pipes()
    os.write(run.agent_out, bytes(60_000))
    run.relay.drain()
    assert len(run.log.data[1]) == 60_000
    assert sorted(run.log.ended) == [0, 1, 2]


def test_finish_can_be_given_up():
    run = Pipes()
    os.write(run.agent_out, bytes(60_000))
    run.until(lambda: len(run.log.data[1]) == 60_000)
    os.write(run.agent_out, bytes(60_000))
    started = time.monotonic()
    run.relay.finish(lambda: time.monotonic() > started + 0.2)
    assert len(run.log.data[1]) == 120_000
    os.read(run.operator_out, 65536)


def test_the_operators_descriptors_stay_as_they_are():
    read, write = os.pipe()
    out = OperatorOutput(write)
    out.write(b"x")
    assert os.read(read, 1) == b"x"
    assert os.get_blocking(write)
    out.finish(lambda: False)


# --- terminals ------------------------------------------------------------------------------------


class Terminal:
    """A TerminalRelay in a process of its own; the test is the operator at the outer terminal."""

    def __init__(self, *program: str) -> None:
        self.outer, slave = pty.openpty()
        self.set_size(30, 100)
        log_r, log_w = os.pipe()
        self.log_fd = log_r
        self.screen = b""
        self.before = termios.tcgetattr(slave)
        self.slave = slave

        def own_terminal() -> None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            os.dup2(log_w, 3)

        self.process = subprocess.Popen(
            [sys.executable, HERE / "terminal_run.py", *program],
            stdin=slave,
            stdout=slave,
            stderr=subprocess.DEVNULL,
            preexec_fn=own_terminal,  # noqa: PLW1509 - no other thread holds a lock here
            pass_fds=(3,),
            env={**os.environ, "PYTHONPATH": str(ROOT), "PS1": "$ ", "ENV": ""},
        )
        os.close(log_w)

    def set_size(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.outer, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        os.write(self.outer, keys)

    def see(self, pattern: bytes) -> re.Match[bytes]:
        """Read the screen until ``pattern`` is on it; what is before it scrolls away."""
        end = time.monotonic() + WAIT_S
        while not (match := re.search(pattern, self.screen)):
            assert time.monotonic() < end, self.screen
            if select.select([self.outer], [], [], 0.1)[0]:
                self.screen += os.read(self.outer, 65536)
        self.screen = self.screen[match.end() :]
        return match

    def is_raw(self) -> bool:
        return not termios.tcgetattr(self.slave)[3] & (termios.ICANON | termios.ECHO)

    def end(self) -> tuple[int, list[str]]:
        """Exit status and what was recorded."""
        reader = b""
        while data := os.read(self.log_fd, 65536):
            reader += data
        code = self.process.wait(WAIT_S)
        os.close(self.outer)
        os.close(self.slave)
        return code, reader.decode().splitlines()


def recorded(lines: list[str], stream: int) -> bytes:
    chunks = [line.split(" ", 1)[1].rsplit(" ", 1)[0] for line in lines if line[0] == str(stream)]
    return b"".join(eval(c) for c in chunks if c[0] == "b")  # noqa: S307 - our own repr


def test_a_shell_in_its_own_terminal():
    run = Terminal("/bin/sh", "-i")
    run.see(rb"[$#] ")
    assert run.is_raw()
    run.type(b"echo $((40+2)); stty size; tty\r")
    run.see(rb"\n42\r\n30 100\r\n/dev/pts/\d+\r\n")
    run.type(b"exit 7\r")
    code, log = run.end()
    assert code == 7
    assert b"\n42\r\n" in recorded(log, 4)
    assert recorded(log, 3) == b"echo $((40+2)); stty size; tty\rexit 7\r"


def test_the_terminal_is_put_back():
    run = Terminal("/bin/sh", "-c", "echo on; read x; exit 3")
    run.see(rb"on\r\n")
    assert run.is_raw()
    run.type(b"\r")
    run.process.wait(WAIT_S)
    assert termios.tcgetattr(run.slave) == run.before
    assert run.end()[0] == 3


def test_the_terminal_is_put_back_after_an_error():
    run = Terminal("--crash", "/bin/sh", "-c", "sleep 0.3; echo on; read x")
    run.process.wait(WAIT_S)
    assert run.process.returncode == 9
    assert termios.tcgetattr(run.slave) == run.before


def test_what_is_typed_without_echo_is_not_kept():
    run = Terminal(
        "/bin/sh", "-c", 'stty -echo; echo "pass:"; read x; stty echo; echo "got $x"; read y'
    )
    run.see(rb"pass:\r\n")
    run.type(b"secret\r")
    run.see(rb"got secret\r\n")
    run.type(b"open\r")
    _, log = run.end()
    assert recorded(log, 3) == b"open\r"
    assert "3 None 0" in log


def test_a_new_size_reaches_the_agent():
    run = Terminal("/bin/sh", "-c", "trap 'stty size' WINCH; echo on; while :; do sleep 0.05; done")
    run.see(rb"on\r\n")
    run.set_size(50, 132)
    run.see(rb"50 132\r\n")
    run.process.kill()
    sizes = [line for line in run.end()[1] if line.startswith("4 (")]
    assert sizes == ["4 (30, 100) 0", "4 (50, 132) 0"]


def test_a_key_is_a_signal_only_for_the_agent():
    run = Terminal(
        "/bin/sh", "-c", "trap 'echo hit; exit 5' INT; echo on; while :; do sleep 0.05; done"
    )
    run.see(rb"on\r\n")
    run.type(b"\x03")
    run.see(rb"hit\r\n")
    assert run.end()[0] == 5


def test_a_suspended_run_gives_the_terminal_back_and_takes_it_again():
    run = Terminal("/bin/sh", "-c", "echo on; read x; echo read $x")
    run.see(rb"on\r\n")
    run.process.send_signal(signal.SIGUSR1)
    _, status = os.waitpid(run.process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    assert termios.tcgetattr(run.slave) == run.before
    run.process.send_signal(signal.SIGCONT)
    wait_for(run.is_raw)
    run.type(b"more\r")
    run.see(rb"read more\r\n")
    assert run.end()[0] == 0
