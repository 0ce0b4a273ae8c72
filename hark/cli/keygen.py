"""``hark keygen``: a new Ed25519 signing key. Never replaces a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hark.bundle.keys import SigningKey

if TYPE_CHECKING:
    import argparse

__all__ = ["configure", "run"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``hark keygen``."""
    parser.add_argument(
        "--out",
        required=True,
        metavar="FILE",
        help="where the key goes (PKCS #8 PEM, mode 600); the public half goes to FILE.pub",
    )


def run(args: argparse.Namespace) -> int:
    """Make a key and print its public half."""
    key = SigningKey.generate()
    key.save(args.out)
    print(key.public.hex())
    return 0
