"""The launcher's fixtures, for the escape suite, and its counts."""

from harness.counts import pytest_terminal_summary
from launcher.conftest import box, place

__all__ = ["box", "place", "pytest_terminal_summary"]
