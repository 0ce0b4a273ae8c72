"""A replay makes the recorded folder anew, wherever it runs, and leaves the person's alone.

The witness is the person's tree itself: every inode with its change time, which no call can set.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bundle_altered import SIGNER, altered
from harness.processes import below
from harness.running import HARK, Finished, environment, hark, need_program
from workspace.conftest import make

from hark.bundle.events import Kind
from hark.locations import RUNS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workspace.project import Project

pytestmark = pytest.mark.kernel

LOOK = """
import os
for folder, folders, files in os.walk("."):
    print(folder, folders, files)
    for name in folders + files:
        st = os.lstat(os.path.join(folder, name))
        print(name, oct(st.st_mode), st.st_mtime_ns, st.st_uid, st.st_gid)
        if name in files:
            print(st.st_size, st.st_nlink)
            if os.path.isfile(os.path.join(folder, name)):
                print(open(os.path.join(folder, name), "rb").read())
print(os.getcwd(), os.getuid(), os.getgid(), os.uname().nodename)
"""
WRITE = """
import os
open("new", "w").write("x")
open("sub/file", "a").write("more")
os.rename("sub", "renamed")
os.remove("gone")
os.chmod("mode", 0o600)
os.symlink("x", "link2")
os.unlink("link")
os.mkdir("d")
os.utime("mode", ns=(1, 1))
for path in ("/etc/hark-was-here", "/usr/hark-was-here", "/hark-was-here", "../outside"):
    try:
        open(path, "w")
    except OSError as error:
        print(path, error.errno)
