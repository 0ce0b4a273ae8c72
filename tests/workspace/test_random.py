"""Random trees and random acts: what is applied is what the agent itself saw at its end.

The agent prints its own view of the workspace; the applied tree must equal it, byte for byte and
mode for mode, and undo must give back the start.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from workspace.project import snapshot

if TYPE_CHECKING:
    from workspace.project import Project

pytestmark = pytest.mark.kernel

AGENT = r"""
import hashlib, json, os, random, shutil, stat, sys
r = random.Random(int(sys.argv[1]))
NAMES = ["a", "b", "c", "d", "e"]

def folders():
    return ["."] + [os.path.join(f, d) for f, ds, _ in os.walk(".") for d in ds
                    if not os.path.islink(os.path.join(f, d))]

def entries():
    return [os.path.join(f, n) for f, ds, ns in os.walk(".") for n in ds + ns]

def act():
    kind = r.choice("write write append remove rename rename rename mkdir link hard mode tree"
                    .split())
    place = os.path.join(r.choice(folders()), r.choice(NAMES))
    found = entries()
    one = r.choice(found) if found else place
    if kind == "write":
        with open(place, "w") as f: f.write(str(r.random()))
    elif kind == "append":
        with open(one, "a") as f: f.write("+")
    elif kind == "remove":
        shutil.rmtree(one) if os.path.isdir(one) and not os.path.islink(one) else os.unlink(one)
    elif kind == "rename":
        os.rename(one, place)
    elif kind == "mkdir":
        os.mkdir(place)
    elif kind == "link":
        os.symlink(r.choice(NAMES), place)
    elif kind == "hard":
        os.link(one, place, follow_symlinks=False)
    elif kind == "mode":
        if not os.path.islink(one): os.chmod(one, r.choice([0o700, 0o755, 0o750]))
    elif kind == "tree":
        os.makedirs(os.path.join(place, "x", "y"))
        open(os.path.join(place, "x", "f"), "w").write("t")

for _ in range(int(sys.argv[2])):
    try: act()
    except OSError: pass
"""

VIEW = r"""
out = {}
for f, ds, ns in os.walk("."):
    for n in ds + ns:
        p = os.path.join(f, n); st = os.lstat(p); what = None
        if stat.S_ISREG(st.st_mode): what = hashlib.sha256(open(p, "rb").read()).hexdigest()
        elif stat.S_ISLNK(st.st_mode): what = os.readlink(p)
        out[p[2:]] = [stat.S_IFMT(st.st_mode), stat.S_IMODE(st.st_mode), what]
"""


def seen_from_outside(root: Path) -> dict[str, list[Any]]:
    out: dict[str, list[Any]] = {}
    for folder, folders, files in os.walk(root):
        for name in [*folders, *files]:
            path = Path(folder) / name
            st = path.lstat()
            what = None
            if stat.S_ISREG(st.st_mode):
                what = hashlib.sha256(path.read_bytes()).hexdigest()
            elif stat.S_ISLNK(st.st_mode):
                what = str(path.readlink())
            row = [stat.S_IFMT(st.st_mode), stat.S_IMODE(st.st_mode), what]
            out[str(path.relative_to(root))] = row
    return {path: row for path, row in out.items() if not path.startswith("run-")}


@pytest.mark.parametrize("seed", range(6))
def test_the_applied_tree_is_the_agents(mine: Project, seed: int):
    for top in "abc":
        for inner in "abc":
            for name in ("a", "b", "file"):
                mine.write(f"{top}/{inner}/{name}", f"{top}{inner}{name}")
    before = snapshot(mine.root)
    script = (
        f"import sys; sys.argv = ['', '{seed}', '{60 if seed else 5}']\n{AGENT}\n{VIEW}\n"
        "print(json.dumps(out))"
    )
    run, printed = mine.printed(script)
    wanted = json.loads(printed)
    done = mine.hark("apply", run)
    assert done.status == 0, done.text
    assert seen_from_outside(mine.root) == wanted
    assert mine.hark("diff", run).text == "no changes\n"
    assert mine.hark("undo", run).status == 0
    assert snapshot(mine.root) == before
    assert mine.hark("apply", run).status == 0
    assert seen_from_outside(mine.root) == wanted
