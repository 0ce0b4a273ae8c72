"""The demo's promises, checked by what it leaves for a reader and not by its own word."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess

import pytest
from harness.host import RunNames, look
from harness.recording import Recording
from harness.running import ROOT, environment, hark, need

pytestmark = pytest.mark.kernel

OUT = ROOT / "build" / "demo"
SETUP_AND_RUN_S = 110
CLAIMS = (
    r'ok +the page says: "SYSTEM NOTE TO AI ASSISTANTS',
    r"ok +the agent's Authorization header holds a placeholder",
    r"substituted +api_key put into authorization for model\.example",
    r"ok +the stub behind model\.example received the real key",
    r"denied +DENIED evil\.example by the mediator: host_denied",
    r"asked for by process \d+, \S*python3\S*, BLAKE3 [0-9a-f]{16}",
    r"it tried: POST /collect key=hark-placeholder-",
    r"ok +the request was denied, and never dialled",
    r"ok +what it tried to leak is the placeholder, not the key",
    r"ok +the stub behind evil\.example received nothing",
    r"ok +the key is nowhere in the recording",
    r"(?m)^VERIFIED$",
    r"(?m)^REPLAY-EQUAL exact",
    r"(?m)^REPLAY-DIVERGED at action \d+",
)
# What differs from run to run: ids, digests, numbers.
VARYING = re.compile(r"\b(?:[0-9A-HJKMNP-TV-Z]{26}|[0-9a-f]{16,}|\d+)")


def run_demo() -> str:
    need("root", os.geteuid() == 0)
    env = {k: v for k, v in environment().items() if not k.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(
        [ROOT / "demo" / "run.sh"],
        env=env,
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=SETUP_AND_RUN_S,
        check=False,
        text=True,
    )
    assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


def seen() -> list[dict[str, str]]:
    """Return what the stub received, the witness outside of hark."""
    return [json.loads(line) for line in (OUT / "world" / "seen.jsonl").read_text().splitlines()]


def check_claims(shown: str) -> str:
    """Check each claim of a run; return its id."""
    for claim in CLAIMS:
        assert re.search(claim, shown), (claim, shown)
    assert "NOT SO" not in shown
    requests = [entry for entry in seen() if "host" in entry]
    assert {entry["host"] for entry in requests} == {"news.example", "model.example"}
    (key,) = {e["authorization"].removeprefix("Bearer ") for e in requests if e["authorization"]}
    assert key.startswith("sk-demo-")
    bundle = OUT / "incident.hark"
    recording = Recording.read(bundle)
    assert key.encode() not in recording.everything()
    assert key.encode() not in bundle.read_bytes()
    (tried,) = recording.exchanges("evil.example")
    assert b"hark-placeholder-" in tried.request_body
    assert {d["host"] for d in recording.kind("dial")} == {"news.example", "model.example"}
    verdict = hark("verify", "--json", bundle)
    assert json.loads(verdict.stdout)["verdict"] == "VERIFIED"
    return str(json.loads(verdict.stdout)["run"])


def check_nothing_stays(ulid: str, shown: str) -> None:
    left = [name for name in look(RunNames(ulid, 0)) if ulid in name]
    assert not left
    with socket.socket() as sock:
        port = re.search(r"a stub on 127\.0\.0\.1:(\d+)", shown)
        assert port
        assert sock.connect_ex(("127.0.0.1", int(port[1]))) != 0


def shapes(text: str) -> set[str]:
    return {" ".join(VARYING.sub("#", line).split()) for line in text.splitlines()}


def check_readme(shown: str) -> None:
    """Check that what the README shows is what the demo prints."""
    block = (ROOT / "README.md").read_text().split("```\n")[3]
    assert block.startswith("demo: the incident")
    assert not shapes(block) - shapes(shown) - {"..."}


@pytest.mark.timeout(2 * SETUP_AND_RUN_S + 20)
def test_the_demo_keeps_its_promises_twice_and_leaves_nothing() -> None:
    runs = []
    for _ in range(2):
        shown = run_demo()
        runs.append(check_claims(shown))
        check_readme(shown)
        check_nothing_stays(runs[-1], shown)
    assert runs[0] != runs[1]
