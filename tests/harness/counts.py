"""Counts that a suite prints at its end: what was tried, compared or refused, and how often."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

__all__ = ["COUNTS", "pytest_terminal_summary"]

COUNTS: dict[str, int] = {}  # filled in by the tests


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the counts; a conftest that imports this has it called."""
    for what in list(COUNTS):
        terminalreporter.write_line(f"{COUNTS.pop(what):6} {what}")
