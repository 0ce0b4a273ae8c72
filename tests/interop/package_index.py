"""Package indexes for pip and npm, made of two packages each; the stub serves them as files.

Sources: the simple repository API (PEP 503) and wheel format (PEP 427), and npm's registry
documents. ``agent`` needs ``library``, so that a client asks for both.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import tarfile
import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["npm_registry", "python_index"]

_BIG = 1_500_000  # bytes that do not compress: a download that takes many reads


def _wheel(name: str, needs: str, files: Mapping[str, bytes]) -> bytes:
    info = f"{name}-1.0.dist-info"
    meta = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needs}"
    tags = "Wheel-Version: 1.0\nGenerator: stub\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    entries = {
        **files,
        f"{info}/METADATA": meta.encode(),
        f"{info}/WHEEL": tags.encode(),
        f"{info}/RECORD": "".join(f"{file},,\n" for file in files).encode(),
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        for file, data in entries.items():
            packed.writestr(file, data)
    return out.getvalue()


def python_index(host: str) -> dict[tuple[str, str], bytes]:
    """Return the index below ``/simple/`` of ``host``, by host and path."""
    wheels = {
        "stub-agent": _wheel(
            "stub_agent",
            "Requires-Dist: stub-library==1.0\n",
            {"stub_agent.py": b"import stub_library\nprint('agent', stub_library.SIZE)\n"},
        ),
        "stub-library": _wheel(
            "stub_library",
            "",
            {"stub_library.py": b"SIZE = 42\n", "stub_data.bin": os.urandom(_BIG)},
        ),
    }
    found = {}
    for name, wheel in wheels.items():
        file = f"{name.replace('-', '_')}-1.0-py3-none-any.whl"
        digest = hashlib.sha256(wheel).hexdigest()
        page = f'<!DOCTYPE html><a href="/files/{file}#sha256={digest}">{file}</a>'
        found[host, f"/simple/{name}/"] = page.encode()
        found[host, f"/files/{file}"] = wheel
    return found


def _tarball(manifest: dict[str, object], files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as packed:
        entries = {"package.json": json.dumps(manifest).encode(), **files}
        for file, data in entries.items():
            entry = tarfile.TarInfo(f"package/{file}")
            entry.size, entry.mode = len(data), 0o644
            packed.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def npm_registry(host: str) -> dict[tuple[str, str], bytes]:
    """Return the registry below ``/npm/`` of ``host``, by host and path."""
    agent = b"const { size } = require('stub-library');\nconsole.log('agent', size);\n"
    library: dict[str, bytes] = {
        "index.js": b"exports.size = 42;\n",
        "data.bin": os.urandom(_BIG),
    }
    found = {}
    for name, needs, files in (
        ("stub-agent", {"stub-library": "1.0.0"}, {"index.js": agent}),
        ("stub-library", {}, library),
    ):
        manifest: dict[str, object] = {"name": name, "version": "1.0.0", "dependencies": needs}
        packed = _tarball(manifest, files)
        path = f"/npm/{name}/-/{name}-1.0.0.tgz"
        dist = {
            "tarball": f"https://{host}{path}",
            "integrity": "sha512-" + base64.b64encode(hashlib.sha512(packed).digest()).decode(),
        }
        document = {
            "name": name,
            "dist-tags": {"latest": "1.0.0"},
            "versions": {"1.0.0": {**manifest, "dist": dist}},
        }
        found[host, f"/npm/{name}"] = json.dumps(document).encode()
        found[host, path] = packed
    return found
