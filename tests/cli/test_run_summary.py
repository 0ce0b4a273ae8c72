"""The last words of `hark run`: one line on stderr, nothing of hark's on stdout."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from harness.running import Finished, hark

if TYPE_CHECKING:
    from pathlib import Path

    from harness.world import World

pytestmark = pytest.mark.kernel

AGENT = """
import urllib.error, urllib.request
print(len(urllib.request.urlopen("https://news.example/page").read()))
for n in range(7):
    try:
        urllib.request.urlopen(f"https://h{n}.evil.example/")
    except urllib.error.HTTPError as error:
        print(error.code)
"""


def run_with(world: World, *options: str) -> Finished:
    (world.work / "agent.py").write_text(AGENT)
    words = world.words("/usr/bin/python3", "agent.py")
    return hark(words[0], *options, *words[1:], cwd=world.work, env=world.env())


def test_one_line_with_the_bundle_and_its_totals(world: World):
    done = run_with(world)
    assert done.status == 0
    assert done.text.split()[1:] == ["403"] * 7, "nothing but the agent's output"
    last = done.stderr.splitlines()[-1]
    assert re.fullmatch(
        rf"hark: recorded {re.escape(str(world.bundle))}  \(8 exchanges, 7 denied, \d+\.\d s\)",
        last,
    )
    refused = [line for line in done.stderr.splitlines() if line.startswith("hark: refused:")]
    assert len(refused) == 6
    assert refused[-1].startswith("hark: refused: 2 more")
    assert "add " in done.stderr, "a hint says what to write into the policy"


def test_quiet_says_nothing_and_records_the_same(world: World):
    done = run_with(world, "--quiet")
    assert (done.status, done.stderr) == (0, "")
    assert len(world.recording().kind("denied")) == 7


def test_quiet_still_tells_an_error(tmp_path: Path):
    done = hark("run", "-q", "-o", tmp_path / "none" / "x.hark", "--", "/bin/true", cwd=tmp_path)
    assert done.status != 0
    assert done.stderr.startswith("hark: error: ")
