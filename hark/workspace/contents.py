"""Reads what the files of a workspace held at the start, and hands it to the recorder.

Runs as the person, in the process that made the manifest, while the agent already works: the agent
cannot change the layer below its own. What somebody else changed meanwhile is found by the entry's
row, and is marked, never passed off as the start. Smallest files come first, so that a bound leaves
out few. Then come digests of what is not kept, until the run is over.

Frames on the socket: u32 length, u16 kind, payload in canonical CBOR (docs/spec/records.md, kind
30). The recorder shuts its side down when the run is over, and closes it when it wants no more.
"""

from __future__ import annotations

import os
import select
import stat
import struct
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from hark import limits
from hark.bundle import cbor
from hark.bundle.events import Kind
from hark.errors import HarkError
from hark.workspace.content import digest_fd
from hark.workspace.manifest import Mark
from hark.workspace.paths import folder_of, open_below
from hark.workspace.tiers import Tier, Tiers, holds_secret

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Sequence

    from hark.workspace.manifest import Manifest, Row

__all__ = ["FRAME", "REASONS", "Rest", "Saved", "salted", "send_contents"]

FRAME = struct.Struct(">IH")
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_SALT_BYTES = 16


class Saved(IntEnum):
    """What an entry of a workspace_content event holds (docs/spec/records.md)."""

    WHOLE = 0
    PART = 1
    IGNORED = 2
    SECRET = 3
    LARGE = 4
    UNREADABLE = 5
    CHANGED = 6


REASONS = {
    Saved.IGNORED: "ignored",
    Saved.SECRET: "secret",
    Saved.LARGE: "large",
    Saved.UNREADABLE: "unreadable",
    Saved.CHANGED: "changed",
}
_LOST = frozenset((Saved.LARGE, Saved.UNREADABLE, Saved.CHANGED))


@dataclass(frozen=True, slots=True)
class Rest:
    """What decides beside the files: values of secrets, paths that the command names."""

    secrets: tuple[bytes, ...] = ()
    named: frozenset[str] = frozenset()


def salted(content_digest: bytes, salt: bytes) -> bytes:
    """Return what is stored of a secret's digest: the salt, and the keyed digest of the digest."""
    return salt + blake3(content_digest, key=blake3(salt).digest()).digest()


def send_contents(
    out: socket.socket,
    source: tuple[str, int],
    rows: Manifest,
    rest: Rest,
    room: int = limits.WORKSPACE_KEPT_BYTES,
) -> int:
    """Send the contents of one folder, given by path and descriptor; return the room that is left.

    ``room``: bytes for all folders. Raises OSError when the recorder has gone.
    """
    sender = _Sender(out, source[0], source[1], rows, rest, room)
    sender.send()
    return sender.room


