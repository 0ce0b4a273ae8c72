"""A recorded reply in a content coding, handed on without it, so that other ids can stand in it.

Pure. The authority is docs/spec/replay.md, "Renaming". Rules: piece by piece, so that what the
agent has after each is what the recorded one had, decoded; lengths do not change by renaming, so
the length of the whole is known before its first byte. A reply that cannot be decoded to its end,
or holds no id that changed, stays as it was.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hark import limits
from hark.replay.bodies import decoder_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hark.replay.bodies import Decoder

__all__ = ["Recoding", "needs_recoding", "plain_head"]

_DROPPED = re.compile(rb"\r\ncontent-encoding[ \t]*:[^\r\n]*", re.IGNORECASE)
_LENGTH = re.compile(rb"(\r\ncontent-length[ \t]*:)[^\r\n]*", re.IGNORECASE)


def needs_recoding(coding: str, parts: Iterable[bytes], changed: Mapping[bytes, bytes]) -> int:
    """Return the length of the decoded reply when it holds an id that changed, else 0.

    ``parts``: the whole body as it was sent. Bounded as every decoded body is.
    """
    decoder = decoder_of(coding)
    if decoder is None or not changed:
        return 0
    size, found, kept = 0, False, b""
    longest = max(map(len, changed))
    try:
        for piece in _decoded(decoder, parts):
            size += len(piece)
            if size > limits.IDENTITY_DECODED_MAX_BYTES:
                return 0
            text = kept + piece
            found = found or any(word in text for word in changed)
            kept = text[-longest:]
    except ValueError:
        return 0
    return size if found and decoder.is_whole() else 0


def _decoded(decoder: Decoder, parts: Iterable[bytes]) -> Iterable[bytes]:
    for part in parts:
        yield from decoder.feed(part)


def plain_head(head: bytes, size: int) -> bytes:
    """Return a response head without its content coding, for a body of ``size`` bytes."""
    return _LENGTH.sub(rb"\g<1> %d" % size, _DROPPED.sub(b"", head))


class Recoding:
    """Removes the coding of one reply, piece by piece; it is known to be whole and well-formed."""

    def __init__(self, coding: str) -> None:
        self._decoder = decoder_of(coding)

    def feed(self, data: bytes) -> bytes:
        """Return the decoded bytes of the next recorded piece."""
        return b"".join(self._decoder.feed(data)) if self._decoder else data
