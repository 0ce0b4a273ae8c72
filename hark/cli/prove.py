"""``hark prove``: a proof of one event, or a check of one.

Rules: a proof file says everything that is needed to check it, except whether its signer is to be
believed. Exit status: 0 proved or holds, 1 does not hold, or not by a key that was asked for.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from hark import limits
from hark.bundle import proof as proofs
from hark.bundle.core import load
from hark.bundle.prover import prove
from hark.bundle.reader import Bundle
from hark.cli.bundle_argument import add_bundle_argument, find_bundle
from hark.cli.fields import field_lines, kind_name
from hark.cli.printable import printable, time_text, ulid_text
from hark.cli.verify import add_trust_arguments, trust_of
from hark.errors import BundleInvalid, InputError

if TYPE_CHECKING:
    import argparse

__all__ = ["configure", "run"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``hark prove``."""
    add_bundle_argument(parser, optional=True)
    parser.add_argument("--seq", type=int, metavar="N", help="the event to prove")
    parser.add_argument("--out", metavar="FILE", help="write the proof; JSON, or CBOR for *.cbor")
    parser.add_argument("--bodies", action="store_true", help="prove the event's bodies too")
    parser.add_argument("--check", metavar="FILE", help="check a proof file")
    add_trust_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Make or check a proof."""
    if args.check is not None:
        return _check(args)
    if args.run is None or args.seq is None:
        raise InputError("hark prove needs --seq N and RUN, or --check FILE")
    with Bundle.open(find_bundle(args.run)) as bundle:
        proof = prove(bundle, args.seq, bodies=args.bodies)
    data = proof.encode()
    if args.out is not None:
        _write(args.out, data if args.out.endswith(".cbor") else proofs.to_json(proof).encode())
    hashes = f"{len(proof.path)} sibling hashes + {len(proof.peaks)} peaks"
    print(f"event {proof.seq}: {hashes}, {len(data)} bytes")
    return 0


def _write(name: str, data: bytes) -> None:
    try:
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        raise InputError(f"{name} exists", hint="name another file") from None
    except OSError as error:
        raise InputError(f"cannot write {name}", error.strerror or str(error)) from None
    with os.fdopen(fd, "wb") as file:
        file.write(data)


def _read(name: str) -> proofs.Proof:
    try:
        with Path(name).open("rb") as file:
            data = file.read(2 * limits.PROOF_MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read {name}", error.strerror or str(error)) from None
    if data.lstrip()[:1] != b"{":
        return proofs.parse(data)
    try:
        return proofs.from_json(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise BundleInvalid("the proof does not hold", str(error)) from None


def _check(args: argparse.Namespace) -> int:
    proven = proofs.check(_read(args.check), load())
    trust = trust_of(args)
    signer = trust.classify(proven.key)
    print(f"{signer.text}: {proven.key.hex()}")
    refusal = trust.refusal(signer, signed=True)
    if refusal:
        print(f"REJECTED  {refusal}")
        return 1
    head = "final" if proven.head.final else "not final"
    print(
        f"run          {ulid_text(proven.header.run_id)} by {printable(proven.header.recorder, 60)}"
    )
    print(f"event        {proven.seq} of {proven.head.events}, kind {kind_name(proven.kind)}")
    print(f"head         {proven.head.number}, {head}, {time_text(proven.head.unix_ns)}")
    if proven.payload is None:
        print("payload      redacted")
    else:
        print("\n".join(field_lines(proven.kind, proven.payload)))
    for i, body in enumerate(proven.bodies):
        text = "redacted in part" if body is None else f"{len(body)} bytes"
        print(f"body         {i}: {text}")
    print("transparency not anchored -- integrity only, no non-equivocation")
    print("VERIFIED")
    return 0
