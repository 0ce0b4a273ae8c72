"""docs/guide/credentials.md, run line by line: what the page promises is what a reader sees."""

from __future__ import annotations

import re
import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest
from harness.running import HARK, ROOT, hark, need_program, upstreams
from harness.world import API, NEWS

if TYPE_CHECKING:
    from harness.world import World

PAGE = (ROOT / "docs" / "guide" / "credentials.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.kernel
@pytest.mark.interop
def test_every_command_of_the_page(world: World):
    need_program("curl")
    kinds = [kind for kind, _ in BLOCKS]
    assert kinds == ["toml", "sh", "sh", "sh", "sh"]
    policy, run, script, looks, grep = (text for _, text in BLOCKS)
    (world.work / "policy.toml").write_text(policy)
    (world.work / "call.sh").write_text(script)

    words = shlex.split(run)
    assert words[:2] == ["hark", "run"]
    stub = [*upstreams(world.stub.address, API, NEWS), f"--upstream-ca={world.stub.ca_file}"]
    done = hark("run", *stub, *words[2:], cwd=world.work, env=world.env())
    assert done.status == 0, done.stderr
    key, answer, denied = done.text.replace("}to another", "}\nto another").splitlines()
    assert key.startswith("the agent's key: hark-placeholder-")
    assert "hello from the stub" in answer
    assert denied == "to another host: 403"
    assert not world.stub.requests(NEWS)
    (seen,) = world.stub.requests(API)
    assert f"Bearer {world.key}\r\n".encode() in seen.head

    shown = [hark(*shlex.split(line)[1:], cwd=world.work) for line in looks.splitlines()]
    assert [one.status for one in shown] == [0] * 4, [one.stderr for one in shown]
    substituted, refused, request, verdict = (one.text for one in shown)
    assert "openai" in substituted
    assert API in substituted
    assert "credential_wrong_host" in refused
    assert "/v1/chat/completions" in request
    assert "VERIFIED" in verdict

    everything = f"{HARK} inspect --json run.hark | {grep.replace(' run.hark', '')}"
    # The control looks where nothing is compressed; in the file it may be.
    control = everything.replace("$OPENAI", "$PLACE")
    for line, found in ((grep, "0"), (everything, "0"), (control, "1")):
        env = {**world.env(), "PLACE_API_KEY": "hark-placeholder-"}
        said = subprocess.run(
            ["/bin/sh", "-c", line], cwd=world.work, env=env, capture_output=True, check=False
        )
        count = said.stdout.decode().strip()
        assert (count != "0") == (found != "0"), line
