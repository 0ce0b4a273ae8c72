"""Sealed events: only recipients read them, everybody verifies them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from bundle_making import CORES, RawWriter, header, join, made, split, verified, writer_on
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from hark.bundle import proof
from hark.bundle.format import DOMAINS
from hark.bundle.prover import prove
from hark.bundle.reader import Bundle
from hark.bundle.redact import Redaction, redact
from hark.bundle.sealing import FileKey, unseal
from hark.bundle.source import BytesSource
from hark.bundle.verify import Verdict
from hark.errors import BundleInvalid, InputError, RecordingFailed

if TYPE_CHECKING:
    from hark.bundle.core import Core

ALICE, BOB, EVE = (X25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in (1, 2, 3))
SEED = b"the entropy of this run, 32 byte"


def sealed_bundle(core: Core = None) -> bytes:
    key = FileKey()
    recipients = key.recipients([k.public_key().public_bytes_raw() for k in (ALICE, BOB)])

    def fill(writer: RawWriter) -> None:
        writer.append(19, 1, {4: b"open"})
        writer.append(40, 2, {4: SEED, 5: b"long " * 1000}, sealed=True)
        writer.append(16, 3, {4: b"a body in chunks " * 200})
        writer.flush()
        writer.append(40, 4, {4: SEED}, sealed=True)

    return made(fill, file_key=key, header=header(recipients=recipients), core=core)


@pytest.mark.parametrize("core", CORES, ids=lambda core: core.name)
def test_recipients_open_and_all_verify(core: Core):
    data = sealed_bundle(core)
    assert SEED not in data
    report = verified(data, core)
    assert report.verdict is Verdict.VERIFIED, report.why
    assert (report.redacted_events, report.sealed_blocks) == (2, 2)
    with Bundle.from_bytes(data, core=core) as bundle:
        for key in (ALICE, BOB):
            opened = unseal(bundle, key.private_bytes_raw())
            assert opened == {1: {4: SEED, 5: b"long " * 1000}, 3: {4: SEED}}
        with pytest.raises(InputError, match="not sealed for this key"):
            unseal(bundle, EVE.private_bytes_raw())
        assert bundle.event(1).redacted
        assert proof.check(prove(bundle, 1), core).payload is None


def test_without_its_block_it_is_redacted():
    parts = [part for part in split(sealed_bundle()) if part[0] != "e"]
    parts = [part for part in parts if part[0] not in "it"]
    report = verified(join(parts))
    assert report.verdict is Verdict.VERIFIED
    assert (report.redacted_events, report.sealed_blocks) == (2, 0)


def test_an_item_that_lies_is_refused():
    """Whoever holds the file key can write another block e, but not open the commitment."""
    key = FileKey(bytes(32))
    recipients = key.recipients([ALICE.public_key().public_bytes_raw()])
    data = made(
        lambda w: w.append(40, 2, {4: SEED}, sealed=True),
        file_key=key,
        header=header(recipients=recipients),
    )
    parts = split(data)
    header_hash = CORES[0].keyed(DOMAINS.header, parts[0][1])
    for items in ({0: [bytes(16), b"\xa0"]}, {0: b"no list"}, {9: [bytes(16), b"\xa0"]}):
        forged = key.seal(header_hash, 0, items)
        changed = [(kind, forged if kind == "e" else body) for kind, body in parts]
        with Bundle.from_bytes(join(changed)) as bundle, pytest.raises(BundleInvalid):
            unseal(bundle, ALICE.private_bytes_raw())
    flipped = [(k, b[:-1] + bytes([b[-1] ^ 1]) if k == "e" else b) for k, b in parts]
    with Bundle.from_bytes(join(flipped)) as bundle, pytest.raises(BundleInvalid, match="opened"):
        unseal(bundle, ALICE.private_bytes_raw())


def test_sealing_needs_recipients():
    fd = os.memfd_create("x")
    with pytest.raises(RecordingFailed, match="seal"):
        writer_on(fd).append(40, 1, {4: SEED}, sealed=True)
    os.close(fd)


def test_redaction_drops_what_was_sealed():
    fd = os.memfd_create("x")
    wish = Redaction(events=frozenset((3,)), reason="r", unix_ns=1)
    redact(BytesSource(sealed_bundle()), fd, wish, CORES[0])
    data = os.pread(fd, os.fstat(fd).st_size, 0)
    os.close(fd)
    assert verified(data).verdict is Verdict.VERIFIED
    with Bundle.from_bytes(data) as bundle:
        assert set(unseal(bundle, ALICE.private_bytes_raw())) == {1}
