"""Damaged bundles without end: bytes, blocks and fields changed at random, from a seed.

The oracle is the same for the fuzzer and the sanitizer run: a defined verdict, never an exception,
both cores of one mind, and what still verifies holds the same events.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from bundle_making import CORES, contents, join, small, split, verified, with_fields

from hark.bundle.verify import Verdict
from hark.errors import BundleInvalid, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["check", "damaged"]


def _flip(rand: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rand.choice((1, 1, 2, 8))):
        out[rand.randrange(len(out))] ^= 1 << rand.randrange(8)
    return bytes(out)


def _splice(rand: random.Random, data: bytes) -> bytes:
    a, b = sorted(rand.randrange(len(data)) for _ in range(2))
    return rand.choice(
        (data[:a] + data[b:], data[:b] + data[a:], data[:a], data[:a] + bytes(b - a))
    )


def _blocks(rand: random.Random, data: bytes) -> bytes:
    parts = split(data)
    i, j = rand.randrange(len(parts)), rand.randrange(len(parts))
    kind, body = parts[i]
    what = rand.randrange(5)
    if what == 0:
        parts[i], parts[j] = parts[j], parts[i]
    elif what == 1:
        del parts[i]
    elif what == 2:
        parts.insert(j, parts[i])
    elif what == 3:
        parts[i] = (rand.choice("hbseiatr"), body)
    else:
        parts[i] = (kind, _flip(rand, body) if body else b"\0")
    return join(parts)


def _fields(rand: random.Random, data: bytes) -> bytes:
    parts = split(data)
    batches = [i for i, (kind, _) in enumerate(parts) if kind == "b"]
    i = rand.choice(batches)
    name = rand.choice(("first", "events", "chunks", "first_chunk", "plain_ev", "stored_ev"))
    value = rand.choice((0, 1, 2, 255, 65536, (1 << 32) - 1, rand.randrange(1 << 32)))
    parts[i] = ("b", with_fields(parts[i][1], **{name: value}))
    return join(parts)


def damaged(seed: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield (whole bundle, damaged one) without end."""
    rand = random.Random(seed)  # noqa: S311
    wholes = [small(), small(inline=16), small(seal=False), small(level=1)]
    while True:
        whole = rand.choice(wholes)
        data = rand.choice((_flip, _splice, _blocks, _fields))(rand, whole)
        yield whole, data


def check(whole: bytes, data: bytes) -> Verdict:
    """Raise AssertionError unless the oracle holds."""
    reports = [verified(data, core) for core in CORES]
    facts = [(r.verdict, r.why, r.events, r.broken_event, r.root) for r in reports]
    assert facts[0] == facts[1], facts
    for core in CORES:
        try:
            events = contents(data, core)
        except (BundleInvalid, InputError):
            assert reports[0].verdict is not Verdict.VERIFIED
            continue
        if reports[0].verdict is Verdict.VERIFIED:
            assert events == contents(whole, core)
        elif reports[0].verdict is Verdict.TRUNCATED:
            held = reports[0].events  # behind these, reading shows what nobody vouches for
            assert events[:held] == contents(whole, core)[:held]
    return reports[0].verdict
