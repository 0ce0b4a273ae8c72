"""A root file system for a virtual machine: what one test suite needs, packed as an initramfs.

Rules. Everything comes from this host and this tree: programs and libraries by what the dynamic
linker says, Python packages by what the suite itself imports, so that nothing is listed twice. The
archive is written here, since cpio's format "newc" (initramfs, kernel documentation
driver-api/early-userspace/buffer-format) is simpler than another program to install.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import BinaryIO

__all__ = ["ROOT", "collect", "imported", "pack", "pack_files"]

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = (
    *("sh", "mount", "cat", "true", "false", "ls", "seq", "sleep", "uname", "env", "mkdir", "echo"),
    *("ip", "dmesg", "rm", "touch", "id", "head", "ps", "unshare", "setpriv", "umount"),
    *("python3", "sort", "md5sum", "find", "xargs", "mktemp", "tr", "wc"),
)
TREES = (
    *("hark", "tests", "bpf", "csrc", "pyproject.toml"),
    *("build/bin", "build/bpf", "build/seccomp.bin"),
)
_LIBRARY = re.compile(r"(/\S+)")
_LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "ensurepip", "turtledemo", "__pycache__"}
_OBJECT = (".so", ".a", ".o", ".hark")


def imported(suite: str) -> set[Path]:
    """Run a suite here and return the files of all modules that it imported."""
    script = (
        "import sys, pytest\n"
        "code = pytest.main(sys.argv[1:])\n"
        "files = {getattr(m, '__file__', None) for m in list(sys.modules.values())}\n"
        "print('\\n'.join(sorted('FILE ' + f for f in files if f)))\n"
        "sys.exit(code)\n"
    )
    words = [sys.executable, "-c", script, "-q", "-p", "no:cacheprovider", "--collect-only", suite]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    return {Path(line.removeprefix("FILE ")) for line in lines if line.startswith("FILE ")}


def packages(files: Iterable[Path]) -> set[Path]:
    """Return the site-packages entries that hold ``files``, and their metadata."""
    found: set[Path] = set()
    for file in files:
        for site in (p for p in file.parents if p.name in {"site-packages", "dist-packages"}):
            found.add(site / file.relative_to(site).parts[0])
    return found | {site for entry in found for site in entry.parent.glob("*.dist-info")}


def collect(root: Path, files: set[Path], more: Iterable[Path]) -> None:
    """Copy everything below ``root``, under the paths it has here."""
    for name in PROGRAMS:
        program = shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin")
        if program:
            put(root, Path(program))
    for entry in (Path(sysconfig.get_path("stdlib")), *packages(files)):
        put(root, entry)
    for name in TREES:
        put(root, ROOT / name)
    put(root, Path(sys.prefix, "bin"))
    put(root, Path(sys.prefix, "pyvenv.cfg"))
    put(root, Path(sys.prefix, "libexec"))
    for path in more:
        put(root, path)
    for path in list(root.rglob("*")):
        if path.is_file() and not path.is_symlink() and is_elf(path):
            for library in libraries(path):
                put(root, library)


def put(root: Path, path: Path) -> None:
    """Copy a file, a folder or a link with what it leads to."""
    target = root / path.relative_to("/")
    if target.exists() or target.is_symlink():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():
        target.symlink_to(path.readlink())
        put(root, path.resolve())
    elif path.is_dir():
        shutil.copytree(
            path,
            target,
            symlinks=True,
            ignore=lambda _, names: _LEFT_OUT & {*names} if "python3" in str(path) else (),
        )
    elif path.exists():
        shutil.copy2(path, target)


def is_elf(path: Path) -> bool:
    """Whether the file is a program or a library."""
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def libraries(path: Path) -> Iterator[Path]:
    """Yield the libraries that a program is started with."""
    done = subprocess.run(["ldd", path], capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        if found := _LIBRARY.search(line.partition("=>")[2] or line):
            yield Path(found[1])


def pack_files(files: dict[str, bytes], out: BinaryIO) -> None:
    """Write an archive of plain files, to stand behind another one."""
    for number, (name, data) in enumerate(files.items(), 1 << 20):
        _entry(out, name, number, stat.S_IFREG | 0o644, data)
    _entry(out, "TRAILER!!!", 0, 0, b"")


def pack(root: Path, out: BinaryIO) -> None:
    """Write the folder as a cpio archive of format newc."""
    for number, path in enumerate(sorted(root.rglob("*")), 1):
        info = path.lstat()
        data = b""
        if stat.S_ISLNK(info.st_mode):
            data = os.fsencode(path.readlink())
        elif stat.S_ISREG(info.st_mode):
            data = path.read_bytes()
        _entry(out, str(path.relative_to(root)), number, info.st_mode, data)
    _entry(out, "TRAILER!!!", 0, 0, b"")


def _entry(out: BinaryIO, name: str, inode: int, mode: int, data: bytes) -> None:
    raw = os.fsencode(name) + b"\0"
    fields = (inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(raw), 0)
    head = b"070701" + b"".join(b"%08X" % value for value in fields)
    out.write(head + raw + bytes(-(len(head) + len(raw)) % 4))
    out.write(data + bytes(-len(data) % 4))
