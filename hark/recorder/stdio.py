"""Relays the agent's streams to the operator's and reports every byte.

Two shapes: pipes, and a terminal (the master side of the agent's own pty, with the operator's
terminal in raw mode). Rules: nothing is lost and nothing is held back from the record; when the
operator does not take output, the agent waits, as it would without hark; when the operator's end is
gone, the agent's write end breaks, as it would without hark. The operator's descriptors are shared
with the shell, so they never become non-blocking: a thread per output does the writing. The
terminal is always put back, also at exit by an error. Typed bytes are not kept while echo is off.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import selectors
import signal
import struct
import termios
import threading
import time
import tty
from queue import SimpleQueue
from typing import TYPE_CHECKING, Protocol

from hark import limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["OperatorOutput", "PipeRelay", "Relay", "Sink", "Stream", "TerminalRelay"]

_WINSIZE = struct.Struct("HH")  # rows and columns of struct winsize, tty_ioctl(4)
_LFLAG = 3  # index in the list of tcgetattr
_SETTLE_TRIES = 40


class Stream:
    """Values of key 4 of a stdio event (docs/spec/records.md, kind 23)."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    TYPED = 3
    SHOWN = 4


class Sink(Protocol):
    """Takes what passed: ``data`` is ``None`` for typed bytes that must not be kept."""

    def __call__(
        self, stream: int, data: bytes | None, *, end: bool, size: tuple[int, int] | None = None
    ) -> None:
        """Record one chunk of ``stream``; ``end``: nothing more comes.

        ``size``: rows and columns the terminal has from now on; then there is no data.
        """


class Relay(Protocol):
    """What a session needs of a relay."""

    def attach(self, selector: selectors.BaseSelector, sink: Sink) -> None:
        """Begin: register descriptors with callbacks as their data."""

    def tick(self) -> None:
        """Look again at what could not be polled; call it a few times a second."""

    def resized(self) -> None:
        """Follow a new size of the operator's terminal."""

    def suspend(self) -> None:
        """Stop hark itself as a job, with the terminal put back; returns when it goes on."""

    def drain(self) -> None:
        """Take everything that the agent left behind; its tree is gone."""

    def finish(self, give_up: Callable[[], bool]) -> None:
        """Wait until the operator has taken everything, or ``give_up`` says so; then let go."""


class OperatorOutput:
    """One descriptor of the operator, written to by its own thread."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._pending = 0
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.broken = False
        self._thread = threading.Thread(target=self._work, name=f"hark-out-{fd}", daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        """Readable when something was written or the descriptor broke."""
        return self._wake

    @property
    def full(self) -> bool:
        """Whether the operator is behind, so that the agent has to wait."""
        return self._pending >= limits.STDIO_BUFFER_BYTES

    def clear(self) -> None:
        """Make ``fileno`` unreadable again."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)

    def write(self, data: bytes) -> None:
        """Queue ``data``; never blocks."""
        if self.broken or not data:
            return
        with self._lock:
            self._pending += len(data)
        self._queue.put(data)

    def settle(self) -> None:
        """Let what is queued reach the terminal before its settings change, if it will soon."""
        for _ in range(_SETTLE_TRIES):
            if not self._pending:
                return
            time.sleep(0.005)

    def finish(self, give_up: Callable[[], bool]) -> None:
        """Wait until all is written; past ``give_up`` what is left is dropped."""
        self._queue.put(None)
        while self._thread.is_alive() and not give_up():
            self._thread.join(timeout=0.05)
        if not self._thread.is_alive():
            os.close(self._wake)

    def _work(self) -> None:
        while (data := self._queue.get()) is not None:
            try:
                if not self.broken:
                    _write_all(self._fd, data)
            except OSError:
                self.broken = True
            with self._lock:
                self._pending -= len(data)
            os.eventfd_write(self._wake, 1)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:  # somebody else made the shared descriptor non-blocking
            time.sleep(0.005)


