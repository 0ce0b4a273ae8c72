"""One agent does everything that can be done to a tree; the list is exact, undo restores it."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from workspace.project import snapshot

if TYPE_CHECKING:
    from workspace.project import Project

pytestmark = pytest.mark.kernel

AGENT = r"""
import os, shutil
def put(path, text, mode="w"):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, mode) as f: f.write(text)
put("edit.txt", "more\n", "a")
put("new/deep/file.txt", "new\n")
os.remove("gone.txt")
os.rename("dir", "moved")                       # redirect
shutil.rmtree("replaced"); os.mkdir("replaced"); put("replaced/only.txt", "only\n")   # opaque
shutil.rmtree("todir"); put("todir", "a file now\n")
os.remove("tofile"); os.mkdir("tofile"); put("tofile/in.txt", "in\n")
os.remove("lnk"); os.mkdir("lnk"); put("lnk/authorized_keys", "evil\n")
os.symlink("/etc/passwd", "out"); os.symlink("edit.txt", "inside"); os.symlink("../../x", "up")
os.remove("retarget"); os.symlink("edit.txt", "retarget")
put(".git/hooks/post-commit", "#!/bin/sh\nevil\n"); os.chmod(".git/hooks/post-commit", 0o755)
put(".git/config", "[core]\n\tfsmonitor = evil\n", "a")
put(".git/HEAD", "ref: refs/heads/other\n")
put("sub/.envrc", "evil\n")
shutil.copy("/bin/true", "suid"); os.chmod("suid", 0o6755)
os.mkfifo("pipe")
put("esc\x1b[31m", "red\n")
with open("sparse", "r+b") as f: f.seek(60 << 20); f.write(b"end")
os.utime("touched.txt")
put("same.txt", "same\n")
os.chmod("mode.txt", 0o755)
os.chmod("modedir", 0o700)
put("script.sh", "#!/bin/sh\n"); os.chmod("script.sh", 0o755)
put("pair1", "pair\n"); os.link("pair1", "pair2")
put("conf.txt", "agent\n", "a")
put("both.txt", "agent\n")
os.remove("kept.txt")
"""

WANTED = """
M edit.txt
A new
A new/deep
A new/deep/file.txt
D gone.txt
D dir
D dir/a.txt
D dir/sub
D dir/sub/b.txt
A moved
A moved/a.txt
A moved/sub
A moved/sub/b.txt
D replaced/old.txt
A replaced/only.txt
D todir
D todir/x.txt
A todir
D tofile
A tofile
A tofile/in.txt
D lnk
A lnk
A lnk/authorized_keys
A out
A inside
A up
M retarget
A .git/hooks/post-commit
M .git/config
M .git/HEAD
A sub
A sub/.envrc
A suid
A pipe
A esc\x1b[31m
M sparse
M mode.txt
M modedir
A script.sh
A pair1
A pair2
M conf.txt
M both.txt
D kept.txt
"""


def fill(project: Project) -> None:
    for name in ("edit.txt", "gone.txt", "touched.txt", "conf.txt", "kept.txt", "mode.txt"):
        project.write(name, f"{name}\n")
    project.write("same.txt", "same\n")
    project.write("dir/a.txt", "a\n")
    project.write("dir/sub/b.txt", "b\n")
    project.write("replaced/old.txt", "old\n")
    project.write("todir/x.txt", "x\n")
    project.write("tofile", "file\n")
    project.write("modedir/x", "x\n")
    project.link("lnk", str(project.base / "ssh"))
    project.link("retarget", "gone.txt")
    project.write(".git/config", "[core]\n")
    project.write(".git/HEAD", "ref: refs/heads/main\n")
    project.write(".git/hooks/sample", "sample\n")
    sparse = project.write("sparse", "start\n")
    os.truncate(sparse, 64 << 20)
    ssh = project.base / "ssh"
    ssh.mkdir(mode=0o700)
    (ssh / "authorized_keys").write_text("mine\n")
    os.chown(ssh, project.uid, project.gid)


def wanted() -> set[tuple[str, str]]:
    lines = WANTED.strip().encode().decode("unicode_escape").splitlines()
    return {(line[0], line[2:]) for line in lines}


def test_everything_is_listed_applied_and_undone(project: Project):
    fill(project)
    run = project.agent(AGENT)
    project.write("conf.txt", "the person's\n")
    project.write("both.txt", "the person's\n")
    project.write("kept.txt", "changed by the person\n")
    before = snapshot(project.root)

    rows = project.diff(run)
    assert set(rows) == wanted()
    conflicts = {path for (_, path), row in rows.items() if row["conflict"]}
    assert conflicts == {"conf.txt", "both.txt", "kept.txt"}
    held = {path for (_, path), row in rows.items() if row["held"]}
    assert held == {".git/hooks/post-commit", ".git/config", "sub/.envrc"}
    assert [path for (_, path), row in rows.items() if row["left_out"]] == ["pipe"]
    assert rows["A", "out"]["notes"] == ["the link leads out of the workspace"]
    assert rows["A", "up"]["notes"] == ["the link leads out of the workspace"]
    assert rows["A", "inside"]["notes"] == []

    done = project.hark("apply", run)
    assert done.status == 1
    assert "\x1b" not in done.text
    after = snapshot(project.root)
    check_applied(project, before, after)

    left = {path for (_, path), row in project.diff(run).items()}
    assert left == conflicts | held | {"pipe"}

    assert project.hark("undo", run).status == 0
    assert snapshot(project.root) == before
    assert (project.base / "ssh/authorized_keys").read_text() == "mine\n"
    assert not list(project.root.rglob(".hark-*"))


def check_applied(project: Project, before: dict, after: dict) -> None:
    root = project.root
    assert (root / "edit.txt").read_text() == "edit.txt\nmore\n"
    assert (root / "new/deep/file.txt").read_text() == "new\n"
    assert not (root / "gone.txt").exists()
    assert not (root / "dir").exists()
    assert (root / "moved/sub/b.txt").read_text() == "b\n"
    assert [p.name for p in (root / "replaced").iterdir()] == ["only.txt"]
    assert (root / "todir").read_text() == "a file now\n"
    assert (root / "tofile/in.txt").read_text() == "in\n"
    assert not (root / "lnk").is_symlink()
    assert (root / "lnk/authorized_keys").read_text() == "evil\n"
    assert (root / "retarget").readlink().name == "edit.txt"
    for path in ("conf.txt", "both.txt", "kept.txt", ".git/config", "touched.txt", "same.txt"):
        assert after[path] == before[path], path
    for path in (".git/hooks/post-commit", "sub/.envrc", "pipe"):
        assert path not in after, path
    assert after[".git/HEAD"] != before[".git/HEAD"]
    assert stat.S_IMODE((root / "suid").stat().st_mode) == 0o755
    assert stat.S_IMODE((root / "script.sh").stat().st_mode) == 0o755
    assert stat.S_IMODE((root / "mode.txt").stat().st_mode) == 0o755
    assert stat.S_IMODE((root / "modedir").stat().st_mode) == 0o700
    sparse = (root / "sparse").stat()
    assert sparse.st_size == 64 << 20
    assert sparse.st_blocks * 512 < 4 << 20  # the copy-up itself takes steps of 1 MiB
    assert (root / "pair1").stat().st_ino == (root / "pair2").stat().st_ino
    assert {row[2] for row in after.values()} == {project.uid}
    assert not list(root.rglob(".hark-*"))


def test_hooks_are_applied_when_asked_for(mine: Project):
    mine.write(".git/config", "[core]\n")
    run = mine.agent("open('.git/config', 'a').write('evil'); open('.envrc', 'w').write('x')")
    assert mine.hark("apply", run).status == 1
    assert (mine.root / ".git/config").read_text() == "[core]\n"
    assert mine.hark("apply", run, "--hooks").status == 0
    assert (mine.root / ".git/config").read_text() == "[core]\nevil"
    assert (mine.root / ".envrc").read_text() == "x"


def test_a_second_apply_takes_what_is_left(mine: Project):
    for name in ("a", "b", "d/c"):
        mine.write(name, name)
    before = snapshot(mine.root)
    run = mine.agent(
        "import os; os.mkdir('e')\nfor n in ('a', 'b', 'd/c', 'e/f'): open(n, 'w').write('agent')"
    )
    assert mine.hark("apply", run, "d", "e/f").status == 0
    assert (mine.root / "a").read_text() == "a"
    assert (mine.root / "d/c").read_text() == "agent"
    assert (mine.root / "e/f").read_text() == "agent"
    assert set(mine.diff(run)) == {("M", "a"), ("M", "b")}
    assert mine.hark("apply", run).status == 0
    assert mine.hark("diff", run).text == "no changes\n"
    assert mine.hark("undo", run).status == 0
    assert (mine.root / "d/c").read_text() == "agent"
    assert mine.hark("undo", run).status == 0
    assert snapshot(mine.root) == before
    assert mine.hark("undo", run).status == 2
    # What was undone can be applied again: its new change time is no conflict.
    assert mine.hark("apply", run).status == 0
    assert (mine.root / "d/c").read_text() == "agent"


def test_dry_run_changes_nothing(mine: Project):
    mine.write("a", "a")
    run = mine.agent("open('a','w').write('b'); open('n','w').write('n')")
    before = snapshot(mine.root)
    done = mine.hark("apply", run, "--dry-run")
    assert done.status == 0
    assert done.text.splitlines()[-1] == "A 1  M 1  D 0"
    assert snapshot(mine.root) == before


def test_two_folders_that_changed_places(mine: Project):
    for name in ("a/same", "a/one", "b/same", "b/two"):
        mine.write(name, name)
    before = snapshot(mine.root)
    run = mine.agent("import os; os.rename('a', 't'); os.rename('b', 'a'); os.rename('t', 'b')")
    assert mine.hark("apply", run).status == 0
    found = {str(p.relative_to(mine.root)): p.read_text() for p in mine.root.rglob("[ost]*")}
    found = {path: text for path, text in found.items() if not path.startswith("run-")}
    assert found == {"a/same": "b/same", "a/two": "b/two", "b/same": "a/same", "b/one": "a/one"}
    assert mine.hark("diff", run).text == "no changes\n"
    assert mine.hark("undo", run).status == 0
    assert snapshot(mine.root) == before


def test_a_renamed_folder_is_not_taken_apart(mine: Project):
    mine.write("dir/a", "a")
    mine.write("dir/.envrc", "b")
    before = snapshot(mine.root)
    run = mine.agent("import os; os.rename('dir', 'moved')")
    done = mine.hark("apply", run, "dir")
    assert done.status == 1
    assert "it is moved/a now, which is not applied" in done.text
    assert snapshot(mine.root) == before
    assert mine.hark("apply", run).status == 1
    assert (mine.root / "moved/a").read_text() == "a"
    assert not (mine.root / "dir/a").exists()
    assert (mine.root / "dir/.envrc").read_text() == "b"
    assert mine.hark("apply", run, "--hooks").status == 0
    assert (mine.root / "moved/.envrc").read_text() == "b"
    assert not (mine.root / "dir").exists()
    assert mine.hark("diff", run).text == "no changes\n"
    assert mine.hark("undo", run).status == 0
    assert mine.hark("undo", run).status == 0
    assert snapshot(mine.root) == before
