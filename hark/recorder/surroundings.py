"""What a run rests on outside its folders: its program, interpreter, libraries and some facts.

Runs as the person, in the process that reads the workspace. Rules: executes nothing, reads headers
as the loader would (System V ABI chapters 4 and 5, ld.so(8)), and takes nothing in them for true
beyond its bounds. Libraries are those that a program names in its header; what it opens later by
itself is not among them.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from hark import limits
from hark.bundle import cbor
from hark.bundle.events import Kind
from hark.workspace.contents import FRAME

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

__all__ = ["Named", "digest_of", "send_surroundings", "surroundings", "time_zone"]

LOCALTIME = "/etc/localtime"
_CACHE = "/etc/ld.so.cache"
_CACHE_MAGIC = b"glibc-ld.so.cache1.1"
_CACHE_HEAD = 48
_CACHE_ENTRY = struct.Struct("<iIIIQ")  # flags, key, value, OS version, hwcap
_X86_64_LIBC6 = 0x0303
_AARCH64_LIBC6 = 0x0A03
_FOLDERS = ("/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib")
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_NEEDED, _STRINGS, _RPATH, _RUNPATH = 1, 5, 15, 29


@dataclass(frozen=True, slots=True)
class Named:
    """What the command stands for: the file to execute, PATH inside, and granted single files."""

    program: str
    search: str
    arguments: tuple[str, ...] = ()
    workspace: str = ""


def send_surroundings(out: socket.socket, named: Named) -> None:
    """Send the event (docs/spec/records.md, kind 31). Raises OSError when nobody listens."""
    data = cbor.encode(surroundings(named))
    out.sendall(FRAME.pack(len(data), Kind.SURROUNDINGS) + data)


def surroundings(named: Named) -> dict[int, Any]:
    """Return the payload of the event."""
    budget = limits.SURROUNDINGS_DIGEST_BYTES
    files: list[list[Any]] = []
    for role, path in _files(named):
        digest, size = digest_of(path, budget)
        budget -= size
        files.append([os.fsencode(path), role, digest])
    return {
        4: files,
        5: len(os.sched_getaffinity(0)),
        6: os.uname().machine,
        7: time_zone(),
    }


def time_zone() -> bytes:
    """Return the target of /etc/localtime; empty where it is no link."""
    try:
        return os.fsencode(Path(LOCALTIME).readlink())
    except OSError:
        return b""


def digest_of(path: str, most: int = limits.SURROUNDINGS_DIGEST_BYTES) -> tuple[bytes | None, int]:
    """Return BLAKE3 of a file and its size; None: it cannot be read, or is larger than ``most``."""
    try:
        fd = os.open(path, _READ)
    except OSError:
        return None, 0
    with os.fdopen(fd, "rb") as file:
        size = os.fstat(fd).st_size
        if size > most:
            return None, 0
        state = blake3()
        try:
            while part := file.read(limits.DIGEST_READ_BYTES):
                state.update(part)
        except OSError:
            return None, 0
        return state.digest(), size


def _files(named: Named) -> Iterator[tuple[str, str]]:
    """Yield role and path, each path once; not what lies in the workspace."""
    seen: set[str] = set()
    for role, path in _all_files(named):
        real = os.path.realpath(path)
        inside = bool(named.workspace) and real.startswith(named.workspace.rstrip("/") + "/")
        if real in seen or inside or len(seen) >= limits.SURROUNDINGS_FILES_MOST:
            continue
        seen.add(real)
        yield role, real


def _all_files(named: Named) -> Iterator[tuple[str, str]]:
    program, role = named.program, "program"
    for _ in range(limits.LAUNCH_SHEBANG_DEPTH):
        yield role, program
        words = _shebang(program)
        if not words:
            break
        program, role = _interpreter(words, named.search), "interpreter"
    loader, _ = _needs(program)
    if loader:
        yield "loader", loader
    for path in _libraries(program):
        yield "library", path
    for path in named.arguments:
        yield "argument", path


def _shebang(path: str) -> list[str]:
    head = _part(path, 0, limits.LAUNCH_HEAD_BYTES)
    if not head.startswith(b"#!"):
        return []
    return os.fsdecode(head.split(b"\n", 1)[0][2:]).split()


def _interpreter(words: list[str], search: str) -> str:
    """Return the program of a #! line; behind env the one that PATH finds."""
    if words[0].rpartition("/")[2] != "env":
        return words[0]
    name = next((w for w in words[1:] if not w.startswith("-") and "=" not in w), words[0])
    for folder in search.split(":"):
        path = f"{folder}/{name}"
        if os.access(path, os.X_OK):
            return path
    return words[0]


