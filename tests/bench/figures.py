"""Numbers of a bench: percentiles, spreads over trials, a table, a JSON file.

Rules. Every figure is a list of per-trial values and is shown as minimum, median and maximum.
Comparisons are made inside a trial, between things that were interleaved in it, as differences or
ratios; the machine's own speed is never judged. Pure, but for the file.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Figure", "added", "percentile", "ratio", "table", "write_json"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured or derived thing: its name, its unit, and one value per trial."""

    name: str
    unit: str
    values: tuple[float, ...]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which ``share`` (0 to 1) of ``values`` lie; nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def added(figure: Figure, reference: Figure, name: str) -> Figure:
    """Return ``figure`` minus ``reference``, trial by trial."""
    pairs = zip(figure.values, reference.values, strict=True)
    return Figure(name, figure.unit, tuple(a - b for a, b in pairs))


def ratio(figure: Figure, reference: Figure, name: str) -> Figure:
    """Return ``figure`` over ``reference``, trial by trial."""
    pairs = zip(figure.values, reference.values, strict=True)
    return Figure(name, "x", tuple(a / b if b else float("nan") for a, b in pairs))


def table(title: str, figures: Sequence[Figure]) -> str:
    """Lay the figures out as text."""
    width = max(len(figure.name) for figure in figures)
    lines = [title, f"  {'':<{width}}  {'min':>9}  {'median':>9}  {'max':>9}"]
    for figure in figures:
        spread = (min(figure.values), median(figure.values), max(figure.values))
        cells = "  ".join(f"{value:>9.2f}" for value in spread)
        lines.append(f"  {figure.name:<{width}}  {cells}  {figure.unit}")
    return "\n".join(lines)


def write_json(path: Path, title: str, figures: Sequence[Figure]) -> None:
    """Write all per-trial values, for those who want to compute something else from them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    value = {"title": title, "figures": [asdict(figure) for figure in figures]}
    path.write_text(json.dumps(value, indent=1) + "\n")
