"""Both cores against each other, and the C one against the blake3 wheel."""

from __future__ import annotations

import random
import struct

import pytest
from blake3 import blake3
from bundle_making import CORES
from hypothesis import given, settings
from hypothesis import strategies as st

from hark.bundle import cbor
from hark.bundle.core import CutRule, FramesFault
from hark.bundle.format import DOMAINS, FRAME

NATIVE, PURE = CORES
KEY = bytes(range(32))
SIZES = [0, 1, 15, 16, 17, 47, 48, 49, 63, 64, 65, 127, 128, 1007, 1008, 1009, 1023, 1024, 1025]
SIZES += [2048, 2049, 3072, 4096, 8191, 8192, 16384, 31744, 65536, 100_000, 262_160]


def test_domains_are_the_hashes_of_their_names():
    for name in ("header", "payload", "leaf", "node", "root", "chain", "chunk", "blob"):
        assert getattr(DOMAINS, name) == blake3(b"hark/bundle/2/" + name.encode()).digest()


@pytest.mark.parametrize("size", SIZES)
def test_keyed_hash_is_blake3(size: int):
    data = random.Random(size).randbytes(size)  # noqa: S311
    assert NATIVE.keyed(KEY, data) == blake3(data, key=KEY).digest()
    assert NATIVE.keyed(KEY, memoryview(data)) == PURE.keyed(KEY, bytearray(data))


@pytest.mark.parametrize("seek", [0, 1, 16, 63, 64, 65, 4096])
def test_xof_is_blake3(seek: int):
    wanted = blake3(b"event", key=KEY).digest(length=1000, seek=seek)
    assert NATIVE.xof(KEY, b"event", 1000, seek) == wanted


def section(sizes: list[int], rand: random.Random) -> bytes:
    out = b""
    for i, size in enumerate(sizes):
        body = rand.randbytes(max(0, size - 5))
        payload = cbor.encode(body)
        out += FRAME.pack(len(payload), rand.randrange(200), i * 7) + payload
    return out


@pytest.mark.parametrize("count", [1, 2, 7, 8, 15, 16, 17, 33, 300])
def test_leaves_are_equal_for_every_mix_of_sizes(count: int):
    rand = random.Random(count)  # noqa: S311
    data = section([rand.choice(SIZES[:22]) for _ in range(count)], rand)
    salts = rand.randbytes(16 * count)
    results = [core.frames(data, salts, 1 << 40, count, strict=True) for core in CORES]
    assert results[0] == results[1]
    assert results[0].fault is FramesFault.OK
    length, kind, time_ns = FRAME.unpack_from(data)
    payload = data[FRAME.size : FRAME.size + length]
    commitment = blake3(salts[:16] + payload, key=DOMAINS.payload).digest()
    head = struct.pack(">QQHI", 1 << 40, time_ns, kind, length)
    assert results[0].leaves[:32] == blake3(head + commitment, key=DOMAINS.leaf).digest()


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 12), st.booleans(), st.booleans())
def test_frames_of_any_bytes_are_judged_alike(data: bytes, count: int, strict: bool, sparse: bool):
    salts = bytes(16 * count)
    native, pure = (
        core.frames(data, salts, 0, count, strict=strict, sparse=sparse) for core in CORES
    )
    assert (native.fault, native.cbor) == (pure.fault, pure.cbor)
    assert native.bad == pure.bad
    if native.fault is FramesFault.OK:
        assert native == pure


@pytest.mark.parametrize("steps", [[1] * 300, [256, 256], [255, 1, 1000], [3, 700, 5, 2, 4096]])
def test_trees_grow_alike(steps: list[int]):
    rand = random.Random(1)  # noqa: S311
    trees = [core.mmr() for core in CORES]
    for n in steps:
        leaves = rand.randbytes(32 * n)
        for tree in trees:
            tree.append(leaves)
        assert trees[0].peaks() == trees[1].peaks()
        assert bytes(trees[0].nodes) == bytes(trees[1].nodes)
        assert trees[0].count == trees[1].count
        mark = trees[0].mark()
        trees[0].append(rand.randbytes(32 * 500))
        trees[0].reset(mark)


def test_tree_of_two_is_the_hash_of_both():
    left, right = b"l" * 32, b"r" * 32
    for core in CORES:
        tree = core.mmr()
        tree.append(left + right)
        assert tree.peaks() == blake3(left + right, key=DOMAINS.node).digest()


@pytest.mark.parametrize("rule", [CutRule(512, 11, 16 << 10), CutRule(8192, 15, 256 << 10)])
@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 5000, 40_000])
def test_cuts_are_equal_and_within_bounds(rule: CutRule, size: int):
    rand = random.Random(size)  # noqa: S311
    gear = rand.randbytes(2048)
    data = rand.randbytes(size) if size % 2 else b"the same again " * (size // 15)
    ends = NATIVE.cut(data, gear, rule)
    assert ends == PURE.cut(data, gear, rule)
    sizes = [b - a for a, b in zip([0, *ends], ends, strict=False)]
    assert sum(sizes) == len(data)
    assert all(rule.minimum < s <= rule.maximum for s in sizes[:-1])


def test_cuts_move_with_the_content():
    rand = random.Random(2)  # noqa: S311
    gear = rand.randbytes(2048)
    data = rand.randbytes(200_000)
    rule = CutRule(512, 11, 16 << 10)
    ends = set(NATIVE.cut(data, gear, rule))
    moved = {e - 1000 for e in NATIVE.cut(rand.randbytes(1000) + data, gear, rule)}
    assert len(ends & moved) > 0.9 * len(ends)


def test_chunk_commitments_are_equal():
    rand = random.Random(3)  # noqa: S311
    sizes = [1, 100, 1008, 1009, 5000, 262_144]
    data = rand.randbytes(sum(sizes))
    salts = rand.randbytes(16 * len(sizes))
    results = [core.commit_chunks(data, sizes, salts, DOMAINS.chunk) for core in CORES]
    assert results[0] == results[1]
    assert results[0][:32] == blake3(salts[:16] + data[:1], key=DOMAINS.chunk).digest()


MIXED = [1, 17, 500, 1007, 1008, 1009, 2031, 2032, 2033, 3056, 5000, 8176, 16384, 17391, 17392]
MIXED += [17393, 30_000, 100_000]


@pytest.mark.parametrize("seed", range(20))
def test_chunks_of_mixed_sizes_hashed_side_by_side_are_blake3(seed: int):
    rand = random.Random(seed)  # noqa: S311
    sizes = [rand.choice((*MIXED, rand.randrange(1, 6000))) for _ in range(1 + 4 * seed)]
    data = rand.randbytes(sum(sizes))
    salts = rand.randbytes(16 * len(sizes))
    table = NATIVE.commit_chunks(data, sizes, salts, DOMAINS.chunk)
    at = 0
    for i, size in enumerate(sizes):
        message = salts[16 * i : 16 * (i + 1)] + data[at : at + size]
        assert table[32 * i : 32 * (i + 1)] == blake3(message, key=DOMAINS.chunk).digest(), size
        at += size
