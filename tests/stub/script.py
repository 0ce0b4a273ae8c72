"""A prompt may say what the stub's "model" does, turn by turn. Pure.

A line ``stub-call NAME JSON`` in the prompt is a call of the tool NAME, ``stub-say TEXT`` a text.
The n-th line is the n-th turn of the assistant; after the last one the stub answers as ever.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Step", "scripted", "texts_of"]

_LINE = re.compile(r"stub-(?:call (\w+) (\{.*\})|say (.*\S))[ \t]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Step:
    """One turn: a call of ``tool`` with ``arguments``, or ``text`` when there is no tool."""

    tool: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    text: str = ""


def texts_of(turns: Iterable[dict[str, Any]]) -> list[str]:
    """Return the texts of all turns but the assistant's, plain or in parts."""
    found: list[str] = []
    for turn in turns:
        if turn.get("role") in {"assistant", "tool", None}:
            continue
        content = turn.get("content")
        parts = content if isinstance(content, list) else [{"text": content}]
        found += [part["text"] for part in parts if isinstance(part.get("text"), str)]
    return found


def scripted(texts: Iterable[str], turn: int) -> Step | None:
    """Return what the prompt says about ``turn``, from 0; None when it says nothing."""
    lines = [match for text in texts for match in _LINE.finditer(text)]
    if turn >= len(lines):
        return None
    tool, arguments, text = lines[turn].groups()
    return Step(tool, json.loads(arguments)) if tool else Step(text=text)
