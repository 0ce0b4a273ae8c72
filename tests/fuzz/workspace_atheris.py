"""Coverage-guided fuzzing of what a replay unpacks: manifest, contents, and the tree made of them.

    workspace_atheris.py [libFuzzer options] [corpus]

Oracle: defined errors only, and nothing appears beside the folder that is filled.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import sys
import tempfile
from pathlib import Path

import atheris
import zstandard
from blake3 import blake3

with atheris.instrument_imports(include=["hark.workspace", "hark.replay.stored"]):
    from hark.bundle import cbor
    from hark.errors import HarkError
    from hark.replay.stored import Collected
    from hark.workspace import manifest
    from hark.workspace.unpack import Tree, unpack

MAGIC = b"hark-manifest-2\n"
PACKER = zstandard.ZstdCompressor(level=1)
PLACE = Path(tempfile.mkdtemp(prefix="hark-fuzz-"))


def one_tree(data: bytes) -> None:
    """Read as rows; make what is a tree."""
    packed = PACKER.compress(MAGIC + data)
    rows = manifest.parse(packed, blake3(packed).digest())
    manifest.check(rows)
    root = PLACE / "root"
    root.mkdir()
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        own = (os.getuid(), os.getgid())
        unpack(fd, Tree(rows, lambda _: [data[:3]], lambda _uid, _gid: own))
    finally:
        os.close(fd)
        assert [path.name for path in PLACE.iterdir()] == ["root"]
        shutil.rmtree(root)


def one_content(data: bytes) -> None:
    """Read as the payload of a workspace_content event."""
    value = cbor.decode(data)
    if isinstance(value, dict):
        Collected().take(value)


TARGETS = (one_tree, one_content)


def test_one(data: bytes) -> None:
    """First byte: the target."""
    if data:
        with contextlib.suppress(HarkError, OSError, cbor.CborError):
            TARGETS[data[0] % len(TARGETS)](data[1:])


ROW = struct.Struct("<HHIQqqQIII")
ENTRIES = (
    (b"", 0o40755, 0),
    (b"a", 0o40755, 0),
    (b"a/x", 0o100644, 3),
    (b"l", 0o120777, 3),
    (b"p", 0o010600, 0),
)


def seeds(corpus: Path) -> None:
    """Give an empty corpus one tree and one content."""
    rows = b"".join(
        ROW.pack(len(path), 0, mode, size, 5, 7, n, n, 0, 0) + path
        for n, (path, mode, size) in enumerate(ENTRIES)
    )
    (corpus / "tree").write_bytes(b"\0" + rows)
    (corpus / "content").write_bytes(b"\1" + cbor.encode({5: [[b"a", 0, None, b"x"]]}))


if __name__ == "__main__":
    if Path(sys.argv[-1]).is_dir():
        seeds(Path(sys.argv[-1]))
    atheris.Setup(sys.argv, test_one)
    atheris.Fuzz()
