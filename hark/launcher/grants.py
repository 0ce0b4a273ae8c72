"""Which paths must be shown read-only so that a command runs: worked out, executing nothing.

The command's links, ``#!`` lines, virtual environment, pyenv shim, ELF interpreter and run path
are followed as the kernel and the loaders would. Everything is read as the person (the caller sees
to that), else a root process would follow links the person cannot. What would show too much (HOME,
a folder of secrets, an ancestor of either) is never granted by this; then only the file is.
"""

from __future__ import annotations

import itertools
import os
import re
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from hark import limits
from hark.errors import InputError
from hark.launcher.plan import PathGrant, inside

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Command", "Files", "LocalFiles", "Resolved", "resolve", "shown"]

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc")
_SHARED_TMP = "/tmp"  # noqa: S108 - a name, not a use
_WIDE = ("/", "/home", "/root", "/opt", "/srv", "/var", "/var/lib", "/mnt", "/media", _SHARED_TMP)
_WIDE_IN_HOME = ("", ".local", ".local/bin", ".local/share", ".cargo", ".config", ".cache", "bin")
_SECRET = (
    ".ssh",
    ".aws",
    ".azure",
    ".gnupg",
    ".config",
    ".kube",
    ".docker",
    ".mozilla",
    ".netrc",
    ".local/share/keyrings",
    ".password-store",
)
_LINKS_MOST = 40  # the kernel's own limit
_ELF_HEAD_BYTES = 1 << 20
_PROGRAM_HEADERS_MOST = 512


class Files(Protocol):
    """The few questions about a file system that a resolution asks."""

    def readlink(self, path: str) -> str | None:
        """Return the target of a link, or None for anything else."""

    def kind(self, path: str) -> str:
        """Return "folder", "file" or "" (absent, or neither), following links."""

    def executable(self, path: str) -> bool:
        """Return whether the person may execute this file."""

    def head(self, path: str, size: int) -> bytes:
        """Return up to ``size`` first bytes, empty when unreadable."""


