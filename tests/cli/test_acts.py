"""What the agent did to sockets and files is in its record, with the process that did it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from harness.recording import Recording, raw
from harness.running import environment, hark

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.kernel

SCRIPT = """
import os, socket
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
open("made", "w").write("x")
for _ in range(30):
    open("log", "a").close()
os.rename("made", "kept")
os.unlink("gone")
unix = socket.socket(socket.AF_UNIX)
unix.bind("/tmp/here")
"""


def test_acts_are_recorded_with_their_process(tmp_path: Path):
    work, bundle = tmp_path / "work", tmp_path / "run.hark"
    work.mkdir()
    (work / "gone").write_text("old")
    done = hark(
        *("run", "-o", bundle, "--", "/usr/bin/python3", "-I", "-S", "-c", SCRIPT),
        cwd=work,
        env=environment(),
    )
    assert done.status == 0, done.stderr
    recording = Recording.read(bundle)
    (program,) = recording.kind("exec")
    start = recording.kind("run_start")[0]
    uid, euid, gid, egid, capabilities = program["credentials"]
    assert uid == euid >= start["id_base"] > 1 << 30, "an id that nobody else has"
    assert (gid == egid, capabilities) == (True, 0)

    acts = [e for e in recording.kind("file") if e.actor.tgid == program.actor.tgid]
    assert all(e.actor.digest == program["digest"] for e in acts)
    base = str(work.resolve())
    told = [
        (e["op"], raw(e["path"]).decode(), raw(e.fields.get("name", "")).decode()) for e in acts
    ]
    assert told[0] == ("write", f"{base}/made", "")
    assert told[1:9] == [("write", f"{base}/log", "")] * 8
    assert told[9:] == [
        ("rename-from", base, "made"),
        ("rename-to", base, "kept"),
        ("remove", base, "gone"),
    ]
    (end,) = recording.kind("run_end")
    assert end["totals"]["files_repeated"] == 22

    sockets = [e.fields for e in recording.kind("socket")]
    inet = next(e for e in sockets if e["family"] == "inet")
    assert (inet["op"], inet["type"], inet["src"]) == ("bind", "stream", "127.0.0.1")
    assert inet["sport"] == int(done.text.split()[0])
    unix = next(e for e in sockets if e["family"] == "unix")
    assert (unix["op"], raw(unix["name"])) == ("bind", b"/tmp/here")


def test_the_counters_of_each_ring_are_in_the_record(tmp_path: Path):
    bundle = tmp_path / "run.hark"
    assert hark("run", "-o", bundle, "--", "/bin/true", cwd=tmp_path, env=environment()).status == 0
    (end,) = Recording.read(bundle).kind("run_end")
    rings = {name: (produced, emitted, lost) for name, produced, emitted, lost in end["rings"]}
    assert {"control", "bulk", "socket", "counts", "mediator"} == set(rings)
    assert all(produced == emitted + lost for produced, emitted, lost in rings.values())