@dataclass(slots=True)
class _Sender:
    out: socket.socket
    folder: str
    root: int
    rows: Manifest
    rest: Rest
    room: int
    entries: list[list[Any]] = field(default_factory=list)
    held: int = 0
    kept: int = 0
    size: int = 0
    left: dict[Saved, list[int]] = field(default_factory=dict)

    def send(self) -> None:
        kept, ignored = self.sorted()
        for _, path, row, tier in kept:
            self.one(path, row, tier)
        self.digests(ignored)
        self.flush()
        lost = any(reason in _LOST for reason in self.left)
        known = all(Mark.UNLISTED not in row.marks for row in self.folders())
        self.frame(
            {
                4: os.fsencode(self.folder),
                5: [],
                6: self.kept,
                7: self.size,
                8: [[REASONS[reason], *self.left[reason]] for reason in sorted(self.left)],
                9: known and not lost,
            }
        )

    def folders(self) -> Iterator[Row]:
        for path in self.rows.places:
            row = self.rows.row(path)
            if row is not None and stat.S_ISDIR(row.mode):
                yield row

    def sorted(self) -> tuple[list[tuple[int, str, Row, Tier]], list[tuple[str, Row, Saved]]]:
        """Return the files to read, smallest first, and those to digest if there is time."""
        tiers = self.tiers()
        first: list[tuple[int, str, Row, Tier]] = []
        later: list[tuple[str, Row, Saved]] = []
        for path in self.rows.places:
            row = self.rows.row(path)
            if row is None or not (stat.S_ISREG(row.mode) or stat.S_ISLNK(row.mode)):
                continue
            tier = Tier.KEPT if stat.S_ISLNK(row.mode) else tiers.of(path)
            if tier is Tier.IGNORED:
                later.append((path, row, Saved.IGNORED))
            else:
                first.append((row.size, path, row, tier))
        first.sort(key=lambda item: item[:2])
        return first, later

    def tiers(self) -> Tiers:
        tiers = Tiers(self.rest.named)
        for path in tiers.learn(self.rows.places):
            row = self.rows.row(path)
            if row is None or row.size > limits.WORKSPACE_IGNORE_FILE_BYTES:
                continue
            try:
                tiers.add_rules(path, self.read(path, row))
            except (OSError, HarkError):
                continue
        return tiers

    def one(self, path: str, row: Row, tier: Tier) -> None:
        """Send a file or link; or say why not."""
        if tier is Tier.KEPT and row.size > min(limits.WORKSPACE_KEPT_FILE_BYTES, self.room):
            self.leave(path, row, Saved.LARGE, None)
            return
        if row.size > limits.WORKSPACE_KEPT_FILE_BYTES:
            self.leave(path, row, Saved.SECRET, None)
            return
        try:
            data = self.read(path, row)
        except OSError:
            self.leave(path, row, Saved.UNREADABLE, None)
        except HarkError:
            self.leave(path, row, Saved.CHANGED, None)
        else:
            if tier is Tier.SECRET or holds_secret(path, data, self.rest.secrets):
                digest = salted(blake3(data).digest(), os.urandom(_SALT_BYTES))
                self.leave(path, row, Saved.SECRET, digest)
            else:
                self.keep(path, data)

    def keep(self, path: str, data: bytes) -> None:
        self.room -= len(data)
        self.kept += 1
        self.size += len(data)
        name = os.fsencode(path)
        step = limits.WORKSPACE_KEPT_BATCH_BYTES
        for at in range(0, len(data) - step, step):
            self.add([name, Saved.PART, None, data[at : at + step]])
        last = (len(data) - 1) // step * step if data else 0
        self.add([name, Saved.WHOLE, blake3(data).digest(), data[last:]])

    def leave(self, path: str, row: Row, reason: Saved, digest: bytes | None) -> None:
        count = self.left.setdefault(reason, [0, 0])
        count[0] += 1
        count[1] += row.size
        if reason is not Saved.IGNORED or digest is not None:  # of those the manifest knows enough
            self.add([os.fsencode(path), reason, digest, None])

    def add(self, entry: list[Any]) -> None:
        size = len(entry[3] or b"")
        if self.held + size > limits.WORKSPACE_KEPT_BATCH_BYTES and self.entries:
            self.flush()
        self.entries.append(entry)
        self.held += size + len(entry[0])
        if len(self.entries) >= limits.WORKSPACE_KEPT_BATCH:
            self.flush()

    def flush(self) -> None:
        if self.entries:
            self.frame({4: os.fsencode(self.folder), 5: self.entries})
            self.entries = []
            self.held = 0

    def frame(self, payload: dict[int, Any]) -> None:
        data = cbor.encode(payload)
        self.out.sendall(FRAME.pack(len(data), Kind.WORKSPACE_CONTENT) + data)

    def digests(self, files: Sequence[tuple[str, Row, Saved]]) -> None:
        """Digest what is ignored, until the run is over: with a digest it is known anywhere."""
        self.flush()
        going = True
        for number, (path, row, reason) in enumerate(files):
            if going and number % limits.WORKSPACE_STOP_FILES == 0:
                going = not _is_over(self.out)
            self.leave(path, row, reason, self.digest(path, row) if going else None)

    def digest(self, path: str, row: Row) -> bytes | None:
        try:
            fd = open_below(self.root, path, _READ)
        except OSError:
            return None
        try:
            if not row.same_stat(os.fstat(fd)):
                return None
            found = digest_fd(fd)
            return found if row.same_stat(os.fstat(fd)) else None
        except OSError:
            return None
        finally:
            os.close(fd)

    def read(self, path: str, row: Row) -> bytes:
        """Return a file's content as it was at the start. Raises OSError, or HarkError: changed."""
        if stat.S_ISLNK(row.mode):
            with folder_of(self.root, path) as (fd, name):
                target = os.fsencode(os.readlink(name, dir_fd=fd))
            return _checked(target, row, same=len(target) == row.size)
        fd = open_below(self.root, path, _READ)
        try:
            before = os.fstat(fd)
            if not stat.S_ISREG(before.st_mode):
                raise HarkError("changed", path)
            with os.fdopen(os.dup(fd), "rb") as file:
                data = file.read(limits.WORKSPACE_KEPT_FILE_BYTES + 1)
            same = row.same_stat(before) and row.same_stat(os.fstat(fd))
            return _checked(data, row, same=same)
        finally:
            os.close(fd)


def _checked(data: bytes, row: Row, *, same: bool) -> bytes:
    """Return the data if it is what the row is about: by its digest, else by its times."""
    if len(data) != row.size or (row.digest and blake3(data).digest() != row.digest):
        raise HarkError("changed")
    if not row.digest and not same:
        raise HarkError("changed")
    return data


def _is_over(out: socket.socket) -> bool:
    """Whether the recorder has shut its side down, or is gone."""
    poll = select.poll()
    poll.register(out, select.POLLIN | select.POLLRDHUP)
    return bool(poll.poll(0))
