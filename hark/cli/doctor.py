"""``hark doctor``: what this kernel and host can do, by doing it; and what a run costs others."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from hark.kernel import probe

if TYPE_CHECKING:
    import argparse

    from hark.policy.capabilities import Capabilities

__all__ = ["configure", "run"]

_TIERS = {
    "full": ("everything, with the kernel's own account of each process", probe.FULL),
    "contain": (
        "containment, mediation and recording, without the kernel's account",
        probe.CONTAIN,
    ),
    "record": ("no containment: not enough for `hark run`", ()),
}

# What a run changes for the rest of the machine while it lasts. Measured by `make bench`.
_COST = (
    "cost of sensors: while a run has them, each system call of every process on this machine\n"
    "takes the kernel's slower path: the cheapest one about twice as long (2.3 times in the run)"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--tier",
        choices=[name for name in _TIERS if name != "record"],
        help="exit with 1 unless this host gives at least this tier",
    )


def run(args: argparse.Namespace) -> int:
    """Probe and print. 0, or 1 when the tier asked for is not there."""
    caps = probe.full()
    sys.stdout.write(json.dumps(_value(caps), indent=2) + "\n" if args.json else _text(caps))
    order = list(_TIERS)
    wanted = args.tier or "record"
    return 0 if order.index(probe.tier(caps)) <= order.index(wanted) else 1


def _value(caps: Capabilities) -> dict[str, Any]:
    return {
        "kernel": caps.kernel,
        "tier": probe.tier(caps),
        "landlock_abi": caps.landlock_abi,
        "cgroup2": caps.cgroup2,
        "features": [
            {"name": f.name, "ok": f.ok, "detail": f.detail, "for": probe.MEANING[f.name]}
            for f in caps.features
        ],
        "tiers": {
            name: {"missing": [f.name for f in probe.missing(caps, needs)], "meaning": meaning}
            for name, (meaning, needs) in _TIERS.items()
        },
        "cost": _COST.replace("\n", " "),
    }


def _text(caps: Capabilities) -> str:
    width = max(len(f.name) for f in caps.features)
    lines = [f"kernel {caps.kernel}", ""]
    for f in caps.features:
        state = "ok" if f.ok else "MISSING"
        detail = f"  ({f.detail})" if f.detail else ""
        lines.append(f"  {f.name:<{width}}  {state:<7}  {probe.MEANING[f.name]}{detail}")
    lines.append("")
    reached = probe.tier(caps)
    for name, (meaning, needs) in _TIERS.items():
        lacks = ", ".join(f.name for f in probe.missing(caps, needs))
        mark = "->" if name == reached else "  "
        lines.append(f"{mark} tier {name}: {meaning}" + (f"; missing: {lacks}" if lacks else ""))
    lines += ["", _COST]
    return "\n".join(lines) + "\n"