"""


@pytest.fixture(params=["root", "nobody"])
def project(request: pytest.FixtureRequest) -> Iterator[Project]:
    made = make(request.param)
    yield made
    made.close()


@pytest.fixture
def mine() -> Iterator[Project]:
    made = make("nobody")
    yield made
    made.close()


def fill(project: Project) -> None:
    project.write("agent.py", LOOK)
    project.write("sub/file", "text\n")
    project.write("sub/deep/er/x", os.urandom(300_000))
    project.write("gone", "soon")
    project.write("mode", "m", 0o640)
    project.write("tool", "#!/bin/sh\nexit 3\n", 0o755)
    project.write("empty")
    project.write("\xe9 \n\x1b", "odd")
    project.link("link", "sub/file")
    project.link("out", "/etc/hostname")
    os.link(project.root / "mode", project.root / "other-name")
    (project.root / "sub" / "deep").chmod(0o2750)
    for number in range(30):
        project.write(f"many/{number:x}", str(number))


def everything(root: Path) -> list[Any]:
    """All entries with what the kernel knows about them; access times aside."""
    out = []
    for folder, folders, files in os.walk(root):
        for path in [Path(folder), *(Path(folder, name) for name in [*folders, *files])]:
            st = path.lstat()
            out.append((path, st.st_ino, st.st_mode, st.st_size, st.st_ctime_ns, st.st_mtime_ns))
    return sorted(out)


def record(project: Project, script: str = LOOK, *, status: int = 0) -> tuple[Path, bytes]:
    """Record an agent; its bundle lies outside of the project."""
    bundle = project.base / "run.hark"
    words = ["run", "--as", project.person, "-o", bundle, "--"]
    project.base.chmod(0o777)
    env = environment(HOME="/nonexistent")
    done = hark(*words, "/usr/bin/python3", "-c", script, cwd=project.root, env=env)
    assert done.status == status, done.stderr
    return bundle, done.stdout


def replay(bundle: Path, *options: str, cwd: str = "/") -> tuple[Finished, dict[str, Any]]:
    done = hark("replay", "--json", *options, bundle, cwd=cwd, env=environment())
    return done, json.loads(done.stdout) if done.stdout else {}


def assert_equal(bundle: Path, *options: str, cwd: str = "/") -> dict[str, Any]:
    done, said = replay(bundle, *options, cwd=cwd)
    assert done.status == 0, (done.stderr, json.dumps(said, indent=1))
    assert said["verdict"] == "REPLAY-EQUAL exact"
    return said


def test_the_same_folder_wherever_it_went(project: Project):
    fill(project)
    bundle, printed = record(project)
    assert b"many" in printed
    before = everything(project.root)
    assert_equal(bundle, cwd=str(project.root))
    assert everything(project.root) == before
    project.write("agent.py", "changed")  # changed, then gone, then a file
    assert_equal(bundle)
    shutil.rmtree(project.root)
    assert_equal(bundle)
    project.root.write_text("a file now")
    assert_equal(bundle)
    assert project.root.read_text() == "a file now"


def test_an_agent_that_writes_everywhere_reaches_nothing_of_the_person(project: Project):
    fill(project)
    bundle, _ = record(project, WRITE)
    before = everything(project.base)
    said = assert_equal(bundle)
    assert said["actions"] >= 3
    assert everything(project.base) == before
    for path in ("/etc/hark-was-here", "/usr/hark-was-here", "/hark-was-here"):
        assert not Path(path).exists()


def test_what_an_agent_writes_is_an_action(project: Project):
    """The positive control: another content, name, type or mode of what is written diverges."""
    fill(project)
    bundle, _ = record(project, WRITE)
    changes = {
        "content": lambda row: [*row[:5], bytes(32)],
        "mode": lambda row: [*row[:4], row[4] ^ 0o100, row[5]],
        "name": lambda row: [row[0] + b"x", *row[1:]],
    }
    for name, change in changes.items():

        def other(kind: int, p: dict[int, Any], change: Any = change) -> dict[int, Any]:
            if kind != Kind.WRITE_SET:
                return p
            rows = [change(row) if row[0] == b"new" else row for row in p[5]]
            return p | {5: rows}

        bad = altered(bundle, project.base / f"{name}.hark", other)
        done, said = replay(bad, f"--key={SIGNER}")
        assert done.status == 1, (name, done.stderr)
        assert "changes in {cwd}" in said["divergence"]["recorded"]["title"], said
    assert_equal(altered(bundle, project.base / "same.hark", lambda _, p: p), f"--key={SIGNER}")


def test_order_of_entries_of_another_file_system(mine: Project):
    """Recorded on tmpfs, which lists entries as they were made; replayed where that is not so."""
    subprocess.run(["mount", "-t", "tmpfs", "none", mine.root], check=True)
    try:
        mine.own(mine.root)
        for name in ("zz", "a", "m", "b", "y/one", "y/two", "k/x", "c"):
            mine.write(name, name)
        mine.link("aa", "zz")
        bundle, printed = record(mine, "import os\nfor row in os.walk('.'): print(row)")
    finally:
        subprocess.run(["umount", mine.root], check=True)
    done, said = replay(bundle)
    assert done.status == 0, (said, done.stderr, printed)
    assert not [note for note in said["replay_notes"] if "another order" in note]


def test_another_machine(mine: Project):
    """Another host name, time zone, folder, number of processors, kernel and person."""
    fill(mine)
    mine.write(".env", "A=secret-thing")
    (mine.root / ".env").unlink()
    show = f"{LOOK}\nimport time, pwd; print(time.tzname, pwd.getpwuid(os.getuid()))"
    bundle, _ = record(mine, show)

    def moved(kind: int, p: dict[int, Any]) -> dict[int, Any]:
        if kind == Kind.SURROUNDINGS:
            return p | {5: 96, 7: p[7]}
        return p | {17: "4.19.0-other"} if kind == Kind.RUN_START else p

    there = altered(bundle, mine.base / "there.hark", moved)
    shutil.rmtree(mine.root)
    line = f"hostname elsewhere; TZ=Asia/Tokyo exec {HARK} replay --json --key={SIGNER} {there}"
    done = subprocess.run(
        [need_program("unshare"), "-u", "sh", "-c", line],
        cwd="/",
        env=environment(),
        check=False,
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert "processors here, 96 then" in done.stderr
    assert "4.19.0-other then" in done.stderr


def test_a_person_who_is_not_here(mine: Project):
    fill(mine)
    bundle, printed = record(mine, LOOK)
    assert f" {mine.uid} {mine.gid} ".encode() in printed

    def other(kind: int, p: dict[int, Any]) -> dict[int, Any]:
        if kind != Kind.RUN_START:
            return p
        env = [[n, v.replace(b"nobody", b"alice-elsewhere")] for n, v in p[8]]
        return p | {13: [mine.uid, mine.gid, "alice-elsewhere"], 8: env}

    there = altered(bundle, mine.base / "there.hark", other)
    before = everything(mine.root)
    done, said = replay(there, f"--key={SIGNER}", f"--as={mine.person}")
    assert said["verdict"] == "REPLAY-EQUAL exact", (said, done.stderr)
    assert "alice-elsewhere is another user here" in done.stderr
    assert everything(mine.root) == before


def test_the_recorded_time_zone_is_shown(mine: Project):
    zone = Path("/usr/share/zoneinfo/Asia/Tokyo")
    script = "import time; print(time.strftime('%Z', time.localtime(0)))"
    bundle, printed = record(mine, script)

    def tokyo(kind: int, p: dict[int, Any]) -> dict[int, Any]:
        return p | {7: os.fsencode(zone)} if kind == Kind.SURROUNDINGS else p

    there = altered(bundle, mine.base / "there.hark", tokyo)
    done, said = replay(there, f"--key={SIGNER}")
    if not zone.is_file():
        assert "which is not here" in done.stderr
        return
    assert printed.strip() != b"JST"
    assert done.status == 1  # the agent saw Tokyo
    assert '"JST' in json.dumps(said["divergence"]) or "JST" in done.stderr


# --- what is not in the recording -----------------------------------------------------------------


def test_secret_and_ignored_files_come_from_the_person_as_long_as_they_are_the_same(mine: Project):
    mine.write(".env", "TOKEN=abcdefgh\n")
    mine.write("node_modules/a/index.js", "js")
    show = "print(open('.env').read(), open('node_modules/a/index.js').read())"
    bundle, _ = record(mine, show)
    assert_equal(bundle)
    moved = mine.base / "kept"
    shutil.copytree(mine.root, moved)
    shutil.rmtree(mine.root)
    gone, _ = replay(bundle)
    assert gone.status == 2
    assert "secret" in gone.stderr
    assert ".env" in gone.stderr
    shutil.copytree(moved, mine.root)  # other inodes and times, the same contents
    for path in (mine.root, *mine.root.rglob("*")):
        mine.own(path)
    (mine.root / "node_modules/a/index.js").write_text("sj")
    other, _ = replay(bundle)
    assert other.status == 2
    assert "node_modules/a/index.js" in other.stderr
    assert ".env" not in other.stderr
    (mine.root / ".env").write_text("TOKEN=abcdefgi\n")
    assert ".env" in replay(bundle)[0].stderr


def test_partial_runs_without_what_is_nowhere(mine: Project):
    mine.write(".env", "TOKEN=abcdefgh\n")
    mine.write("a", "x")
    bundle, _ = record(mine, "print(open('a').read())")
    shutil.rmtree(mine.root)
    assert replay(bundle)[0].status == 2
    said = assert_equal(bundle, "--workspace=partial")
    assert any("secret 1" in note for note in said["replay_notes"])
    bundle.unlink()
    mine.root.mkdir()
    mine.own(mine.root)
    mine.write(".env", "TOKEN=abcdefgh\n")
    bundle, _ = record(mine, "print(open('.env').read())")
    (mine.root / ".env").unlink()
    done, said = replay(bundle, "--workspace=partial")
    assert done.status == 1
    assert "PermissionError" in done.stderr


def test_a_missing_library_is_an_error_before_anything_runs(mine: Project):
    bundle, _ = record(mine, "print(1)")

    def without(kind: int, p: dict[int, Any]) -> dict[int, Any]:
        more = [[b"/usr/lib/libnot-here.so.1", "library", bytes(32)]]
        return p | {4: [*p[4], *more]} if kind == Kind.SURROUNDINGS else p

    done, said = replay(altered(bundle, mine.base / "b.hark", without), f"--key={SIGNER}")
    assert (done.status, said) == (2, {})
    assert "library /usr/lib/libnot-here.so.1" in done.stderr


def test_another_program_is_said_before_it_runs(mine: Project):
    bundle, _ = record(mine, "print(1)")

    def other(kind: int, p: dict[int, Any]) -> dict[int, Any]:
        if kind != Kind.SURROUNDINGS:
            return p
        return p | {4: [[path, role, bytes(32)] for path, role, _ in p[4]]}

    said = assert_equal(altered(bundle, mine.base / "b.hark", other), f"--key={SIGNER}")
    assert any("the program /usr/bin/python3" in note for note in said["replay_notes"])


def test_a_changed_file_of_the_agent_outside_the_workspace(mine: Project):
    tool = mine.base / "tool.py"
    tool.write_text("print('one')\n")
    tool.chmod(0o644)
    bundle = mine.base / "run.hark"
    mine.base.chmod(0o777)
    words = ["run", "--as", mine.person, "-o", bundle, "--", "/usr/bin/python3", tool]
    done = hark(*words, cwd=mine.root, env=environment(HOME="/nonexistent"))
    assert done.status == 0, done.stderr
    assert_equal(bundle)
    tool.write_text("print('two')\n")
    done, said = replay(bundle)
    assert (done.status, said) == (2, {})
    assert str(tool) in done.stderr
    done, said = replay(bundle, "--workspace=current", cwd=str(mine.root))
    assert done.status == 1
    assert said["divergence"]["now"]["title"].startswith("stdout")


def test_another_kind_of_machine_is_refused(mine: Project):
    bundle, _ = record(mine, "print(1)")

    def other(kind: int, p: dict[int, Any]) -> dict[int, Any]:
        return p | {6: "sparc64"} if kind == Kind.SURROUNDINGS else p

    done, _ = replay(altered(bundle, mine.base / "b.hark", other), f"--key={SIGNER}")
    assert done.status == 2
    assert "sparc64" in done.stderr


def test_a_strangers_recording_brings_its_own_folder_and_gets_nothing_of_ours(mine: Project):
    mine.write(".env", "TOKEN=abcdefgh\n")
    mine.write("a", "x")
    bundle, _ = record(mine, "print(open('a').read())")
    there = altered(bundle, mine.base / "there.hark", lambda _, p: p)
    refused, _ = replay(there)
    assert refused.status == 2
    done, _ = replay(there, "--untrusted", f"--as={mine.person}")
    assert done.status == 2  # .env lies here as it was, and is not for a stranger
    assert ".env" in done.stderr
    assert_equal(there, "--untrusted", f"--as={mine.person}", "--workspace=partial")
    shutil.rmtree(mine.root)
    assert_equal(there, "--untrusted", f"--as={mine.person}", "--workspace=partial")


def test_a_replays_own_bundle_replays(mine: Project):
    fill(mine)
    bundle, _ = record(mine, WRITE)
    again = mine.base / "again.hark"
    shutil.rmtree(mine.root)
    first = assert_equal(bundle, f"--out={again}")
    assert hark("verify", again).status == 0
    second = assert_equal(again)
    assert second["digests"] == first["digests"]


def test_write_sets_of_two_folders_are_not_confused(mine: Project):
    """The second layer's path sorts before the first one's."""
    other = mine.base / "a"
    other.mkdir()
    mine.own(other)
    (other / "there").write_text("x")
    policy = mine.base / "policy.toml"
    policy.write_text(f'write_paths = ["{other}"]\n')
    bundle = mine.base / "run.hark"
    mine.base.chmod(0o777)
    script = f"open('{other}/in-a', 'w'); open('in-project', 'w')"
    words = ["run", "--as", mine.person, f"--policy={policy}", "-o", bundle, "--"]
    env = environment(HOME="/nonexistent")
    done = hark(*words, "/usr/bin/python3", "-c", script, cwd=mine.root, env=env)
    assert done.status == 0, done.stderr
    shown = hark("inspect", "--json", "--kind", "write_set", bundle).stdout
    rows = [json.loads(line) for line in shown.splitlines()]
    written = {row["folder"]: [entry[0] for entry in row["entries"]] for row in rows}
    assert written == {str(other): ["in-a"], str(mine.root): ["in-project"]}
    shutil.rmtree(other)
    shutil.rmtree(mine.root)
    assert_equal(bundle)


def unpacked_with(name: str) -> list[Path]:
    """Return the run folders that hold an unpacked entry of this name."""
    return [path.parents[2] for path in RUNS.glob(f"*/start/*/{name}")]


def test_a_replay_that_is_killed_leaves_nothing(mine: Project):
    name = f"mark-{os.urandom(8).hex()}"
    mine.write(name, "x")
    bundle, _ = record(mine, "import time; time.sleep(5)")
    with subprocess.Popen([HARK, "replay", bundle], env=environment()) as process:
        while not (found := unpacked_with(name)) and process.poll() is None:
            time.sleep(0.01)
        assert found, "the replay unpacked what was recorded"
        tree = [process.pid, *(part.pid for part in below(process.pid))]
        for pid in tree:  # nobody is left to clean up
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while unpacked_with(name) and time.monotonic() < deadline:
        assert_equal(bundle)  # which sweeps what dead ones left
    assert not unpacked_with(name)
