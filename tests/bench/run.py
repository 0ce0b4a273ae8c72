"""`make bench`: measure, print tables, write build/bench/*.json. Needs root unless --bare.

    python tests/bench/run.py [--only latency,startup,syscalls] [--quick] [--bare]

``--bare`` leaves hark out and measures the references alone. Methods: docs/benchmarking.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import latency
import startup
import syscalls
from figures import Figure, table, write_json
from programs import HOST, ROOT, BenchError
from stub import Authority

NAMES = ("latency", "startup", "syscalls")


def _measure(name: str, directory: Path, *, quick: bool, bare: bool) -> tuple[str, list[Figure]]:
    work = directory / "work"
    work.mkdir(exist_ok=True)
    if name == "startup":
        rounds = 5 if quick else 20
        return f"Start-up ({rounds} rounds)", startup.measure(work, rounds, contained=not bare)
    if name == "syscalls":
        rounds = 3 if quick else 10
        title = f"System calls ({rounds} rounds of {syscalls.LOOPS} loops of {syscalls.CALLS})"
        return title, syscalls.measure(work, rounds, contained=not bare)
    policy = directory / "policy.toml"
    policy.write_text(f'allow_hosts = ["{HOST}"]\n')
    plan = latency.Plan(trials=3, rounds=40 if quick else 250, mediated=not bare)
    title = f"Latency ({plan.trials} trials of {plan.rounds * plan.block} exchanges per target)"
    return title, latency.measure(work, Authority(directory / "ca"), policy, plan)


def main() -> int:
    """Measure what was asked for, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(NAMES))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--bare", action="store_true")
    args = parser.parse_args()
    wanted = args.only.split(",")
    unknown = set(wanted) - set(NAMES)
    if unknown:
        parser.error(f"no bench named {', '.join(sorted(unknown))}")
    for name in wanted:
        with tempfile.TemporaryDirectory(prefix="hark-bench-") as directory:
            try:
                title, found = _measure(name, Path(directory), quick=args.quick, bare=args.bare)
            except BenchError as error:
                sys.stderr.write(f"bench: {name}: {error}\n")
                return 1
        sys.stdout.write(table(title, found) + "\n\n")
        sys.stdout.flush()
        write_json(ROOT / "build" / "bench" / f"{name}.json", title, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
