"""``hark synth``: a synthetic bundle, whole, corrupted or cut."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hark.bundle import synth
from hark.bundle.keys import SigningKey
from hark.bundle.writer import create
from hark.errors import InputError

if TYPE_CHECKING:
    import argparse

__all__ = ["configure", "run"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``hark synth``."""
    parser.add_argument("file", metavar="FILE", help="where the bundle goes; must not exist")
    parser.add_argument("--key", metavar="FILE", help="sign with this key; else with a fresh one")
    parser.add_argument("--events", type=int, metavar="N", help="N filler events, not the incident")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--corrupt", type=int, metavar="N", help="change one byte of event N")
    how.add_argument("--truncate", type=int, metavar="N", help="end after N events, unsealed")


def run(args: argparse.Namespace) -> int:
    """Write the bundle."""
    if args.events is not None and args.events < 1:
        raise InputError("--events needs at least 1")
    count = args.events or len(synth.incident())
    for name, value in (("corrupt", args.corrupt), ("truncate", args.truncate)):
        if value is not None and not 0 <= value < count:
            raise InputError(f"there is no event {value} for --{name}", f"there are {count}")
    key = SigningKey.load(args.key) if args.key else SigningKey.generate()
    rows = synth.filler(args.events) if args.events else synth.incident()
    fd = create(args.file)
    try:
        synth.write(fd, key, rows, stop=args.truncate)
        if args.corrupt is not None:
            _corrupt(fd, args.corrupt)
    finally:
        os.close(fd)
    written = count if args.truncate is None else args.truncate
    print(f"{args.file}: {written} synthetic events, key {key.public.hex()}")
    return 0


def _corrupt(fd: int, seq: int) -> None:
    size = os.fstat(fd).st_size
    changed = synth.corrupt(os.pread(fd, size, 0), seq)
    os.ftruncate(fd, 0)
    os.pwrite(fd, changed, 0)
