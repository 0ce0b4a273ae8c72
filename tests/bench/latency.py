"""Added latency of one keep-alive exchange: mediated, against a raw forwarder and a direct dial.

The method is in docs/benchmarking.md, "Latency". One client process inside the run has the
mediated connection; one outside has the direct and the forwarded one. The coordinator asks for
small blocks of round trips, every target once a round, in an order shuffled anew each round.
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from figures import Figure, added, percentile, ratio
from programs import HOST, Client, Server, hark_command, has_program

if TYPE_CHECKING:
    from pathlib import Path

    from stub import Authority, Leaf

__all__ = ["Plan", "measure"]

Trial = dict[str, list[float]]  # microseconds, by target


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure: ``trials`` of ``rounds`` of blocks of ``block`` round trips."""

    trials: int = 3
    rounds: int = 250
    block: int = 8
    mediated: bool = True


@dataclass(frozen=True, slots=True)
class Setting:
    """What all trials share."""

    directory: Path
    policy: Path
    ca_file: Path
    leaf: Leaf


def _trial(targets: dict[str, Client], plan: Plan, order: random.Random) -> Trial:
    taken: Trial = {name: [] for name in targets}
    names = list(targets)
    for _ in range(plan.rounds):
        order.shuffle(names)
        for name in names:
            taken[name] += targets[name].time(name, plan.block)
    return taken


def _percentiles(trials: list[Trial], share: float, label: str) -> dict[str, Figure]:
    return {
        name: Figure(f"{name} {label}", "us", tuple(percentile(t[name], share) for t in trials))
        for name in trials[0]
    }


def _figures(trials: list[Trial]) -> list[Figure]:
    middle, tail = _percentiles(trials, 0.5, "p50"), _percentiles(trials, 0.99, "p99")
    extra = {
        name: added(figure, middle["direct"], f"added by {name} p50")
        for name, figure in middle.items()
        if name != "direct"
    }
    rows = [*middle.values(), *extra.values(), *tail.values()]
    if "mediated" not in middle:
        return rows
    others = [name for name in extra if name != "mediated"]
    added_ratios = [
        ratio(extra["mediated"], extra[n], f"added p50: mediated / {n}") for n in others
    ]
    # A difference of two noisy tails may have any sign, so tails are compared whole.
    tail_ratios = [ratio(tail["mediated"], tail[n], f"whole p99: mediated / {n}") for n in others]
    return [*rows, *added_ratios, *tail_ratios]


def _one(
    stack: ExitStack, setting: Setting, plan: Plan, order: random.Random, number: int
) -> Trial:
    """One trial: new servers, new clients, a new run; the stack ends them in reverse order."""
    leaf, ca_file = setting.leaf, setting.ca_file
    pair = (str(leaf.certificate), str(leaf.key))
    stub = stack.enter_context(Server("hark-bench-stub", *pair))
    forwarder = stack.enter_context(Server("hark-bench-forward", stub.port))
    outside = stack.enter_context(Client(ca_file=ca_file, cwd=setting.directory))
    outside.open("direct", "127.0.0.1", stub.port)
    outside.open("forwarder", "127.0.0.1", forwarder.port)
    targets = {"direct": outside, "forwarder": outside}
    if has_program("hark-bench-goproxy"):
        words = (*pair, str(ca_file), stub.port, HOST)
        go = stack.enter_context(Server("hark-bench-goproxy", *words))
        outside.open("go-proxy", "127.0.0.1", go.port)
        targets["go-proxy"] = outside
    if plan.mediated:
        run = hark_command(
            setting.directory / f"latency-{number}.hark",
            f"--policy={setting.policy}",
            f"--upstream={HOST}=127.0.0.1:{stub.port}",
            f"--upstream-ca={ca_file}",
        )
        inside = stack.enter_context(Client(before=run, cwd=setting.directory))
        inside.open("mediated", "-", "443")
        targets["mediated"] = inside
    return _trial(targets, plan, order)


def measure(directory: Path, authority: Authority, policy: Path, plan: Plan) -> list[Figure]:
    """Run all trials and return the figures."""
    setting = Setting(directory, policy, authority.ca_file, authority.leaf(HOST))
    order = random.Random(1)  # noqa: S311
    trials = []
    for number in range(plan.trials):
        with ExitStack() as stack:
            trials.append(_one(stack, setting, plan, order, number))
    return _figures(trials)
