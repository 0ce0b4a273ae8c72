"""Names of ``csrc/mediator/hark_reasons.h``: why something was refused or ended.

A name is the C constant in lower case without its prefix, read from the built extension, so the
two cannot differ.
"""

from __future__ import annotations

from hark._native import ffi

__all__ = ["DENIALS", "NAMES", "NOTES"]

_PREFIX = "HARK_REASON_"
_LAST_DENIAL = "upgrade_refused"  # hark_reason_denial() in csrc/mediator/hark_reason.c


def _names() -> tuple[str, ...]:
    numbers: dict[str, int] = ffi.typeof("enum hark_reason").relements
    by_number = sorted((number, name) for name, number in numbers.items())
    return tuple(name.removeprefix(_PREFIX).lower() for _, name in by_number[:-1])


NAMES = _names()  # index: the number
DENIALS = frozenset(NAMES[NAMES.index("host_denied") : NAMES.index(_LAST_DENIAL) + 1])
# Worth knowing, nothing was refused.
NOTES = frozenset(NAMES[NAMES.index("placeholder_elsewhere") : NAMES.index("reflected") + 1])
