"""What a workspace held at the start is in the bundle, byte for byte; what is not there is said."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from blake3 import blake3
from harness.running import environment, hark

from hark import limits
from hark.bundle.events import Kind
from hark.bundle.reader import Bundle
from hark.workspace import manifest
from hark.workspace.contents import Saved, salted

if TYPE_CHECKING:
    from workspace.project import Project

pytestmark = pytest.mark.kernel


class Recorded:
    """Start of the workspace as one bundle has it; folders by path."""

    def __init__(self, path: Path) -> None:
        self.files: dict[str, tuple[Saved, bytes | None, bytes]] = {}
        self.end: dict[int, Any] = {}
        self.surroundings: dict[int, Any] = {}
        self.rows = manifest.Manifest()
        with Bundle.open(path) as bundle:
            for event in bundle.events():
                payload = event.payload or {}
                if event.kind == Kind.WORKSPACE_START:
                    self.rows = manifest.parse(bundle.read_body(payload[5]), payload[6])
                elif event.kind == Kind.SURROUNDINGS:
                    self.surroundings = payload
                elif event.kind == Kind.WORKSPACE_CONTENT:
                    self.take(bundle, payload)

    def take(self, bundle: Bundle, payload: dict[int, Any]) -> None:
        for path, state, digest, data in payload[5]:
            name = os.fsdecode(path)
            before = self.files.get(name, (Saved.PART, None, b""))[2]
            body = before + bundle.read_body(data) if data is not None else b""
            self.files[name] = (Saved(state), digest, body)
        if 9 in payload:
            self.end = payload


def recorded(project: Project, run: str) -> Recorded:
    return Recorded(project.root / f"run-{run}.hark")


def test_every_file_is_there(project: Project):
    big = os.urandom(700_001)
    files = {
        "agent.py": b"print(1)\n",
        "empty": b"",
        "sub/deep/x": b"x" * 5000,
        "big": big,
        "edge": b"y" * limits.WORKSPACE_KEPT_BATCH_BYTES,
        "n\xe9 \n\x1b[31m": b"odd name",
    }
    for name, data in files.items():
        project.write(name, data)
    project.link("link", "sub/deep/x")
    os.mkfifo(project.root / "fifo")
    start = recorded(project, project.agent("open('new', 'w').write('x')")[0:26])
    assert set(start.files) == {*files, "link"}
    for name, data in files.items():
        assert start.files[name] == (Saved.WHOLE, blake3(data).digest(), data), name
    assert start.files["link"][2] == b"sub/deep/x"
    assert start.end[9] is True
    assert (start.end[6], start.end[7]) == (len(files) + 1, sum(map(len, files.values())) + 10)
    assert "only partly" not in project.said


def test_names_that_are_not_text(project: Project):
    path = os.fsencode(project.root) + b"/\xff\xfe"
    with open(path, "wb") as file:  # noqa: PTH123 - bytes
        file.write(b"abc")
    start = recorded(project, project.agent("1"))
    assert start.files[os.fsdecode(b"\xff\xfe")][2] == b"abc"


def test_secrets_are_never_kept(project: Project):
    project.write(".env", "TOKEN=hunter2hunter2\n")
    project.write("key.txt", "-----BEGIN RSA PRIVATE KEY-----\nhunter3hunter3\n")
    project.write(".git/config", "url = https://me:hunter4hunter4@host.example/x\n")
    project.write("code.py", "print('hunter5')\n")
    run = project.agent("1")
    start = recorded(project, run)
    for name in (".env", "key.txt", ".git/config"):
        state, digest, data = start.files[name]
        assert (state, data) == (Saved.SECRET, b""), name
        content = (project.root / name).read_bytes()
        assert digest == salted(blake3(content).digest(), digest[:16])
    assert start.files["code.py"][0] is Saved.WHOLE
    shown = hark("inspect", "--json", project.root / f"run-{run}.hark").stdout
    assert b"hunter5" in shown
    for secret in (b"hunter2", b"hunter3", b"hunter4"):
        assert secret not in shown
    assert [row[0] for row in start.end[8]] == ["secret"]
    assert start.end[9] is True


def test_a_secret_of_the_policy_is_not_kept_wherever_it_stands(mine: Project):
    mine.write("settings.py", "API = 'sk-verysecretvalue'\n")
    mine.write("other.py", "API = 'sk-verysecretvaluf'\n")
    policy = mine.base / "policy.toml"
    policy.write_text('allow_hosts = ["api.example"]\n[secrets]\napi = "MY_KEY"\n')
    env = environment(HOME="/nonexistent", MY_KEY="sk-verysecretvalue")
    words = ["run", "--as", mine.person, "--policy", policy, "-o", mine.root / "b.hark"]
    done = hark(*words, "--", "/bin/true", cwd=mine.root, env=env)
    assert done.status == 0, done.stderr
    start = Recorded(mine.root / "b.hark")
    assert start.files["settings.py"][0] is Saved.SECRET
    assert start.files["other.py"][2] == b"API = 'sk-verysecretvaluf'\n"


def test_what_is_ignored_has_a_digest_where_there_was_time(project: Project):
    project.write(".gitignore", "build/\n")
    project.write("build/out", b"made")
    project.write("node_modules/a/index.js", b"js")
    project.write("build/tool.py", b"print(2)\n")
    run = project.agent("import time; time.sleep(1)")
    start = recorded(project, run)
    for name, data in (("build/out", b"made"), ("node_modules/a/index.js", b"js")):
        state, digest, kept = start.files.get(name, (Saved.IGNORED, None, b""))
        assert (state, kept) == (Saved.IGNORED, b"")
        assert digest in (None, blake3(data).digest())  # None on a machine that was too slow
    assert start.end[8] == [["ignored", 3, len(b"madejsprint(2)\n")]]
    assert start.files[".gitignore"][0] is Saved.WHOLE


def test_what_the_person_cannot_read_is_said(mine: Project):
    file = mine.write("roots", "closed", 0o600)
    os.chown(file, 0, 0)
    mine.write("open", "x")
    start = recorded(mine, mine.agent("1"))
    assert start.files["roots"] == (Saved.UNREADABLE, None, b"")
    assert start.files["open"][2] == b"x"
    assert start.end[9] is False
    assert "its start is only partly in the recording: unreadable 1" in mine.said


def test_a_large_file_is_not_kept(mine: Project):
    with (mine.root / "large").open("wb") as file:
        file.truncate(limits.WORKSPACE_KEPT_FILE_BYTES + 1)
    mine.own(mine.root / "large")
    mine.write("small", "x")
    start = recorded(mine, mine.agent("1"))
    assert start.files["large"][0] is Saved.LARGE
    assert start.files["small"][2] == b"x"
    assert start.end[9] is False
    assert "large 1 (32 MiB)" in mine.said


def test_rows_have_place_and_owner(project: Project):
    names = [f"f{n}" for n in range(40)] + ["d", "e"]
    for name in names[:-2]:
        project.write(name, "x")
    project.write("d/x", "x")
    project.write("e/x", "x")
    start = recorded(project, project.agent("1"))
    seen = [entry.name for entry in os.scandir(project.root) if not entry.name.endswith(".hark")]
    rows = {name: start.rows.row(name) for name in names}
    assert sorted(names, key=lambda name: rows[name].place) == seen
    assert {(row.uid, row.gid) for row in rows.values()} == {(project.uid, project.gid)}


def test_the_surroundings_name_what_is_executed(mine: Project):
    mine.write("tool.sh", "#!/bin/sh\ntrue\n", 0o755)
    start = recorded(mine, mine.agent("1"))
    files = {os.fsdecode(path): (role, digest) for path, role, digest in start.surroundings[4]}
    program = os.path.realpath("/usr/bin/python3")
    assert files[program] == ("program", blake3(Path(program).read_bytes()).digest())
    libraries = [path for path, (role, _) in files.items() if role == "library"]
    assert any("libc.so" in path for path in libraries)
    assert all(digest for _, digest in files.values())
    assert start.surroundings[6] == os.uname().machine
