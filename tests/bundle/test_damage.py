"""Flipped bytes and cut files: whatever verifies holds the same events."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bundle_making import CORES, RawWriter, contents, join, made, small, split, verified

from hark.bundle.reader import Bundle
from hark.bundle.verify import Verdict

if TYPE_CHECKING:
    from hark.bundle.core import Core

sys.path.append(str(Path(__file__).resolve().parents[1] / "fuzz"))
from bundle_damage import check, damaged

TAIL = 65_536


def tiny() -> bytes:
    def fill(writer: RawWriter) -> None:
        for i in range(6):
            writer.append(19, i, {2: i, 4: b"token %d" % i})
        writer.append(16, 7, {4: b"a body that is put into a chunk " * 3})
        writer.flush()
        writer.head()
        writer.append(19, 9, {2: 9})

    return made(fill, inline=64)


@pytest.mark.parametrize("core", CORES, ids=lambda core: core.name)
def test_every_byte_flipped(core: Core):
    data = tiny()
    whole = contents(data, core)
    masks = (1, 0x80, 0xFF) if core.name == "native" else (0x10,)
    survived = 0
    for at in range(len(data)):
        for mask in masks:
            changed = bytearray(data)
            changed[at] ^= mask
            report = verified(bytes(changed), core)
            if report.verdict is Verdict.VERIFIED:
                survived += 1
                assert contents(bytes(changed), core) == whole, at
            elif report.verdict is Verdict.TRUNCATED:  # a length that now points past the end
                assert report.events <= len(whole)
    assert survived < len(data) // 50


def boundaries(data: bytes) -> list[int]:
    parts = split(data)
    return [len(join(parts[:i], fix=False)) for i in range(len(parts) + 1)]


def check_cuts(data: bytes, cuts: list[int], sealed_at: int | None) -> None:
    """Cutting never breaks, and never makes events come back."""
    last = -1
    for cut in sorted(set(cuts)):
        report = verified(data[:cut])
        whole = sealed_at is not None and cut >= sealed_at
        assert report.verdict is (Verdict.VERIFIED if whole else Verdict.TRUNCATED), (
            cut,
            report.why,
        )
        assert report.events >= last
        last = report.events


def big(*, seal: bool) -> bytes:
    def fill(writer: RawWriter) -> None:
        for i in range(330):
            writer.append(19, i, {2: i, 4: writer._random(200)})
            if i % 30 == 0:
                writer.append(16, i, {4: writer._random(2500)})
            if i % 60 == 59:
                writer.head()

    return made(fill, seal=seal)


def sealed_offset(data: bytes) -> int:
    parts = split(data)
    last = max(i for i, (kind, _) in enumerate(parts) if kind == "s")
    return boundaries(data)[last + 1]


@pytest.mark.parametrize("seal", [True, False], ids=["sealed", "unsealed"])
def test_cut_at_block_edges_and_a_sample_between(seal: bool):
    data = big(seal=seal)
    assert len(data) > TAIL
    cuts = [edge + d for edge in boundaries(data) for d in range(-9, 10)]
    cuts += list(range(len(data) - TAIL, len(data) + 1, 211))
    cuts = [c for c in cuts if 0 <= c <= len(data)]
    check_cuts(data, cuts, sealed_offset(data) if seal else None)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seal", [True, False], ids=["sealed", "unsealed"])
def test_cut_at_every_offset_of_the_last_64_kib(seal: bool):
    data = big(seal=seal)
    cuts = list(range(len(data) - TAIL, len(data) + 1))
    check_cuts(data, cuts, sealed_offset(data) if seal else None)


def test_random_damage_is_judged_alike_and_keeps_the_events():
    """The file fuzzer's own oracle, on a fixed sample (tests/fuzz/bundle_files.py goes on)."""
    seen = {check(whole, data) for whole, data in itertools.islice(damaged(20261130), 600)}
    assert seen == {Verdict.VERIFIED, Verdict.BROKEN, Verdict.TRUNCATED}


def test_a_cut_file_yields_its_prefix():
    data = small()
    events = contents(data)
    third = boundaries(data)[4]
    kept = contents(data[: third + 3])
    assert kept == events[: len(kept)]
    assert 0 < len(kept) < len(events)


def test_locator_names_the_changed_event():
    from hark.bundle.synth import corrupt  # noqa: PLC0415

    data = small()
    for seq in (0, 5, 20, 30):
        for core in CORES:
            report = verified(corrupt(data, seq), core)
            assert report.verdict is Verdict.BROKEN
            assert report.broken_event == seq
    with Bundle.from_bytes(data) as bundle:
        assert bundle.count() == 31
