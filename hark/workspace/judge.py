"""Which changes may be carried over, and which are held or in conflict.

Pure but for the questions it asks of the two views. A conflict is a path that is not as it was when
the run began: the person's version stays. Held is what programs outside hark run by themselves:
the next ``git status`` would execute what the agent wrote. Special files are never carried.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hark.workspace.content import digest_file, digest_link
from hark.workspace.paths import folder_of, parent_of, stat_below

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from hark.workspace.changes import Change, Views
    from hark.workspace.manifest import Manifest, Row

__all__ = ["Judged", "held_reason", "judge", "keep_sources"]

_SETID = 0o6000

# Compared case-folded: a case-insensitive file system would run them under any spelling.
_HELD_FOLDERS = frozenset(
    """
    .husky .githooks .lefthook .direnv .vscode .idea .zed .fleet .devcontainer
    .cursor .claude .codex .gemini .opencode
    """.split()  # noqa: SIM905 - a table for people
)
_HELD_FILES = frozenset(
    """
    .envrc .autoenv .autoenv.zsh .mise.toml mise.toml .npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs
    .pre-commit-config.yaml .pre-commit-config.yml lefthook.yml lefthook.yaml .mcp.json
    .devcontainer.json .vimrc .nvimrc .exrc .nvim.lua .dir-locals.el .gdbinit .lldbinit
    .bashrc .bash_profile .profile .zshrc .zshenv .zprofile .gitconfig .tmux.conf .screenrc
    """.split()  # noqa: SIM905 - a table for people
)
_GIT_FILES = frozenset(("config", "config.worktree", "commondir", "gitdir"))


@dataclass(frozen=True, slots=True)
class Judged:
    """A change with what speaks against it; ``notes`` do not."""

    change: Change
    held: str = ""
    conflict: str = ""
    never: str = ""
    notes: tuple[str, ...] = ()

    def stopped(self, *, hooks: bool) -> bool:
        """Whether it stays out of the workspace."""
        return bool(self.conflict or self.never or (self.held and not hooks))


def held_reason(path: str) -> str:
    """Say what would run the file outside hark; "" for an ordinary one."""
    parts = [part.casefold() for part in path.split("/")]
    folder = next((part for part in parts if part in _HELD_FOLDERS), "")
    if folder:
        return f"programs outside hark read {folder}"
    file = next((part for part in parts if part in _HELD_FILES), "")
    if file:
        return f"programs outside hark read {file}"
    if ".git" in parts:
        inside = parts[parts.index(".git") + 1 :]
        if not inside or "hooks" in inside or inside[-1] in _GIT_FILES:
            return "git reads it, and runs commands it names"
    return ""


def judge(changes: Iterable[Change], views: Views, start: Manifest) -> list[Judged]:
    """Judge all changes of a layer against its start manifest, in their order."""
    listed = list(changes)
    deleted = {c.path for c in listed if c.op == "D"}
    return _spread([_judge(change, views, start, deleted) for change in listed])


def keep_sources(
    rows: list[Judged], going: list[Judged], views: Views, *, hooks: bool
) -> list[Judged]:
    """Stop what would take a renamed folder's content away while its new place is not made.

    ``rows`` are all changes of a layer, ``going`` those that were chosen; returns these anew.
    """
    chosen = {id(row) for row in going}
    out = going
    while True:
        stopped = {row.change.path for row in out if row.stopped(hooks=hooks)}
        stopped |= {row.change.path for row in rows if id(row) not in chosen}
        needed = {
            origin: row.change.path
            for row in rows
            if row.change.op != "D"
            and row.change.path in stopped
            and (origin := views.touched.origin(row.change.path)) is not None
        }
        found = [
            replace(row, conflict=f"it is {needed[row.change.path]} now, which is not applied")
            if row.change.path in needed and not row.stopped(hooks=hooks)
            else row
            for row in out
        ]
        if found == out:
            return _stopped_deletions(out)
        out = found


def _judge(change: Change, views: Views, start: Manifest, deleted: set[str]) -> Judged:
    reason = _held(change, views)
    never = change.failed
    if change.op == "A" and change.kind == "special":
        never = "a special file"
    conflict = _conflict(change, views, start, deleted)
    return Judged(change, reason, conflict, never, _notes(change, views))


def _held(change: Change, views: Views) -> str:
    if change.op == "D":
        return ""
    path = change.path
    name = path.rpartition("/")[2]
    if change.kind == "folder" and name.casefold() == ".git":
        return ""  # what is in it is judged for itself
    reason = held_reason(path)
    if not reason and name.casefold() == "config" and _beside(views, path, "HEAD"):
        return "git reads it where the folder is taken for a repository"
    return reason


def _beside(views: Views, path: str, name: str) -> bool:
    folder = parent_of(path)[0]
    return stat_below(views.merged, f"{folder}/{name}" if folder else name) is not None


def _conflict(change: Change, views: Views, start: Manifest, deleted: set[str]) -> str:
    path = change.path
    source = _lost_source(path, views)
    if source:
        return f"renamed from {source}, which is not there any more"
    if not start.known(path):
        return "not listed when the run began"
    row = start.row(path)
    if change.op == "A":
        return "" if row is None or path in deleted else "removed since the run began"
    if row is None:
        return "made since the run began"
    return "" if _as_begun(change, views, row, start.touched) else "changed since the run began"


def _as_begun(change: Change, views: Views, row: Row, touched: Collection[tuple[int, int]]) -> bool:
    """Whether the person's entry is the one the manifest has."""
    now = change.now
    if now is None:
        return False  # it could not be looked at
    if stat.S_ISDIR(now.st_mode):
        return stat.S_ISDIR(row.mode) and (change.op == "D" or row.mode == now.st_mode)
    if row.digest:
        return row.mode == now.st_mode and _digest(views.lower, change.path, now) == row.digest
    return row.same_stat(now, touched)


