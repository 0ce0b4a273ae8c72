"""The ring between two processes that do not trust each other, and the decoder behind it."""

from __future__ import annotations

import fcntl
import mmap
import os
import random
import struct
from typing import TYPE_CHECKING

import pytest
from hark._native import ffi, lib

from hark.errors import RecordingFailed
from hark.mediator import decode as decoder
from hark.mediator.decode import LAYOUTS, decode
from hark.mediator.reasons import DENIALS, NAMES, NOTES
from hark.mediator.records import RequestBody
from hark.mediator.ring import RingMemory, RingReader

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD = struct.Struct("=IHHQQQ")
BODY = 0x111
PAGE = 4096
DATA = 16_777_216
HEAD_AT = 64  # of struct ring_page
TAIL_AT = 128


class Producer:
    """The C producer over the same memory."""

    def __init__(self, memory: RingMemory) -> None:
        self.ring = lib.hark_ring_producer_new(memory.memfd, memory.doorbell, memory.space)
        assert self.ring != ffi.NULL
        self.seq = ffi.new("uint64_t *")

    def put(self, data: bytes) -> int:
        fixed = HEAD.pack(0, BODY, 0, 1, 0, 5) + struct.pack("=I4x", len(data))
        return int(lib.hark_ring_put(self.ring, fixed, len(fixed), data, len(data), self.seq))

    def room(self) -> int:
        return int(lib.hark_ring_room(self.ring))


@pytest.fixture
def memory() -> RingMemory:
    return RingMemory()


@pytest.fixture
def reader(memory: RingMemory) -> Iterator[RingReader]:
    reader = RingReader(memory)
    yield reader
    reader.close()


@pytest.fixture
def producer(memory: RingMemory) -> Producer:
    return Producer(memory)


@pytest.fixture
def page(memory: RingMemory) -> Iterator[mmap.mmap]:
    """The raw shared memory: what a hostile producer can write."""
    with mmap.mmap(memory.memfd, PAGE + DATA) as page:
        yield page


def test_order_and_contents_over_many_turns(reader: RingReader, producer: Producer):
    rng = random.Random(7)  # noqa: S311 - repeatable
    sent: list[bytes] = []
    got: list[bytes] = []
    for _ in range(4000):
        data = rng.randbytes(rng.choice((0, 1, 7, 8, 100, 4096, 30_000)))
        if producer.put(data) == 0:
            sent.append(data)
        if rng.random() < 0.1:
            got += [r.data for r in reader.poll() if isinstance(r, RequestBody)]
    while part := reader.poll():
        got += [r.data for r in part if isinstance(r, RequestBody)]
    assert got == sent
    assert sum(map(len, sent)) > DATA  # it went round
    assert reader.next_seq == len(sent)


def test_full_ring_refuses_and_goes_on(reader: RingReader, producer: Producer):
    n = 0
    while producer.put(bytes(60_000)) == 0:
        n += 1
    assert producer.put(b"") in {0, lib.HARK_RING_FULL}
    assert producer.room() == 0
    assert len(reader.poll()) > 0
    assert producer.put(bytes(60_000)) == 0


def test_bells(memory: RingMemory, reader: RingReader, producer: Producer):
    assert reader.poll() == []  # now it sleeps
    with pytest.raises(BlockingIOError):
        os.eventfd_read(memory.doorbell)
    producer.put(b"x")
    lib.hark_ring_ring(producer.ring)
    assert os.eventfd_read(memory.doorbell) == 1
    lib.hark_ring_ring(producer.ring)  # rung once per sleep
    with pytest.raises(BlockingIOError):
        os.eventfd_read(memory.doorbell)
    lib.hark_ring_want_space(producer.ring)
    assert len(reader.poll()) == 1
    assert os.eventfd_read(memory.space) == 1


def test_what_came_while_polling_rings_again(
    memory: RingMemory, reader: RingReader, producer: Producer
):
    for _ in range(40):
        producer.put(bytes(60_000))
    assert len(reader.poll()) < 40
    assert os.eventfd_read(memory.doorbell) == 1


@pytest.mark.parametrize(
    "head",
    [8, 4, 1, DATA + 8, 2**63, 2**64 - 8, 40],
    ids=["stub only", "odd", "one", "beyond", "huge", "wrapped", "cut record"],
)
def test_hostile_head_index(reader: RingReader, page: mmap.mmap, head: int):
    page[PAGE : PAGE + 32] = HEAD.pack(4096, BODY, 0, 0, 0, 0)
    struct.pack_into("=Q", page, HEAD_AT, head)
    with pytest.raises(RecordingFailed):
        reader.poll()
    struct.pack_into("=Q", page, HEAD_AT, 0)
    with pytest.raises(RecordingFailed):  # broken for good
        reader.poll()


