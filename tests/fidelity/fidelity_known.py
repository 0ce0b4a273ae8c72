"""Shapes that do not replay equal today, and why. What is not here must be equal in every pair.

A reason names what is missing in hark, never bad luck. A shape that becomes equal stays here only
until the next full run says so: then ``make fidelity`` fails, since the reason is untrue.
"""

from __future__ import annotations

__all__ = ["KNOWN"]

CLOCK = "the agent's clock is real in a replay, and its readings are in the prompt"
DEVICE = "what is read from /dev/urandom and random/uuid is real in a replay"
ADDRESS = "addresses of objects are not the recorded ones"
RACE = "nothing holds an answer back until the agent is idle: the order it sees them in is chance"
STATS = "times and sizes of files are real, and are in the prompt"

KNOWN = {
    "python/ascompleted": RACE,
    "node/ascompleted": RACE,
    "go/ascompleted": RACE,
    "python/midway": f"{RACE}; what it saw before its timeout is in the prompt",
    "python/backoff_told": CLOCK,
    "node/clock": CLOCK,
    "go/clock": CLOCK,
    "c/clock": CLOCK,
    "sh/tool": f"{CLOCK}; {DEVICE}",
    "sh/git": f"{CLOCK}: commit dates are in hashes and files",
    "sh/listing": STATS,
    "python/order": f"{ADDRESS}, and the order of sets of them neither",
}