def _digest(root: int, path: str, st: os.stat_result) -> bytes:
    try:
        if stat.S_ISLNK(st.st_mode):
            return digest_link(root, path)
        return digest_file(root, path) if stat.S_ISREG(st.st_mode) else b""
    except OSError:
        return b""


def _lost_source(path: str, views: Views) -> str:
    """Return the former path of a renamed folder above ``path`` that the person has removed."""
    if not views.touched.sources:
        return ""
    while path:
        source = views.touched.sources.get(path)
        if source is not None:
            st = stat_below(views.lower, source)
            if st is None or not stat.S_ISDIR(st.st_mode):
                return source
        path = parent_of(path)[0]
    return ""


def _notes(change: Change, views: Views) -> tuple[str, ...]:
    out = []
    new = change.new
    if new is not None and stat.S_ISREG(new.st_mode) and new.st_mode & _SETID:
        out.append("set-id bits are left out")
    if new is not None and stat.S_ISLNK(new.st_mode) and _leaves(change.path, views):
        out.append("the link leads out of the workspace")
    return tuple(out)


def _leaves(path: str, views: Views) -> bool:
    try:
        with folder_of(views.merged, path) as (fd, name):
            target = os.readlink(name, dir_fd=fd)
    except OSError:
        return False
    if target.startswith("/"):
        return True
    whole = os.path.normpath(f"{parent_of(path)[0] or '.'}/{target}")
    return whole == ".." or whole.startswith("../")


def _spread(rows: list[Judged]) -> list[Judged]:
    """A folder stays when something in it stays; nothing comes where something else stays."""
    return _blocked_additions(_stopped_deletions(_twins(rows)))


def _twins(rows: list[Judged]) -> list[Judged]:
    """What was replaced goes only where its replacement comes."""
    gone = {r.change.path for r in rows if r.change.op == "D"}
    twins = {r.change.path: r for r in rows if r.change.op == "A" and r.change.path in gone}
    out = []
    for row in rows:
        twin = _first_above(row.change.path, twins) if row.change.op == "D" else None
        if twin is None:
            out.append(row)
            continue
        conflict = row.conflict or twin.conflict or (twin.never and f"replaced by {twin.never}")
        out.append(replace(row, held=row.held or twin.held, conflict=conflict))
    return out


def _first_above(path: str, found: dict[str, Judged]) -> Judged | None:
    while path:
        if path in found:
            return found[path]
        path = parent_of(path)[0]
    return None


def _stopped_deletions(rows: list[Judged]) -> list[Judged]:
    """A folder that keeps something cannot go. Held ones inherit that, so that --hooks lifts it."""
    reasons: dict[str, Judged] = {}
    for row in rows:
        if row.change.op == "D" and row.stopped(hooks=False):
            path = row.change.path
            while path := parent_of(path)[0]:
                if path not in reasons or row.stopped(hooks=True):
                    reasons[path] = row
    out = []
    for row in rows:
        inner = reasons.get(row.change.path) if row.change.op == "D" else None
        if inner is None or row.stopped(hooks=True):
            out.append(row)
        elif inner.stopped(hooks=True):
            out.append(replace(row, conflict="something in it stays"))
        else:
            out.append(replace(row, held=row.held or inner.held))
    return out


def _blocked_additions(rows: list[Judged]) -> list[Judged]:
    """Nothing is made in a folder that is not made itself; folders come first in the list."""
    stay = {r.change.path: r for r in rows if r.change.op == "D" and r.stopped(hooks=False)}
    out = []
    blocked: dict[str, Judged] = {}
    for given in rows:
        row = given
        if row.change.op == "A":
            path = row.change.path
            cause = stay.get(path) or blocked.get(parent_of(path)[0])
            if cause is not None and not row.stopped(hooks=True):
                if cause.stopped(hooks=True):
                    why = "what was there stays" if path in stay else "its folder is not made"
                    row = replace(row, conflict=why)
                else:
                    row = replace(row, held=row.held or cause.held)
            if row.stopped(hooks=False):
                blocked[path] = row
        out.append(row)
    return out
