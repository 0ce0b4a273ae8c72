"""A person at a terminal: a program in a pty, keys typed into it, its screen read."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from typing import TYPE_CHECKING, Self

from harness.running import DEADLINE_S, environment

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Terminal"]


class Terminal:
    """``program`` in a terminal of its own. ``with`` it: at the end the program is gone."""

    def __init__(self, *program: str | Path, cwd: Path, env: dict[str, str] | None = None) -> None:
        self.outer, self.inner = pty.openpty()
        self.resize(30, 100)
        self.before = termios.tcgetattr(self.inner)
        self._screen = b""
        self.process = subprocess.Popen(
            [str(word) for word in program],
            cwd=cwd,
            env=environment() if env is None else env,
            stdin=self.inner,
            stdout=self.inner,
            stderr=self.inner,
            preexec_fn=self._own,  # noqa: PLW1509 - no other thread holds a lock here
        )

    def _own(self) -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        for signo in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP):
            signal.signal(signo, signal.SIG_DFL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(DEADLINE_S)
        os.close(self.outer)
        os.close(self.inner)

    def resize(self, rows: int, columns: int) -> None:
        """Give the terminal another size."""
        fcntl.ioctl(self.outer, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        """Type."""
        os.write(self.outer, keys)

    def see(self, pattern: bytes) -> re.Match[bytes]:
        """Read the screen until ``pattern`` is on it; what is before it scrolls away."""
        end = time.monotonic() + DEADLINE_S
        while not (match := re.search(pattern, self._screen)):
            assert time.monotonic() < end, self._screen
            if select.select([self.outer], [], [], 0.1)[0]:
                with contextlib.suppress(OSError):  # EIO: nobody has it open at the moment
                    self._screen += os.read(self.outer, 65536)
        self._screen = self._screen[match.end() :]
        return match

    def end(self) -> int:
        """Wait for the program's end; its status as subprocess has it. What it shows is read."""
        end = time.monotonic() + DEADLINE_S
        while self.process.poll() is None:
            assert time.monotonic() < end, self._screen
            if select.select([self.outer], [], [], 0.05)[0]:
                self._screen += os.read(self.outer, 65536)
        return self.process.returncode

    @property
    def is_as_before(self) -> bool:
        """Whether the terminal has the settings that the program found."""
        return termios.tcgetattr(self.inner) == self.before

    @property
    def is_raw(self) -> bool:
        """Whether keys go to the program one by one and unseen."""
        return not termios.tcgetattr(self.inner)[3] & (termios.ICANON | termios.ECHO)
