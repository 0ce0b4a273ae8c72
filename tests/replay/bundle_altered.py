"""A recording written anew with other events, by somebody with a key of their own."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bundle"))

from bundle_making import KEY, writer_on

from hark.bundle.cbor import BlobRef
from hark.bundle.format import Header
from hark.bundle.reader import Bundle

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SIGNER", "altered"]

SIGNER = KEY.public.hex()


def altered(
    source: Path, out: Path, change: Callable[[int, dict[int, Any]], dict[int, Any] | None]
) -> Path:
    """Copy ``source`` to ``out``; ``change`` returns each payload anew, or None to drop it."""
    with Bundle.open(source) as bundle:
        old = bundle.header
        head = Header(
            run_id=old.run_id,
            created_unix_ns=old.created_unix_ns,
            recorder=old.recorder,
            public_key=KEY.public,
            created_boot_ns=old.created_boot_ns,
            policy_digest=old.policy_digest,
        )
        fd = os.open(out, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        writer = writer_on(fd, header=head)
        writer.head()
        for event in bundle.events():
            payload = change(event.kind, _whole(bundle, event.payload))
            if payload is not None:
                writer.append(event.kind, event.time_ns, payload)
        writer.seal()
        os.close(fd)
    return out


def _whole(bundle: Bundle, value: Any) -> Any:
    """Return a payload with its bodies in it."""
    if isinstance(value, BlobRef):
        return bundle.read_body(value)
    if isinstance(value, dict):
        return {key: _whole(bundle, item) for key, item in value.items()}
    return [_whole(bundle, item) for item in value] if isinstance(value, list) else value
