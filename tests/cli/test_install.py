"""`make install`: a tree of its own that works away from the source."""

from __future__ import annotations

import os
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest
from harness.recording import Recording, raw

ROOT = Path(__file__).resolve().parents[2]


def as_somebody_else(hark: Path) -> None:
    """Run for a person who cannot reach hark's own files: pytest's folders are root's alone."""
    assert stat.S_IMODE(hark.parents[2].parent.stat().st_mode) == 0o700
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        work = Path(name)
        (work / ".gitignore").write_text("ignored\n")
        (work / "ignored").write_text("not kept\n")
        (work / "kept").write_text("what it held\n")
        for path in (work, *work.iterdir()):
            os.chown(path, 65534, 65534)
        run = subprocess.run(
            [hark, "run", "--as=nobody", "-o", "run.hark", "--", "/bin/cat", "kept"],
            cwd=work,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert (run.returncode, run.stdout) == (0, "what it held\n"), run.stderr
        assert "partly" not in run.stderr
        recording = Recording.read(work / "run.hark")
    contents = {
        raw(row[0]): row[3]
        for event in recording.kind("workspace_content")
        for row in event.fields.get("contents", [])
    }
    assert raw(contents[b"kept"]) == b"what it held\n"
    assert not contents.get(b"ignored"), "its rules were read"
    assert recording.kind("surroundings")


@pytest.mark.kernel
def test_an_installed_hark_records_and_verifies(tmp_path: Path):
    prefix = tmp_path / "opt"
    subprocess.run(["make", "-s", "install", f"PREFIX={prefix}"], cwd=ROOT, check=True)
    hark = prefix / "bin/hark"
    work = tmp_path / "work"
    work.mkdir()
    run = subprocess.run(
        [hark, "run", "-o", "run.hark", "--", "/bin/echo", "hello"],
        cwd=work,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert (run.returncode, run.stdout) == (0, "hello\n"), run.stderr
    checked = subprocess.run(
        [hark, "verify", "run.hark"], cwd=work, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0
    assert checked.stdout.splitlines()[-1] == "VERIFIED"
    where = subprocess.run(
        [prefix / "lib/hark/bin/python", "-c", "import hark; print(hark.__file__)"],
        cwd=work,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert where.startswith(str(prefix)), "it ran the source tree, not the installed one"
    as_somebody_else(hark)
    open_to_others = [
        path
        for folder, _, names in os.walk(prefix)
        for path in (Path(folder) / name for name in names)
        if not path.is_symlink() and path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    ]
    assert not open_to_others
