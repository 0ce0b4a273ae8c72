"""Run ids against the ``ulid`` package."""

from __future__ import annotations

import os
import time

from ulid import ULID

from hark.bundle.runid import RunId, new_run_id


def test_the_text_is_a_ulids():
    for raw in (bytes(16), b"\xff" * 16, *(os.urandom(16) for _ in range(200))):
        assert str(RunId(raw)) == str(ULID(raw))


def test_a_new_one_holds_the_time_and_is_new():
    before = time.time_ns() // 1_000_000
    ids = [new_run_id() for _ in range(100)]
    after = time.time_ns() // 1_000_000
    assert len(set(ids)) == 100
    assert all(before <= ULID(run.bytes).milliseconds <= after for run in ids)
