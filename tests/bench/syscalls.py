"""What the sensors cost a system call: of the agent, and of everybody else while a run is on.

The method is in docs/benchmarking.md, "System calls".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures import Figure, ratio
from programs import Client, hark_command

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["measure"]

CALLS, LOOPS = 20_000, 11


def measure(directory: Path, rounds: int, *, contained: bool = True) -> list[Figure]:
    """Time getppid in one outside client, without and with a run, and inside that run."""
    names = ("no run on", "outside, run on", "inside") if contained else ("no run on",)
    taken: dict[str, list[float]] = {name: [] for name in names}
    with Client(cwd=directory) as outside:
        for number in range(rounds):
            taken["no run on"].append(outside.syscalls(CALLS, LOOPS))
            if not contained:
                continue
            bundle = directory / f"syscalls-{number}.hark"
            with Client(before=hark_command(bundle), cwd=directory) as inside:
                inside.syscalls(CALLS, 1)  # answered, so the run is on
                taken["outside, run on"].append(outside.syscalls(CALLS, LOOPS))
                taken["inside"].append(inside.syscalls(CALLS, LOOPS))
            bundle.unlink(missing_ok=True)
    found = {name: Figure(f"getppid, {name}", "ns", tuple(v)) for name, v in taken.items()}
    bare = found["no run on"]
    others = [f for name, f in found.items() if name != "no run on"]
    return [*found.values(), *(ratio(f, bare, f"{f.name} / no run on") for f in others)]
