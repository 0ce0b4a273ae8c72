"""Every bound of hark: a name, a unit in the name, and the reason.

Rules: no number that limits anything stands elsewhere in Python. Bounds of C code are enum
constants in the header of their room.
"""

from __future__ import annotations
