"""A person's project in a folder of its own, and what the tests do with it.

Rules. The witness is the tree itself, read by plain os calls: never hark's own word.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.running import Finished, environment, hark

__all__ = ["Project", "snapshot"]

RUNS = Path("/var/lib/hark/runs")


def snapshot(root: Path) -> dict[str, tuple[Any, ...]]:
    """Path to (type, permissions, owner, content digest or target, mtime of files)."""
    out: dict[str, tuple[Any, ...]] = {}
    for folder, folders, files in os.walk(root):
        for name in [*folders, *files]:
            path = Path(folder) / name
            st = path.lstat()
            what: Any = None
            if stat.S_ISREG(st.st_mode):
                what = hashlib.sha256(path.read_bytes()).hexdigest(), st.st_mtime_ns
            elif stat.S_ISLNK(st.st_mode):
                what = path.readlink()
            key = os.fsdecode(os.fsencode(path.relative_to(root)))
            out[key] = (stat.S_IFMT(st.st_mode), stat.S_IMODE(st.st_mode), st.st_uid, what)
    return {path: row for path, row in out.items() if not path.startswith("run-")}


@dataclass(slots=True)
class Project:
    """One test's project; ``person`` owns it and runs the agent."""

    base: Path
    person: str
    uid: int
    gid: int
    runs: list[str] = field(default_factory=list)
    said: str = ""  # stderr of the last run

    @property
    def root(self) -> Path:
        """The workspace."""
        return self.base / "project"

    def write(self, path: str, text: str | bytes = "", mode: int = 0o644) -> Path:
        """Make a file of the person's, with its folders."""
        file = self.root / path
        for folder in reversed([file.parent, *file.parent.parents]):
            if not folder.exists():
                folder.mkdir()
                self.own(folder)
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        file.chmod(mode)
        self.own(file)
        return file

    def own(self, path: Path) -> None:
        """Give an entry to the person."""
        os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def link(self, path: str, target: str) -> None:
        """Make a link of the person's."""
        (self.root / path).symlink_to(target)
        self.own(self.root / path)

    def agent(self, script: str, *options: str, status: int = 0) -> str:
        """Run a Python script as the agent; return the run's id."""
        return self.printed(script, *options, status=status)[0]

    def printed(self, script: str, *options: str, status: int = 0) -> tuple[str, bytes]:
        """Run a Python script as the agent; return the run's id, and what the agent printed."""
        words = ["run", "--as", self.person, *options, "--", "/usr/bin/python3", "-c", script]
        done = hark(*words, cwd=self.root, env=environment(HOME="/nonexistent"))
        assert done.status == status, done.stderr
        found = re.search(r"run-([0-9A-Z]{26})\.hark", done.stderr)
        assert found, done.stderr
        self.runs.append(found[1])
        self.said = done.stderr
        return found[1], done.stdout

    def hark(self, *words: str | Path) -> Finished:
        """Run a hark verb in the project."""
        return hark(*words, cwd=self.root)

    def diff(self, run: str) -> dict[tuple[str, str], dict[str, Any]]:
        """(change, path) to its JSON row."""
        done = self.hark("diff", run, "--json")
        assert done.status == 0, done.stderr
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        return {(row["change"], row["path"]): row for row in rows}

    def close(self) -> None:
        """Remove all runs and the project."""
        for run in self.runs:
            shutil.rmtree(RUNS / run, ignore_errors=True)
        shutil.rmtree(self.base, ignore_errors=True)
