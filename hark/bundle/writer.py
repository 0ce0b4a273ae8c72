"""Writes a bundle while a run goes on.

Rules. Append-only: what was written is never read or changed again, so a writer that is killed at
any byte leaves a prefix that verifies. Fails closed: the first error makes every later call raise
``RecordingFailed``, except ``salvage`` and ``seal``. Constant memory: one batch, the rows of the
index (32 bytes a batch, 32 bytes per 256 events) and a bounded memory of chunks. The order of
durability is: events of a batch, then the head that signs them, then ``fdatasync``; nothing is
called durable before that returned.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from typing import TYPE_CHECKING, Any

from hark import limits
from hark.bundle import cbor
from hark.bundle.batch import Packer, build_batch, locators_of
from hark.bundle.core import CutRule, FramesFault, load
from hark.bundle.events import Kind
from hark.bundle.format import (
    BLOCK_HEAD,
    DOMAINS,
    FRAME,
    HASH_SIZE,
    HEAD_SIZE,
    MAGIC,
    REDACTED,
    SALT_SIZE,
    TRAILER,
    Head,
    Header,
)
from hark.bundle.index import BatchTable, Row, encode_index, encode_trailer, index_size
from hark.bundle.tree import blob_root, chain_next, root_of
from hark.errors import InputError, RecordingFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from hark.bundle.core import Core
    from hark.bundle.sealing import FileKey

__all__ = ["BundleWriter", "create"]

_URGENT = frozenset((Kind.RUN_START, Kind.RUN_END, Kind.LOSS, Kind.DENIED))
# Names that the loop over every event looks up without a detour.
_CANONICAL = cbor.CborFault.OK
_FLUSH_EVENTS = limits.BUNDLE_FLUSH_EVENTS
_FLUSH_BYTES = limits.BUNDLE_FLUSH_BYTES
_BYTES = frozenset((bytes, bytearray, memoryview))
_DEEP = _BYTES | {dict, list, tuple}
_SMALL = CutRule(512, 11, 16 << 10)
_LARGE = CutRule(8 << 10, 15, 256 << 10)


def create(path: str | os.PathLike[str], *, mode: int = 0o600) -> int:
    """Make a new file for a bundle and return its descriptor; never touches one that exists."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags, mode)
    except FileExistsError:
        raise InputError(
            f"{os.fspath(path)} exists",
            "a bundle is never overwritten",
            "name another file, or move this one away",
        ) from None
    except OSError as error:
        raise InputError(f"cannot create {os.fspath(path)}", str(error)) from None


class _ChunkStore:
    """Cuts bodies into chunks and knows the ones it has seen. The gear table never leaves here."""

    def __init__(self, core: Core, random: Callable[[int], bytes]) -> None:
        self._core = core
        self._gear = core.xof(random(HASH_SIZE), b"gear", 256 * 8)
        self._salt = random(SALT_SIZE)
        self._seen: dict[bytes, tuple[int, bytes]] = {}  # digest -> number, size and commitment
        self._references = 0
        self.count = 0
        self.first = 0
        self.sizes: list[int] = []
        self.data: list[bytes] = []
        self.bytes = 0

    def start_batch(self) -> None:
        """Forget the chunks of the batch that was written."""
        self.first = self.count
        self.sizes = []
        self.data = []
        self.bytes = 0

    def forget_batch(self) -> None:
        """Drop the chunks of a batch that could not be written."""
        self.count = self.first
        self._seen.clear()
        self.start_batch()

    def add(self, body: bytes, seed: bytes) -> cbor.BlobRef:
        """Store what is new of ``body`` and return a reference to all of it."""
        rule = _LARGE if len(body) >= limits.BUNDLE_LARGE_BODY_BYTES else _SMALL
        ends = self._core.cut(body, self._gear, rule)
        starts = [0, *ends[:-1]]
        sizes = [end - start for start, end in zip(starts, ends, strict=True)]
        digests = self._core.commit_chunks(body, sizes, self._salt * len(sizes), DOMAINS.chunk)
        numbers = []
        table = []
        self._references += len(sizes)
        reuse = self._references < _reference_budget(self.count)
        keys = [digests[at : at + HASH_SIZE] for at in range(0, len(digests), HASH_SIZE)]
        fresh: dict[bytes, bytes] = {}
        for i, digest in enumerate(keys):
            if not reuse or digest not in self._seen:
                fresh[digest] = body[starts[i] : ends[i]]
        if fresh:
            self._store(fresh, seed)
        for digest in keys:
            number, row = self._seen[digest]
            numbers.append(number)
            table.append(row)
        self._forget_oldest()
        root = blob_root(self._core, len(body), b"".join(table))
        return cbor.BlobRef(len(body), root, _ranges(numbers))

    def _store(self, fresh: dict[bytes, bytes], seed: bytes) -> None:
        """Give new chunks, by digest, their numbers and commitments."""
        place = SALT_SIZE * (self.count - self.first)
        salts = self._core.xof(seed, b"chunk", SALT_SIZE * len(fresh), place)
        chunks = list(fresh.values())
        sizes = [len(chunk) for chunk in chunks]
        joined = b"".join(chunks)
        table = self._core.commit_chunks(joined, sizes, salts, DOMAINS.chunk)
        for i, (digest, size) in enumerate(zip(fresh, sizes, strict=True)):
            row = struct.pack(">I", size) + table[HASH_SIZE * i : HASH_SIZE * (i + 1)]
            self._seen[digest] = (self.count + i, row)
        self.count += len(fresh)
        self.sizes += sizes
        self.data.append(joined)
        self.bytes += len(joined)

    def _forget_oldest(self) -> None:
        while len(self._seen) > limits.BUNDLE_DEDUP_CHUNKS:
            del self._seen[next(iter(self._seen))]


