"""Whether two executions did the same (docs/spec/replay.md): actions, identity, digest, verdict."""

from hark.replay.bundles import compare
from hark.replay.verdict import Verdict

__all__ = ["Verdict", "compare"]
