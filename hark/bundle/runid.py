"""A run's name: a ULID (github.com/ulid/spec), 48 bits of Unix milliseconds and 80 random ones.

The ``ulid`` package is for everything else; importing it costs as much as a sandbox.
"""

from __future__ import annotations

import os
import time

from hark.values import dataclass

__all__ = ["RunId", "new_run_id"]

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


@dataclass(frozen=True, slots=True)
class RunId:
    """16 bytes; ``str`` gives the 26 characters that people and paths see."""

    bytes: bytes

    def __str__(self) -> str:
        """Return it as text, first the time."""
        number = int.from_bytes(self.bytes, "big")
        return "".join(_CROCKFORD[number >> shift & 31] for shift in range(125, -1, -5))


def new_run_id() -> RunId:
    """Return a name that no other run has."""
    return RunId((time.time_ns() // 1_000_000).to_bytes(6, "big") + os.urandom(10))
