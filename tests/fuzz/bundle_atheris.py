"""Coverage-guided fuzzing of the Python side: CBOR, header, batch, proof, whole files.

    bundle_atheris.py [libFuzzer options] [corpus]

Needs the ``atheris`` package, which only this program uses. Oracle: defined errors only, and the
Python CBOR check of one mind with the C one.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bundle"))

with atheris.instrument_imports(include=["hark.bundle"]):
    from bundle_making import CORES, verified

    from hark.bundle import cbor, proof
    from hark.bundle.batch import Batch, Packer, frames_of
    from hark.bundle.cbor import CborFault
    from hark.bundle.faults import Broken
    from hark.bundle.format import Header
    from hark.bundle.notes import check_annex, check_note
    from hark.errors import BundleInvalid

NATIVE, PURE = CORES


def one_cbor(data: bytes) -> None:
    """Judge as C does; what is accepted comes back as the same bytes."""
    fault = PURE.check_cbor(data)
    assert fault is NATIVE.check_cbor(data)
    if fault is CborFault.OK:
        assert cbor.encode(cbor.decode(data)) == data


def one_block(data: bytes) -> None:
    """Parse as every kind of block body."""
    for read in (Header.parse, lambda d: check_annex(d, 3), lambda d: check_note(d, {1}, {2})):
        with contextlib.suppress(Broken):
            read(data)
    try:
        batch = Batch.parse(data)
        for _ in frames_of(batch.event_section(Packer()), batch.events):
            pass
    except Broken:
        pass


def one_proof(data: bytes) -> None:
    """Parse both forms of a proof."""
    for read in (proof.parse, lambda d: proof.from_json(d.decode("utf-8", "replace"))):
        with contextlib.suppress(BundleInvalid):
            proof.check(read(data), PURE)


def one_file(data: bytes) -> None:
    """Verify as a file, with the magic already there."""
    verified(b"HARK\x02\0\0\0" + data, PURE)


TARGETS = (one_cbor, one_block, one_proof, one_file)


def test_one(data: bytes) -> None:
    """First byte: the target."""
    if data:
        TARGETS[data[0] % len(TARGETS)](data[1:])


if __name__ == "__main__":
    atheris.Setup(sys.argv, test_one)
    atheris.Fuzz()
