"""The published vectors, read as another implementation would."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bundle_making import CORES, KEY, verified

from hark.bundle import proof
from hark.bundle.verify import Verdict
from hark.errors import BundleInvalid

if TYPE_CHECKING:
    from hark.bundle.core import Core

VECTORS = Path(__file__).resolve().parents[1] / "vectors"
LEAST = 200


@dataclass(frozen=True)
class Vector:
    path: Path
    headers: dict[str, str]
    data: bytes


def read(path: Path) -> Vector:
    head, _, data = path.read_bytes().partition(b"\n\n")
    headers = dict(line.split(": ", 1) for line in head.decode().splitlines())
    if headers.get("compressed") == "zlib":
        data = zlib.decompress(data)
    assert len(data) == int(headers["size"])
    return Vector(path, headers, data)


ALL = [read(path) for path in sorted(VECTORS.glob("*/*.vec"))]


def kind(name: str) -> list[Vector]:
    return [vector for vector in ALL if vector.headers["hark-vector"] == name]


def test_they_are_all_here():
    assert len(ALL) >= LEAST
    assert {v.headers["verdict"] for v in kind("bundle")} == {"VERIFIED", "BROKEN", "TRUNCATED"}
    assert {v.headers["verdict"] for v in kind("proof")} == {"VERIFIED", "BROKEN"}


@pytest.mark.parametrize("core", CORES, ids=lambda core: core.name)
@pytest.mark.parametrize("vector", kind("bundle"), ids=lambda v: v.path.stem)
def test_bundle(vector: Vector, core: Core):
    want = vector.headers
    report = verified(vector.data, core)
    assert report.verdict == want["verdict"], report.why
    assert (report.events, report.signed_events) == (int(want["events"]), int(want["signed"]))
    assert report.root.hex() == want["root"]
    event = want.get("broken-event")
    assert report.broken_event == (None if event is None else int(event))


@pytest.mark.parametrize("vector", kind("proof"), ids=lambda v: v.path.stem)
def test_proof(vector: Vector):
    for core in CORES:
        try:
            proven = proof.check(proof.parse(vector.data), core)
        except BundleInvalid:
            assert vector.headers["verdict"] == Verdict.BROKEN
        else:
            assert vector.headers["verdict"] == Verdict.VERIFIED
            assert proven.key == KEY.public