class LocalFiles:
    """This machine's files, with the rights of the calling process."""

    def readlink(self, path: str) -> str | None:
        """Return the target of a link, or None for anything else."""
        try:
            return os.readlink(path)  # noqa: PTH115 - a Path would drop "./" and trailing slashes
        except OSError:
            return None

    def kind(self, path: str) -> str:
        """Return "folder", "file" or ""."""
        if os.path.isdir(path):  # noqa: PTH112
            return "folder"
        return "file" if os.path.isfile(path) else ""  # noqa: PTH113

    def executable(self, path: str) -> bool:
        """Return whether this process may execute this file, by its effective ids."""
        return self.kind(path) == "file" and os.access(path, os.X_OK, effective_ids=True)

    def head(self, path: str, size: int) -> bytes:
        """Return up to ``size`` first bytes; never blocks on a fifo."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError:
            return b""
        with os.fdopen(fd, "rb") as file:
            try:
                return file.read(size)
            except OSError:
                return b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What is to run: arguments, working folder, and the person's PATH, HOME and workspace.

    ``environment`` needs only what changes the choice of an interpreter (PYENV_VERSION).
    """

    argv: tuple[str, ...]
    cwd: str
    path: str
    home: str
    workspace: str
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The program to execute, arguments, grants with reasons, PATH inside, and notes to print."""

    file: str
    argv: tuple[str, ...]
    grants: tuple[PathGrant, ...]
    path: str
    notes: tuple[str, ...]


def resolve(command: Command, files: Files, readable: Sequence[str] = ()) -> Resolved:
    """Work out the grants. ``readable``: paths the policy shows already.

    Raises ``InputError`` with the shell's exit codes in mind: a missing program, one that is not
    executable, a ``#!`` chain without end.
    """
    work = _Resolution(command, files, readable)
    argv = work.follow(list(command.argv), 1)
    return Resolved(
        file=argv[0],
        argv=(work.name(argv[0]), *argv[1:]),
        grants=tuple(work.grants.values()),
        path=work.visible_path(),
        notes=tuple(work.notes),
    )


def shown(paths: Sequence[str], files: Files, reason: str) -> tuple[PathGrant, ...]:
    """Return the grants of absolute paths that a policy names; links on the way are shown too.

    A path that does not exist is left out: a policy may name what a host does not have.
    """
    nothing = Command(argv=(), cwd="/", path="", home="/", workspace="/")
    work = _Resolution(nothing, files, ())
    out = []
    for path in paths:
        real = work.real(path)
        kind = files.kind(real)
        if not kind:
            continue
        out.append(PathGrant(real, "folder" if kind == "folder" else "file", reason))
        plain = os.path.normpath(path)
        if plain != real:
            out.append(PathGrant(plain, "link", reason, real))
    return tuple(out)


class _Resolution:
    """State of one resolution; the methods only add to it."""

    def __init__(self, command: Command, files: Files, readable: Sequence[str]) -> None:
        self.command = command
        self.files = files
        self.home = self.real(command.home)
        self.workspace = self.real(command.workspace)
        self.readable = [self.real(p) for p in readable]
        self.grants: dict[str, PathGrant] = {}
        self.notes: list[str] = []
        self.first = ""
        self.shimmed = ""  # folder of the program behind a shim: it stands first in PATH

    def real(self, path: str) -> str:
        """Follow every link in every component; like realpath(3), but through ``files``."""
        todo = [p for p in path.split("/") if p][::-1]
        at, links = "", 0
        while todo:
            part = todo.pop()
            if part == ".":
                continue
            if part == "..":
                at = at.rpartition("/")[0]
                continue
            target = self.files.readlink(f"{at}/{part}")
            if target is None or links >= _LINKS_MOST:
                at = f"{at}/{part}"
                continue
            links += 1
            if target.startswith("/"):
                at = ""
            todo += [p for p in target.split("/") if p][::-1]
        return at or "/"

    def hops(self, path: str) -> list[str]:
        """Every link of a chain, then the real file: each must exist inside as well."""
        seen = [path]
        while len(seen) < _LINKS_MOST:
            target = self.files.readlink(seen[-1])
            if target is None:
                break
            folder = seen[-1].rpartition("/")[0]
            seen.append(os.path.normpath(target if target[:1] == "/" else f"{folder}/{target}"))
        real = self.real(path)
        return seen if seen[-1] == real else [*seen, real]

    def visible(self, path: str) -> bool:
        """Whether a path exists inside without a further grant."""
        folders = [g.path for g in self.grants.values() if g.kind != "link"]
        roots = (*_SYSTEM, self.workspace, *self.readable, *folders)
        return any(inside(path, root) for root in roots)

    def too_wide(self, folder: str) -> bool:
        """Whether showing this folder would show secrets, or all of somebody's files."""
        if folder in _WIDE or inside(self.home, folder) or inside(self.workspace, folder):
            return True
        in_home = [f"{self.home}/{name}" for name in _SECRET]
        wide = [f"{self.home}/{name}".rstrip("/") for name in _WIDE_IN_HOME]
        if folder in wide or any(inside(folder, s) or inside(s, folder) for s in in_home):
            return True
        return any(self.files.kind(f"{folder}/{name}") for name in _SECRET)

    def grant(self, path: str, reason: str) -> None:
        """Show this file or folder, unless it is visible, missing or too wide."""
        kind = self.files.kind(path)
        if not kind or self.visible(path):
            return
        if kind == "folder":
            if self.too_wide(path):
                self.notes.append(f"not shown: {path} ({reason}): too wide")
                return
            self.grants[path] = PathGrant(path, "folder", reason)
        else:
            self.grants[path] = PathGrant(path, "file", reason)

    def find(self, name: str) -> str:
        """Return the path a shell would run."""
        cwd = self.command.cwd
        if "/" in name:
            path = os.path.normpath(os.path.join(cwd, name))  # noqa: PTH118
            if not self.files.kind(path):
                raise _Missing(f"{name}: no such program", "", "check the path")
            return path
        found = ""
        for folder in self.command.path.split(":"):
            path = os.path.normpath(os.path.join(cwd, folder or ".", name))  # noqa: PTH118
            if self.files.executable(path):
                return path
            found = found or (path if self.files.kind(path) == "file" else "")
        if found:
            return found
        raise _Missing(f"{name}: no such program", f"not on PATH: {self.command.path}")

    def follow(self, argv: list[str], depth: int) -> list[str]:
        """Grant what one program needs, then what its interpreter needs; return argv to execute."""
        if depth > limits.LAUNCH_SHEBANG_DEPTH:
            raise InputError(f"{argv[0]}: the #! chain does not end")
        path = self.find(argv[0])
        chain = self.hops(path)
        real = chain[-1]
        if self.files.kind(real) == "folder":
            raise _NotExecutable(f"{path} is a folder, not a program")
        if not self.files.executable(real):
            raise _NotExecutable(f"{path} is not executable", "", f"chmod +x {path}")
        self.first = self.first or path
        head = self.files.head(real, limits.LAUNCH_HEAD_BYTES)
        if head.startswith(b"#!"):
            return self.script(argv, path, chain, head, depth)
        self.links_and_prefix(chain, "program" if depth == 1 else "interpreter")
        self.elf(real)
        if depth == 1:
            self.arguments(argv[1:])
        return [path, *argv[1:]]

    def script(
        self, argv: list[str], path: str, chain: list[str], head: bytes, depth: int
    ) -> list[str]:
        """Resolve a ``#!`` file; a version manager's shim is replaced by what it would run."""
        shimmed = self.shim(path, head)
        if shimmed:
            self.notes.append(f"shim {path} runs {shimmed}")
            self.shimmed = shimmed.rpartition("/")[0]
            self.first = ""
            return self.follow([shimmed, *argv[1:]], depth + 1)
        self.links_and_prefix(chain, "script")
        line = head.split(b"\n", 1)[0][2:].decode(errors="replace").split()
        if not line:
            raise _NotExecutable(f"{path}: its #! line names no interpreter")
        name = env_target(line) if os.path.basename(line[0]) == "env" else line[0]  # noqa: PTH119
        if name:
            self.follow([name], depth + 1)
        if depth == 1:
            self.arguments(argv[1:])
        return [path, *argv[1:]]

    def shim(self, path: str, head: bytes) -> str:
        """Return the interpreter behind a pyenv shim, else "" (a shim is 40 execs of bash)."""
        folder, _, name = path.rpartition("/")
        root, _, last = folder.rpartition("/")
        if last != "shims" or b"pyenv" not in head:
            return ""
        for version in self.pyenv_versions(root):
            real = f"{root}/versions/{version}/bin/{name}"
            if self.files.executable(real):
                return real
        return ""

    def pyenv_versions(self, root: str) -> list[str]:
        """Return versions in pyenv's order: the variable, .python-version upwards, the global."""
        chosen = self.command.environment.get("PYENV_VERSION", "")
        texts = [chosen.replace(":", "\n")] if chosen else []
        folder = self.command.cwd
        while not chosen and folder and folder != "/":
            texts.append(self.text(f"{folder}/.python-version"))
            folder = folder.rpartition("/")[0]
        texts.append(self.text(f"{root}/version"))
        return next((text.split() for text in texts if text.split()), [])

    def text(self, path: str) -> str:
        """Return the text of a small file, "" when there is none."""
        return self.files.head(path, limits.LAUNCH_HEAD_BYTES).decode(errors="replace")

    def links_and_prefix(self, chain: list[str], reason: str) -> None:
        """Grant the real file's surroundings, and each link on the way to it."""
        for link, target in itertools.pairwise(chain):
            base = self.venv_of(link)
            if base:
                self.venv(base)
            elif not self.visible(link):
                self.grants[link] = PathGrant(link, "link", "link to the program", target)
        self.prefix(chain[-1], reason)

    def venv_of(self, path: str) -> str:
        """Return the virtual environment a program lies in, decided by the link, not its target."""
        folder = path.rpartition("/")[0]
        for base in (folder, folder.rpartition("/")[0]):
            if base and self.files.kind(f"{base}/pyvenv.cfg") == "file":
                return base
        return ""

    def venv(self, base: str) -> None:
        """Grant a virtual environment and the Python it was made from."""
        real = self.real(base)
        if real != base and not self.visible(base):
            self.grants[base] = PathGrant(base, "link", "link to the virtual environment", real)
        self.grant(real, "virtual environment")
        found = re.search(r"(?m)^home\s*=\s*(.+?)\s*$", self.text(f"{base}/pyvenv.cfg"))
        if not found:
            return
        for name in ("python3", "python"):
            path = f"{found[1]}/{name}"
            if self.files.kind(path):
                chain = self.hops(path)
                self.links_and_prefix(chain, "base of the virtual environment")
                self.elf(chain[-1])
                return

    def prefix(self, real: str, reason: str) -> None:
        """Grant what belongs to a program: its prefix where that is a folder of its own."""
        if self.visible(real):
            return
        folder = real.rpartition("/")[0]
        up = folder.rpartition("/")[0] or "/"
        base = self.venv_of(real)
        if base:
            self.venv(base)
        elif real.startswith("/nix/store/"):
            self.grant("/nix/store", "nix store")
        elif real.startswith("/snap/"):
            self.notes.append(f"{real}: a snap needs setuid snap-confine, which cannot run here")
        elif "/node_modules/" in real:
            top = real[: real.index("/node_modules/")]
            self.grant(f"{top}/node_modules", "node packages")
            self.grant(f"{top}/package.json", "type of the node packages")
        elif folder.rpartition("/")[2] in ("bin", "sbin", "libexec") and not self.too_wide(up):
            self.grant(up, f"{reason}: its prefix")
        else:
            self.grant(real, f"{reason}: the file alone")

    def elf(self, real: str) -> None:
        """Grant the ELF interpreter and the run path of a program."""
        head = self.files.head(real, _ELF_HEAD_BYTES)
        loader, run_path = elf_needs(head)
        if loader:
            self.grant(self.real(loader), "ELF interpreter")
        for part in run_path:
            path = self.real(part.replace("$ORIGIN", real.rpartition("/")[0]))
            # unreadable, it would silently bind the system's library of the same name
            self.grant(path, "run path of the program")

    def arguments(self, words: list[str]) -> None:
        """Grant an existing file that an argument names: that file and nothing around it."""
        for word in words:
            if word.startswith("-") or "\0" in word or len(word) >= limits.LAUNCH_HEAD_BYTES:
                continue
            path = self.real(os.path.join(self.command.cwd, word))  # noqa: PTH118
            if self.files.kind(path) == "file":
                self.grant(path, "argument that names a file")

    def name(self, program: str) -> str:
        """Return argv[0]: as it was written, else the path that runs instead.

        Behind a shim too: Python looks for its library beside the file that argv[0] names.
        """
        return program if self.shimmed or program != self.first else self.command.argv[0]

    def visible_path(self) -> str:
        """Return PATH without the folders that do not exist inside.

        What a shim stood for comes first, as the shim's folder did.
        """
        out = [self.shimmed] if self.shimmed else []
        for folder in self.command.path.split(":"):
            real = self.real(folder) if folder.startswith("/") else ""
            shown = any(inside(path, folder) for path in self.grants)
            if real and (self.visible(real) or shown) and folder not in out:
                out.append(folder)
        return ":".join(out)


