"""Builds ``hark._native``: one cffi extension for all C that Python calls.

Rules: a room adds one row. Headers meant for cffi hold enums, structs, typedefs and prototypes;
lines that start with ``#`` are dropped, and attribute macros of the list below are removed. A room
compiles its C itself (``room.mk``, with the project's warnings) and names the archive here; small
glue may be listed as a source. Run by ``make native``, from the top of the tree.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from cffi import FFI

TOP = Path(__file__).resolve().parent.parent
BUILD = Path("build")
ATTRIBUTES = ("HARK_MUST_USE",)


@dataclass(frozen=True)
class Room:
    """One row: what a room contributes. Paths are relative to the top of the tree."""

    name: str
    headers: tuple[str, ...]
    sources: tuple[str, ...] = ()
    archives: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    include_dirs: tuple[str, ...] = ()
    cflags: tuple[str, ...] = ()


ROOMS = (
    Room(
        name="bundle",
        headers=("csrc/bundle/hark_bundle.h",),
        archives=("build/lib/libharkbundle.a",),
        include_dirs=("csrc/bundle",),
    ),
    Room(
        name="sensors",
        headers=(
            "csrc/base/hark_err.h",
            "bpf/hark_abi.h",
            "csrc/sensors/hark_pins.h",
            "csrc/sensors/hark_sensors.h",
            "csrc/sensors/hark_idle.h",
            "csrc/sensors/hark_probe.h",
        ),
        archives=("build/lib/libharksensors.a",),
        libraries=("bpf",),
        include_dirs=("csrc/base", "bpf", "csrc/sensors"),
    ),
    Room(
        name="ring",
        headers=("csrc/base/hark_ring.h", "csrc/mediator/hark_reasons.h"),
        sources=("csrc/base/hark_ring.c",),
        include_dirs=("csrc/base", "csrc/mediator"),
        cflags=("-D_GNU_SOURCE",),
    ),
)


def declarations(header: str) -> str:
    """Return a header's text as cffi's parser takes it."""
    text = (TOP / header).read_text()
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"_Static_assert\s*\([^;]*\);", "", text)
    text = re.sub(r"__attribute__\s*\(\([^;]*?\)\)", "", text)
    text = re.sub(r"\bHARK_PRINTF\s*\([^)]*\)", "", text)
    for name in ATTRIBUTES:
        text = re.sub(rf"\b{name}\b", "", text)
    return text


def includes(rooms: tuple[Room, ...]) -> str:
    """Return the C preamble of the extension: every header, in the order of the rooms."""
    names = ["stdbool.h", "stddef.h", "stdint.h"]
    lines = [f"#include <{name}>" for name in names]
    lines += [f'#include "{TOP / header}"' for room in rooms for header in room.headers]
    return "\n".join(lines) + "\n"


def unique(values: list[str]) -> list[str]:
    """Drop repeated values, keep the order."""
    return list(dict.fromkeys(values))


def build(rooms: tuple[Room, ...], out: Path, flags: tuple[str, ...] = ()) -> Path:
    """Compile the extension of some rooms below ``out``; return the shared object."""
    ffi = FFI()
    for header in unique([header for room in rooms for header in room.headers]):
        ffi.cdef(declarations(header))
    ffi.set_source(
        "hark._native",
        includes(rooms),
        sources=unique([str(TOP / s) for room in rooms for s in room.sources]),
        extra_objects=unique([str(TOP / a) for room in rooms for a in room.archives]),
        libraries=unique([lib for room in rooms for lib in room.libraries]),
        include_dirs=unique([str(TOP / d) for room in rooms for d in room.include_dirs]),
        extra_compile_args=["-O2", "-std=gnu11", *flags, *[f for r in rooms for f in r.cflags]],
        extra_link_args=["-Wl,-z,relro,-z,now", *flags],
    )
    out.mkdir(parents=True, exist_ok=True)
    return Path(ffi.compile(tmpdir=str(out), verbose=bool(os.environ.get("V"))))


def put(built: Path, target: Path) -> None:
    """Replace the name, not the bytes: a running process may have the old file mapped."""
    fresh = target.with_suffix(".new")
    shutil.copyfile(built, fresh)
    fresh.chmod(0o755)
    fresh.replace(target)


def build_sanitized(directory: Path) -> int:
    """Build the bundle's part alone, over its sanitized archive, into ``directory``."""
    rooms = tuple(
        replace(room, archives=("build/lib/libharkbundle-san.a",))
        for room in ROOMS
        if room.name == "bundle"
    )
    flags = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
    built = build(rooms, BUILD / "ffi-san", flags)
    directory.mkdir(parents=True, exist_ok=True)
    put(built, directory / built.name)
    return 0


def main(argv: list[str]) -> int:
    """Build the extension and put it beside the package; ``--sanitized DIR`` builds a test one."""
    os.chdir(TOP)
    if argv[:1] == ["--sanitized"]:
        return build_sanitized(Path(argv[1]))
    built = build(ROOMS, BUILD / "ffi")
    put(built, TOP / "hark" / built.name)
    subprocess.run([sys.executable, "-c", "import hark._native"], check=True, cwd=TOP)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
