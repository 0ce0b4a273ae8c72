"""Reading: by number, by kind, since a time, and while it is written."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

import pytest
from bundle_making import CORES, Clock, RawWriter, made, small, writer_on

from hark.bundle.reader import Bundle
from hark.errors import BundleInvalid, InputError

if TYPE_CHECKING:
    from pathlib import Path

    from hark.bundle.core import Core


@pytest.fixture(scope="module")
def data() -> bytes:
    def fill(writer: RawWriter) -> None:
        for i in range(1000):
            writer.append(23 if i % 100 == 7 else 19, 1000 * i, {4: i})

    return made(fill)


def test_by_number(data: bytes):
    with Bundle.from_bytes(data) as bundle:
        for seq in (0, 255, 256, 999):
            event = bundle.event(seq)
            assert (event.seq, event.payload, event.time_ns) == (seq, {4: seq}, 1000 * seq)
        for seq in (-1, 1000, 10**30):
            with pytest.raises(InputError, match="no event"):
                bundle.event(seq)
        assert bundle.count() == 1000


def test_by_kind_and_time_and_start(data: bytes):
    with Bundle.from_bytes(data) as bundle:
        assert [e.seq for e in bundle.events(23)] == list(range(7, 1000, 100))
        assert [e.seq for e in bundle.events(frozenset((23, 5)), start=500)] == [
            507,
            607,
            707,
            807,
            907,
        ]
        assert [e.seq for e in bundle.events(since=997_000)] == [997, 998, 999]
        assert list(bundle.events(12)) == []


def test_without_its_index_it_reads_the_same(data: bytes):
    whole = [(e.seq, e.payload) for e in Bundle.from_bytes(data).events()]
    cut = [(e.seq, e.payload) for e in Bundle.from_bytes(data[:-40]).events()]
    assert cut == whole


@pytest.mark.parametrize("core", CORES, ids=lambda core: core.name)
def test_follow_sees_events_as_they_are_flushed(tmp_path: Path, core: Core):
    path = tmp_path / "b.hark"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    writer = writer_on(fd, core=core, now_boot_ns=Clock())
    writer.head()
    waits = []

    def wait() -> None:
        """Called whenever the reader has seen all there is: then write more."""
        waits.append(1)
        if len(waits) < 4:
            writer.append(19, 5, {4: len(waits)})
            writer.flush()
        elif len(waits) == 4:
            writer.seal()

    with Bundle.open(path, core=core) as bundle:
        assert [e.payload[4] for e in bundle.follow(wait=wait)] == [1, 2, 3]
    os.close(fd)
    assert len(waits) == 4


def test_follow_ignores_a_block_that_is_half_written(tmp_path: Path):
    data = small()
    path = tmp_path / "b.hark"
    path.write_bytes(data[:900])
    sizes = iter([1500, 2500, len(data)])
    with Bundle.open(path) as bundle:
        grow = bundle.follow(wait=lambda: path.write_bytes(data[: next(sizes)]))
        seen = [event.seq for event in grow]
    assert seen == list(range(31))


def test_what_is_no_bundle(tmp_path: Path):
    with pytest.raises(InputError, match="cannot open"):
        Bundle.open(tmp_path / "missing")
    for data in (b"", b"HARK", b"\x7fELF" + bytes(100), b"HARK\x02\0\0\0"):
        with pytest.raises(BundleInvalid, match="not a readable bundle"):
            Bundle.from_bytes(data)
    with pytest.raises(BundleInvalid) as old:
        Bundle.from_bytes(b"HARK\x01\0\0\0" + bytes(50))
    assert "version 1" in old.value.cause


@pytest.mark.parametrize("payload", ["a1616101", "80", "05", "a1637365711864"])
def test_a_payload_that_is_no_map_of_numbers_is_not_read(payload: str):
    """A field named "seq" or "kind" would stand for the event's own in JSON."""
    data = made(lambda writer: writer.raw(19, 1, bytes.fromhex(payload)))
    with pytest.raises(BundleInvalid, match="event 0 is not a map of numbered fields"):
        list(Bundle.from_bytes(data).events())


def test_a_body_is_no_longer_than_its_reference_says():
    body = b"".join(i.to_bytes(4) for i in range(2000))
    with Bundle.from_bytes(made(lambda writer: writer.append(16, 1, {4: body}))) as bundle:
        ref = bundle.event(0).payload[4]
        assert bundle.read_body(ref) == body
        for lie, said in ((len(body) - 1, "longer"), (1 << 40, "too long")):
            with pytest.raises(BundleInvalid, match=said):
                bundle.read_body(dataclasses.replace(ref, length=lie))
