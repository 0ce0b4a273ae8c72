"""The start of a run: what it never imports, and what a start that fails leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness.running import ROOT, environment, need

pytestmark = pytest.mark.kernel

# What only other verbs, libraries that were replaced, or tests import.
NEVER = {
    *("pyroute2", "scapy", "typer", "rich", "hypothesis", "asyncio", "jinja2", "sigstore"),
    *("ssl", "http", "xml", "multiprocessing", "pytest"),
}
PINS = (Path("/sys/fs/bpf/hark"), Path("/run/hark/bpf/hark"))


@pytest.fixture(autouse=True)
def _root() -> None:
    need("root", os.geteuid() == 0)


def run_words(tmp_path: Path, *options: str) -> list[str]:
    return ["run", "-o", str(tmp_path / "run.hark"), *options, "--", "/bin/true"]


def test_the_run_path_imports_nothing_that_it_does_not_use(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "hark.cli.app", *run_words(tmp_path)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    names = {line.rsplit("|", 1)[1].strip() for line in rows}
    assert {"hark.recorder.session", "hark.mediator.broker"} <= names, "positive control"
    found = {name for name in names if name in NEVER or name.split(".")[0] in NEVER}
    assert not found


@pytest.mark.parametrize(
    "options", [("--policy", "/nowhere.toml"), ("--as", "nobody-of-that-name"), ("--tty",)]
)
def test_a_start_that_fails_leaves_no_sensor_loaded(tmp_path: Path, options: tuple[str, ...]):
    state = Path("/run/hark/sensors")
    done = subprocess.run(
        [sys.executable, "-m", "hark.cli.app", *run_words(tmp_path, *options)],
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode != 0
    assert done.stderr.startswith("hark: error: ")
    users = [path for path in state.iterdir() if path.name != "lock"] if state.exists() else []
    if not users:  # nobody beside this test
        assert not any(path.exists() for path in PINS)
