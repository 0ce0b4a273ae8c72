"""What a recording says about a folder at the start of its run: rows, contents, and what lacks.

Pure but for reading the bundle. Rules: a bundle that verifies can still be a stranger's, so rows
and contents are checked against each other before anything is made of them.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hark import limits
from hark.bundle.cbor import BlobRef
from hark.errors import BundleInvalid
from hark.launcher.grants import LocalFiles
from hark.workspace import manifest
from hark.workspace.contents import Saved
from hark.workspace.unpack import regular_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hark.bundle.reader import Bundle
    from hark.workspace.manifest import Manifest, Row

__all__ = ["Collected", "Content", "RecordedFiles", "Stored"]

_BAD = "the recorded workspace does not hold"
_ROW_ITEMS = 4
_STATES = frozenset(int(state) for state in Saved)
_LINKS_MOST = 40  # the kernel's own limit


@dataclass(slots=True)
class Content:
    """One path's content: parts in the bundle, or why there are none."""

    state: Saved
    digest: bytes | None = None
    parts: list[bytes | BlobRef] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes in the bundle."""
        return sum(part.length if isinstance(part, BlobRef) else len(part) for part in self.parts)


@dataclass(slots=True)
class Collected:
    """Contents of one folder while its events are read. ``ended``: the last event was there."""

    contents: dict[str, Content] = field(default_factory=dict)
    ended: bool = False

    def take(self, payload: dict[int, Any]) -> None:
        """Take a workspace_content event. Raises BundleInvalid."""
        rows = payload.get(5)
        if not isinstance(rows, list):
            raise BundleInvalid(_BAD, "an event of its contents has none")
        for row in rows:
            self._row(row)
        self.ended |= 9 in payload  # noqa: PLR2004 - its key

    def _row(self, row: Any) -> None:
        match row:
            case [bytes() as path, int() as state, bytes() | None as digest, data] if (
                len(row) == _ROW_ITEMS and state in _STATES
            ):
                pass
            case _:
                raise BundleInvalid(_BAD, "a content is malformed")
        name = os.fsdecode(path)
        before = self.contents.get(name)
        if before is None:
            before = self.contents[name] = Content(Saved.PART)
        elif before.state is not Saved.PART:
            raise BundleInvalid(_BAD, f"{name!r} has two contents")
        if isinstance(data, (bytes, BlobRef)):
            before.parts.append(data)
        elif data is not None or state <= Saved.PART:
            raise BundleInvalid(_BAD, f"{name!r} has no content")
        before.state, before.digest = Saved(state), digest


@dataclass(slots=True)
class Stored:
    """One folder at the start of a run, checked."""

    folder: str
    rows: Manifest
    contents: dict[str, Content]

    @classmethod
    def of(
        cls, bundle: Bundle, folder: bytes, data: bytes, digest: bytes, found: Collected
    ) -> Stored:
        """Check rows and contents. Raises BundleInvalid."""
        rows = manifest.parse(data, digest)
        manifest.check(rows)
        total = 0
        for path, content in found.contents.items():
            row = rows.row(path)
            if row is None or not (stat.S_ISREG(row.mode) or stat.S_ISLNK(row.mode)):
                raise BundleInvalid(_BAD, f"{path!r} has a content and is no file")
            if content.state is Saved.WHOLE and content.size != row.size:
                raise BundleInvalid(_BAD, f"{path!r} has {content.size} bytes, not {row.size}")
            total += content.size
        if total > limits.REPLAY_UNPACK_BYTES:
            raise BundleInvalid("the recorded workspace is too large", f"{total} bytes")
        out = cls(os.fsdecode(folder), rows, found.contents)
        out._check_links(bundle)
        return out

    def has(self, path: str) -> bool:
        """Whether the content of a file or link is in the bundle."""
        content = self.contents.get(path)
        return content is not None and content.state is Saved.WHOLE

    def body(self, bundle: Bundle, path: str) -> Iterator[bytes]:
        """Yield the content of a path that ``has`` it."""
        for part in self.contents[path].parts:
            yield bundle.read_body(part)

    def lacking(self) -> Iterator[tuple[str, Row]]:
        """Yield the files and links whose content is not in the bundle, in the order of unpacking.

        Of several names of one file the first stands for all.
        """
        links = [path for path in self.rows.places if self._is_link(path)]
        for path in [*regular_files(self.rows), *links]:
            row = self.rows.row(path)
            if row is not None and not self.has(path):
                yield path, row

    def _is_link(self, path: str) -> bool:
        row = self.rows.row(path)
        return row is not None and stat.S_ISLNK(row.mode)

    def bytes(self) -> int:
        """Return the size of all regular files, in the bundle or not."""
        rows = (self.rows.row(path) for path in self.rows.places)
        return sum(row.size for row in rows if row is not None and stat.S_ISREG(row.mode))

    def _check_links(self, bundle: Bundle) -> None:
        for path in self.contents:
            row = self.rows.row(path)
            if row is not None and stat.S_ISLNK(row.mode) and self.has(path):
                target = b"".join(self.body(bundle, path))
                if not target or b"\0" in target or len(target) >= limits.WORKSPACE_PATH_BYTES:
                    raise BundleInvalid(_BAD, f"{path!r} is a link to nothing")


class RecordedFiles(LocalFiles):
    """This machine's files, but for some folders, which are as they were recorded."""

    def __init__(self, bundle: Bundle, folders: Sequence[Stored]) -> None:
        """Answer for ``folders`` from ``bundle``."""
        self._bundle = bundle
        self._folders = {stored.folder: stored for stored in folders}

    def readlink(self, path: str) -> str | None:
        """Return the target of a link, or None for anything else."""
        found = self._inside(path)
        if found is None:
            return super().readlink(path)
        stored, name = found
        row = stored.rows.row(name)
        if row is None or not stat.S_ISLNK(row.mode) or not stored.has(name):
            return None
        return os.fsdecode(b"".join(stored.body(self._bundle, name)))

    def kind(self, path: str) -> str:
        """Return "folder", "file" or ""."""
        real = self._real(path)
        found = self._inside(real)
        if found is None:
            return self._above(real) or super().kind(real)
        row = found[0].rows.row(found[1])
        if row is None:
            return ""
        if stat.S_ISDIR(row.mode):
            return "folder"
        return "file" if stat.S_ISREG(row.mode) else ""

    def executable(self, path: str) -> bool:
        """Return whether the file may be executed."""
        real = self._real(path)
        found = self._inside(real)
        if found is None:
            return super().executable(real)
        row = found[0].rows.row(found[1])
        return row is not None and stat.S_ISREG(row.mode) and bool(row.mode & 0o111)

    def head(self, path: str, size: int) -> bytes:
        """Return up to ``size`` first bytes."""
        real = self._real(path)
        found = self._inside(real)
        if found is None:
            return super().head(real, size)
        stored, name = found
        out = b""
        if stored.has(name):
            for part in stored.body(self._bundle, name):
                out += part
                if len(out) >= size:
                    break
        return out[:size]

    def _inside(self, path: str) -> tuple[Stored, str] | None:
        """Return the folder that answers for a path, and the path in it."""
        for folder, stored in self._folders.items():
            if path == folder:
                return stored, ""
            if path.startswith(folder.rstrip("/") + "/"):
                return stored, path[len(folder.rstrip("/")) + 1 :]
        return None

    def _above(self, path: str) -> str:
        below = path.rstrip("/") + "/"
        return "folder" if any(folder.startswith(below) for folder in self._folders) else ""

    def _real(self, path: str) -> str:
        """Follow every link in every component, as realpath(3)."""
        todo = [part for part in path.split("/") if part][::-1]
        at, links = "", 0
        while todo:
            part = todo.pop()
            if part in {".", ".."}:
                at = at.rpartition("/")[0] if part == ".." else at
                continue
            target = self.readlink(f"{at}/{part}")
            if target is None or links >= _LINKS_MOST:
                at = f"{at}/{part}"
                continue
            links += 1
            at = "" if target.startswith("/") else at
            todo += [piece for piece in target.split("/") if piece][::-1]
        return at or "/"
