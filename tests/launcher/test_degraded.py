"""Hosts that lack something: the run is still contained, or it fails with words."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hark.errors import LaunchError
from hark.policy.control import Published, Sealed
from launcher.rig import CAPS, PROGRAM, Box

if TYPE_CHECKING:
    from collections.abc import Callable

    MakeBox = Callable[..., Box]

pytestmark = pytest.mark.kernel


def without(place: Path, capability: str) -> Path:
    """hark-launch, started by a root that lacks one capability."""
    assert shutil.which("setpriv")
    path = place / f"without-{capability}"
    path.write_text(f"#!/bin/sh\nexec setpriv --bounding-set -{capability} {PROGRAM}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("capability", "words"),
    [
        ("sys_admin", "network namespace: Operation not permitted"),
        ("net_admin", "network: "),
        ("setuid", "user namespace: Operation not permitted"),
        ("dac_override", "Permission denied"),
    ],
)
def test_a_root_without_a_capability_is_told(
    box: MakeBox, place: Path, capability: str, words: str
):
    one = box(["/bin/true"])
    one.program = without(place, capability)
    with pytest.raises(LaunchError) as info:
        one.start()
    assert words in info.value.what
    assert "at plan step" in info.value.cause


def test_a_cgroup_that_cannot_be_made_is_named(box: MakeBox):
    one = box(["/bin/true"])
    one.facts = {"cgroup": "/proc/no/such"}
    with pytest.raises(LaunchError, match=r"cgroup /proc/no/such/hark-.*: No such file") as info:
        one.start()
    assert "cgroup v2" in info.value.hint
    assert one.wait() == 1


def test_without_cgroup_v2_the_end_of_init_ends_all(box: MakeBox):
    one = box(["/bin/sh", "-c", "setsid sleep 1000 & echo done"], allow_downgrades=("cgroup2",))
    one.facts = {"cgroup": ""}
    result = one.run()
    assert (result.status, result.out) == (0, "done\n")
    low = one.request.slot.base
    owners = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            owners.append(process.stat().st_uid)
    assert owners
    assert not [uid for uid in owners if low <= uid < low + 65536]


def test_without_ipv6_the_agent_has_none_either(box: MakeBox):
    script = (
        "import socket\nfor a in ('203.0.113.1','2001:db8::1'):\n"
        " try: socket.create_connection((a,80),1); print('open')\n"
        " except OSError as e: print(e.strerror or 'timeout')"
    )
    one = box(["/usr/bin/python3", "-I", "-S", "-c", script], allow_downgrades=("ipv6",))
    one.facts = {"ipv6": False}
    assert one.run().out.split("\n")[:2] == ["open", "Network is unreachable"]


@pytest.mark.parametrize("abi", range(8))
def test_every_landlock_abi_is_taken_by_the_kernel(box: MakeBox, abi: int):
    one = box(["/bin/sh", "-c", "echo x > f; cat f"], allow_downgrades=("landlock",))
    one.caps = replace(CAPS, landlock_abi=abi)
    assert one.run().out == "x\n"
    assert ("landlock" in [d.feature for d in one.plan.downgrades]) == (abi == 0)


def test_a_workspace_that_cannot_be_mapped_is_named(box: MakeBox):
    """/proc stands for any file system without idmapped mounts."""
    one = box(["/bin/true"], destination="out.hark")
    one.prepare_as = "/proc/sys"
    with pytest.raises(LaunchError, match="no idmapped mount here") as info:
        one.start()
    assert "does not support idmapped mounts" in info.value.hint
    one.launcher.channel.send(Sealed(0))
    one.launcher.channel.expect(Published, 10)
