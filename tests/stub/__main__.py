"""Run the stub by itself: ``PYTHONPATH=tests python -m stub --dir DIR HOST...``.

Writes ``DIR/ca/ca.pem`` (what to trust), ``DIR/port`` once it listens, and ``DIR/log.jsonl``.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from stub.apis import STUB_NOTICE
from stub.server import Stub


def main() -> int:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="stub", description=STUB_NOTICE)
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("names", nargs="+", metavar="HOST")
    args = parser.parse_args()
    args.dir.mkdir(parents=True, exist_ok=True)
    stopping = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stopping)
    with Stub(args.dir, tuple(args.names), port=args.port, log=args.dir / "log.jsonl") as stub:
        (args.dir / "port").write_text(f"{stub.port}\n")
        sys.stdout.write(f"stub: {STUB_NOTICE}; on {stub.address}\n")
        sys.stdout.flush()
        signal.sigwait(stopping)
    return 0


if __name__ == "__main__":
    sys.exit(main())
