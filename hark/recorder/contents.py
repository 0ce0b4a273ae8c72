"""Takes what a run's files held at the start from the process that reads them, a bit at a time.

The recorder writes it as events beside everything else of the run, so the agent's start waits for
none of it. Rules: never more at once than a denial may wait for, and on average a fifth of a core;
at the end of the run the rest, within a bound. The reader's end, early or malformed, is no failure
of the run: what is missing is said in the bundle.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import TYPE_CHECKING, Any

from hark import limits
from hark.bundle import cbor
from hark.bundle.events import Kind
from hark.workspace.contents import FRAME, REASONS, Saved

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Contents"]

_KINDS = (Kind.WORKSPACE_CONTENT, Kind.SURROUNDINGS)
_FOLDER, _ENTRIES, _KEPT, _BYTES, _LEFT_OUT, _COMPLETE, _DETAIL = 4, 5, 6, 7, 8, 9, 10
_READ_BYTES = 1 << 18
_BY_RULE = (REASONS[Saved.IGNORED], REASONS[Saved.SECRET])
_Event = tuple[Kind, dict[int, Any]]


class Contents:
    """The stream of one run. ``folders``: those whose end must be written, by the reader or us."""

    def __init__(self, sock: socket.socket | None = None, folders: Sequence[str] = ()) -> None:
        self._sock = sock
        self._open = {os.fsencode(folder) for folder in folders}
        self._data = bytearray()
        self._due_ns = 0
        self._tokens = float(limits.WORKSPACE_KEPT_BURST)
        self._at_ns = 0
        self._left: dict[str, list[int]] = {}
        self._cut = ""
        self._kept: dict[bytes, list[int]] = {}
        if sock is not None:
            sock.setblocking(False)

    def due_ns(self) -> int | None:
        """When to look again, on the clock of ``take``; None: never."""
        return self._due_ns if self._sock is not None else None

    def take(self, now_ns: int) -> Iterator[_Event]:
        """Yield what is there, as long as it is cheap."""
        if self._sock is None or now_ns < self._due_ns:
            return
        if self._at_ns:
            more = (now_ns - self._at_ns) * limits.WORKSPACE_KEPT_RATE / 1e9
            self._tokens = min(self._tokens + more, limits.WORKSPACE_KEPT_BURST)
        self._at_ns = now_ns
        self._due_ns = now_ns + limits.WORKSPACE_KEPT_IDLE_NS
        if self._tokens <= 0 or not self._receive():
            return
        self._due_ns = now_ns + limits.WORKSPACE_KEPT_IDLE_NS // 8  # there may be more
        yield from self._frames()

    def finish(self, wait_s: float = limits.WORKSPACE_KEPT_END_S) -> Iterator[_Event]:
        """Yield the rest, waiting for it within the bound, and the end of each folder."""
        ends = time.monotonic() + wait_s
        detail = "the process that read them ended early"
        if self._sock is not None:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_WR)  # digests of what is not kept: no more
        while self._sock is not None:
            if (left := ends - time.monotonic()) <= 0:
                detail = f"the run was over; not all was read {wait_s:g} s later"
                break
            self._sock.settimeout(left)
            self._receive()
            yield from self._frames()
        self.close()
        for folder in sorted(self._open):
            self._cut = detail
            yield (
                Kind.WORKSPACE_CONTENT,
                self._cut_short(folder, detail),
            )
        self._open.clear()

    def _cut_short(self, folder: bytes, detail: str) -> dict[int, Any]:
        """Return the end of a folder that its reader has not written."""
        files, size = self._kept.get(folder, [0, 0])
        counts = {_KEPT: files, _BYTES: size, _COMPLETE: False}
        return {_FOLDER: folder, _ENTRIES: [], **counts, _DETAIL: detail}

    def close(self) -> None:
        """Want no more; the reader ends. Harmless when repeated."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def _receive(self) -> bool:
        if self._sock is None:
            return False
        try:
            part = self._sock.recv(_READ_BYTES)
        except (BlockingIOError, TimeoutError):
            return False
        except OSError:
            part = b""
        if not part:
            self.close()
            return False
        self._tokens -= len(part)
        self._data += part
        return True

    def _frames(self) -> Iterator[_Event]:
        """Yield what has come whole. What is no event of ours is the end of the stream."""
        while len(self._data) >= FRAME.size:
            size, kind = FRAME.unpack_from(self._data)
            if size > limits.BUNDLE_BODY_PART_BYTES or kind not in _KINDS:
                self.close()
                return
            end = FRAME.size + size
            if len(self._data) < end:
                return
            try:
                payload = cbor.decode(bytes(self._data[FRAME.size : end]))
            except cbor.CborError:
                self.close()
                return
            del self._data[:end]
            if not isinstance(payload, dict) or not self._known(kind, payload):
                self.close()
                return
            yield Kind(kind), payload

    def _known(self, kind: int, payload: dict[int, Any]) -> bool:
        if kind != Kind.WORKSPACE_CONTENT:
            return True
        folder = payload.get(_FOLDER)
        if type(folder) is not bytes or folder not in self._open:
            return False
        count = self._kept.setdefault(folder, [0, 0])
        for row in payload.get(_ENTRIES, []):
            match row:
                case [_, state, _, bytes() as data]:
                    count[0] += state == Saved.WHOLE
                    count[1] += len(data)
        if _COMPLETE in payload:
            self._open.discard(folder)
            for reason, files, size in payload.get(_LEFT_OUT, []):
                count = self._left.setdefault(str(reason), [0, 0])
                count[0] += files
                count[1] += size
        return True

    def lines(self) -> list[str]:
        """Return the operator's line when a bound or a change left something out."""
        words = [
            f"{reason} {count[0]} ({count[1] >> 20} MiB)"
            for reason, count in sorted(self._left.items())
            if reason not in _BY_RULE
        ]
        words += [self._cut] if self._cut else []
        if not words:
            return []
        return [f"hark: workspace: its start is only partly in the recording: {', '.join(words)}"]