def _libraries(program: str) -> Iterator[str]:
    """Yield the libraries of a program and theirs, as the loader would find them."""
    cache = _cache()
    seen: set[str] = set()
    pending = [os.path.realpath(program)]
    while pending and len(seen) < limits.SURROUNDINGS_FILES_MOST:
        at = pending.pop(0)
        origin = at.rpartition("/")[0]
        _, dynamic = _needs(at)
        paths = [p.replace("$ORIGIN", origin).replace("${ORIGIN}", origin) for p in dynamic.paths]
        for name in dynamic.needed:
            found = _find(name, paths, cache)
            if found and found not in seen:
                seen.add(found)
                pending.append(os.path.realpath(found))
                yield found


def _find(name: str, paths: list[str], cache: dict[str, str]) -> str:
    if "/" in name:
        return name
    for folder in paths:
        if os.path.exists(f"{folder}/{name}"):  # noqa: PTH110 - a string, many times
            return f"{folder}/{name}"
    if name in cache:
        return cache[name]
    return next((f"{f}/{name}" for f in _FOLDERS if os.path.exists(f"{f}/{name}")), "")  # noqa: PTH110


@dataclass(frozen=True, slots=True)
class _Dynamic:
    needed: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


def _needs(path: str) -> tuple[str, _Dynamic]:
    """Return loader and dynamic section of a 64-bit little-endian ELF file; else nothing."""
    head = _part(path, 0, limits.LAUNCH_HEAD_BYTES)
    if head[:6] != b"\x7fELF\x02\x01" or len(head) < 64:  # noqa: PLR2004 - Elf64_Ehdr
        return "", _Dynamic()
    (table,) = struct.unpack_from("<Q", head, 32)
    size, count = struct.unpack_from("<HH", head, 54)
    loader, dynamic, loads = "", (0, 0), []
    rows = _part(path, table, min(count, limits.SURROUNDINGS_FILES_MOST) * size)
    for at in range(0, len(rows) - 55, size or 1):
        kind, _, offset, address, _, length = struct.unpack_from("<IIQQQQ", rows, at)
        if kind == 3:  # noqa: PLR2004 - PT_INTERP
            loader = os.fsdecode(_part(path, offset, min(length, 4096)).rstrip(b"\0"))
        elif kind == 2:  # noqa: PLR2004 - PT_DYNAMIC
            dynamic = (offset, length)
        elif kind == 1:
            loads.append((address, offset, length))
    return loader, _dynamic(path, _part(path, *dynamic), loads)


def _dynamic(path: str, section: bytes, loads: list[tuple[int, int, int]]) -> _Dynamic:
    tags = [struct.unpack_from("<qQ", section, at) for at in range(0, len(section) - 15, 16)]
    table = next((value for tag, value in tags if tag == _STRINGS), -1)
    strings = next((o + table - a for a, o, n in loads if a <= table < a + n), -1)
    if strings < 0:
        return _Dynamic()

    def text(value: int) -> str:
        return os.fsdecode(_part(path, strings + value, 4096).split(b"\0", 1)[0])

    needed = [text(value) for tag, value in tags if tag == _NEEDED]
    paths = [text(value) for tag, value in tags if tag in (_RPATH, _RUNPATH)]
    parts = [part for line in paths for part in line.split(":") if part[:1] in ("/", "$")]
    return _Dynamic(tuple(needed[: limits.SURROUNDINGS_FILES_MOST]), tuple(parts))


def _part(path: str, at: int, size: int) -> bytes:
    """Return bytes of a file; fewer, or none, where there are none."""
    if not 0 <= at < 1 << 62 or size > limits.SURROUNDINGS_HEAD_BYTES:
        return b""
    try:
        fd = os.open(path, _READ)
    except (OSError, ValueError):
        return b""
    try:
        return os.pread(fd, size, at)
    except OSError:
        return b""
    finally:
        os.close(fd)


def _cache() -> dict[str, str]:
    """Return name to path of the loader's cache (glibc, sysdeps/generic/dl-cache.h)."""
    data = _part(_CACHE, 0, limits.SURROUNDINGS_HEAD_BYTES)
    start = data.find(_CACHE_MAGIC)
    if start < 0 or start % 8 or len(data) < start + _CACHE_HEAD:
        return {}
    data = data[start:]
    (count,) = struct.unpack_from("<I", data, len(_CACHE_MAGIC))
    out: dict[str, str] = {}
    for n in range(min(count, (len(data) - _CACHE_HEAD) // _CACHE_ENTRY.size)):
        flags, key, value, _, hwcap = _CACHE_ENTRY.unpack_from(
            data, _CACHE_HEAD + n * _CACHE_ENTRY.size
        )
        if flags in (_X86_64_LIBC6, _AARCH64_LIBC6) and not hwcap:
            out.setdefault(_text(data, key), _text(data, value))
    return out


def _text(data: bytes, at: int) -> str:
    end = data.find(b"\0", at)
    return os.fsdecode(data[at:end]) if 0 <= at < end else ""