class _Output:
    """One stream from the agent to the operator."""

    def __init__(self, stream: int, source: int, target: OperatorOutput) -> None:
        self.stream = stream
        self.source = source
        self.target = target
        self.open = True
        self._reading = False
        self._selector: selectors.BaseSelector | None = None
        self._sink: Sink | None = None

    def attach(self, selector: selectors.BaseSelector, sink: Sink) -> None:
        """Begin to read."""
        os.set_blocking(self.source, False)
        self._selector, self._sink = selector, sink
        selector.register(self.target.fileno(), selectors.EVENT_READ, self._written)
        self.read_more()

    def read_more(self) -> None:
        """Poll the source, unless the operator is behind."""
        wanted = self.open and not self.target.full
        if self._selector is None or wanted == self._reading:
            return
        if wanted:
            self._selector.register(self.source, selectors.EVENT_READ, self._readable)
        else:
            self._selector.unregister(self.source)
        self._reading = wanted

    def pause(self) -> None:
        """Do not poll the source until ``read_more``."""
        if self._reading and self._selector is not None:
            self._selector.unregister(self.source)
            self._reading = False

    def drain(self) -> None:
        """Read what is left, without regard to the operator's pace."""
        while self.open and self.take():
            pass
        self.end()

    def take(self) -> bool:
        """Move one chunk; False when there was none."""
        try:
            data = os.read(self.source, limits.STDIO_CHUNK_BYTES)
        except BlockingIOError:
            return False
        except OSError:  # EIO: no terminal's slave is open
            data = b""
        if not data:
            self.ended()
            return False
        if self._sink is not None:
            self._sink(self.stream, data, end=False)
        self.target.write(data)
        return True

    def ended(self) -> None:
        """Handle end of file."""
        self.end()

    def end(self) -> None:
        """Stop for good: nothing more comes, or nobody takes it."""
        if not self.open:
            return
        self.pause()
        self.open = False
        os.close(self.source)
        if self._sink is not None:
            self._sink(self.stream, b"", end=True)

    def detach(self) -> None:
        """Forget the selector before the target goes."""
        self.pause()
        if self._selector is not None:
            self._selector.unregister(self.target.fileno())
            self._selector = None

    def _readable(self) -> None:
        self.take()
        self.read_more()

    def _written(self) -> None:
        self.target.clear()
        if self.target.broken:
            self.end()
        self.read_more()


class _Input:
    """One stream from the operator to the agent; reported as the agent is given it."""

    def __init__(self, source: int, target: int) -> None:
        self.source = source
        self.target = target
        self.open = True
        self._pending = b""
        self._polled: int | None = None
        self._pollable = True
        self._selector: selectors.BaseSelector | None = None
        self._sink: Sink | None = None

    def attach(self, selector: selectors.BaseSelector, sink: Sink) -> None:
        """Begin to read. A source that cannot be polled (a file) is read as the agent takes it."""
        os.set_blocking(self.target, False)
        self._selector, self._sink = selector, sink
        self.poll()

    def poll(self) -> None:
        """Wait for the side that holds things up."""
        if not self.open or self._selector is None:
            return
        wanted = self.target if self._pending or not self._pollable else self.source
        if wanted == self.source and _in_background(self.source):
            self._poll_only(None)  # reading would stop hark with SIGTTIN; ``tick`` looks again
            return
        try:
            self._poll_only(wanted)
        except PermissionError:  # epoll: a regular file is always ready
            self._pollable = False
            self._poll_only(self.target)

    def give(self) -> None:
        """Hand over what is pending, as far as the agent takes it, and tell so."""
        count = os.write(self.target, self._pending)
        if count and self._sink is not None:
            self._sink(Stream.STDIN, self._pending[:count], end=False)
        self._pending = self._pending[count:]

    def finished(self) -> None:
        """Handle the end of the operator's stream: the agent sees end of file."""
        self.close()

    def close(self) -> None:
        """Stop for good."""
        if not self.open:
            return
        self._poll_only(None)
        self.open = False
        os.close(self.target)
        if self._sink is not None:
            self._sink(Stream.STDIN, b"", end=True)

    def _poll_only(self, fd: int | None) -> None:
        if fd == self._polled or self._selector is None:
            return
        if self._polled is not None:
            self._selector.unregister(self._polled)
        self._polled = None
        if fd is not None:
            event = selectors.EVENT_READ if fd == self.source else selectors.EVENT_WRITE
            self._selector.register(fd, event, self._ready)
            self._polled = fd

    def _ready(self) -> None:
        if not self._pending and not self._read():
            return
        try:
            self.give()
        except BlockingIOError:
            pass
        except OSError:  # EPIPE: the agent closed its standard input
            self.close()
            return
        self.poll()

    def _read(self) -> bool:
        if _in_background(self.source):
            self.poll()
            return False
        try:
            self._pending = os.read(self.source, limits.STDIO_CHUNK_BYTES)
        except BlockingIOError:
            return False
        except OSError:  # EIO: the terminal is gone
            self._pending = b""
        if not self._pending:
            self.finished()
        return bool(self._pending)


def _in_background(fd: int) -> bool:
    try:
        return os.tcgetpgrp(fd) != os.getpgrp()
    except OSError:
        return False  # not a terminal, or not ours


class PipeRelay:
    """Three pipes. ``stdin`` is (operator's, agent's), the outputs are (agent's, operator's)."""

    def __init__(
        self,
        *,
        stdin: tuple[int, int] | None,
        stdout: tuple[int, int],
        stderr: tuple[int, int],
    ) -> None:
        self._input = _Input(*stdin) if stdin else None
        self._outputs = [
            _Output(Stream.STDOUT, stdout[0], OperatorOutput(stdout[1])),
            _Output(Stream.STDERR, stderr[0], OperatorOutput(stderr[1])),
        ]

    def attach(self, selector: selectors.BaseSelector, sink: Sink) -> None:
        """Begin: see ``Relay``."""
        for output in self._outputs:
            output.attach(selector, sink)
        if self._input:
            self._input.attach(selector, sink)

    def tick(self) -> None:
        """See ``Relay``."""
        if self._input:
            self._input.poll()

    def resized(self) -> None:
        """Do nothing: pipes have no size."""

    def suspend(self) -> None:
        """See ``Relay``."""
        os.kill(os.getpid(), signal.SIGSTOP)

    def drain(self) -> None:
        """See ``Relay``."""
        if self._input:
            self._input.close()
        for output in self._outputs:
            output.drain()

    def finish(self, give_up: Callable[[], bool]) -> None:
        """See ``Relay``."""
        self.drain()
        for output in self._outputs:
            output.detach()
            output.target.finish(give_up)


