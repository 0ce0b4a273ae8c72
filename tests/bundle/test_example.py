"""The worked example of the format, computed by its first, independent implementation."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from bundle_making import CORES, RawWriter, split, verified

from hark.bundle.batch import Batch
from hark.bundle.format import DOMAINS, Header
from hark.bundle.keys import SigningKey
from hark.bundle.verify import Verdict

if TYPE_CHECKING:
    from hark.bundle.core import Core

HEADER_HASH = "fab8162145a7634d36620e03a17d377f1c01e5a8e545effbb4bf14d337a408b5"
CHAINS = [
    "4b7f3560e1940fdc36c289d0a43c0756fdcc252a82b40241aedb208db96828c6",
    "24a248dc09d2603fe8a40f0fd5a68bd3154cbfec2997a2b8aa49f325f4cef9f3",
]
LOCATORS = ["d0aec46ec42226f7", "1c2b512d"]
ROOT = "c68cb583f9dd022b301261f1a3e05c1b7b3d500833c8d45aca4f818b4005ba01"
ROOT_0 = "b35124eefd428220c536bc9f6f77dcd774dd2a81d6a2a1457928ee2c74d4d2f9"
SALTS = "5db509c9fe1d94ecde5222afdf2e0de7ed539dcf71642ba0f04e89e00224b546"
SIGNATURE_START = "01a779405178181380d72f044e7a52571b2eb67deb3f04dafb299472ea4142f8"
CHUNK = "714dd0ffe49c3bce1002db703d1e4ad58d65b17155cfea8e440f27fcd7d40dad"


def example(core: Core) -> bytes:
    seeds = iter([b"\1" * 32, b"\1" * 16, b"\2" * 32, b"\3" * 32, b"\4" * 32])
    key = SigningKey.from_seed(bytes(range(32)))
    fd = os.memfd_create("example")
    writer = RawWriter(
        fd,
        Header(
            run_id=bytes(range(16)),
            created_unix_ns=1_700_000_000_000_000_000,
            recorder="hark-spike/2",
            public_key=key.public,
        ),
        key.sign_head,
        now_boot_ns=lambda: 5_000_000_000,
        now_unix_ns=lambda: 1_700_000_000_000_000_000,
        core=core,
        random=lambda size: next(seeds)[:size],
        inline=16,
    )
    writer.head()
    writer.raw(1, 1000, bytes.fromhex("a1016464656d6f"))
    writer.append(5, 2000, {9: b"a request body of more than sixteen bytes"})
    writer.flush()
    writer.append(16, 3000, {1: 0})
    writer.seal()
    data = os.pread(fd, writer.size, 0)
    os.close(fd)
    return data


@pytest.mark.parametrize("core", CORES, ids=lambda core: core.name)
def test_example(core: Core):
    data = example(core)
    parts = split(data)
    assert core.keyed(DOMAINS.header, parts[0][1]).hex() == HEADER_HASH
    batches = [Batch.parse(body) for kind, body in parts if kind == "b"]
    assert [b.chain.hex() for b in batches] == CHAINS
    assert [b.locators.hex() for b in batches] == LOCATORS
    chunk = batches[0].chunk_commitments(core, batches[0].stored_chunks, DOMAINS.chunk)
    assert chunk.hex() == CHUNK
    assert batches[0].event_salts(core).hex() == SALTS
    first = next(body for kind, body in parts if kind == "s")
    assert first[40:72].hex() == ROOT_0
    assert first[128:160].hex() == SIGNATURE_START
    report = verified(data, core)
    assert (report.verdict, report.root.hex()) == (Verdict.VERIFIED, ROOT)
