"""Text that is safe on a terminal, whoever wrote it.

Rules: everything an agent, a network or a file system made goes through ``printable``: control,
format and unassigned characters are escaped, so nothing can move the cursor, change colours or
reverse the line.
"""

from __future__ import annotations

import base64
import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "give_up",
    "json_value",
    "moment_text",
    "printable",
    "size_text",
    "tell",
    "time_text",
    "ulid_text",
]

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def printable(value: bytes | str, limit: int | None = None) -> str:
    """Return ``value`` as one line of visible characters, cut at ``limit`` characters."""
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
    if limit is not None and len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def tell(lines: Iterable[str]) -> None:
    """Write messages to stderr. One that cannot take them changes nothing else."""
    try:
        sys.stderr.write("".join(f"{printable(line)}\n" for line in lines))
        sys.stderr.flush()
    except OSError:
        give_up(sys.stderr)


def give_up(stream: TextIO) -> None:
    """Throw away what ``stream`` still holds and gets: its descriptor takes no more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), stream.fileno())


def json_value(value: Any) -> Any:
    """Return ``value`` as JSON can hold it: bytes as text when they are UTF-8, else base64."""
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, list):
        return [json_value(item) for item in value]
    if isinstance(value, dict):
        return {str(key): json_value(item) for key, item in value.items()}
    return value


def ulid_text(run_id: bytes) -> str:
    """Return a ULID's 26 characters (github.com/ulid/spec)."""
    number = int.from_bytes(run_id, "big")
    return "".join(_CROCKFORD[number >> shift & 31] for shift in range(125, -1, -5))


def time_text(unix_ns: int) -> str:
    """Return a time as UTC, to the second."""
    try:
        moment = datetime.fromtimestamp(unix_ns // 1_000_000_000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{unix_ns} ns"
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def moment_text(unix_ns: int, *, local: bool = False) -> str:
    """Return a time to the microsecond (RFC 3339), as UTC or in this host's time zone."""
    try:
        moment = datetime.fromtimestamp(unix_ns // 1_000_000_000, UTC)
        moment = moment.replace(microsecond=unix_ns // 1000 % 1_000_000)
        text = (moment.astimezone() if local else moment).isoformat(timespec="microseconds")
    except (OverflowError, ValueError, OSError):
        return f"{unix_ns} ns"
    return text.replace("+00:00", "Z")


def size_text(count: int) -> str:
    """Return bytes for people."""
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:  # noqa: PLR2004 - the unit's own step
            return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
