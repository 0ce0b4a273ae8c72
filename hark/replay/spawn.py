"""Names of processes and threads that are the same in every execution.

Pure. The authority is docs/spec/replay.md, "Who acts". Rules: a name comes from fork events alone;
ids are only looked up. What is not known has the name ``-`` and no lineage.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from hark import limits
from hark.replay.identity import framed, keyed

__all__ = ["UNKNOWN", "Spawn"]

UNKNOWN = "-"
_START = keyed("lineage", b"")
_AGENT = "agent"


@dataclass(slots=True)
class _Thread:
    path: str
    processes: int = 0
    threads: int = 0


@dataclass(slots=True)
class _Process:
    path: str
    lineage: bytes
    program: bytes = b""
    threads: dict[int, _Thread] = field(default_factory=dict)


class Spawn:
    """Follows fork and exec events; actors are the ``[tgid, tid, start_ns, …]`` of events.

    Ended processes and threads are kept, within bounds: their deeds can be recorded after them.
    """

    def __init__(self) -> None:
        self._processes: OrderedDict[tuple[int, int], _Process] = OrderedDict()
        self._has_agent = False

    def forked(self, actor: list[int] | None, child: list[int], *, thread: bool) -> None:
        """A thread made a process or a thread."""
        parent = self._thread(actor) if actor else None
        if thread:
            parent_path = parent.path if parent else UNKNOWN
            if parent:
                parent.threads += 1
            process = self._process(child)
            number = parent.threads if parent else 0
            known = parent is not None and parent.path != UNKNOWN
            path = f"{parent_path}:{number}" if known else UNKNOWN
            process.threads[child[1]] = _Thread(path)
            if len(process.threads) > limits.REPLAY_THREADS_KEPT:
                del process.threads[next(tid for tid in process.threads if tid != child[0])]
            return
        maker = self._process(actor) if actor else None
        path = UNKNOWN
        if parent and parent.path != UNKNOWN:
            parent.processes += 1
            path = f"{parent.path}/{parent.processes}"
        made = _Process(path, maker.lineage if maker else _START, maker.program if maker else b"")
        made.threads[child[1]] = _Thread(path)
        self._put((child[0], child[2]), made)

    def execed(self, actor: list[int] | None, filename: bytes) -> bytes:
        """A process executed a file: returns its lineage before that."""
        if actor is None:
            return _START
        process = self._process(actor)
        if not self._has_agent:
            self._has_agent = True
            process.path = _AGENT
        before = process.lineage
        process.lineage = keyed("lineage", before + framed(filename))
        process.program = filename
        # execve(2): the other threads are gone, and the one that called it is the first one now.
        first = process.threads.get(actor[0])
        kept = first if first and first.path == process.path else _Thread(process.path)
        process.threads = {actor[0]: kept}
        return before

    def path(self, actor: list[int] | None) -> str:
        """Return the spawn path of a thread."""
        thread = self._thread(actor) if actor else None
        return thread.path if thread else UNKNOWN

    def process_path(self, actor: list[int] | None) -> str:
        """Return the spawn path of a thread's process."""
        found = self._processes.get((actor[0], actor[2])) if actor else None
        return found.path if found else UNKNOWN

    def lineage(self, actor: list[int] | None) -> bytes | None:
        """Return the lineage of a process, or None when it is not known."""
        found = self._processes.get((actor[0], actor[2])) if actor else None
        return found.lineage if found else None

    def program(self, actor: list[int] | None) -> bytes:
        """Return the file that a process executed last, or nothing."""
        found = self._processes.get((actor[0], actor[2])) if actor else None
        return found.program if found else b""

    def _thread(self, actor: list[int]) -> _Thread:
        process = self._process(actor)
        if actor[1] not in process.threads:
            path = process.path if actor[1] == actor[0] else UNKNOWN
            process.threads[actor[1]] = _Thread(path)
        return process.threads[actor[1]]

    def _process(self, actor: list[int]) -> _Process:
        key = (actor[0], actor[2])
        if key not in self._processes:
            self._put(key, _Process(UNKNOWN, _START))
        return self._processes[key]

    def _put(self, key: tuple[int, int], process: _Process) -> None:
        self._processes[key] = process
        if len(self._processes) > limits.RECORDER_MAX_PROCESSES:
            self._processes.popitem(last=False)
