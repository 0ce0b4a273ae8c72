"""A pair of network namespaces, the control of the egress probes: ``client`` and its witness."""

from __future__ import annotations

import contextlib
import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PYTHON = "/usr/bin/python3"
WITNESS = Path(__file__).with_name("witness.py")
_SERVER = """
ip link set lo up; ip addr add 100.64.9.1/24 dev w0; ip addr add fd00:9::1/64 dev w0 nodad
for a in 198.18.7.7/32 169.254.169.254/32 2001:db8:7::7/128; do ip addr add $a dev lo; done
ip link set w0 up; ip route add default via 100.64.9.2; ip route add default via fd00:9::2
"""
_CLIENT = """
ip link set lo up; ip addr add 100.64.9.2/24 dev eth0; ip addr add fd00:9::2/64 dev eth0 nodad
ip link set eth0 up; ip route add default via 100.64.9.1; ip route add default via fd00:9::1
echo 0 2147483647 > /proc/sys/net/ipv4/ping_group_range
"""


class Witness:
    """The sniffer of one network namespace; ``pid`` of somebody in it, or this process's own."""

    def __init__(self, pid: int, *words: str) -> None:
        self.process = subprocess.Popen(
            ["nsenter", "-t", str(pid), "-n", PYTHON, "-I", "-S", str(WITNESS), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout
        assert self.process.stdout.readline() == b"ready\n"

    def result(self) -> dict[str, int]:
        """End it; return the bytes it saw, by probe."""
        return dict(json.loads(self.process.communicate()[0]))


@contextlib.contextmanager
def pair() -> Iterator[tuple[int, int]]:
    """Yield a process in the server's network namespace and one in the client's."""
    with contextlib.ExitStack() as undo:
        server, client = (_holder(undo) for _ in range(2))
        link = f"ip link add w0 netns {server} type veth peer name eth0 netns {client}"
        subprocess.run(link.split(), check=True)
        for pid, script in ((server, _SERVER), (client, _CLIENT)):
            subprocess.run(["nsenter", "-t", str(pid), "-n", "sh", "-ec", script], check=True)
        yield server, client


def _holder(undo: contextlib.ExitStack) -> int:
    """Start a process that keeps a new network namespace; wait until it is in it."""
    words = ["unshare", "-n", "sh", "-c", "echo in; read x"]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    undo.callback(process.communicate)
    assert process.stdout
    assert process.stdout.readline() == b"in\n"
    own, theirs = (Path(f"/proc/{p}/ns/net").readlink() for p in ("self", process.pid))
    assert own != theirs
    return process.pid
