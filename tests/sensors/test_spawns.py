"""Each thread's row of the spawn map: there while it lives, the same for the same tree."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from hark.kernel.sensors import Sensors

    from .rig import Cgroup

pytestmark = pytest.mark.kernel

BPF_MAP_LOOKUP_ELEM, BPF_MAP_GET_NEXT_KEY, SYS_BPF = 1, 4, 321
ROW = struct.Struct("=QQII")  # struct hark_spawn

# Two threads, of which one has a child with a thread; prints a line when all are there.
TREE = """
import os, sys, threading
ready = threading.Barrier(3)
def child():
    r, w = os.pipe()
    if os.fork() == 0:
        go = threading.Event()
        threading.Thread(target=go.wait).start()
        os.write(w, b"x")
        sys.stdin.read()
        os._exit(0)
    os.read(r, 1)
    ready.wait(); ready.wait()
def plain():
    ready.wait(); ready.wait()
for f in (child, plain): threading.Thread(target=f).start()
ready.wait()
print("here", flush=True)
sys.stdin.read()
ready.wait()
"""


def _bpf(command: int, fd: int, key: ctypes.Array[ctypes.c_char] | None, value: object) -> bool:
    at = ctypes.addressof(key) if key is not None else 0
    attr = struct.pack("=IIQQQ", fd, 0, at, ctypes.addressof(value), 0)  # type: ignore[arg-type]
    call = ctypes.CDLL(None, use_errno=True).syscall
    return bool(call(SYS_BPF, command, attr, len(attr)) == 0)


def rows(sensors: Sensors) -> dict[int, tuple[int, int, int]]:
    """Return {thread id: (path, start, tgid)}."""
    fd = sensors.spawns()
    found = {}
    key, following = None, ctypes.create_string_buffer(4)
    while _bpf(BPF_MAP_GET_NEXT_KEY, fd, key, following):
        key = ctypes.create_string_buffer(following.raw, 4)
        value = ctypes.create_string_buffer(ROW.size)
        if _bpf(BPF_MAP_LOOKUP_ELEM, fd, key, value):
            path, start, tgid, _ = ROW.unpack(value.raw)
            found[int.from_bytes(key.raw, "little")] = (path, start, tgid)
    return found


def grown(cgroup: Cgroup, sensors: Sensors) -> tuple[set[int], int]:
    """Start the tree, read its rows, end it: the paths, and how many threads there were."""
    script = 'echo $$ >"$0"/cgroup.procs && /usr/bin/python3 -c "$1"; exit $?'
    process = subprocess.Popen(
        ["/bin/sh", "-c", script, cgroup.path, TREE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        found = rows(sensors)
        for tid, (path, start, tgid) in found.items():
            assert path
            assert start
            assert os.path.isdir(f"/proc/{tgid}/task/{tid}")  # noqa: PTH112
    finally:
        process.communicate(timeout=60)
    return {path for path, _, _ in found.values()}, len(found)


def test_rows_name_each_living_thread(
    new_cgroup: Callable[[], Cgroup], attach: Callable[..., Sensors]
):
    seen = []
    for _ in range(2):
        cgroup = new_cgroup()
        sensors = attach(cgroup)
        paths, threads = grown(cgroup, sensors)
        assert len(paths) == threads == 5, "python, two threads, a child and its thread"
        assert not rows(sensors), "nobody lives, no row is left"
        seen.append(paths)
    assert seen[0] == seen[1]
