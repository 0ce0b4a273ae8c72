"""At a run's start: list its folders as the person, and leave the state for later verbs.

``Listing.begin`` starts the walk in a process of its own, while the run's other processes come up;
``finish`` waits for it, before the agent exists. The same process then hands the files' contents
to the recorder (``hark.workspace.contents``), beside the agent. Rules: the child is wholly the
person, holds no descriptor but the folders, the manifests' files, a pipe and a socket, and never
returns.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from blake3 import blake3

from hark import limits
from hark.bundle import cbor
from hark.errors import LaunchError
from hark.policy import privileges
from hark.workspace import contents, manifest, state
from hark.workspace.writes import Written

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from hark.policy.person import Person
    from hark.workspace.contents import Rest

__all__ = ["Listed", "Listing", "Source"]

_GRACE_S = 10.0  # a stat on a dead network share never ends


@dataclass(frozen=True, slots=True)
class Source:
    """A folder below a writable layer: the layer's number, the path, a descriptor of it.

    ``hidden``: names in it that the agent does not see.
    """

    layer: int
    path: str
    fd: int
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Listed:
    """A walk's result: the state's digest, and each layer with its manifest open for reading.

    ``contents``: where the files' contents come from now on. ``pid``: the child that sends them.
    """

    state: bytes
    written: tuple[Written, ...]
    contents: socket.socket
    pid: int


@dataclass(slots=True)
class Listing:
    """A walk under way."""

    folder: int
    run: str
    person: Person
    sources: tuple[Source, ...]
    inodes: tuple[int, ...]
    files: tuple[int, ...]
    pid: int
    pipe: int
    contents: socket.socket

    @classmethod
    def begin(
        cls,
        folder: Path,
        run: str,
        person: Person,
        sources: Sequence[Source],
        *,
        rest: Rest | None = None,
        first: Callable[[socket.socket], None] | None = None,
    ) -> Listing:
        """Start listing; ``folder`` is the run's own. Raises LaunchError.

        ``rest``: what decides which contents are kept; None: none are read. ``first``: what the
        child sends before them.
        """
        try:
            at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            files = [
                os.open(state.manifest_name(s.layer), flags, 0o600, dir_fd=at) for s in sources
            ]
            inodes = tuple(os.fstat(source.fd).st_ino for source in sources)
            ours, theirs = os.pipe2(os.O_CLOEXEC)
            contents_in, contents_out = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            pid = os.fork()
        except OSError as error:
            raise LaunchError("the workspace cannot be listed", error.strerror or "") from error
        if pid == 0:
            _child(person, sources, files, theirs, (contents_out, rest, first))
        os.close(theirs)
        contents_out.close()
        return cls(at, run, person, tuple(sources), inodes, tuple(files), pid, ours, contents_in)

    def finish(self) -> Listed:
        """Wait for the walk and write the state. Raises LaunchError."""
        try:
            counts = self._counts()
            layers = tuple(
                state.Layer(source.layer, source.path, inode, _digest(file), count)
                for source, inode, file, count in zip(
                    self.sources, self.inodes, self.files, counts, strict=True
                )
            )
            who = self.person
            digest = state.write(
                self.folder,
                state.State(self.run, who.uid, who.gid, who.groups, who.name, layers),
            )
            written = tuple(self._written(layer) for layer in layers)
        except (OSError, ValueError) as error:
            self.close()
            raise LaunchError("the workspace cannot be listed", str(error)) from error
        listed = Listed(digest, written, self.contents.dup(), self.pid)
        self.pid = 0  # it goes on, as the session's child
        self._close_files()
        return listed

    def close(self) -> None:
        """End the walk, if it still goes on, and close everything. May be called twice."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0
            self._close_files()

    def _close_files(self) -> None:
        self.contents.close()
        for fd in (self.folder, self.pipe, *self.files):
            os.close(fd)

    def _written(self, layer: state.Layer) -> Written:
        name = state.manifest_name(layer.number)
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.folder)
        return Written(layer.path, fd, bytes.fromhex(layer.manifest))

    def _counts(self) -> list[int]:
        poll = select.poll()
        poll.register(self.pipe, select.POLLIN)
        data = b""
        while poll.poll((limits.WORKSPACE_WALK_S + _GRACE_S) * 1000):
            part = os.read(self.pipe, 65536)
            if not part:
                return [int(count) for count in json.loads(data)]
            data += part
        raise ValueError("listing takes too long; is it on a dead network share?")


def _digest(file: int) -> str:
    os.lseek(file, 0, os.SEEK_SET)
    with os.fdopen(os.dup(file), "rb") as stream:
        return blake3(stream.read()).hexdigest()


def _child(
    person: Person,
    sources: Sequence[Source],
    files: Sequence[int],
    pipe: int,
    after: tuple[socket.socket, Rest | None, Callable[[socket.socket], None] | None],
) -> None:
    """Never returns: whatever happens, this copy of the process ends here."""
    out, rest, first = after
    code = limits.EXIT_BUG
    try:
        if rest is not None or first is not None:
            _import_ahead()
        kept = [*(source.fd for source in sources), *files, pipe, out.fileno()]
        privileges.close_all_but(kept)
        privileges.kept_apart("hark-files")
        os.setgroups(person.groups)
        os.setresgid(person.gid, person.gid, person.gid)
        os.setresuid(person.uid, person.uid, person.uid)
        ends = time.monotonic() + limits.WORKSPACE_WALK_S
        pairs = list(zip(sources, files, strict=True))
        counts = [manifest.walk(source.fd, file, ends, source.hidden) for source, file in pairs]
        os.write(pipe, json.dumps(counts).encode())
        os.close(pipe)
        if first is not None:
            first(out)
        if rest is not None:
            _send(out, pairs, rest)
        code = 0
    finally:
        os._exit(code)


def _import_ahead() -> None:
    """Import what sending needs, as root: the person may not reach hark's own files."""
    import pathspec  # noqa: F401, PLC0415 - slow, and needed here alone

    cbor.encode(0)  # its codec is imported at the first use


def _send(out: socket.socket, pairs: Sequence[tuple[Source, int]], rest: Rest) -> None:
    room = limits.WORKSPACE_KEPT_BYTES
    for source, file in pairs:
        rows = manifest.load(file, bytes.fromhex(_digest(file)))
        room = contents.send_contents(out, (source.path, source.fd), rows, rest, room)
