"""Where the contents come from that a recording does not hold: ignored, secret or large files.

Looks as the person. A file in the person's own folder serves when it provably is what it was: the
same row (the kernel sets change times itself), or the same digest. Everything else is missing; a
replay without it would be another run, so it is refused unless the operator wants it.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hark import limits
from hark.errors import HarkError, InputError
from hark.replay.rebuild import Folder
from hark.workspace.content import digest_file
from hark.workspace.contents import REASONS, Saved, salted
from hark.workspace.manifest import Mark
from hark.workspace.paths import stat_below

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hark.replay.stored import Content, Stored
    from hark.workspace.manifest import Row

__all__ = ["Supplied", "supply"]

_SALT_BYTES = 16


@dataclass(frozen=True, slots=True)
class Supplied:
    """A folder that can be made, and what the person must know about it."""

    folder: Folder
    notes: list[str] = field(default_factory=list)


def supply(stored: Stored, *, is_own: bool, partial: bool) -> Supplied:
    """Find what lacks. ``is_own``: the person's folder of that name may serve.

    Raises InputError when something is missing, unless ``partial``.
    """
    source = _opened(stored.folder) if is_own else -1
    fills: list[str] = []
    missing: list[tuple[str, str]] = []
    for path, row in stored.lacking():
        content = stored.contents.get(path)
        if source >= 0 and stat.S_ISREG(row.mode) and _serves(source, path, row, content):
            fills.append(path)
        else:
            reason = REASONS.get(content.state, "cut") if content else REASONS[Saved.IGNORED]
            missing.append((reason, path))
    if missing and not partial:
        raise _refusal(stored.folder, missing)
    closed = frozenset(path for _, path in missing)
    notes = [f"{stored.folder}/{path} was not listed at the start" for path in _unlisted(stored)]
    notes += [_counted(stored.folder, missing)] if missing else []
    return Supplied(Folder(stored, tuple(fills), closed, source), notes)


def _opened(folder: str) -> int:
    try:
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return -1


def _serves(root: int, path: str, row: Row, content: Content | None) -> bool:
    """Whether the file that is there now has the recorded content."""
    try:
        now = stat_below(root, path)
        if now is None or not stat.S_ISREG(now.st_mode) or now.st_size != row.size:
            return False
        if row.same_stat(now):
            return True
        if content is None or content.digest is None:
            return bool(row.digest) and digest_file(root, path) == row.digest
        found = digest_file(root, path)
    except (OSError, HarkError):
        return False
    if content.state is Saved.SECRET:
        return salted(found, content.digest[:_SALT_BYTES]) == content.digest
    return found == content.digest


def _refusal(folder: str, missing: Sequence[tuple[str, str]]) -> InputError:
    most = limits.REPLAY_SHOWN_ROWS
    rows = [f"{reason} {folder}/{path}" for reason, path in missing[:most]]
    rest = [f"and {len(missing) - most} more"] if len(missing) > most else []
    lines = [_printable(line) for line in [*rows, *rest]]
    return InputError(
        "the recording does not hold all of the workspace, and it is not here as it was",
        "; ".join(lines),
        "put these back as they were; or --workspace=partial runs without them, and"
        " --workspace=current with the files as they are",
    )


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _counted(folder: str, missing: Sequence[tuple[str, str]]) -> str:
    counts = Counter(reason for reason, _ in missing)
    words = ", ".join(f"{reason} {count}" for reason, count in sorted(counts.items()))
    return f"{folder}: contents that are not in the recording, nor here: {words}"


def _unlisted(stored: Stored) -> list[str]:
    rows = ((path, stored.rows.row(path)) for path in stored.rows.places)
    found = [path for path, row in rows if row is not None and Mark.UNLISTED in row.marks]
    return found[: limits.REPLAY_SHOWN_ROWS]
