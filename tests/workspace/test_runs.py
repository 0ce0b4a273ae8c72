"""Which run is meant, what is kept, what goes; and the write set in the bundle."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from blake3 import blake3
from harness.recording import Event, Recording, raw
from harness.running import HARK, environment

from hark.bundle import cbor
from hark.bundle.reader import Bundle
from workspace.project import RUNS, Project, snapshot

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.kernel


def bundle_of(project: Project, run: str) -> Path:
    return project.root / f"run-{run}.hark"


def rows_of(events: list[Event]) -> dict[bytes, list[Any]]:
    return {raw(row[0]): row for event in events for row in event["entries"]}


# --- the run argument ---


def test_latest_is_the_last_run_of_this_folder(mine: Project):
    first = mine.agent("open('a', 'w').write('1')")
    second = mine.agent("open('b', 'w').write('2')")
    inner = mine.root / "inner"
    inner.mkdir()
    for name, wanted in ((first, "a"), (first.lower(), "a"), ("latest", "b"), (second, "b")):
        assert list(mine.diff(name)) == [("A", wanted)]
    by_bundle = mine.hark("diff", f"./run-{first}.hark")
    assert " a\n" in by_bundle.text
    done = mine.hark("diff", "01")
    assert done.status == 2
    assert "runs begin with 01" in done.stderr or "no changes are kept" not in done.stderr
    assert mine.hark("diff", "latest").status == 0
    assert mine.hark("diff", "nosuchrun").status == 2
    elsewhere = subprocess.run(
        [HARK, "diff", "latest"], cwd="/usr", env=environment(), capture_output=True, check=False
    )
    assert elsewhere.returncode == 2
    assert b"no run has changes for /usr" in elsewhere.stderr


def test_a_run_that_wrote_nothing_keeps_nothing(mine: Project):
    mine.write("a", "a")
    run = mine.agent("open('a').read()")
    assert not (RUNS / run).exists()
    assert "workspace" not in mine.said
    assert Recording.read(bundle_of(mine, run)).kind("write_set") == []
    done = mine.hark("apply", run)
    assert done.status == 2
    assert "no changes are kept" in done.stderr


def test_only_root_may(mine: Project):
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", HARK, "diff", "latest"],
        cwd="/tmp",
        env=environment(),
        capture_output=True,
        check=False,
    )
    assert done.returncode != 0
    assert mine.root.exists()


def test_a_run_that_is_going_on_is_left_alone(mine: Project):
    started = subprocess.Popen(
        [HARK, "run", "--as", "nobody", "--", "/bin/sh", "-c", "echo x > f; echo up; cat"],
        cwd=mine.root,
        env=environment(HOME="/nonexistent"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert started.stdout is not None
        assert started.stdout.readline() == b"up\n"
        for verb in ("diff", "apply", "undo", "discard"):
            done = mine.hark(verb, "latest")
            assert done.status == 2, verb
            assert "is in use" in done.stderr, verb
        assert mine.hark("gc").status == 0
    finally:
        _, said = started.communicate(b"", timeout=60)
    assert started.returncode == 0, said
    assert mine.hark("apply", "latest").status == 0
    assert (mine.root / "f").read_text() == "x\n"
    assert mine.hark("discard", "latest").status == 0


# --- discard and gc ---


def test_discard_leaves_the_workspace_as_it_is(mine: Project):
    mine.write("a", "a")
    run = mine.agent("open('a', 'w').write('agent'); open('b', 'w').write('b')")
    assert mine.hark("apply", run, "a").status == 0
    before = snapshot(mine.root)
    assert mine.hark("discard", run).status == 0
    assert snapshot(mine.root) == before
    assert not (RUNS / run).exists()
    assert mine.hark("undo", run).status == 2


def test_discarding_the_latest_twice_takes_one_run(mine: Project):
    first = mine.agent("open('a', 'w').write('1')")
    second = mine.agent("open('b', 'w').write('2')")
    assert mine.hark("discard", "latest").status == 0
    assert not (RUNS / second).exists()
    again = mine.hark("discard", "latest")
    assert again.status == 2
    assert f"the latest run here, {second}, keeps no changes" in again.stderr
    assert f"hark discard {first}" in again.stderr
    assert (RUNS / first).exists()
    assert mine.hark("discard", first).status == 0
    assert not (RUNS / first).exists()


def test_a_path_the_run_did_not_change_is_an_error(mine: Project):
    run = mine.agent("open('a', 'w').write('1')")
    for verb in ("diff", "apply"):
        done = mine.hark(verb, run, "nosuch")
        assert (done.status, done.text) == (2, "")
        assert "the run did not change nosuch" in done.stderr
    assert mine.hark("apply", run, "a").status == 0
    assert (mine.root / "a").read_text() == "1"


def test_gc_lists_what_it_keeps_and_discards_by_age(mine: Project):
    run = mine.agent("open('a', 'w').write('agent')")
    shown = [json.loads(line) for line in mine.hark("gc", "--json").stdout.splitlines()]
    (row,) = [row for row in shown if row.get("kept") == str(RUNS / run)]
    assert row["what"] == "changes"
    assert row["folder"] == str(mine.root)
    assert row["bytes"] > 0
    assert mine.hark("gc", "--older-than", "5000d").status == 0
    assert (RUNS / run).exists()
    assert mine.hark("gc", "--older-than", "soon").status == 2


def test_a_bundle_that_was_not_published_survives_discard(mine: Project):
    script = "import os, sys; open('a', 'w').write('x'); print('up', flush=True); sys.stdin.read()"
    started = subprocess.Popen(
        [HARK, "run", "--as", "nobody", "-o", "out.hark", "--", "/usr/bin/python3", "-c", script],
        cwd=mine.root,
        env=environment(HOME="/nonexistent"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert started.stdout is not None
    assert started.stdout.readline() == b"up\n"
    (mine.root / "out.hark").write_text("in the way")
    _, said = started.communicate(b"", timeout=60)
    assert b"the bundle lies at" in said
    (folder,) = [p for p in RUNS.iterdir() if str(p.name).encode() in said]
    mine.runs.append(folder.name)
    done = mine.hark("discard", folder.name)
    assert done.status == 0
    assert "its bundle stays at" in done.text
    assert sorted(p.name for p in folder.iterdir()) == ["lock", "run.hark"]
    assert mine.hark("verify", folder / "run.hark").status == 0


# --- diff ---


def test_diff_shows_lines_and_escapes_them(mine: Project):
    mine.write("text", "one\ntwo\nthree\n")
    mine.write("binary", b"\0\1")
    run = mine.agent(
        "open('text', 'w').write('one\\n\\x1b[31m2\\nthree\\n');"
        "open('binary', 'wb').write(b'\\0\\2')"
    )
    shown = mine.hark("diff", run, "text").text
    assert "--- a/text\n+++ b/text\n" in shown
    assert "\n-two\n+\\x1b[31m2\n" in shown
    assert "\x1b" not in shown
    assert "binary: binary" in mine.hark("diff", run, "binary").text
    done = mine.hark("diff", run, "/etc/passwd")
    assert done.status == 2
    assert "in no folder that the run could write" in done.stderr


def test_write_paths_are_layers_of_their_own(mine: Project):
    extra = mine.base / "extra"
    extra.mkdir()
    mine.own(extra)
    (extra / "old").write_text("old")
    mine.own(extra / "old")
    policy = mine.base / "policy.toml"
    policy.write_text(f'write_paths = ["{extra}"]\n')
    run = mine.agent(
        f"open('a', 'w').write('a'); open('{extra}/old', 'w').write('new')", f"--policy={policy}"
    )
    assert set(mine.diff(run)) == {("A", "a"), ("M", f"{extra}/old")}
    assert mine.hark("apply", run, extra).status == 0
    assert (extra / "old").read_text() == "new"
    assert not (mine.root / "a").exists()
    assert mine.hark("undo", run).status == 0
    assert (extra / "old").read_text() == "old"


# --- evidence ---


def test_the_write_set_is_in_the_bundle(project: Project):
    for name in ("edit", "gone", "same"):
        project.write(name, f"{name}\n")
    project.write("dir/a", "a\n")
    run = project.agent(
        "import os; open('edit', 'a').write('x'); os.remove('gone'); os.rename('dir', 'moved');"
        "os.makedirs('n/m'); open('n/m/f', 'w').write('new'); os.symlink('edit', 'l');"
        "open('.envrc', 'w').write('x'); os.mkfifo('p'); open(b'bad\\xff', 'w').write('')"
    )
    bundle = bundle_of(project, run)
    assert project.hark("verify", bundle).status == 0
    events = Recording.read(bundle).kind("write_set")
    rows = rows_of(events)
    assert {name: row[1] for name, row in rows.items()} == {
        b".envrc": "A",
        b"bad\xff": "A",
        b"dir": "D",
        b"edit": "M",
        b"gone": "D",
        b"l": "A",
        b"moved": "A",
        b"n": "A",
        b"n/m": "A",
        b"n/m/f": "A",
        b"p": "A",
    }
    assert list(rows) == sorted(rows)
    assert rows[b"n/m/f"][5] == blake3(b"new").hexdigest()
    assert rows[b"n/m/f"][2:5] == [0, 3, 0o644]
    assert rows[b"l"][5] == blake3(b"edit").hexdigest()
    assert rows[b"p"][5] is None
    assert events[-1]["count"] == len(rows)
    assert events[-1]["complete"] is True
    assert f"new 8  written 1  removed 2  held 1 -- hark diff {run}" in project.said


def test_the_root_covers_all_entries(mine: Project):
    run = mine.agent("[open(f'f{n:04}', 'w').write(str(n)) for n in range(1500)]")
    with Bundle.open(bundle_of(mine, run)) as bundle:
        payloads = [event.payload for event in bundle.events() if event.kind == 28]
    assert len(payloads) > 1
    rows = [row for payload in payloads for row in payload[5]]
    assert len(rows) == 1500
    assert payloads[-1][7] == blake3(b"".join(cbor.encode(row) for row in rows)).digest()
    assert all(set(payload) == {4, 5} for payload in payloads[:-1])


def test_run_start_names_the_state_that_apply_reads(mine: Project):
    run = mine.agent("open('a', 'w').write('x')")
    start = Recording.read(bundle_of(mine, run)).kind("run_start")[0]
    state = (RUNS / run / "workspace.json").read_bytes()
    assert start["workspace_state"] == blake3(state).hexdigest()
    layer = json.loads(state)["layers"][0]
    manifest = (RUNS / run / "start-0.manifest").read_bytes()
    assert layer["manifest"] == blake3(manifest).hexdigest()


def test_a_changed_manifest_is_refused(mine: Project):
    run = mine.agent("open('a', 'w').write('x')")
    path = RUNS / run / "start-0.manifest"
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    done = mine.hark("apply", run)
    assert done.status == 1
    assert "the start manifest does not hold" in done.stderr
    assert not (mine.root / "a").exists()


def test_direct_work_has_nothing_to_apply(mine: Project):
    run = mine.agent("open('a', 'w').write('x')", "--workspace=direct")
    assert (mine.root / "a").read_text() == "x"
    assert (mine.root / "a").stat().st_uid == mine.uid
    assert mine.hark("apply", run).status == 2
    assert Recording.read(bundle_of(mine, run)).kind("write_set") == []


def test_many_changes(mine: Project):
    for n in range(400):
        mine.write(f"d{n % 7}/f{n}", str(n))
    before = snapshot(mine.root)
    run = mine.agent(
        "import pathlib\n"
        "for p in sorted(pathlib.Path().rglob('f*')):\n"
        "    if int(p.name[1:]) % 2: p.unlink()\n"
        "    else: p.write_text('agent')"
    )
    assert mine.hark("apply", run).status == 0
    left = {p.name for p in mine.root.rglob("f*")}
    assert left == {f"f{n}" for n in range(0, 400, 2)}
    assert all(p.read_text() == "agent" for p in mine.root.rglob("f*"))
    assert mine.hark("undo", run).status == 0
    assert snapshot(mine.root) == before
