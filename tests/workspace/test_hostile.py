"""Conflicts, links that lead out, crashes, hard links, deep trees: nothing of theirs is lost."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from harness.running import PYTHON, environment

from workspace.project import RUNS, Project, snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.kernel

CRASH = Path(__file__).with_name("crash.py")


@pytest.fixture
def elsewhere() -> Iterator[Project]:
    """A project on another file system than the run folders."""
    base = Path(tempfile.mkdtemp(prefix="hark-workspace-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "none", base], check=True)
    project = Project(base, "nobody", 65534, 65534)
    project.root.mkdir()
    project.own(project.root)
    yield project
    subprocess.run(["umount", "-l", base], check=True)
    project.close()


# --- conflicts ---


def test_what_the_person_changed_meanwhile_stays(mine: Project):
    for name in ("same size", "touched back", "replaced", "deleted", "dir/inner", "chmod"):
        mine.write(name, "1234")
    run = mine.agent(
        "import os, shutil\n"
        "for n in ('same size', 'touched back', 'replaced', 'deleted', 'chmod'):\n"
        "    open(n, 'w').write('agent')\n"
        "shutil.rmtree('dir'); open('new', 'w').write('agent')"
    )
    mine.write("same size", "abcd")
    back = mine.root / "touched back"
    st = back.stat()
    back.write_text("wxyz")
    os.utime(back, ns=(st.st_atime_ns, st.st_mtime_ns))
    mine.write("other", "5678")
    (mine.root / "other").rename(mine.root / "replaced")
    (mine.root / "deleted").unlink()
    mine.write("dir/mine", "person's")
    mine.write("new", "person's")
    (mine.root / "chmod").chmod(0o600)
    before = snapshot(mine.root)
    conflicts = {path for (_, path), row in mine.diff(run).items() if row["conflict"]}
    wanted = {"same size", "touched back", "replaced", "deleted", "dir", "dir/mine", "new", "chmod"}
    assert conflicts == wanted
    assert mine.hark("apply", run).status == 1
    assert (mine.root / "dir/mine").read_text() == "person's"
    del before["dir/inner"]  # nobody but the agent touched it
    assert snapshot(mine.root) == before


def test_undo_leaves_what_was_changed_after_the_apply(mine: Project):
    mine.write("a", "a")
    mine.write("b", "b")
    run = mine.agent(
        "import os; open('a','w').write('agent'); open('b','w').write('agent'); os.mkdir('d')"
    )
    assert mine.hark("apply", run).status == 0
    mine.write("a", "person")
    mine.write("d/file", "person")
    done = mine.hark("undo", run)
    assert done.status == 1
    assert "conflict  a  (changed since the apply)" in done.text
    assert (mine.root / "a").read_text() == "person"
    assert (mine.root / "b").read_text() == "b"
    assert (mine.root / "d/file").read_text() == "person"


def test_a_folder_whose_source_is_gone_is_a_conflict(mine: Project):
    mine.write("dir/a", "a")
    run = mine.agent("import os; os.rename('dir', 'moved')")
    (mine.root / "dir").rename(mine.root / "elsewhere")
    row = mine.diff(run)["A", "moved"]
    assert row["conflict"] == "renamed from dir, which is not there any more"
    assert mine.hark("apply", run).status == 1
    assert not (mine.root / "moved").exists()


# --- links ---


@pytest.mark.parametrize("level", ["file", "folder", "top"])
def test_a_path_swapped_for_a_link_is_not_followed(mine: Project, level: str):
    ssh = mine.base / "ssh"
    ssh.mkdir(mode=0o700)
    mine.own(ssh)
    keys = ssh / "keys"
    keys.write_text("mine\n")
    mine.own(keys)
    mine.write("d/e/keys", "project's\n")
    run = mine.agent("open('d/e/keys', 'w').write('evil')")
    moved = mine.base / "moved"
    target = {"file": "d/e/keys", "folder": "d/e", "top": "d"}[level]
    (mine.root / target).rename(moved)
    (mine.root / target).symlink_to({"file": keys, "folder": ssh, "top": mine.base / "d"}[level])
    (mine.base / "d").mkdir()
    (mine.base / "d/e").symlink_to(ssh)
    assert mine.hark("apply", run, "--hooks").status == 1
    assert keys.read_text() == "mine\n"
    assert list(ssh.iterdir()) == [keys]
    assert mine.hark("undo", run).status == 2


def test_a_replaced_workspace_is_refused(mine: Project):
    run = mine.agent("open('f', 'w').write('x')")
    mine.root.rename(mine.base / "old")
    mine.root.mkdir()
    done = mine.hark("apply", run)
    assert done.status == 2
    assert "is not the folder" in done.stderr
    mine.root.rmdir()
    mine.root.symlink_to(mine.base / "old")
    done = mine.hark("apply", run)
    assert done.status == 2
    assert "symbolic link" in done.stderr
    assert not (mine.base / "old/f").exists()


def test_a_link_of_the_agents_is_carried_as_a_link(mine: Project):
    secret = mine.base / "secret"
    secret.write_text("person's\n")
    run = mine.agent(f"import os; os.symlink({str(secret)!r}, 'l'); os.symlink('l', 'm')")
    assert mine.hark("apply", run).status == 0
    assert (mine.root / "l").readlink() == secret
    assert (mine.root / "m").readlink() == Path("l")
    assert mine.hark("undo", run).status == 0
    assert secret.read_text() == "person's\n"


# --- crashes ---

ACTS = """
import os, shutil
open('edit', 'a').write('more')
open('new', 'w').write('new'); os.makedirs('x/y'); open('x/y/z', 'w').write('z')
os.remove('gone'); os.rename('dir', 'moved'); os.chmod('mode', 0o700)
os.remove('link'); os.symlink('edit', 'link')
shutil.rmtree('todir'); open('todir', 'w').write('file')
open('twin1', 'w').write('both')
"""


@pytest.mark.parametrize("where", ["mine", "elsewhere"])
def test_an_apply_cut_off_anywhere_leaves_old_or_new(request: pytest.FixtureRequest, where: str):
    project: Project = request.getfixturevalue(where)
    for name in ("edit", "gone", "dir/a", "mode", "todir/x"):
        project.write(name, f"{name}\n")
    project.link("link", "gone")
    run = project.agent(ACTS)
    done = subprocess.run(
        [PYTHON, CRASH, run, project.root, "2" if where == "mine" else "5"],
        env=environment(),
        capture_output=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    result = json.loads(done.stdout)
    assert result["wrong"] == []
    assert result["points"] > 40
    assert result["last"] == 0


# --- hard links, owners ---


def test_a_file_with_two_names_is_written_in_place(mine: Project):
    one = mine.write("one", "first\n")
    os.link(one, mine.root / "two")
    os.link(one, mine.base / "outside")
    run = mine.agent("open('one', 'a').write('second\\n')")
    inode = one.stat().st_ino
    assert mine.hark("apply", run).status == 0
    for path in (one, mine.root / "two", mine.base / "outside"):
        assert path.read_text() == "first\nsecond\n"
        assert path.stat().st_ino == inode
    assert mine.hark("undo", run).status == 0
    for path in (one, mine.root / "two", mine.base / "outside"):
        assert path.read_text() == "first\n"
        assert path.stat().st_ino == inode


def test_our_own_moves_are_no_conflict_for_another_name(mine: Project):
    mine.write("one", "first\n")
    os.link(mine.root / "one", mine.root / "two")
    before = snapshot(mine.root)
    run = mine.agent("import os; os.remove('one'); os.remove('two')")
    assert mine.hark("apply", run, "one").status == 0
    assert mine.hark("apply", run).status == 0
    assert not (mine.root / "two").exists()
    assert mine.hark("undo", run).status == 0
    assert mine.hark("undo", run).status == 0
    assert snapshot(mine.root) == before
    # Across file systems the store holds copies: contents come back, the shared inode does not.
    if mine.root.stat().st_dev == RUNS.stat().st_dev:
        assert (mine.root / "one").stat().st_ino == (mine.root / "two").stat().st_ino
    assert mine.hark("apply", run).status == 0


def test_a_name_the_agent_replaced_leaves_its_group(mine: Project):
    one = mine.write("one", "first\n")
    os.link(one, mine.root / "two")
    run = mine.agent("import os; open('t', 'w').write('new\\n'); os.rename('t', 'one')")
    assert mine.hark("apply", run).status == 0
    assert one.read_text() == "new\n"
    assert (mine.root / "two").read_text() == "first\n"


def test_another_users_file_keeps_its_owner(mine: Project):
    shared = mine.write("shared", "first\n", mode=0o666)
    os.chown(shared, 1, 1)
    run = mine.agent("open('shared', 'a').write('second\\n')")
    assert mine.hark("apply", run).status == 0
    assert shared.read_text() == "first\nsecond\n"
    assert shared.stat().st_uid == 1
    assert mine.hark("undo", run).status == 0
    assert shared.read_text() == "first\n"


def test_a_file_only_root_can_read_does_not_become_the_persons(mine: Project):
    secret = mine.write("secret", "root's\n", mode=0o600)
    os.chown(secret, 0, 0)
    run = mine.agent("import os; os.rename('secret', 'mine')")
    mine.hark("apply", run)
    assert not (mine.root / "mine").exists()
    assert (mine.root / "secret").read_text() == "root's\n"


# --- trees that are hostile in themselves ---


def test_a_tree_deeper_than_paths_is_said_and_removed(mine: Project):
    script = """