def _reference_budget(chunks: int) -> int:
    """How many references a bundle of so many chunks may hold (spec, "Limits")."""
    return limits.BUNDLE_REFS_BASE + limits.BUNDLE_REFS_PER_CHUNK * chunks


def _ranges(numbers: list[int]) -> tuple[tuple[int, int], ...]:
    out: list[list[int]] = []
    for n in numbers:
        if out and out[-1][0] + out[-1][1] == n:
            out[-1][1] += 1
        else:
            out.append([n, 1])
    return tuple((first, count) for first, count in out)


class BundleWriter:
    r"""A bundle being written to ``fd``, which must be empty and open for writing.

    ``sign`` gets the 128 bytes of a head and returns the Ed25519 signature (64 bytes) over
    ``"hark/head/2\\0"`` and them. ``now_boot_ns`` and ``now_unix_ns`` are clocks. The header goes
    to the file at once; head 0 is the caller's first ``head()``, before the agent exists.
    """

    def __init__(
        self,
        fd: int,
        header: Header,
        sign: Callable[[bytes], bytes],
        *,
        now_boot_ns: Callable[[], int],
        now_unix_ns: Callable[[], int],
        core: Core | None = None,
        random: Callable[[int], bytes] = os.urandom,
        inline: int = limits.BUNDLE_INLINE_BYTES,
        level: int = limits.BUNDLE_ZSTD_LEVEL,
        file_key: FileKey | None = None,
    ) -> None:
        self._core = core or load()
        self._fd = fd
        self._sign = sign
        self._now_boot_ns = now_boot_ns
        self._now_unix_ns = now_unix_ns
        self._random = random
        self._inline = inline
        self._dumps = cbor.plain_encoder()
        self._file_key = file_key
        self._sealed_items: set[int] = set()
        self._packer = Packer(level)
        self._failed: RecordingFailed | None = None
        self._final = False  # the final head is written: only index and trailer may follow
        self._sealed = False
        self._pos = 0
        self._reserved = 0
        self._reserve_works = True
        self._mmr = self._core.mmr()
        self._batches = BatchTable()
        self._chunks = _ChunkStore(self._core, random)
        self._heads = 0
        self._head_at = 0
        self._head_events = -1
        self._head_boot_ns = 0
        self._urgent_head = False
        self._durable = 0
        self._flushed = 0
        self._start_batch()
        self._take_file()
        body = header.encode()
        self._header_hash = self._core.keyed(DOMAINS.header, body)
        self._chain = self._header_hash
        self._guard(self._write_start, body)

    # --- what a recorder calls ---

    def append(
        self, kind: int, boot_ns: int, payload: dict[int, Any], *, sealed: bool = False
    ) -> int:
        """Add an event and return its number.

        Byte strings over the inline limit become references to chunks, wherever they stand. One
        of more than ``limits.BUNDLE_BODY_PART_BYTES`` is refused: bodies come in parts. Kinds that
        matter at once (run start and end, loss, denied) are flushed; for the rest see ``tick``.
        The payload of a ``sealed`` event is stored only for the recipients of ``file_key``.
        """
        frame = None if sealed else self._quick_frame(kind, boot_ns, payload)
        if frame is None or self._failed is not None or self._final:
            frame = self._guard(self._frame, kind, boot_ns, payload, sealed)
        if sealed:
            self._sealed_items.add(len(self._pending))
        seq = self._flushed + len(self._pending)
        if not self._pending:
            self._pending_since = self._now_boot_ns()
        self._pending.append(frame)
        self._pending_bytes += len(frame)
        if (
            kind in _URGENT
            or len(self._pending) >= _FLUSH_EVENTS
            or self._pending_bytes + self._chunks.bytes >= _FLUSH_BYTES
        ):
            self._urgent_head = self._urgent_head or kind == Kind.DENIED
            self._guard(self._flush)
        return seq

    def flush(self) -> None:
        """Write the pending events as one batch."""
        self._guard(self._flush)

    def head(self) -> None:
        """Flush, sign what is there, and wait until all of it is on disk."""
        self._guard(self._head, False)

    def sync(self) -> None:
        """Flush and wait until all events are on disk; no signature."""
        self._guard(self._sync)

    def durable(self) -> int:
        """Every event below this number is on disk."""
        return self._durable

    def tick(self, now_boot_ns: int) -> None:
        """Flush and sign what has waited long enough; call it a few times a second."""
        if self._pending and now_boot_ns - self._pending_since >= limits.BUNDLE_FLUSH_NS:
            self.flush()
        unsigned = self._mmr.count != self._head_events
        if not unsigned or self._heads == 0:
            return
        wait = limits.BUNDLE_DENIED_HEAD_NS if self._urgent_head else limits.BUNDLE_HEAD_NS
        if now_boot_ns - self._head_boot_ns >= wait:
            self.head()

    def salvage(self) -> int:
        """After an error: drop the events that could not be written and return how many.

        A few more events (``limits.BUNDLE_LAST_WORDS_BYTES``) may then be appended, to say what
        was lost, and the bundle sealed: their room was allocated beforehand.
        """
        lost = len(self._pending)
        self._failed = None
        self._start_batch()
        self._chunks.forget_batch()
        self._reserve_works = False
        self._guard(self._take_back)
        return lost

    def seal(self) -> None:
        """Write final head, index and trailer; then the bundle is complete and on disk."""
        self._guard(self._seal)

    @property
    def events(self) -> int:
        """Events appended so far."""
        return self._mmr.count + len(self._pending)

    @property
    def root(self) -> bytes:
        """Root over the events flushed so far."""
        return root_of(self._core, self._mmr.count, self._mmr.peaks())

    @property
    def size(self) -> int:
        """Bytes written."""
        return self._pos

    # --- how ---

    def _guard(self, action: Callable[..., Any], *args: Any) -> Any:
        if self._failed is not None:
            raise self._failed
        if self._sealed:
            raise RecordingFailed("the bundle is sealed", "nothing can be added to it")
        try:
            return action(*args)
        except RecordingFailed as error:
            self._failed = error
            raise
        except OSError as error:
            code = error.errno or errno.EIO
            self._failed = RecordingFailed(
                "cannot write the bundle", os.strerror(code), _advice(code)
            )
            raise self._failed from error
        except (cbor.CborError, struct.error) as error:
            self._failed = RecordingFailed("cannot encode an event", str(error))
            raise self._failed from error
        except Exception as error:
            self._failed = RecordingFailed("cannot record", repr(error))
            raise self._failed from error
        except BaseException as error:  # an interrupt: the file may hold half a block
            self._failed = RecordingFailed("the bundle was left unfinished", repr(error))
            raise

    def _take_file(self) -> None:
        try:
            info = os.fstat(self._fd)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RecordingFailed("the bundle has another writer", "its lock is held") from None
        except OSError as error:
            raise RecordingFailed("cannot lock the bundle", str(error)) from None
        if not stat.S_ISREG(info.st_mode) or info.st_size:
            raise RecordingFailed("the bundle has another writer", "the file is not empty")

    def _start_batch(self) -> None:
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._pending_since = 0
        self._sealed_items = set()
        self._seed = self._random(HASH_SIZE)

    def _write_start(self, body: bytes) -> None:
        self._write(MAGIC + BLOCK_HEAD.pack(ord("h"), len(body)) + body)

    def _quick_frame(self, kind: int, boot_ns: int, payload: dict[int, Any]) -> bytes | None:
        """Return the frame of a small payload that is canonical as it stands, else None."""
        try:
            data = self._dumps(payload)
            if len(data) > self._inline or self._core.check_cbor(data) is not _CANONICAL:
                return None
            return FRAME.pack(len(data), kind, boot_ns) + data
        except Exception:  # noqa: BLE001 - the long way names it
            return None

    def _frame(self, kind: int, boot_ns: int, payload: dict[int, Any], sealed: bool) -> bytes:
        """Return the frame of any payload; long strings go to the chunk store."""
        if self._final:
            raise RecordingFailed("the bundle is sealed", "nothing can be added to it")
        if sealed and self._file_key is None:
            raise RecordingFailed("cannot seal an event", "the bundle has no recipients")
        long = 0 if sealed else _long_bytes(payload, self._inline)
        if long:
            payload = self._store_bodies(payload, long)
        data = cbor.encode(payload)
        fault = self._core.check_cbor(data)
        if fault is not cbor.CborFault.OK:
            raise RecordingFailed("cannot encode an event", fault.text)
        if len(data) > limits.BUNDLE_BODY_PART_BYTES:
            raise RecordingFailed("cannot record an event", f"{len(data)} bytes are too many")
        return FRAME.pack(len(data), kind, boot_ns) + data

    def _store_bodies(self, payload: dict[int, Any], size: int) -> dict[int, Any]:
        """Put long byte strings into the chunk store; ``size`` is all of them together.

        A chunk stands in the batch of the event that first refers to it, so the batch is flushed
        before, never between.
        """
        if size > limits.BUNDLE_BODY_PART_BYTES:
            raise RecordingFailed("cannot record a body in one part", f"{size} bytes are too many")
        if self._pending and self._chunks.bytes + size > limits.BUNDLE_SECTION_MAX_BYTES:
            self._flush()
        outlined: dict[int, Any] = self._outline(payload)
        return outlined

    def _outline(self, value: Any) -> Any:
        kind = type(value)
        if kind in _BYTES:
            if len(value) <= self._inline:
                return bytes(value)
            return self._chunks.add(bytes(value), self._seed)
        if kind is dict:
            return {k: self._outline(v) for k, v in value.items()}
        if kind is list or kind is tuple:
            return [self._outline(v) for v in value]
        return value

    def _flush(self) -> None:
        if not self._pending:
            return
        mark, chain = self._mmr.mark(), self._chain
        try:
            self._write_batch()
        except BaseException:
            self._mmr.reset(mark)  # what is not in the file is not in the tree
            self._chain = chain
            raise
        self._flushed = self._mmr.count
        self._start_batch()
        self._chunks.start_batch()

    def _write_batch(self) -> None:
        """Hash the pending events and chunks and write the batch that holds them."""
        section = b"".join(self._pending)
        count = len(self._pending)
        first = self._mmr.count
        salts = self._core.xof(self._seed, b"event", SALT_SIZE * count)
        result = self._core.frames(section, salts, first, count, strict=False)
        if result.fault is not FramesFault.OK:
            raise RecordingFailed("cannot hash a batch", result.fault.name.lower())
        self._mmr.append(result.leaves)
        self._chain = chain_next(
            self._core, self._chain, self._mmr.count, self.root, self._chunks.count
        )
        seed: bytes | None = self._seed
        explicit = before = b""
        if self._sealed_items:
            before, section, explicit = self._seal_items(first, salts)
            seed = None
        body = build_batch(
            self._packer,
            first_seq=first,
            first_chunk=self._chunks.first,
            events=count,
            section=section,
            locators=locators_of(result.leaves),
            chunk_sizes=self._chunks.sizes,
            chunk_data=b"".join(self._chunks.data),
            chain=self._chain,
            seed=seed,
            salts=explicit,
        )
        row = Row(first, self._pos + len(before), result.kinds, self._chunks.first)
        self._write(before + BLOCK_HEAD.pack(ord("b"), len(body)) + body)
        self._batches.add(row)

    def _seal_items(self, first: int, salts: bytes) -> tuple[bytes, bytes, bytes]:
        """Return block ``e``, the section without its payloads, and all salts of the batch."""
        if self._file_key is None:
            raise RecordingFailed("cannot seal an event", "the bundle has no recipients")
        kept = bytearray(salts)
        frames = list(self._pending)
        items = {}
        for i in sorted(self._sealed_items):
            place = slice(SALT_SIZE * i, SALT_SIZE * (i + 1))
            length, kind, time_ns = FRAME.unpack_from(frames[i])
            payload = frames[i][FRAME.size :]
            items[first + i] = [salts[place], payload]
            commitment = self._core.keyed(DOMAINS.payload, salts[place] + payload)
            frames[i] = FRAME.pack(length, kind | REDACTED, time_ns) + commitment
            kept[place] = bytes(SALT_SIZE)
        sealed = self._file_key.seal(self._header_hash, first, items)
        chunk_salts = self._core.xof(self._seed, b"chunk", SALT_SIZE * len(self._chunks.sizes))
        block = BLOCK_HEAD.pack(ord("e"), len(sealed)) + sealed
        return block, b"".join(frames), bytes(kept) + chunk_salts

    def _head(self, final: bool) -> None:
        self._flush()
        boot_ns = self._now_boot_ns()
        head = Head(
            header_hash=self._header_hash,
            events=self._mmr.count,
            root=self.root,
            chain=self._chain,
            unix_ns=self._now_unix_ns(),
            boot_ns=boot_ns,
            number=self._heads,
            final=final,
        ).encode()
        signature = self._sign(head)
        self._head_at = self._pos
        self._block(b"s", head + signature)
        self._final = final
        self._heads += 1
        self._head_events = self._mmr.count
        self._head_boot_ns = boot_ns
        self._urgent_head = False
        self._fdatasync()

    def _sync(self) -> None:
        self._flush()
        if self._durable != self._mmr.count:
            self._fdatasync()

    def _fdatasync(self) -> None:
        os.fdatasync(self._fd)
        self._durable = self._mmr.count

    def _seal(self) -> None:
        if not self._final:
            self._head(True)
        index_at = self._pos
        self._block(b"i", encode_index(self._mmr.count, self._batches, self._mmr.nodes))
        self._block(b"t", encode_trailer(index_at, self._head_at))
        os.ftruncate(self._fd, self._pos)  # gives back what was allocated ahead
        os.fsync(self._fd)
        self._sealed = True

    def _block(self, kind: bytes, body: bytes) -> None:
        self._write(BLOCK_HEAD.pack(kind[0], len(body)) + body)

    def _take_back(self) -> None:
        """Cut half a block off; where there is none, keep what was allocated behind the end."""
        if os.fstat(self._fd).st_size > self._pos:
            os.ftruncate(self._fd, self._pos)
        os.lseek(self._fd, self._pos, os.SEEK_SET)

    def _write(self, data: bytes) -> None:
        """Write all of ``data``, after making sure that the seal will still fit behind it."""
        self._reserve(self._pos + len(data) + self._seal_size())
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]
        self._pos += len(data)

    def _seal_size(self) -> int:
        """Bytes that the end of the bundle may need: last words, final head, index, trailer."""
        index = index_size(self._mmr.count + limits.BUNDLE_FLUSH_EVENTS, len(self._batches) + 8)
        blocks = 3 * BLOCK_HEAD.size + HEAD_SIZE + TRAILER.size
        return index + blocks + limits.BUNDLE_LAST_WORDS_BYTES

    def _reserve(self, end: int) -> None:
        if end <= self._reserved or not self._reserve_works:
            return
        ahead = end + limits.BUNDLE_RESERVE_STEP_BYTES
        code = self._core.reserve(self._fd, self._pos, ahead - self._pos)
        if code == errno.ENOSPC:  # the last MiB of a full disk is still worth using
            ahead = end
            code = self._core.reserve(self._fd, self._pos, ahead - self._pos)
        if code in (errno.EOPNOTSUPP, errno.ENOSYS):
            self._reserve_works = False  # a file system that cannot: writes report its end
        elif code:
            raise OSError(code, os.strerror(code))
        else:
            self._reserved = ahead


def _long_bytes(value: Any, inline: int) -> int:
    """Bytes of all byte strings over ``inline`` inside ``value``, and of all bytearrays."""
    kind = type(value)
    if kind in _BYTES:
        return len(value) if len(value) > inline or kind is not bytes else 0
    if kind is dict:
        return sum([_long_bytes(v, inline) for v in value.values() if type(v) in _DEEP])
    if kind is list or kind is tuple:
        return sum([_long_bytes(v, inline) for v in value if type(v) in _DEEP])
    return 0


def _advice(code: int) -> str:
    if code in (errno.ENOSPC, errno.EDQUOT):
        return "free space on the file system of the bundle; what was recorded so far verifies"
    return "what was recorded so far verifies"
