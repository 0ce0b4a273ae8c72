"""What one run may take of what all of the machine share."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from hark.errors import LaunchError
from hark.launcher.plan import PathGrant

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from launcher.rig import Box

    MakeBox = Callable[..., Box]

pytestmark = pytest.mark.kernel
PYTHON = "/usr/bin/python3"


def test_a_crash_starts_no_program_of_the_host(box: MakeBox):
    """The kernel aborts a dump to a program only at a limit of 1 (fs/coredump.c)."""
    code = (
        "import resource as r; print(*r.getrlimit(r.RLIMIT_CORE));"
        "r.setrlimit(r.RLIMIT_CORE, (0, 0)); r.prlimit(0, r.RLIMIT_CORE, (0, 0));"
        "print(*r.getrlimit(r.RLIMIT_CORE))"
    )
    assert box([PYTHON, "-I", "-S", "-c", code]).run().out == "1 1\n1 1\n"
    assert box(["/bin/sh", "-c", "ulimit -c 0; ulimit -n 64; ulimit -n"]).run().out == "64\n"


@pytest.mark.parametrize("folder", ["/tmp", "/var/tmp", "/dev/shm"])
def test_empty_files_are_bounded_as_their_bytes_are(box: MakeBox, folder: str):
    total = box(["stat", "-f", "-c", "%c", folder]).run().out
    assert int(total) == (64 << 20) // 4096


def test_a_run_cannot_take_the_terminals_of_all_others(box: MakeBox):
    code = (
        "import os, resource as r; r.setrlimit(r.RLIMIT_NOFILE, (4096, 4096)); n = 0\n"
        "try:\n while n < 1000: os.openpty(); n += 1\n"
        "except OSError: pass\n"
        "print(n)"
    )
    assert 200 < int(box([PYTHON, "-I", "-S", "-c", code]).run().out) <= 256


def test_a_granted_file_that_became_a_socket_is_refused(box: MakeBox, place: Path):
    path = place / "file"
    with socket.socket(socket.AF_UNIX) as service:
        service.bind(str(place / "socket"))
        service.listen()
        path.write_text("")
        one = box(["true"], read=(PathGrant(str(path), "file", "test"),))
        one.prepare_as = str(place / "socket")
        with pytest.raises(LaunchError, match="not a regular file"):
            one.start()
