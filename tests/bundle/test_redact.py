"""Redaction: signatures, roots and old proofs stay; what is gone cannot be guessed."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any

import pytest
from blake3 import blake3
from bundle_making import CORES, KEY, RawWriter, made, split, verified

from hark.bundle import proof
from hark.bundle.batch import Batch, Packer
from hark.bundle.format import DOMAINS, SALT_SIZE
from hark.bundle.prover import prove
from hark.bundle.reader import Bundle
from hark.bundle.redact import Redaction, redact
from hark.bundle.source import BytesSource
from hark.bundle.verify import Verdict
from hark.errors import BundleInvalid, InputError

if TYPE_CHECKING:
    from hark.bundle.core import Core

CORE = CORES[0]


def original() -> bytes:
    def fill(writer: RawWriter) -> None:
        for i in range(300):
            writer.append(19, i, {2: i, 4: b"token %d" % i})
            if i % 50 == 0:
                lines = [b"secret=%06d line %d\n" % (k * 7919 % 999983, k) for k in range(300 + i)]
                writer.append(16, i, {4: b"".join(lines)})

    return made(fill)


def redacted(data: bytes, core: Core = CORE, **wish: Any) -> bytes:
    fd = os.memfd_create("redacted")
    try:
        wish = {"reason": "test", "unix_ns": 1} | wish
        redact(BytesSource(data), fd, Redaction(**wish), core)
        return os.pread(fd, os.fstat(fd).st_size, 0)
    finally:
        os.close(fd)


@pytest.mark.parametrize("core", CORES, ids=lambda core: core.name)
def test_root_heads_and_old_proofs_stay(core: Core):
    data = original()
    before = verified(data, core)
    with Bundle.from_bytes(data, core=core) as bundle:
        old = [prove(bundle, seq) for seq in (7, 9, 200)]
        old_body = prove(bundle, 1, bodies=True)
    gone = redacted(data, core, events=frozenset((7, 8, 200)), chunks=frozenset((0,)))
    after = verified(gone, core)
    assert after.verdict is Verdict.VERIFIED, after.why
    assert (after.root, after.heads, after.events) == (before.root, before.heads, before.events)
    assert after.redacted_events == 3
    assert after.redacted_chunks == 1
    assert after.redaction_reasons == ["test"]
    heads = [[body for kind, body in split(d) if kind == "s"] for d in (data, gone)]
    assert heads[0] == heads[1]
    for item in (*old, old_body):
        proof.check(item, core)
    with Bundle.from_bytes(gone, core=core) as bundle:
        assert bundle.event(7).redacted
        assert bundle.event(9).payload == {2: 8, 4: b"token 8"}
        assert proof.check(prove(bundle, 7), core).payload is None
        assert proof.check(prove(bundle, 9), core).payload == {2: 8, 4: b"token 8"}
        new_body = proof.check(prove(bundle, 1, bodies=True), core)
        assert new_body.bodies == (None,)


def test_redacting_again_and_with_a_signed_note():
    once = redacted(original(), events=frozenset((5,)), chunks=frozenset((0,)))
    twice = redacted(once, events=frozenset((5, 6)), reason="more", key=KEY)
    report = verified(twice)
    assert report.verdict is Verdict.VERIFIED, report.why
    assert report.redacted_events == 2
    assert report.redaction_reasons == ["test", "more"]
    assert report.root == verified(original()).root


def test_bodies_of_redacted_events_go_too():
    data = original()
    with_bodies = verified(redacted(data, events=frozenset((1,))))
    without = verified(redacted(data, events=frozenset((1,)), bodies=False))
    assert with_bodies.redacted_chunks > 0
    assert without.redacted_chunks == 0
    assert with_bodies.root == without.root


def pin_bundle(pin: bytes) -> bytes:
    def fill(writer: RawWriter) -> None:
        writer.append(16, 1, {4: b"x" * 900 + b" pin=" + pin + b" " + b"y" * 900})
        writer.append(19, 2, {4: b"pin=" + pin})
        writer.append(19, 3, {4: b"kept"})

    return made(fill, seed=random.Random(pin).getrandbits(32))  # noqa: S311


def test_a_low_entropy_body_cannot_be_guessed():
    """With the salt 10,000 candidates are tried in no time; without it none can be told apart."""
    data = pin_bundle(b"4711")
    batch = Batch.parse(next(body for kind, body in split(data) if kind == "b"))
    commitment = commitments(batch)[1]
    candidates = [b"\xa1\x04\x48pin=%04d" % n for n in range(10_000)]
    salt = batch.event_salts(CORE)[SALT_SIZE : 2 * SALT_SIZE]
    found = [c for c in candidates if kh(salt + c) == commitment]
    assert found == [b"\xa1\x04\x48pin=4711"]  # the control: the attack works with the salt

    gone = redacted(data, events=frozenset((0, 1)))
    assert b"4711" not in gone
    left = Batch.parse(next(body for kind, body in split(gone) if kind == "b"))
    assert left.sparse
    assert not any(left.seed)
    assert left.event_salts(CORE)[: 2 * SALT_SIZE] == bytes(2 * SALT_SIZE)
    assert all(left.chunk_redacted)
    assert not any(left.chunk_salts(CORE))
    windows = {gone[i : i + SALT_SIZE] for i in range(len(gone) - SALT_SIZE)}
    assert salt not in windows
    right = candidates[4711]
    assert all(kh(window + right) != commitment for window in windows)


def test_sizes_of_chunks_do_not_tell_the_content():
    """The gear table is fresh in every bundle, so the same body is cut elsewhere each time."""
    body = random.Random(1).randbytes(40_000)  # noqa: S311
    cuts = set()
    for seed in range(6):
        data = made(lambda writer: writer.append(16, 1, {4: body}), seed=seed)
        batch = Batch.parse(next(b for kind, b in split(data) if kind == "b"))
        cuts.add(tuple(batch.chunk_sizes))
    assert len(cuts) == 6


def kh(data: bytes) -> bytes:
    return blake3(data, key=DOMAINS.payload).digest()


def commitments(batch: Batch) -> list[bytes]:
    from hark.bundle.batch import frames_of  # noqa: PLC0415

    salts = batch.event_salts(CORE)
    return [
        kh(salts[SALT_SIZE * i : SALT_SIZE * (i + 1)] + frame.payload)
        for i, frame in enumerate(frames_of(batch.event_section(Packer()), batch.events))
    ]


def test_refusals():
    data = original()
    with pytest.raises(InputError, match="no such event"):
        redacted(data, events=frozenset((10**6,)))
    with pytest.raises(InputError, match="no such event"):
        redacted(data, chunks=frozenset((10**6,)))
    with pytest.raises(BundleInvalid, match="cannot be redacted"):
        redacted(data[: len(data) // 2])
    from hark.bundle.synth import corrupt  # noqa: PLC0415

    with pytest.raises(BundleInvalid, match="cannot be redacted"):
        redacted(corrupt(data, 5), events=frozenset((1,)))