class _Shown(_Output):
    """The master side of the pty. EIO only means that no slave is open at the moment."""

    def __init__(self, master: int, target: OperatorOutput) -> None:
        super().__init__(Stream.SHOWN, master, target)
        self.stalled = False

    def ended(self) -> None:
        """Wait for ``tick``: a program may open the terminal again."""
        self.stalled = True
        self.pause()

    def read_more(self) -> None:
        """Poll the source, unless it stalls."""
        if not self.stalled:
            super().read_more()


class _Typed(_Input):
    """The operator's keys. The master is one descriptor with the output, so it gets its own."""

    def give(self) -> None:
        """Hand over what is pending; the bytes are told only when they were echoed.

        The agent may switch echo on as soon as it has read a password, so the state before counts;
        it may switch it off while we write, so the state after counts too.
        """
        before = _echoes(self.target)
        count = os.write(self.target, self._pending)
        data = self._pending[:count]
        self._pending = self._pending[count:]
        if count and self._sink is not None:
            echoed = before and _echoes(self.target)
            self._sink(Stream.TYPED, data if echoed else None, end=False)

    def finished(self) -> None:
        """Stop reading: a terminal that is gone is a hang-up, which hark gets as a signal."""
        self.close()

    def close(self) -> None:
        """Stop for good, without closing the terminal."""
        if self.open:
            self._poll_only(None)
            self.open = False
            os.close(self.target)


def _echoes(master: int) -> bool:
    """Whether the agent's terminal echoes; the master shows the slave's settings."""
    try:
        return bool(termios.tcgetattr(master)[_LFLAG] & termios.ECHO)
    except termios.error:
        return False


class TerminalRelay:
    """The agent's own pty (``master``) and the operator's terminal (two descriptors of it)."""

    def __init__(self, *, master: int, operator_in: int, operator_out: int) -> None:
        self._operator_in = operator_in
        self._saved = termios.tcgetattr(operator_in)
        self._master = master
        self._raw = False
        self._shown = _Shown(master, OperatorOutput(operator_out))
        self._typed = _Typed(operator_in, os.dup(master))
        self._sink: Sink | None = None
        self._size = (0, 0)

    def attach(self, selector: selectors.BaseSelector, sink: Sink) -> None:
        """Begin: see ``Relay``. The agent may run already: its terminal's settings are its own."""
        self._sink = sink
        self.resized()
        atexit.register(self.restore)
        self._enter_raw()
        self._shown.attach(selector, sink)
        self._typed.attach(selector, sink)

    def tick(self) -> None:
        """See ``Relay``."""
        self._typed.poll()
        if self._shown.stalled:
            self._shown.stalled = False
            self._shown.read_more()

    def resized(self) -> None:
        """See ``Relay``."""
        with contextlib.suppress(OSError):
            size = fcntl.ioctl(self._operator_in, termios.TIOCGWINSZ, bytes(8))
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)
            self._tell_size(_WINSIZE.unpack_from(size))

    def _tell_size(self, size: tuple[int, int]) -> None:
        if self._sink is not None and size != self._size:
            self._sink(Stream.SHOWN, None, end=False, size=size)
        self._size = size

    def suspend(self) -> None:
        """See ``Relay``."""
        self._shown.target.settle()
        self.restore()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._enter_raw()
        self.resized()

    def drain(self) -> None:
        """See ``Relay``."""
        self._typed.close()
        self._shown.stalled = False
        self._shown.drain()

    def finish(self, give_up: Callable[[], bool]) -> None:
        """See ``Relay``."""
        self.drain()
        self._shown.detach()
        self._shown.target.finish(give_up)
        self.restore()
        atexit.unregister(self.restore)

    def restore(self) -> None:
        """Put the operator's terminal back as it was; does nothing the second time."""
        if not self._raw:
            return
        self._raw = False
        with contextlib.suppress(termios.error), _tty_output_allowed():
            termios.tcsetattr(self._operator_in, termios.TCSADRAIN, self._saved)

    def _enter_raw(self) -> None:
        if _in_background(self._operator_in):
            return
        with contextlib.suppress(termios.error), _tty_output_allowed():
            tty.setraw(self._operator_in, termios.TCSADRAIN)
            self._raw = True


@contextlib.contextmanager
def _tty_output_allowed() -> Iterator[None]:
    """Change a terminal from the background without being stopped for it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
