"""``hark export``: a bundle in the form of another tool.

Rules: nothing is checked here; `hark verify` says whether the bundle is true. A file is written new
and never replaced.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hark.bundle.events import Kind
from hark.bundle.reader import Bundle
from hark.cli.bundle_argument import add_bundle_argument, find_bundle
from hark.errors import BundleInvalid, InputError
from hark.export.cast import cast_lines

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

__all__ = ["configure", "run"]

_MALFORMED = (KeyError, TypeError, ValueError, AttributeError)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``hark export``."""
    add_bundle_argument(parser)
    parser.add_argument(
        "--format",
        choices=["cast"],
        required=True,
        help="cast: what the terminal showed, for asciinema players",
    )
    parser.add_argument("--out", metavar="FILE", help="write here, not to standard output")
    parser.add_argument(
        "--keys",
        action="store_true",
        help="cast: also keys typed while the terminal echoed them (a line editor turns that off)",
    )


def run(args: argparse.Namespace) -> int:
    """Write the form that was asked for."""
    with Bundle.open(find_bundle(args.run)) as bundle:
        lines = _cast(bundle, keys=args.keys)
        if args.out is None:
            for line in lines:
                print(line)
        else:
            _write(args.out, lines)
    return 0


def _cast(bundle: Bundle, *, keys: bool) -> Iterator[str]:
    events = bundle.events(frozenset({int(Kind.RUN_START), int(Kind.STDIO)}))
    try:
        yield from cast_lines(
            events,
            created_unix_s=bundle.header.created_unix_ns // 1_000_000_000,
            read=bundle.read_body,
            keys=keys,
        )
    except _MALFORMED as error:
        raise BundleInvalid("an event does not hold what its kind demands", repr(error)) from error


def _write(name: str, lines: Iterator[str]) -> None:
    """Write all lines to a new file; an error leaves none behind."""
    try:
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InputError(f"cannot write {name}", error.strerror or "") from error
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
    except BaseException:
        Path(name).unlink()
        raise
    sys.stderr.write(f"hark: wrote {name}\n")
