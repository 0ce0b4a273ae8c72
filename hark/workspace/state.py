"""What a run leaves for ``hark diff``, ``apply`` and ``undo``: one small file in the run's folder.

It says whose files the run worked on, which folders its writable layers lie over, and the digest of
each layer's start manifest. Its own digest stands in the signed ``run_start``. Rules: written by
root before the agent exists, never changed, read by root alone.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import Any

from blake3 import blake3

from hark.errors import BundleInvalid

__all__ = ["STATE_NAME", "Layer", "State", "manifest_name", "read", "write"]

STATE_NAME = "workspace.json"
_VERSION = 1
_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Layer:
    """One writable layer: ``layers/NUMBER/upper`` over the folder ``path``, whose inode it was.

    ``manifest``: BLAKE3 of the start manifest in hex. ``entries``: rows in it.
    """

    number: int
    path: str
    inode: int
    manifest: str
    entries: int


@dataclass(frozen=True, slots=True)
class State:
    """The run's person and layers, the workspace first."""

    run: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    name: str
    layers: tuple[Layer, ...]


def manifest_name(layer: int) -> str:
    """File name of a layer's start manifest in the run's folder."""
    return f"start-{layer}.manifest"


def write(folder: int, state: State) -> bytes:
    """Write the state below the run's folder; return its BLAKE3 digest. Raises OSError."""
    data = json.dumps({"version": _VERSION, **asdict(state)}, sort_keys=True).encode()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(STATE_NAME, flags, 0o600, dir_fd=folder), "wb") as file:
        file.write(data)
    return blake3(data).digest()


def read(folder: int) -> tuple[State, bytes]:
    """Read the state below the run's folder, and its digest. Raises BundleInvalid, OSError."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(STATE_NAME, flags, dir_fd=folder), "rb") as file:
        data = file.read(_MAX_BYTES)
    try:
        return _state(json.loads(data)), blake3(data).digest()
    except (ValueError, KeyError, TypeError) as error:
        raise BundleInvalid("the run's workspace state does not hold", str(error)) from None


def _state(value: dict[str, Any]) -> State:
    if value["version"] != _VERSION:
        raise ValueError(f"version {value['version']} of it is not known")
    return State(
        run=value["run"],
        uid=value["uid"],
        gid=value["gid"],
        groups=tuple(value["groups"]),
        name=value["name"],
        layers=tuple(Layer(**layer) for layer in value["layers"]),
    )
