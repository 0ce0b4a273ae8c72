"""What a run costs that does nothing: `hark run -- /bin/true` and a Python hello, against bare.

The method is in docs/benchmarking.md, "Start-up".
"""

from __future__ import annotations

import random
import subprocess
import time
from typing import TYPE_CHECKING

from figures import Figure, added
from programs import BenchError, clean_environment, hark_command

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["measure"]

COMMANDS = {
    "true": ["/bin/true"],
    "python hello": ["/usr/bin/python3", "-c", "print('hello')"],
}


def _once(command: list[str], cwd: Path) -> float:
    start = time.perf_counter()
    done = subprocess.run(
        command,
        cwd=cwd,
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    taken = (time.perf_counter() - start) * 1000
    if done.returncode != 0:
        raise BenchError(f"{command}: {done.returncode}: {done.stderr.decode()[-2000:]}")
    return taken


def measure(directory: Path, rounds: int, *, contained: bool = True) -> list[Figure]:
    """Start each command bare and under hark, once a round, in shuffled order."""
    order = random.Random(2)  # noqa: S311
    bundle = directory / "startup.hark"
    variants = {f"bare {name}": words for name, words in COMMANDS.items()}
    if contained:
        variants |= {f"hark {n}": [*hark_command(bundle), *w] for n, w in COMMANDS.items()}
    for words in variants.values():
        _once(words, directory)
        bundle.unlink(missing_ok=True)
    taken: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, words in order.sample(list(variants.items()), len(variants)):
            taken[name].append(_once(words, directory))
            bundle.unlink(missing_ok=True)
    found = {name: Figure(name, "ms", tuple(values)) for name, values in taken.items()}
    rows = list(found.values())
    if contained:
        rows += [added(found[f"hark {n}"], found[f"bare {n}"], f"added to {n}") for n in COMMANDS]
    return rows
