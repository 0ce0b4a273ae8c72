"""Writes a first corpus for the fuzz targets: payloads, sections, blocks, proofs of real bundles.

bundle_seeds.py BUILD/fuzz
"""

from __future__ import annotations

import sys
from pathlib import Path

from bundle_hostile import RAW
from bundle_making import small, split

from hark.bundle.batch import Batch, Packer, frames_of
from hark.bundle.format import MAGIC
from hark.bundle.proof import to_json
from hark.bundle.prover import prove
from hark.bundle.reader import Bundle

CBOR, BLOCK, PROOF, FILE = range(4)  # bundle_atheris.TARGETS


def python_seeds() -> list[bytes]:
    """Inputs of bundle_atheris.py: the target's number, then what it reads."""
    wholes = [small(), small(inline=16), small(seal=False)]
    seeds = [bytes([FILE]) + whole[len(MAGIC) :] for whole in wholes]
    seeds += [bytes([BLOCK]) + body for kind, body in split(wholes[0]) if kind in "hb"]
    with Bundle.from_bytes(wholes[1]) as bundle:
        for seq in (0, 7, bundle.count() - 1):
            made = prove(bundle, seq, bodies=True)
            seeds += [bytes([PROOF]) + made.encode(), bytes([PROOF]) + to_json(made).encode()]
    return seeds + [bytes([CBOR]) + bytes.fromhex(text) for text in RAW.values()]


def main() -> int:
    """Write the seeds."""
    out = Path(sys.argv[1])
    cbor, frames = out / "bundle_cbor.corpus", out / "bundle_frames.corpus"
    for directory in (cbor, frames):
        directory.mkdir(parents=True, exist_ok=True)
    python = out / "bundle_atheris.corpus"
    python.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(python_seeds()):
        (python / f"seed{number}").write_bytes(data)
    packer = Packer()
    for number, (kind, body) in enumerate(split(small())):
        if kind != "b":
            continue
        batch = Batch.parse(body)
        section = batch.event_section(packer)
        (frames / f"seed{number}").write_bytes(bytes([batch.events, 1]) + section)
        for i, frame in enumerate(frames_of(section, batch.events)):
            (cbor / f"seed{number}-{i}").write_bytes(frame.payload)
    for number, text in enumerate(RAW.values()):
        (cbor / f"raw{number}").write_bytes(bytes.fromhex(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
