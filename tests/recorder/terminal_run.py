"""A terminal relay around a shell, as a process of its own: what test_stdio.py drives by a pty.

Its standard input and output are the operator's terminal. SIGUSR1 suspends it as HARK_MSG_JOB
does; SIGWINCH follows a new size. It ends with the shell, and with ``--crash`` by an exception in
the middle. What was recorded goes to descriptor 3, one line a chunk.
"""

from __future__ import annotations

import fcntl
import os
import pty
import selectors
import signal
import subprocess
import sys
import termios

from hark.recorder.stdio import TerminalRelay


def own_terminal() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def main() -> None:
    master, slave = pty.openpty()
    program = sys.argv[1:]
    crash = program[:1] == ["--crash"]
    shell = subprocess.Popen(
        program[crash:],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        preexec_fn=own_terminal,  # noqa: PLW1509 - no thread yet
    )
    os.close(slave)
    log = os.fdopen(3, "wb", buffering=0)

    def sink(
        stream: int, data: bytes | None, *, end: bool, size: tuple[int, int] | None = None
    ) -> None:
        log.write(b"%d %r %d\n" % (stream, size or data, end))

    relay = TerminalRelay(master=master, operator_in=0, operator_out=1)
    selector = selectors.DefaultSelector()
    signal.signal(signal.SIGUSR1, lambda *_: relay.suspend())
    signal.signal(signal.SIGWINCH, lambda *_: relay.resized())
    relay.attach(selector, sink)
    while shell.poll() is None:
        for key, _ in selector.select(0.05):
            key.data()
            if crash:
                raise SystemExit(9)
        relay.tick()
    relay.finish(lambda: False)
    raise SystemExit(shell.returncode)


if __name__ == "__main__":
    main()
