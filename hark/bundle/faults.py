"""What a check of bundle bytes may find, inside ``hark.bundle`` only.

Rules: ``Broken`` says that bytes which are there are wrong, ``Torn`` that they end too early.
Readers turn both into a verdict or into ``BundleInvalid``; neither leaves this package.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Broken", "Step", "Torn"]


class Step(IntEnum):
    """The numbered steps of verification (docs/spec/bundle.md, "Verification")."""

    HEADER = 1
    BLOCKS = 2
    EVENTS = 3
    BODIES = 4
    CHAIN = 5
    HEADS = 6
    SEAL = 7
    INDEX = 8
    SIGNER = 9


class Broken(Exception):
    """Bytes that no writer of this format makes.

    ``step`` is where it was found, ``event`` the number of the event at fault, if it can be named.
    """

    def __init__(self, step: Step, why: str, event: int | None = None) -> None:
        super().__init__(why)
        self.step = step
        self.why = why
        self.event = event


class Torn(Exception):
    """The file ends, or holds only zeros from here on."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
