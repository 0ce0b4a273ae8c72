"""Small bundles with fixed randomness, taken apart and put together again. Nothing is mocked."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any

from hark.bundle.core import Core, load
from hark.bundle.format import BATCH_HEAD, BLOCK_HEAD, END_MARK, FRAME, MAGIC, TRAILER, Header
from hark.bundle.keys import SigningKey, Trust
from hark.bundle.source import BytesSource, blocks
from hark.bundle.verify import VerifyReport, verify_source
from hark.bundle.writer import BundleWriter

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = SigningKey.from_seed(b"\7" * 32)
OTHER = SigningKey.from_seed(b"\1" * 32)
UNIX_NS = 1_700_000_000_000_000_000
CORES = [load(), load(pure=True)]
BATCH_FIELDS = ("first", "events", "chunks", "first_chunk", "plain_ev", "stored_ev", "plain_ch")
BATCH_FIELDS += ("stored_ch", "flags", "seed")

Blocks = list[tuple[str, bytes]]


class RawWriter(BundleWriter):
    """A writer that an attacker with a key would have: payloads are written as they are."""

    def raw(self, kind: int, time_ns: int, payload: bytes) -> None:
        self._pending.append(FRAME.pack(len(payload), kind, time_ns) + payload)
        self._pending_bytes += len(payload)

    @property
    def seed(self) -> bytes:
        return self._seed


class Clock:
    def __init__(self) -> None:
        self.now = 5_000_000_000

    def __call__(self) -> int:
        self.now += 1000
        return self.now


def header(**more: Any) -> Header:
    fields: dict[str, Any] = {
        "run_id": bytes(range(16)),
        "created_unix_ns": UNIX_NS,
        "created_boot_ns": 5_000_000_000,
        "recorder": "test",
        "public_key": KEY.public,
    }
    return Header(**(fields | more))


def writer_on(
    fd: int, *, core: Core | None = None, seed: int = 9, key: SigningKey = KEY, **more: Any
) -> RawWriter:
    head = more.pop("header", None) or header()
    return RawWriter(
        fd,
        head,
        key.sign_head,
        now_boot_ns=more.pop("now_boot_ns", Clock()),
        now_unix_ns=lambda: UNIX_NS,
        core=core,
        random=random.Random(seed).randbytes,  # noqa: S311
        **more,
    )


def made(fill: Callable[[RawWriter], None], *, seal: bool = True, **more: Any) -> bytes:
    """Return the bytes of a bundle that ``fill`` wrote."""
    fd = os.memfd_create("bundle")
    try:
        writer = writer_on(fd, **more)
        writer.head()
        fill(writer)
        if seal:
            writer.seal()
        else:
            writer.flush()
        return os.pread(fd, writer.size, 0)
    finally:
        os.close(fd)


def fill_small(writer: RawWriter, extra: Callable[[RawWriter], None] | None = None) -> None:
    """30 events and one body, in batches of 8, heads in between."""
    for i in range(20):
        writer.append(19, i, {2: i, 4: b"tok"})
        if i % 8 == 7:
            writer.flush()
    writer.append(16, 21, {4: random.Random(4).randbytes(2500)})  # noqa: S311
    if extra is not None:
        extra(writer)
    writer.flush()
    writer.head()
    for i in range(10):
        writer.append(19, i + 40, {2: i})


def small(extra: Callable[[RawWriter], None] | None = None, **more: Any) -> bytes:
    return made(lambda writer: fill_small(writer, extra), **more)


def split(data: bytes) -> Blocks:
    return [(block.head.kind, block.body) for block in blocks(BytesSource(data))]


def join(parts: Blocks, *, fix: bool = True) -> bytes:
    """Blocks to bytes; with ``fix`` the trailer points where it must."""
    out = MAGIC
    index_at = head_at = 0
    for kind, body in parts:
        if kind == "i":
            index_at = len(out)
        if kind == "s":
            head_at = len(out)
        if kind == "t" and fix:
            body = TRAILER.pack(index_at, head_at, END_MARK)  # noqa: PLW2901
        out += BLOCK_HEAD.pack(ord(kind), len(body)) + body
    return out


def with_fields(body: bytes, **changes: Any) -> bytes:
    """Return a batch's body with fields of its head replaced; values or functions."""
    values = dict(zip(BATCH_FIELDS, BATCH_HEAD.unpack_from(body), strict=True))
    for name, change in changes.items():
        values[name] = change(values[name]) if callable(change) else change
    return BATCH_HEAD.pack(*values.values()) + body[BATCH_HEAD.size :]


def verified(data: bytes, core: Core | None = None, trust: Trust | None = None) -> VerifyReport:
    return verify_source(BytesSource(data), trust or Trust(), core or CORES[0])


def contents(data: bytes, core: Core | None = None) -> list[Any]:
    """Every event, bodies resolved: what "the same events" means."""
    from hark.bundle.cbor import BlobRef  # noqa: PLC0415
    from hark.bundle.reader import Bundle  # noqa: PLC0415

    bundle = Bundle.from_bytes(data, core=core)

    def resolve(value: Any) -> Any:
        if isinstance(value, BlobRef):
            return bundle.read_body(value)
        if isinstance(value, dict):
            return {k: resolve(v) for k, v in value.items()}
        return [resolve(v) for v in value] if isinstance(value, list) else value

    return [(e.seq, e.kind, e.time_ns, resolve(e.payload)) for e in bundle.events()]
