"""A response before it is framed."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Reply"]


@dataclass(frozen=True, slots=True)
class Reply:
    """A response before it is framed.

    ``parts`` is sent with a Content-Length when there is one part and ``streamed`` is false, else
    as one chunk per part. ``hold`` keeps the connection open without ending the body. ``waits``:
    seconds before the head and before each part, as far as it goes. ``cut``: reset the connection
    behind the parts, with a head that announces more.
    """

    status: int
    content_type: str
    parts: tuple[bytes, ...]
    streamed: bool = False
    compressible: bool = False
    hold: bool = False
    close: bool = False
    fields: tuple[tuple[str, str], ...] = ()
    trailers: tuple[tuple[str, str], ...] = ()
    waits: tuple[float, ...] = ()
    cut: bool = False
