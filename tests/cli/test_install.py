"""`make install`: a tree of its own that works away from the source."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


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
    open_to_others = [
        path
        for folder, _, names in os.walk(prefix)
        for path in (Path(folder) / name for name in names)
        if not path.is_symlink() and path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    ]
    assert not open_to_others
