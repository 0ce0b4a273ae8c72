"""The launcher's fixtures, for the escape suite."""

from launcher.conftest import box, place

__all__ = ["box", "place"]
