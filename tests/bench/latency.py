"""Added latency of one keep-alive exchange: mediated, against a raw forwarder and a direct dial.

The method is in docs/benchmarking.md, "Latency". One client process inside the run has the
mediated connection; one outside has the direct and the forwarded one. The coordinator asks for
small blocks of round trips, every target once a round, in an order shuffled anew each round.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from figures import Figure, added, percentile, ratio
from programs import HOST, Client, Server, hark_command

if TYPE_CHECKING:
    from pathlib import Path

    from stub import Authority

__all__ = ["Plan", "measure"]


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure: ``trials`` of ``rounds`` of blocks of ``block`` round trips."""

    trials: int = 3
    rounds: int = 250
    block: int = 8
    mediated: bool = True


def _trial(targets: dict[str, Client], plan: Plan, order: random.Random) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {name: [] for name in targets}
    names = list(targets)
    for _ in range(plan.rounds):
        order.shuffle(names)
        for name in names:
            taken[name] += targets[name].time(name, plan.block)
    return taken


def _figures(trials: list[dict[str, list[float]]]) -> list[Figure]:
    found: dict[str, Figure] = {}
    for name in trials[0]:
        for share, label in ((0.5, "p50"), (0.99, "p99")):
            values = tuple(percentile(trial[name], share) for trial in trials)
            found[f"{name} {label}"] = Figure(f"{name} {label}", "us", values)
    rows = list(found.values())
    for label in ("p50", "p99"):
        direct = found[f"direct {label}"]
        extra = {
            name: added(found[f"{name} {label}"], direct, f"added by {name} {label}")
            for name in trials[0]
            if name != "direct"
        }
        rows += extra.values()
        if "mediated" in extra:
            name = f"added by mediated / by forwarder {label}"
            rows.append(ratio(extra["mediated"], extra["forwarder"], name))
    return rows


def measure(directory: Path, authority: Authority, policy: Path, plan: Plan) -> list[Figure]:
    """Run all trials, each with a new run, and return the figures."""
    leaf = authority.leaf(HOST)
    order = random.Random(1)  # noqa: S311
    trials = []
    for number in range(plan.trials):
        run = hark_command(
            directory / f"latency-{number}.hark",
            f"--policy={policy}",
            f"--upstream-ca={authority.ca_file}",
        )
        with (
            Server("hark-bench-stub", str(leaf.certificate), str(leaf.key)) as stub,
            Server("hark-bench-forward", stub.port) as forwarder,
            Client(ca_file=authority.ca_file, cwd=directory) as outside,
        ):
            outside.open("direct", "127.0.0.1", stub.port)
            outside.open("forwarder", "127.0.0.1", forwarder.port)
            targets = {"direct": outside, "forwarder": outside}
            if not plan.mediated:
                trials.append(_trial(targets, plan, order))
                continue
            run.insert(2, f"--upstream={HOST}=127.0.0.1:{stub.port}")
            with Client(before=run, cwd=directory) as inside:
                inside.open("mediated", "-", "443")
                trials.append(_trial({**targets, "mediated": inside}, plan, order))
    return _figures(trials)
