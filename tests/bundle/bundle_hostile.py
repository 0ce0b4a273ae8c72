"""Hostile and broken bundles, each with the verdict it must get."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache

import zstandard
from bundle_making import (
    KEY,
    Blocks,
    RawWriter,
    join,
    made,
    small,
    split,
    with_fields,
)

from hark.bundle import cbor
from hark.bundle.batch import Batch, Packer
from hark.bundle.core import load
from hark.bundle.format import (
    BATCH_HEAD,
    BLOCK_HEAD,
    DOMAINS,
    END_MARK,
    HEAD_STRUCT,
    LOCATOR_SIZE,
    MAGIC,
    TRAILER,
)
from hark.bundle.notes import Note
from hark.bundle.tree import blob_root
from hark.bundle.verify import Verdict

V, B, T = Verdict.VERIFIED, Verdict.BROKEN, Verdict.TRUNCATED


@dataclass(frozen=True)
class Case:
    name: str
    data: bytes
    verdict: Verdict


def flip(body: bytes, at: int, mask: int = 1) -> bytes:
    out = bytearray(body)
    out[at] ^= mask
    return bytes(out)


class Base:
    """The small bundle, in blocks."""

    def __init__(self) -> None:
        self.data = small()
        self.parts = split(self.data)
        self.batches = [i for i, (kind, _) in enumerate(self.parts) if kind == "b"]
        self.heads = [i for i, (kind, _) in enumerate(self.parts) if kind == "s"]
        self.index = next(i for i, (kind, _) in enumerate(self.parts) if kind == "i")
        self.trailer = len(self.parts) - 1
        self.body_batch = next(i for i in self.batches if Batch.parse(self.parts[i][1]).chunks)

    def mutate(self, at: int, body: bytes) -> bytes:
        parts = list(self.parts)
        parts[at] = (parts[at][0], body)
        return join(parts)

    def fields(self, at: int, **changes: object) -> bytes:
        return self.mutate(at, with_fields(self.parts[at][1], **changes))

    def section(self, new: bytes, plain: int | None = None) -> bytes:
        """Replace the events section of the first batch."""
        at = self.batches[0]
        body = self.parts[at][1]
        stored = BATCH_HEAD.unpack_from(body)[5]
        head = with_fields(body, stored_ev=len(new), plain_ev=len(new) if plain is None else plain)[
            : BATCH_HEAD.size
        ]
        return self.mutate(at, head + new + body[BATCH_HEAD.size + stored :])

    def head(self, which: int, at: int, *, resign: bool = False) -> bytes:
        index = self.heads[which]
        body = self.parts[index][1]
        signed = flip(body[: HEAD_STRUCT.size], at)
        signature = KEY.sign_head(signed) if resign else body[HEAD_STRUCT.size :]
        return self.mutate(index, signed + signature)

    def insert(self, at: int, *parts: tuple[str, bytes]) -> bytes:
        return join([*self.parts[:at], *parts, *self.parts[at:]])

    def chunk_table(self, word: int) -> bytes:
        """Replace the first word of the chunk table of the batch with the body."""
        at = self.body_batch
        body = self.parts[at][1]
        batch = Batch.parse(body)
        place = BATCH_HEAD.size + len(batch.stored_events) + LOCATOR_SIZE * batch.events
        return self.mutate(at, body[:place] + struct.pack(">I", word) + body[place + 4 :])


def evil(payload: bytes, kind: int = 19) -> bytes:
    """A bundle whose signer wrote a payload that no honest writer would."""
    return small(lambda w: w.raw(kind, 30, payload))


def reference(length: int, root: bytes, flat: list[int]) -> bytes:
    import cbor2  # noqa: PLC0415

    return cbor2.dumps({9: cbor2.CBORTag(cbor.BLOB_TAG, [length, root, flat])})


def framing(base: Base) -> list[Case]:
    d, p = base.data, base.parts
    b, s = base.batches, base.heads
    body_at = base.body_batch
    return [
        Case("untouched", d, V),
        Case("empty file", b"", T),
        Case("4 bytes of magic", d[:4], T),
        Case("wrong magic", b"HARX" + d[4:], B),
        Case("version 3", b"HARK\3" + d[5:], B),
        Case("reserved magic byte set", d[:5] + b"\1" + d[6:], B),
        Case("cut inside the header", d[:30], T),
        Case("cut inside a batch", d[: len(join(p[: body_at + 1])) - 5], T),
        Case("cut at a batch end", join(p[: body_at + 1]), T),
        Case("cut inside the index", d[:-60], V),
        Case("cut inside the trailer", d[:-3], V),
        Case("index and trailer removed", join(p[: base.index]), V),
        Case("final head removed", join(p[: s[-1]]), T),
        Case("final head removed, index kept", join(p[: s[-1]] + p[base.index :]), B),
        Case("trailing byte", d + b"\0", B),
        Case("two bundles concatenated", d + d, B),
        Case("block length of 4 GiB", d[:8] + BLOCK_HEAD.pack(0x68, 0xFFFFFFFF) + d[16:], B),
        Case("block longer than the file", d[:8] + BLOCK_HEAD.pack(0x68, 30 << 20) + d[16:], T),
        Case("unknown block", base.insert(2, ("z", b"")), B),
        Case("reserved block byte set", d[:9] + b"\1" + d[10:], B),
        Case("no header", join(p[1:]), B),
        Case("second header", base.insert(2, p[0]), B),
        Case("header edited", base.mutate(0, flip(p[0][1], len(p[0][1]) - 1)), B),
        Case(
            "header not canonical",
            base.mutate(0, b"\xb8" + bytes([p[0][1][0] & 31]) + p[0][1][1:]),
            B,
        ),
        Case("header without a key", base.mutate(0, cbor.encode({1: bytes(16)})), B),
        Case("header with an unknown key", base.mutate(0, header_with({11: 1})), B),
        Case("header with a short run id", base.mutate(0, header_with({1: bytes(15)})), B),
        Case("header with a negative time", base.mutate(0, header_with({2: -1})), B),
        Case(
            "header of 10^6 recipients", base.mutate(0, header_with({9: [[32, b"x"]] * 10**6})), B
        ),
        Case("header of 65 recipients", base.mutate(0, header_with({9: [[32, b"x"]] * 65})), B),
        Case("header with no recipients", base.mutate(0, header_with({9: []})), B),
        Case("header with an odd recipient", base.mutate(0, header_with({9: [[32]]})), B),
        Case("header with a false kem", base.mutate(0, header_with({9: [[True, b"x"]]})), B),
        Case("header with a broken parent", base.mutate(0, header_with({6: {1: b""}})), B),
        Case("header is a list", base.mutate(0, b"\x80"), B),
        Case("zeros behind a block", join(p[: body_at + 1]) + bytes(4096), T),
        Case("zeros behind the final head", join(p[: base.index]) + bytes(4096), V),
        Case("five zeros behind a block", join(p[: body_at + 1]) + bytes(5), T),
        Case("zeros behind the trailer", d + bytes(4096), B),
        Case("zeros, then a byte", join(p[: body_at + 1]) + bytes(4096) + b"\1", B),
        Case("only zeros", bytes(4096), B),
        Case("magic and zeros", MAGIC + bytes(100), T),
        Case("batch before the header", join([p[b[0]], *p]), B),
    ]


def header_with(changes: dict[int, object]) -> bytes:
    value = cbor.decode(split(small())[0][1])
    return cbor.encode(value | changes)


def batch_cases(base: Base) -> list[Case]:
    p, b = base.parts, base.batches
    first, second = b[0], b[1]
    at = base.body_batch
    body = p[at][1]
    batch = Batch.parse(body)
    locators = BATCH_HEAD.size + len(batch.stored_events)
    table = locators + LOCATOR_SIZE * batch.events
    swapped = [*p[:first], p[second], p[first], *p[second + 1 :]]
    return [
        Case("payload bit flipped", base.mutate(at, flip(body, BATCH_HEAD.size + 20)), B),
        Case("seed edited", base.mutate(at, flip(body, 60)), B),
        Case("chain value edited", base.mutate(at, flip(body, len(body) - 1)), B),
        Case("locator edited", base.mutate(at, flip(body, locators)), B),
        Case("last locator edited", base.mutate(at, flip(body, table - 1)), B),
        Case("chunk byte flipped", base.mutate(at, flip(body, len(body) - 40)), B),
        Case("batches swapped", join(swapped), B),
        Case("batch dropped", join(p[:first] + p[first + 1 :]), B),
        Case("batch repeated", join([*p[:second], p[first], *p[second:]]), B),
        Case("event count too high", base.fields(first, events=lambda n: n + 1), B),
        Case("event count too low", base.fields(first, events=lambda n: n - 1), B),
        Case("event count 2^32-1", base.fields(first, events=0xFFFFFFFF), B),
        Case("event count at its limit", base.fields(first, events=1 << 16), B),
        Case("no events", base.fields(first, events=0), B),
        Case("chunk count 2^32-1", base.fields(at, chunks=0xFFFFFFFF), B),
        Case("first chunk moved", base.fields(at, first_chunk=7), B),
        Case("first event moved", base.fields(at, first=lambda n: n + 1), B),
        Case("first event 2^64-1", base.fields(at, first=(1 << 64) - 1), B),
        Case("plain size 2^32-1", base.fields(first, plain_ev=0xFFFFFFFF), B),
        Case("stored size above the section", base.fields(first, stored_ev=lambda n: n + 1), B),
        Case("plain chunks 2^32-1", base.fields(at, plain_ch=0xFFFFFFFF), B),
        Case("plain chunk size off by one", base.fields(at, plain_ch=lambda n: n + 1), B),
        Case("unknown batch flag", base.fields(first, flags=0x80), B),
        Case("dictionary flag", base.fields(first, flags=2), B),
        Case("sparse flag without salts", base.fields(first, flags=1), B),
        Case("reserved batch byte set", base.mutate(first, flip(p[first][1], 42)), B),
        Case("chunk of size 0", base.chunk_table(0), B),
        Case("chunk of size 2^31-1", base.chunk_table(0x7FFFFFFF), B),
        Case(
            "redacted chunk in a dense batch", base.chunk_table(batch.chunk_sizes[0] | 1 << 31), B
        ),
        Case("batch of 75 bytes", base.mutate(first, p[first][1][:75]), B),
        Case("empty batch", base.mutate(first, b""), B),
        Case("byte behind a batch", base.mutate(first, p[first][1] + b"\0"), B),
    ]


def zstd_cases(base: Base) -> list[Case]:
    packer = zstandard.ZstdCompressor(level=3)
    bomb = packer.compress(bytes(1 << 30))
    stream = zstandard.ZstdCompressor(level=3, write_content_size=False).compressobj()
    endless = stream.compress(bytes(1 << 26)) + stream.flush()
    checksum = zstandard.ZstdCompressor(level=3, write_checksum=True).compress(b"a" * 400)
    wide = zstandard.ZstdCompressionParameters.from_level(3, window_log=27, enable_ldm=1)
    stretched = zstandard.ZstdCompressor(compression_params=wide).compress(bytes(8 << 20))
    frame = b"\x50\x2a\x4d\x18\0\0\0\0" + packer.compress(b"a" * 200)
    return [
        Case("zstd bomb, 1 GiB declared", base.section(bomb, 1 << 30), B),
        Case("zstd bomb, small size declared", base.section(bomb, 8 << 20), B),
        Case("zstd without content size", base.section(endless, 8 << 20), B),
        Case("zstd garbage", base.section(b"\x28\xb5\x2f\xfd" + bytes(20), 100), B),
        Case("two zstd frames", base.section(packer.compress(b"a" * 200) * 2, 400), B),
        Case("skippable zstd frame in front", base.section(frame, 200), B),
        Case("zstd with a checksum", base.section(checksum, 400), B),
        Case("zstd with a wide window", base.section(stretched, 8 << 20), B),
        Case("zstd frame, a byte behind", base.section(packer.compress(b"a" * 200) + b"x", 200), B),
        Case("zstd frame cut", base.section(packer.compress(bytes(range(200)) * 4)[:-3], 800), B),
        Case("empty zstd section", base.section(b"", 10), B),
        Case("empty section", base.section(b""), B),
        Case("frame of 4 GiB", base.section(struct.pack(">IHQ", 0xFFFFFFF0, 19, 0) + b"\xa0"), B),
        Case("frame of 8 MiB and one", base.section(struct.pack(">IHQ", (8 << 20) + 1, 19, 0)), B),
        Case("frame cut short", base.section(b"\0\0\0\1\0"), B),
        Case(
            "redacted frames in a dense batch",
            base.section(b"".join(struct.pack(">IHQ", 9, 0x8013, 0) + bytes(32) for _ in range(8))),
            B,
        ),
    ]


RAW = {
    "duplicate key": "a201010102",
    "long integer": "a1180101",
    "long integer, two bytes": "a1011900ff",
    "long integer, four bytes": "a1011a0000ffff",
    "long integer, eight bytes": "a1011b00000000ffffffff",
    "long length": "a1015801ff",
    "unsorted map": "a202010101",
    "indefinite map": "bf0101ff",
    "indefinite bytes": "a1015f4101ff",
    "indefinite text": "a1017f6161ff",
    "indefinite array": "a1019f01ff",
    "reserved head": "a1011c",
    "half float": "a101f93c00",
    "NaN": "a101f97e00",
    "float": "a101fa47c35000",
    "double": "a101fb7e37e43c8800759c",
    "undefined": "a101f7",
    "simple value 255": "a101f8ff",
    "simple value 16": "a101f0",
    "datetime": "a101c100",
    "big number": "a101c249010000000000000000",
    "below -2^63": "a1013bffffffffffffffff",
    "shared-reference cycle": "d81c81d81d00",
    "self-described": "d9d9f7a0",
    "array of 2^63": "9b7fffffffffffffff",
    "map of 2^63": "bb7fffffffffffffff",
    "bytes of 2^63": "a1015b7fffffffffffffff",
    "trailing byte": "a000",
    "bad UTF-8": "a10161ff",
    "overlong UTF-8": "a10162c080",
    "surrogate": "a10163eda080",
    "above U+10FFFF": "a10164f4908080",
    "cut UTF-8": "a10161c3",
    "empty payload": "",
    "mixed keys": "a20101616101",
    "negative key": "a12001",
    "bytes key": "a1410101",
    "boolean key": "a1f501",
    "text keys out of order": "a2616201616101",
    "text key again": "a2616101616102",
    "reference of a wrong shape": "a109d99c408100",
    "reference to a negative length": "a109d99c4083205820" + "00" * 32 + "80",
    "reference in a reference": "a109d99c4083d99c40005820" + "00" * 32 + "80",
    "reference with a short root": "a109d99c408300581f" + "00" * 31 + "80",
    "reference with odd ranges": "a109d99c4083005820" + "00" * 32 + "8100",
    "reference with text ranges": "a109d99c4083005820" + "00" * 32 + "8261616161",
    "reference as a key": "a1d99c4083005820" + "00" * 32 + "8000",
}


def cbor_cases() -> list[Case]:
    cases = []
    for name, text in RAW.items():
        cases.append(Case(f"own key: {name}", evil(bytes.fromhex(text)), B))
    deep_ok = b"\x81" * 16 + b"\0"
    items = b"\xa1\x01\x99\xff\xfd" + b"\0" * 65533
    return [
        *cases,
        Case("own key: 600 deep", evil(b"\x81" * 600 + b"\0"), B),
        Case("own key: 17 deep", evil(b"\x81" + deep_ok), B),
        Case("own key: 16 deep is allowed", evil(deep_ok), V),
        Case(
            "own key: 65,536 values too many",
            evil(b"\x9a" + struct.pack(">I", 65536) + b"\0" * 65536),
            B,
        ),
        Case("own key: values at their limit", evil(b"\x99\xff\xff" + b"\0" * 65535), V),
        Case("own key: some values", evil(items), V),
        Case("own key: payload that is no map", evil(b"\x80"), V),
        Case(
            "own key: integer at its lower limit", evil(bytes.fromhex("a1013b7fffffffffffffff")), V
        ),
    ]


def reference_cases() -> list[Case]:
    core = load()
    base = Base()
    batch = Batch.parse(base.parts[base.body_batch][1])
    data = batch.chunk_section(Packer())
    size = batch.chunk_sizes[0]
    commitment = batch.chunk_commitments(core, data, DOMAINS.chunk)[:32]
    row = struct.pack(">I", size) + commitment
    many = blob_root(core, size * 4000, row * 4000)
    flood = [reference(size * 4000, many, [0, 1] * 4000)] * 2200

    def pour(writer: RawWriter) -> None:
        for payload in flood:
            writer.raw(16, 30, payload)
            if len(writer._pending) == 100:
                writer.flush()

    one = blob_root(core, size, row)
    return [
        Case("own key: body of a future chunk", evil(reference(10, bytes(32), [99, 1])), B),
        Case("own key: 2^63 chunks", evil(reference(10, bytes(32), [0, 1 << 63])), B),
        Case("own key: chunk 2^64-1", evil(reference(10, bytes(32), [(1 << 64) - 1, 1])), B),
        Case("own key: wrong body root", evil(reference(10, bytes(32), [0, 1])), B),
        Case("own key: right root, wrong length", evil(reference(size + 1, one, [0, 1])), B),
        Case("own key: odd ranges", evil(reference(10, bytes(32), [0])), B),
        Case("own key: empty range", evil(reference(0, blob_root(core, 0, b""), [0, 0])), B),
        Case("own key: empty body is allowed", evil(reference(0, blob_root(core, 0, b""), [])), V),
        Case("own key: a body twice is allowed", evil(reference(size, one, [0, 1])), V),
        Case("own key: 40,000 ranges", evil(reference(1, bytes(32), [0, 1] * 40000)), B),
        Case("own key: 8.8 million references", small(pour), B),
        Case("own key: chunk nobody refers to", small(orphan), B),
    ]


def orphan(writer: RawWriter) -> None:
    writer._chunks.add(b"nobody refers to this" * 100, writer.seed)


def head_cases(base: Base) -> list[Case]:
    p, s = base.parts, base.heads
    second = s[1]
    moved = [*p[: second - 1], p[second], p[second - 1], *p[second + 1 :]]
    return [
        Case("head: root edited", base.head(1, 45), B),
        Case("head: root edited and signed again", base.head(1, 45, resign=True), B),
        Case("head: chain edited and signed again", base.head(1, 75, resign=True), B),
        Case("head: header hash edited and signed again", base.head(1, 5, resign=True), B),
        Case("head: count edited and signed again", base.head(1, 39, resign=True), B),
        Case("head: wrong number, signed again", base.head(1, 123, resign=True), B),
        Case("head: final in the middle, signed again", base.head(1, 124, resign=True), B),
        Case("head: reserved byte set, signed again", base.head(1, 126, resign=True), B),
        Case("head: time edited", base.head(1, 110), B),
        Case("head: signature edited", base.mutate(second, flip(p[second][1], 191)), B),
        Case("head: short", base.mutate(second, p[second][1][:-1]), B),
        Case("head: long", base.mutate(second, p[second][1] + b"\0"), B),
        Case("head: before its batch", join(moved), B),
        Case("head: one in the middle removed", join(p[:second] + p[second + 1 :]), B),
        Case("head: repeated", base.insert(second, p[second]), B),
        Case("head: first removed", join(p[: s[0]] + p[s[0] + 1 :]), B),
        Case("head: time goes back", older_head(), B),
        Case("batch behind the final head", base.insert(s[-1] + 1, p[base.batches[-1]]), B),
        Case("head behind the final head", base.insert(s[-1] + 1, p[s[-1]]), B),
        Case("sealed without any event", made(lambda _: None), V),
        Case("only the first head", join(p[: s[0] + 1]), T),
    ]


def older_head() -> bytes:
    times = iter([9, 9, 5])
    return made(lambda w: w.append(1, 1, {4: []}), now_boot_ns=lambda: next(times))


def tail_cases(base: Base) -> list[Case]:
    p, i, t = base.parts, base.index, base.trailer
    index = p[i][1]

    def trailer(index_at: int, head_at: int) -> bytes:
        body = TRAILER.pack(index_at, head_at, END_MARK)
        return join([*p[:t], ("t", body)], fix=False)

    annex = cbor.encode({1: 1, 2: 0, 3: b"proof"})
    note = Note(events=(), chunks=(), unix_ns=1, reason="none").encode()
    lying = Note(events=(3,), chunks=(), unix_ns=1, reason="none").encode()
    forged = Note(
        events=(), chunks=(), unix_ns=1, reason="x", key=KEY.public, signature=bytes(64)
    ).encode()
    sealed = (3).to_bytes(8, "big") + bytes(40)
    before = i
    return [
        Case("index: batch offset lies", base.mutate(i, flip(index, 24 + 15)), B),
        Case("index: kinds lie", base.mutate(i, flip(index, 24 + 23)), B),
        Case("index: first chunk lies", base.mutate(i, flip(index, 24 + 31)), B),
        Case("index: count 2^32-1", base.mutate(i, index[:8] + b"\xff" * 4 + index[12:]), B),
        Case("index: last byte edited", base.mutate(i, flip(index, len(index) - 1)), B),
        Case("index: level edited", base.mutate(i, flip(index, 16)), B),
        Case("index: reserved byte set", base.mutate(i, flip(index, 20)), B),
        Case("index: empty", base.mutate(i, b""), B),
        Case("index twice", base.insert(i + 1, p[i]), B),
        Case("index before the final head", base.insert(3, p[i]), B),
        Case("trailer: offset lies", trailer(1 << 63, 9), B),
        Case("trailer: points at a batch", trailer(8, 8), B),
        Case("trailer: other end mark", base.mutate(t, p[t][1])[:-1] + b"\3", B),
        Case("trailer without an index", join([*p[:i], p[t]]), B),
        Case("trailer twice", join([*p, p[t]]), B),
        Case("block behind the trailer", join([*p, ("a", annex)]), B),
        Case("annex is allowed", base.insert(before, ("a", annex)), V),
        Case("annex before the final head", base.insert(3, ("a", annex)), B),
        Case(
            "annex of another head",
            base.insert(before, ("a", cbor.encode({1: 1, 2: 99, 3: b""}))),
            B,
        ),
        Case("annex that is no CBOR", base.insert(before, ("a", b"\xff")), B),
        Case("annex over its limit", base.insert(before, ("a", bytes(2 << 20))), B),
        Case("5,000 annexes", base.insert(before, *[("a", annex)] * 5000), B),
        Case("redaction note is allowed", base.insert(before, ("r", note)), V),
        Case("redaction note of what is there", base.insert(before, ("r", lying)), B),
        Case("redaction note with a forged signature", base.insert(before, ("r", forged)), B),
        Case("redaction note that is a list", base.insert(before, ("r", b"\x80")), B),
        Case(
            "sealed items before a dense batch",
            base.insert(base.batches[0], ("e", bytes(8) + bytes(40))),
            B,
        ),
        Case("sealed items of another batch", base.insert(base.batches[0], ("e", sealed)), B),
        Case("sealed items too short", base.insert(base.batches[0], ("e", bytes(20))), B),
        Case("sealed items before a head", base.insert(base.heads[1], ("e", bytes(48))), B),
        Case("sealed items behind the final head", base.insert(before, ("e", bytes(48))), B),
        Case("sealed items twice", base.insert(base.batches[0], *[("e", bytes(48))] * 2), B),
    ]


@cache
def cases() -> tuple[Case, ...]:
    base = Base()
    return (
        *framing(base),
        *batch_cases(base),
        *zstd_cases(base),
        *cbor_cases(),
        *reference_cases(),
        *head_cases(base),
        *tail_cases(base),
    )


__all__ = ["Base", "Blocks", "Case", "cases", "evil", "flip", "reference"]
