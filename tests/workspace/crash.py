"""Cut an apply off before each of its system calls in turn; look at the tree; undo; look again.

Then do the same to undo. A program of its own, since it forks a process that becomes the person:
``crash.py RUN FOLDER STRIDE``. Prints one JSON object: the points that were tried, and what was
wrong at which.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hark.cli import app
from hark.workspace import carry, runs, undo
from workspace.project import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

CUT = 9
CALLS = """
    rename mkdir rmdir link unlink symlink write ftruncate fdatasync pwrite copy_file_range
    chmod fchmod utime
"""


def cut_before(number: int) -> None:
    """Have this process end before its ``number``-th system call that changes something."""
    left = [number]

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **more: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                os._exit(CUT)
            return call(*args, **more)

        return wrapper

    become = runs.OpenRun.become_person

    def arm(run: runs.OpenRun) -> None:
        become(run)
        for name in CALLS.split():
            setattr(os, name, counted(getattr(os, name)))
        carry.rename = counted(carry.rename)
        undo.rename = counted(undo.rename)

    runs.OpenRun.become_person = arm  # type: ignore[method-assign]


def child(words: list[str], cut: int = 0) -> int:
    """Run a verb in a process of its own; return its exit status."""
    pid = os.fork()
    if pid == 0:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        if cut:
            cut_before(cut)
        os._exit(app.main(words))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main() -> None:
    run, folder, stride = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    before = snapshot(folder)
    assert child(["apply", run]) == 0
    after = snapshot(folder)
    assert child(["undo", run]) == 0
    assert snapshot(folder) == before
    wrong: list[str] = []
    point = 1 - stride
    while True:
        point += stride
        status = child(["apply", run], point)
        if status != CUT:
            break
        cut = snapshot(folder)
        wrong += [
            f"{point}: {path} is half-way"
            for path, row in cut.items()
            if ".hark-" not in path and row[3] not in known(path, before, after)
        ]
        if point // stride % 2:  # both ways out of a crash: take it back, or go on
            expect(wrong, point, child(["undo", run]) in (0, 2), snapshot(folder), before)
        else:
            expect(wrong, point, child(["apply", run]) == 0, snapshot(folder), after)
            while child(["undo", run]) == 0:
                pass
            expect(wrong, point, True, snapshot(folder), before)
    points = point
    while child(["apply", run]) == 0:
        point += stride
        status = child(["undo", run], point - points)
        expect(wrong, point, child(["undo", run]) in (0, 2), snapshot(folder), before)
        if status != CUT:
            break
    sys.stdout.write(json.dumps({"points": point, "last": status, "wrong": wrong}))


def known(path: str, *trees: dict[str, tuple[Any, ...]]) -> list[Any]:
    """Return the contents a path may have."""
    return [tree[path][3] for tree in trees if path in tree]


def expect(wrong: list[str], point: int, ok: bool, found: Any, wanted: Any) -> None:
    if not ok:
        wrong.append(f"{point}: wrong exit status")
    paths = [path for path in found.keys() | wanted.keys() if found.get(path) != wanted.get(path)]
    wrong += [f"{point}: {path}: {found.get(path)}, not {wanted.get(path)}" for path in paths]


if __name__ == "__main__":
    main()
