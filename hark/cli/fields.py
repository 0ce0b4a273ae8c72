"""The fields of an event as text for people and as JSON, by their names in docs/spec/records.md.

Rules: a digest is hexadecimal and an address is written as one, whatever their bytes look like.
Every other byte string is text when it is UTF-8. Text goes through ``printable``.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

from hark.bundle.cbor import BlobRef
from hark.bundle.events import COMMON, FIELDS, Kind
from hark.cli.printable import json_value, printable, size_text

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["field_lines", "field_names", "json_item", "kind_name", "text_item"]

_ADDRESSES = frozenset(("src", "dst", "address", "server", "answers"))
_DIGESTS = frozenset(
    (
        "digest",
        "policy_digest",
        "workspace_state",
        "upstream_ca",
        "certificate",
        "root",
        "sealed",
        "recipient",
        "stream",
    )
)
_DIGEST_AT = {"actor": 3, "entry": 5, "content": 2, "file": 2}  # where a list holds one
_ONE_OF = {"entries": "entry", "contents": "content", "files": "file"}
_SHORT_DIGITS = 16


def kind_name(kind: int) -> str:
    """Return the name of a kind, or ``kind-N``."""
    try:
        return Kind(kind).name.lower()
    except ValueError:
        return f"kind-{kind}"


def field_names(kind: int) -> dict[int, str]:
    """Return the names of a kind's keys."""
    try:
        return COMMON | FIELDS[Kind(kind)]
    except ValueError:
        return COMMON


def json_item(name: str, item: Any, body: Callable[[BlobRef], Any]) -> Any:
    """Return a field as JSON holds it; ``body`` gives the bytes of a reference, or what it likes.

    Digests are hexadecimal strings, addresses as in RFC 5952 or in dots, other bytes are text when
    they are UTF-8, else ``{"base64": ...}``.
    """
    if isinstance(item, BlobRef):
        item = body(item)
    if isinstance(item, bytes):
        return _named_text(name, item) or json_value(item)
    if isinstance(item, list):
        return [json_item(_name_at(name, at), value, body) for at, value in enumerate(item)]
    if isinstance(item, dict):
        return {str(key): json_item("", value, body) for key, value in item.items()}
    return item


def text_item(name: str, item: Any, limit: int | None) -> str:
    """Return a field as one line of at most ``limit`` characters; a digest is cut with it."""
    if isinstance(item, BlobRef):
        return f"<{size_text(item.length)}>"
    if isinstance(item, bytes):
        text = _named_text(name, item)
        if text is None:
            return printable(item, limit)
        return text[:_SHORT_DIGITS] if limit is not None and name in _DIGESTS else text
    if isinstance(item, list):
        inside = (text_item(_name_at(name, at), value, limit) for at, value in enumerate(item))
        return printable(f"[{', '.join(inside)}]", limit)
    if isinstance(item, dict):
        pairs = (f"{printable(str(k))}: {text_item('', v, limit)}" for k, v in item.items())
        return printable(f"{{{', '.join(pairs)}}}", limit)
    return printable(str(item), limit)


def field_lines(
    kind: int, payload: Any, body: Callable[[BlobRef], bytes] | None = None
) -> list[str]:
    """Return a line for each field, in full; with ``body`` also the bytes of references."""
    if not isinstance(payload, dict):  # only a proof can hold one: a bundle with it is not read
        return [f"{'payload:':<14} {text_item('', payload, None)}"]
    names = field_names(kind)
    lines = []
    for key, item in payload.items():
        name = names.get(key, printable(str(key)))
        if isinstance(item, BlobRef):
            text = f"{size_text(item.length)}, root {item.root.hex()}"
            text += f"\n{printable(body(item))}" if body is not None else ""
        else:
            text = text_item(name, item, None)
        lines.append(f"{name + ':':<14} {text}")
    return lines


def _named_text(name: str, item: bytes) -> str | None:
    """Return a byte string whose name says how it is written; ``None`` for all others."""
    if name in _ADDRESSES and len(item) in (4, 16):
        return str(ipaddress.ip_address(item))
    return item.hex() if name in _DIGESTS or name in _ADDRESSES else None


def _name_at(name: str, at: int) -> str:
    """Return under what name the element ``at`` of a list is written."""
    if name in _ONE_OF:
        return _ONE_OF[name]
    if _DIGEST_AT.get(name) == at:
        return "digest"
    return name if name in _ADDRESSES else ""
