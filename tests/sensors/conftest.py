"""Cgroups, pins and workloads of the sensor tests: all private, all removed."""

from __future__ import annotations

import os
import subprocess
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from harness.counts import pytest_terminal_summary
from harness.running import need

from hark.kernel.sensors import Place, Sensors

from .rig import Cgroup, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["pytest_terminal_summary"]

HERE = Path(__file__).parent


def _cgroup2() -> Path:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if " - cgroup2 " in line:
            return Path(line.split(" ")[4])
    pytest.fail("no cgroup v2 is mounted")


@pytest.fixture(autouse=True, scope="session")
def _root() -> None:
    need("kernel", os.geteuid() == 0)


@pytest.fixture(scope="session")
def workload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled workload program; HARK_TEST_WORKLOAD: where there is no compiler."""
    if built := os.environ.get("HARK_TEST_WORKLOAD"):
        return Path(built)
    program = tmp_path_factory.mktemp("workload") / "workload"
    subprocess.run(
        ["gcc", "-O1", "-Wall", "-Werror", "-pthread", HERE / "workload.c", "-o", program],
        check=True,
    )
    return program


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Pins in a BPF file system of these tests, so that no other run is disturbed."""
    root = tmp_path_factory.mktemp("pins")
    mount = root / "bpffs"
    mount.mkdir()
    subprocess.run(["mount", "-t", "bpf", "bpf", mount], check=True)
    try:
        yield Place(mount / "hark", root / "state")
    finally:
        subprocess.run(["umount", mount], check=True)


@pytest.fixture
def new_cgroup() -> Iterator[Callable[[], Cgroup]]:
    """Makes cgroups."""
    made: list[Cgroup] = []

    def make() -> Cgroup:
        made.append(Cgroup(_cgroup2() / f"hark-test-{uuid.uuid4().hex[:12]}"))
        return made[-1]

    yield make
    for cgroup in made:
        cgroup.remove()


@pytest.fixture
def attach(place: Place) -> Iterator[Callable[..., Sensors]]:
    """Attaches sensors to a cgroup; they are detached at the end."""
    attached: list[Sensors] = []

    def make(cgroup: Cgroup, **options: int) -> Sensors:
        attached.append(Sensors.attach(cgroup.fd, cgroup.id, place=place, **options))
        return attached[-1]

    yield make
    for sensors in attached:
        sensors.detach()


@pytest.fixture
def run(new_cgroup: Callable[[], Cgroup], attach: Callable[..., Sensors]) -> Run:
    """A sensed cgroup."""
    cgroup = new_cgroup()
    return Run(cgroup, attach(cgroup))
