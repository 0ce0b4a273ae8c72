"""Policies for the broker's tests, compiled the way a run does it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hark.policy.compile import compile_policy
from hark.policy.parse import parse_layer

if TYPE_CHECKING:
    from hark.policy.model import CompiledPolicy

__all__ = ["compiled"]


def compiled(text: str) -> CompiledPolicy:
    """Compile policy TOML."""
    return compile_policy(parse_layer(text.encode(), source="test", folder="/").policy)
