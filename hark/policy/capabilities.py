"""What this kernel and host can do, as a value.

``hark.kernel.probe`` fills it in by doing each thing once; everything else only reads it. It goes
into the bundle (run_start, "capabilities"), so a record says under which controls it was made.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Capabilities", "Feature"]


@dataclass(frozen=True, slots=True)
class Feature:
    """One probed feature: its name, whether it works, and what the kernel answered."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The vector of probed features."""

    kernel: str
    landlock_abi: int
    cgroup2: str  # mount point of cgroup v2, "" when there is none
    features: tuple[Feature, ...]

    def has(self, name: str) -> bool:
        """Whether feature ``name`` was probed and works."""
        return any(f.name == name and f.ok for f in self.features)

    def why_not(self, name: str) -> str:
        """What the kernel answered for ``name``, for an error's cause line."""
        return next((f.detail for f in self.features if f.name == name), "not probed")
