"""Writes a first corpus for the C fuzz targets: payloads and sections of real bundles.

bundle_seeds.py BUILD/fuzz
"""

from __future__ import annotations

import sys
from pathlib import Path

from bundle_hostile import RAW
from bundle_making import small, split

from hark.bundle.batch import Batch, Packer, frames_of


def main() -> int:
    """Write the seeds."""
    out = Path(sys.argv[1])
    cbor, frames = out / "bundle_cbor.corpus", out / "bundle_frames.corpus"
    for directory in (cbor, frames):
        directory.mkdir(parents=True, exist_ok=True)
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
