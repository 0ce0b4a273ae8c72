"""`hark fidelity` with agents of its own, as a person in CI would call it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
from fidelity_pairs import POLICY
from fidelity_service import API, NEWS, OTHER, Service
from harness.running import environment, hark, need, need_program, upstreams

from hark.bundle.reader import Bundle
from hark.cli.printable import ulid_text
from hark.locations import RUNS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.kernel

AGENT = f"""
import hashlib, json, os, sys, time, urllib.request, uuid
# From the clock, which a replay does not give again as it does random bytes.
fresh = hashlib.sha256(str(time.time_ns()).encode()).digest()
session = str(uuid.UUID(bytes=fresh[:16], version=4))
say = json.dumps({{"messages": [], "session": session, "pid": MORE}}).encode()
fields = {{"Content-Type": "application/json"}}
call = urllib.request.Request("https://{API}/v1/chat/completions", say, fields)
answer = json.load(urllib.request.urlopen(call))
print(answer["choices"][0]["message"]["content"], sys.stdin.read())
open("written", "w")
"""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    need("root", os.geteuid() == 0)
    (tmp_path / "work").mkdir()
    (tmp_path / "policy.toml").write_text(POLICY)
    with Service(tmp_path / "service") as service:
        yield service


def fidelity(service: Service, place: Path, more: str, *words: str) -> tuple[int, str, str]:
    (place / "work" / "agent.py").write_text(AGENT.replace("MORE", more))
    done = hark(
        "fidelity",
        f"--policy={place / 'policy.toml'}",
        *upstreams(service.address, API, NEWS, OTHER),
        f"--upstream-ca={service.ca_file}",
        *words,
        "--",
        need_program("python3"),
        "agent.py",
        cwd=place / "work",
        env=environment(OPENAI_API_KEY="sk-test-0123456789abcdef"),
    )
    return done.status, done.text, done.stderr


def test_pairs_that_are_equal(service: Service, tmp_path: Path):
    (tmp_path / "in").write_text("from the file")
    keep = f"--keep={tmp_path / 'kept'}"
    status, out, err = fidelity(service, tmp_path, "0", "-n2", f"--stdin={tmp_path / 'in'}", keep)
    assert status == 0, (out, err)
    assert out.startswith("FIDELITY 2 of 2 pairs equal\n  equal      2 renamed 1\n")
    assert "hark: pair 2: REPLAY-EQUAL renamed 1" in err
    assert service.count("/v1/chat") == 2, "each pair is recorded once, and a replay dials nothing"
    kept = sorted((tmp_path / "kept").iterdir())
    assert [path.name for path in kept] == ["pair-1.hark", "pair-2.hark"]
    for path in kept:
        assert hark("verify", path).status == 0
        with Bundle.open(path) as bundle:
            run = ulid_text(bundle.header.run_id)
        assert not (RUNS / run).exists(), "what the recorded agents wrote is thrown away"
    assert not (tmp_path / "work" / "written").exists()


def test_a_value_that_changes_is_named_with_a_rule_that_would_do(service: Service, tmp_path: Path):
    report = tmp_path / "report.xml"
    words = ("-n1", "--json", f"--junit={report}")
    moving = "int.from_bytes(fresh[-4:], 'big')"
    status, out, err = fidelity(service, tmp_path, moving, *words)
    assert status == 1, (out, err)
    found: dict[str, Any] = json.loads(out)
    assert (found["pairs"], found["equal"], found["holds"]) == (1, 0, False)
    rows = found["results"][0]["verdict"]["divergence"]["nearest"]["differences"]
    assert [(row["field"], row["own_ids"]) for row in rows] == [
        ("body $.pid", False),
        ("body $.session", True),
    ]
    suite = ET.parse(report).getroot()  # noqa: S314 - hark's own
    assert (suite.get("tests"), suite.get("failures")) == ("1", "1")
    rule = f'\n[[volatile]]\nname = "pid"\nhost = "{API}"\nfield = "body $.pid"\n'
    (tmp_path / "policy.toml").write_text(POLICY + rule)
    status, out, err = fidelity(service, tmp_path, moving, "-n1")
    assert status == 0, (out, err)
    assert "  ignored    volatile:pid (1)" in out
    assert fidelity(service, tmp_path, "0", "-n1", "--strict")[0] == 1


def test_bad_input_makes_nothing(service: Service, tmp_path: Path):
    for words, part in (
        (("-n0",), "must be 1 to"),
        (("--stdin=/nowhere/file",), "cannot open it"),
        ((f"--keep={tmp_path}",), "cannot make it"),
    ):
        status, _, err = fidelity(service, tmp_path, "0", *words)
        assert status != 0
        assert part in err
    assert service.connections() == []
    (tmp_path / "policy.toml").write_text("no such key = 1")
    status, out, _ = fidelity(service, tmp_path, "0", "-n1")
    assert status == 125
    assert "not compared: " in out