class _Missing(InputError):
    """No such program: a shell's 127."""

    exit_code = 127


class _NotExecutable(InputError):
    """A program that cannot be executed: a shell's 126."""

    exit_code = 126


def env_target(line: list[str]) -> str:
    """Return the program that ``#!/usr/bin/env ...`` runs: after options and NAME=value words."""
    for word in line[1:]:
        if not word.startswith("-") and "=" not in word:
            return word
    return ""


def elf_needs(head: bytes) -> tuple[str, list[str]]:
    """Return interpreter and run path of a 64-bit little-endian ELF file's first bytes.

    System V ABI, chapters 4 and 5. Anything else, and anything that lies beyond, is no need.
    """
    if head[:6] != b"\x7fELF\x02\x01" or len(head) < 64:  # noqa: PLR2004 - Elf64_Ehdr
        return "", []
    (table,) = struct.unpack_from("<Q", head, 32)
    size, count = struct.unpack_from("<HH", head, 54)
    loader, dynamic, loads = "", b"", []
    for n in range(min(count, _PROGRAM_HEADERS_MOST)):
        at = table + n * size
        if at + 56 > len(head):
            break
        kind, _, offset, address, _, length = struct.unpack_from("<IIQQQQ", head, at)
        part = head[offset : offset + length]
        if kind == 3:  # noqa: PLR2004 - PT_INTERP
            loader = part.rstrip(b"\0").decode(errors="replace")
        elif kind == 2:  # noqa: PLR2004 - PT_DYNAMIC
            dynamic = part
        elif kind == 1:
            loads.append((address, offset, length))
    return loader, run_path(head, dynamic, loads)


def run_path(head: bytes, dynamic: bytes, loads: list[tuple[int, int, int]]) -> list[str]:
    """Return the parts of DT_RUNPATH and DT_RPATH; the string table is found by its address."""
    tags: dict[int, int] = {}
    for at in range(0, len(dynamic) - 15, 16):
        tag, value = struct.unpack_from("<qQ", dynamic, at)
        if tag in (5, 15, 29):  # DT_STRTAB, DT_RPATH, DT_RUNPATH
            tags.setdefault(tag, value)
    table = tags.get(5, -1)
    strings = next((o + table - a for a, o, n in loads if a <= table < a + n), -1)
    if strings < 0:
        return []
    out = []
    for tag in (15, 29):
        if tag in tags:
            text = head[strings + tags[tag] :].split(b"\0", 1)[0].decode(errors="replace")
            out += [part for part in text.split(":") if part.startswith(("/", "$ORIGIN"))]
    return out
