"""A cgroup of one test and the records its sensors gave."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hark.kernel.records import KernelRecord
    from hark.kernel.sensors import Sensors

WAIT_S = 20.0 * float(os.environ.get("HARK_TEST_SLOWER", "1"))  # in an emulated machine


@dataclass
class Cgroup:
    """A cgroup of one test."""

    path: Path
    fd: int = field(init=False)
    id: int = field(init=False)

    def __post_init__(self) -> None:
        self.path.mkdir()
        self.fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        self.id = self.path.stat().st_ino

    def popen(self, *command: str | Path, cgroup: Path | None = None) -> subprocess.Popen[bytes]:
        """Start a command that is in the cgroup before its exec."""
        script = 'echo $$ >"$0"/cgroup.procs && exec "$@"'
        return subprocess.Popen(
            ["/bin/sh", "-c", script, cgroup or self.path, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *command: str | Path, cgroup: Path | None = None) -> tuple[int, int]:
        """Run a command to its end: (pid, return code as subprocess has it)."""
        process = self.popen(*command, cgroup=cgroup)
        process.communicate(timeout=WAIT_S)
        return process.pid, process.returncode

    def remove(self) -> None:
        """Kill what is left and remove the folders."""
        if (kill := self.path / "cgroup.kill").exists():
            kill.write_text("1")
        deadline = time.monotonic() + WAIT_S
        for folder in [*sorted(self.path.glob("**/"), reverse=True)]:
            while folder.exists():
                try:
                    folder.rmdir()
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.01)
        os.close(self.fd)


@dataclass
class Run:
    """A sensed cgroup and all records it gave so far."""

    cgroup: Cgroup
    sensors: Sensors
    records: list[KernelRecord] = field(default_factory=list)

    def poll(self) -> list[KernelRecord]:
        """All records so far."""
        while new := self.sensors.poll():
            self.records += new
        return self.records

    def of(self, *kinds: type[KernelRecord]) -> list[Any]:
        """The records of some kinds."""
        return [r for r in self.poll() if isinstance(r, kinds)]

    def until(self, condition: Callable[[list[KernelRecord]], bool]) -> list[KernelRecord]:
        """Poll until the records satisfy a condition; a socket closes after its process."""
        deadline = time.monotonic() + WAIT_S
        while not condition(self.poll()):
            if time.monotonic() > deadline:
                pytest.fail(f"not seen in {len(self.records)} records: {self.records[-20:]}")
            time.sleep(0.01)
        return self.records