@pytest.mark.parametrize(
    ("length", "kind", "seq"),
    [
        (0, BODY, 0),
        (8, BODY, 0),
        (41, BODY, 0),
        (48, BODY, 1),
        (2**32 - 8, BODY, 0),
        (1_048_584, BODY, 0),
        (48, 0, 0),
        (64, 0, 0),
    ],
)
def test_hostile_records(reader: RingReader, page: mmap.mmap, length: int, kind: int, seq: int):
    page[PAGE : PAGE + 32] = HEAD.pack(length, kind, 0, 0, seq, 0)
    struct.pack_into("=Q", page, HEAD_AT, 48)
    with pytest.raises(RecordingFailed):
        reader.poll()


def test_head_that_goes_back(reader: RingReader, producer: Producer, page: mmap.mmap):
    producer.put(b"a")
    assert len(reader.poll()) == 1
    struct.pack_into("=Q", page, HEAD_AT, 0)
    with pytest.raises(RecordingFailed):
        reader.poll()


@pytest.mark.parametrize("tail", [2**63, 10_000, 2**64 - 1])
def test_hostile_tail_index(producer: Producer, page: mmap.mmap, tail: int):
    assert producer.put(b"a") == 0
    struct.pack_into("=Q", page, TAIL_AT, tail)
    assert producer.room() == lib.HARK_RING_BROKEN
    assert producer.put(b"a") == lib.HARK_RING_BROKEN


def test_memory_that_is_no_ring():
    for size, seal in ((0, True), (PAGE + DATA, False), (100, True)):
        fd = os.memfd_create("x", os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, size)
        if seal:
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        assert lib.hark_ring_consumer_new(fd, -1, -1) == ffi.NULL
        os.close(fd)


def test_memory_cannot_shrink(memory: RingMemory):
    with pytest.raises(PermissionError):
        os.ftruncate(memory.memfd, 100)


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_are_those_of_the_header(name: str):
    """Offsets of what struct reads, against the C compiler's."""
    layout = LAYOUTS[name]
    ctype = ffi.typeof(f"struct {name}")
    assert layout.size == ffi.sizeof(ctype)
    blank = ffi.new(f"struct {name} *")
    names = [f for f, _ in ctype.fields if not f.startswith("pad")]
    for i, field in enumerate(names):
        ffi.memmove(blank, bytes(layout.size), layout.size)
        member = dict(ctype.fields)[field].type
        if member.kind == "array":
            getattr(blank, field)[0] = b"\1" if member.item.cname == "char" else 1
        else:
            setattr(blank, field, 1)
        values = layout.unpack(bytes(ffi.buffer(blank)))
        changed = [j for j, v in enumerate(values) if (any(v) if isinstance(v, bytes) else v)]
        assert changed == [i], field


def test_every_kind_of_the_header_is_read():
    kinds = {
        value
        for name, value in ffi.typeof("enum hark_rec_kind").relements.items()
        if name.startswith("HARK_REC_") and 0x100 <= value < 0x200
    }
    assert kinds == set(decoder._READERS)


def test_reasons():
    assert NAMES[0] == "complete"
    assert NAMES[-1] == "internal"
    assert len(set(NAMES)) == len(NAMES)
    assert {"host_denied", "no_sni", "credential_wrong_host"} < DENIALS
    assert "client_rejected_ca" not in DENIALS | NOTES
    assert {"eof_framed", "chunk_extension", "placeholder_denied_host"} < NOTES


def test_decoder_refuses_what_does_not_fit():
    rng = random.Random(11)  # noqa: S311 - repeatable
    good = 0
    for _ in range(30_000):
        kind = rng.choice([*decoder._READERS, 0x120, 0])
        body = rng.randbytes(rng.choice((0, 8, 16, 24, 48, 208, 216)))
        record = HEAD.pack(HEAD.size + len(body), kind, 0, 0, 0, 0) + body
        try:
            good += len(decode(record))
        except RecordingFailed:
            continue
    assert good < 30_000


@pytest.mark.parametrize("cut", range(1, 48))
def test_decoder_refuses_a_cut_record(cut: int):
    whole = HEAD.pack(48, BODY, 0, 0, 0, 0) + struct.pack("=I4x", 8) + b"12345678"
    assert len(decode(whole)) == 1
    with pytest.raises(RecordingFailed):
        decode(whole[:-cut] if cut < 48 else b"")
