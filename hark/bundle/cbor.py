"""Canonical CBOR: one encoding for each value, everything else refused.

The profile is docs/spec/bundle.md, "CBOR profile". Rules: ``check`` is the twin of
``csrc/bundle/hark_cbor.c`` and reports the same fault for the same bytes; ``decode`` is only given
bytes that were checked, or checks them itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from hark import limits

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "BLOB_TAG",
    "BlobRef",
    "CborError",
    "CborFault",
    "Span",
    "check",
    "decode",
    "encode",
    "plain_encoder",
]

BLOB_TAG = 40000
_HASH_SIZE = 32

Span = tuple[int, int, int]  # event index, start and end of a reference's array


class CborFault(IntEnum):
    """Why bytes are not in the profile; numbers as in ``hark_bundle.h``."""

    OK = 0
    SHORT = 1
    DEPTH = 2
    ITEMS = 3
    HEAD = 4
    LONG = 5
    RANGE = 6
    UTF8 = 7
    KEY_TYPE = 8
    KEY_ORDER = 9
    TAG = 10
    REFERENCE = 11
    VALUE = 12
    TRAILING = 13
    REFS = 14

    @property
    def text(self) -> str:
        """A short sentence for people."""
        return _TEXTS[self]


_TEXTS = {
    CborFault.OK: "canonical",
    CborFault.SHORT: "ends inside a value",
    CborFault.DEPTH: "nested too deep",
    CborFault.ITEMS: "too many values",
    CborFault.HEAD: "indefinite length or reserved head",
    CborFault.LONG: "a number not in its shortest form",
    CborFault.RANGE: "an integer out of range",
    CborFault.UTF8: "text that is not UTF-8",
    CborFault.KEY_TYPE: "map keys of a wrong or mixed type",
    CborFault.KEY_ORDER: "map keys not ascending",
    CborFault.TAG: "an unknown tag",
    CborFault.REFERENCE: "a malformed body reference",
    CborFault.VALUE: "a float or an unknown simple value",
    CborFault.TRAILING: "bytes behind the value",
    CborFault.REFS: "too many body references",
}


class CborError(ValueError):
    """Bytes outside the profile, or a value that has no encoding in it."""


@dataclass(frozen=True, slots=True)
class BlobRef:
    """A body in the chunk store: ``ranges`` are (first chunk, count) pairs, in order."""

    length: int
    root: bytes
    ranges: tuple[tuple[int, int], ...]


class _Reader:
    __slots__ = ("data", "end", "event", "items", "pos", "spans")

    def __init__(self, data: bytes | memoryview, pos: int, end: int, event: int) -> None:
        self.data = data
        self.pos = pos
        self.end = end
        self.event = event
        self.items = 0
        self.spans: list[Span] = []


class _Fault(Exception):
    def __init__(self, fault: CborFault) -> None:
        self.fault = fault


_SHORTEST = (24, 1 << 8, 1 << 16, 1 << 32)


def _head(r: _Reader) -> tuple[int, int]:
    """Read one head: major type and number (for major 7 the simple value)."""
    pos = r.pos
    if pos >= r.end:
        raise _Fault(CborFault.SHORT)
    if r.items == limits.BUNDLE_CBOR_ITEMS:
        raise _Fault(CborFault.ITEMS)
    r.items += 1
    first = r.data[pos]
    major, info = first >> 5, first & 31
    r.pos = pos = pos + 1
    if major == 7:  # noqa: PLR2004 - simple values (RFC 8949, section 3.3)
        if info not in (20, 21, 22):
            raise _Fault(CborFault.VALUE)
        return major, info
    if info < 24:  # noqa: PLR2004 - the number is in the head
        return major, info
    step = info - 24
    if step > 3:  # noqa: PLR2004 - 28 to 31 are reserved or indefinite
        raise _Fault(CborFault.HEAD)
    size = 1 << step
    if r.end - pos < size:
        raise _Fault(CborFault.SHORT)
    number = int.from_bytes(r.data[pos : pos + size], "big")
    r.pos = pos + size
    if number < _SHORTEST[step]:
        raise _Fault(CborFault.LONG)
    return major, number


def _skip_string(r: _Reader, major: int, size: int) -> None:
    if size > r.end - r.pos:
        raise _Fault(CborFault.SHORT)
    if major == 3:  # noqa: PLR2004 - text
        try:
            bytes(r.data[r.pos : r.pos + size]).decode("utf-8")
        except UnicodeDecodeError:
            raise _Fault(CborFault.UTF8) from None
    r.pos += size


def _numbers(r: _Reader, count: int) -> None:
    for _ in range(count):
        if _head(r)[0] != 0:
            raise _Fault(CborFault.REFERENCE)


def _reference(r: _Reader) -> None:
    """``[length, root, [first, count, …]]`` behind the tag."""
    start = r.pos
    if _head(r) != (4, 3):
        raise _Fault(CborFault.REFERENCE)
    _numbers(r, 1)
    if _head(r) != (2, _HASH_SIZE):
        raise _Fault(CborFault.REFERENCE)
    _skip_string(r, 2, _HASH_SIZE)
    major, count = _head(r)
    if major != 4 or count % 2:  # noqa: PLR2004 - an array of pairs
        raise _Fault(CborFault.REFERENCE)
    _numbers(r, count)
    if len(r.spans) == limits.BUNDLE_REFS_PER_BATCH:
        raise _Fault(CborFault.REFS)
    r.spans.append((r.event, start, r.pos))


def _key(r: _Reader, previous: bytes) -> bytes:
    start = r.pos
    major, number = _head(r)
    if major not in (0, 3):
        raise _Fault(CborFault.KEY_TYPE)
    if major == 3:  # noqa: PLR2004 - text
        _skip_string(r, major, number)
    key = bytes(r.data[start : r.pos])
    if previous:
        if previous[0] >> 5 != major:
            raise _Fault(CborFault.KEY_TYPE)
        if previous >= key:
            raise _Fault(CborFault.KEY_ORDER)
    return key


def _container(r: _Reader, major: int, count: int, depth: int) -> None:
    if depth == 0:
        raise _Fault(CborFault.DEPTH)
    key = b""
    for _ in range(count):
        if major == 5:  # noqa: PLR2004 - map
            key = _key(r, key)
        _item(r, depth - 1)


def _item(r: _Reader, depth: int) -> None:
    major, number = _head(r)
    if major in (2, 3):
        _skip_string(r, major, number)
    elif major == 1:
        if number >> 63:
            raise _Fault(CborFault.RANGE)
    elif major in (4, 5):
        _container(r, major, number, depth)
    elif major == 6:  # noqa: PLR2004 - tag
        if number != BLOB_TAG:
            raise _Fault(CborFault.TAG)
        _reference(r)


def check(
    data: bytes | memoryview,
    start: int = 0,
    end: int | None = None,
    event: int = 0,
    spans: list[Span] | None = None,
) -> CborFault:
    """Check ``data[start:end]``; append the references in it to ``spans``."""
    r = _Reader(data, start, len(data) if end is None else end, event)
    if spans is not None:
        r.spans = spans
    try:
        _item(r, limits.BUNDLE_CBOR_DEPTH)
    except _Fault as fault:
        return fault.fault
    return CborFault.OK if r.pos == r.end else CborFault.TRAILING


def _arrange(value: Any) -> Any:
    """Replace what cbor2 would not write canonically: map order and references."""
    kind = type(value)
    if kind is bytes or kind is int or kind is str or value is None or kind is bool:
        return value
    if kind is dict:
        keys = list(value)
        try:
            order = sorted(keys, key=_text_order if keys and type(keys[0]) is str else None)
        except (TypeError, AttributeError):
            raise CborError("map keys of mixed types") from None
        return {k: _arrange(value[k]) for k in order}
    if isinstance(value, BlobRef):
        return _tag(value)
    if isinstance(value, (list, tuple)):
        return [_arrange(v) for v in value]
    return value


def _text_order(key: str) -> tuple[int, bytes]:
    raw = key.encode()
    return len(raw), raw


def _tag(ref: BlobRef) -> Any:
    from cbor2 import CBORTag  # noqa: PLC0415 - imported when first needed

    flat = [n for pair in ref.ranges for n in pair]
    return CBORTag(BLOB_TAG, [ref.length, ref.root, flat])


def encode(value: Any) -> bytes:
    """Encode ``value`` canonically. Raises ``CborError`` when it has no encoding here."""
    from cbor2 import CBOREncodeError, dumps  # noqa: PLC0415 - imported when first needed

    try:
        return dumps(_arrange(value))
    except (CBOREncodeError, OverflowError, UnicodeEncodeError) as error:
        raise CborError(str(error)) from error


def plain_encoder() -> Callable[[Any], bytes]:
    """Return cbor2's encoder, which keeps the order of maps: check what it writes."""
    from cbor2 import dumps  # noqa: PLC0415 - imported when first needed

    return dumps


def _untag(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return {k: _untag(v) for k, v in value.items()}
    if kind is list or kind is tuple:
        return [_untag(v) for v in value]
    if kind is bytes or kind is int or kind is str or value is None or kind is bool:
        return value
    length, root, flat = value.value
    return BlobRef(length, root, tuple(zip(flat[::2], flat[1::2], strict=True)))


def decode(data: bytes, *, checked: bool = False) -> Any:
    """Decode one value; references become ``BlobRef``. Raises ``CborError``."""
    from cbor2 import loads  # noqa: PLC0415 - imported when first needed

    if not checked:
        fault = check(data)
        if fault is not CborFault.OK:
            raise CborError(fault.text)
    value = loads(data)
    return _untag(value) if b"\xd9\x9c\x40" in data else value