import os
for n in range(3000):
    os.mkdir('d' * 200); os.chdir('d' * 200)
open('bottom', 'w').write('x')
import time
time.sleep(600)  # until the walk over its folders ends the run
"""
    run = mine.agent(script, status=137)
    assert "more disk than it may" in mine.said
    assert "and more" in mine.said
    done = mine.hark("diff", run)
    assert done.status == 0, done.stderr
    assert mine.hark("discard", run).status == 0
    assert not (RUNS / run).exists()


def test_unreadable_things_are_left_out_not_deleted(mine: Project):
    mine.write("dir/a", "a")
    mine.write("keep", "k")
    run = mine.agent(
        "import os; open('dir/b', 'w').write('b'); os.chmod('dir', 0); open('f','w').write('f');"
        "os.chmod('f', 0); open('ok', 'w').write('ok')"
    )
    assert mine.hark("apply", run).status == 1
    assert (mine.root / "dir/a").read_text() == "a"
    assert (mine.root / "keep").read_text() == "k"
    assert (mine.root / "ok").read_text() == "ok"


def test_a_store_on_another_file_system(elsewhere: Project):
    elsewhere.write("a", "a\n", mode=0o640)
    elsewhere.write("b", "b\n")
    elsewhere.link("l", "a")
    before = snapshot(elsewhere.root)
    run = elsewhere.agent(
        "import os; open('a','a').write('x'); os.remove('b'); os.remove('l'); os.symlink('b', 'l')"
    )
    assert elsewhere.hark("apply", run).status == 0
    assert (elsewhere.root / "a").read_text() == "a\nx"
    assert elsewhere.hark("undo", run).status == 0
    assert snapshot(elsewhere.root) == before
