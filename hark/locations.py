"""Where hark's own files lie, in a development tree and in an installed one.

Both have a virtual environment whose ``libexec/`` holds the executables and BPF objects: `make
build` links them there, `make install` copies them. No environment variable can move them: this
code runs as root.
"""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["HOST_KEY", "RUNS", "RUNTIME", "SYSTEM_POLICY", "TRUSTED_KEYS", "libexec"]

HOST_KEY = Path("/etc/hark/key.pem")
TRUSTED_KEYS = Path("/etc/hark/trusted-keys")
SYSTEM_POLICY = Path("/etc/hark/policy.toml")
RUNS = Path("/var/lib/hark/runs")
RUNTIME = Path("/run/hark")


def libexec(name: str) -> Path:
    """Path of one of hark's executables or BPF objects, e.g. ``hark-launch``."""
    return Path(sys.executable).parent.parent / "libexec" / name  # sys.prefix needs `site`
