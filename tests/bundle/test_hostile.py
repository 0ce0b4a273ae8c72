"""Hostile files: a defined verdict, never an exception, the same from both cores."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bundle_hostile import Case, cases
from bundle_making import CORES, KEY, OTHER, RawWriter, contents, made, small, verified

from hark.bundle.keys import Trust
from hark.bundle.verify import Verdict, VerifyReport
from hark.errors import BundleInvalid, InputError

if TYPE_CHECKING:
    from hark.bundle.core import Core

SECONDS_MAX = 20.0  # a hang, not slowness: the slowest takes about one
MEMORY_MAX = 100 << 20  # over what making the files took
FLOOD = "own key: 8.8 million references"
HERE = Path(__file__).parent
MEASURE = """
import resource
from bundle_hostile import cases
from bundle_making import verified
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
cases()
print(peak())
for case in cases():
    verified(case.data)
print(peak())
"""


def facts(report: VerifyReport) -> tuple[object, ...]:
    return (
        report.verdict,
        report.why,
        report.events,
        report.signed_events,
        report.broken_event,
        report.broken_step,
        report.root,
    )


@pytest.mark.parametrize("core", CORES, ids=lambda core: core.name)
@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name.replace(" ", "-"))
def test_verdict(case: Case, core: Core):
    start = time.monotonic()
    report = verified(case.data, core)
    assert report.verdict is case.verdict, report.why
    assert time.monotonic() - start < SECONDS_MAX


def test_cores_agree_on_every_case():
    assert CORES[0].name == "native"
    for case in cases():
        native, pure = (facts(verified(case.data, core)) for core in CORES)
        assert native == pure, case.name


@pytest.mark.parametrize("core", CORES, ids=lambda core: core.name)
def test_reading_without_verifying_raises_nothing_unexpected(core: Core):
    for case in cases():
        if case.name == FLOOD:
            continue  # 70 GB of bodies: reading them all takes its time, and is asked for
        try:
            contents(case.data, core)
        except (BundleInvalid, InputError):
            continue


def test_memory_stays_bounded():
    done = subprocess.run(
        [sys.executable, "-c", MEASURE], check=True, capture_output=True, text=True, cwd=HERE
    )
    made, verifying = (int(word) << 10 for word in done.stdout.split())
    assert verifying - made < MEMORY_MAX


def test_same_content_compressed_otherwise_still_verifies():
    """Compression is transport: the control for what BROKEN may not depend on."""
    assert verified(small(level=1)).root == verified(small(level=19)).root


def test_a_million_losses_are_counted_not_listed():
    def fill(writer: RawWriter) -> None:
        for i in range(3000):
            writer.raw(3, i, b"\xa1\x05\x01")

    report = verified(made(fill))
    assert report.verdict is Verdict.VERIFIED
    assert (len(report.losses), report.untold) == (1000, 2000)


def test_rejected_when_another_key_is_pinned():
    data = small()
    pinned = verified(data, trust=Trust(pins=frozenset((KEY.public,))))
    other = verified(data, trust=Trust(pins=frozenset((OTHER.public,))))
    assert pinned.verdict is Verdict.VERIFIED
    assert other.verdict is Verdict.REJECTED
    assert other.verdict.exit_code == 1


def test_broken_beats_rejected():
    case = next(c for c in cases() if c.name == "locator edited")
    trust = Trust(pins=frozenset((OTHER.public,)))
    assert verified(case.data, trust=trust).verdict is Verdict.BROKEN
