"""Fuzzes whole files in Python for some seconds, from a seed it prints.

bundle_files.py --seconds N [--seed N]
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from bundle_damage import check, damaged


def main() -> int:
    """Run until the time is over or the oracle fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    args = parser.parse_args()
    print(f"bundle_files: seed {args.seed}")  # noqa: T201
    seen: Counter[str] = Counter()
    end = time.monotonic() + args.seconds
    for whole, data in damaged(args.seed):
        try:
            seen[check(whole, data).value] += 1
        except BaseException:
            Path("build/fuzz").mkdir(parents=True, exist_ok=True)
            Path("build/fuzz/bundle_files.crash").write_bytes(data)
            print("bundle_files: failed, see build/fuzz/bundle_files.crash", file=sys.stderr)  # noqa: T201
            raise
        if time.monotonic() >= end:
            break
    print(f"bundle_files: {sum(seen.values())} files, {dict(seen)}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
