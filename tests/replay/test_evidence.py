"""The evidence of many pairs: counts that add up, each failure told, and valid JUnit XML."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

from hark.replay.evidence import Evidence, PairSeen

EQUAL = {"verdict": "REPLAY-EQUAL exact", "equal": True, "exact": True, "mode": "light"}
RENAMED = {
    "verdict": "REPLAY-EQUAL normalised 1, renamed 1",
    "equal": True,
    "exact": False,
    "mode": "light",
    "renamed": [["a", "b"]],
    "ignored": {"header:trace traceparent": 2},
    "notes": ["a note"],
}
DIFFERENCES = [{"field": f"body $.x{i}", "recorded": "1", "now": "2"} for i in range(5)]
DIVERGED = {
    "verdict": "REPLAY-DIVERGED at action 3",
    "equal": False,
    "exact": False,
    "mode": "light",
    "ignored": {"header:trace traceparent": 1},
    "divergence": {
        "now": {"title": "POST api.example/v1"},
        "nearest": {"title": "POST api.example/v1", "differences": DIFFERENCES},
    },
}


def pair(number: int, verdict: dict[str, Any] | None, error: str = "") -> PairSeen:
    return PairSeen(number, 0, 1.25, 0.5, verdict, error)


def evidence(*verdicts: dict[str, Any] | None, strict: bool = False) -> Evidence:
    pairs = [pair(i, v, "" if v else "no sensors") for i, v in enumerate(verdicts, 1)]
    return Evidence("agent", pairs, strict)


def test_counts_add_up_and_each_failure_is_told() -> None:
    found = evidence(EQUAL, RENAMED, DIVERGED, None)
    lines = found.lines()
    assert lines[0] == "FIDELITY 2 of 4 pairs equal"
    assert "  equal      1 exact" in lines
    assert "  equal      1 normalised 1, renamed 1" in lines
    where = "POST api.example/v1: body $.x0, body $.x1, body $.x2, and 2 more"
    assert f"  differs    pair 3: REPLAY-DIVERGED at action 3  [{where}]" in lines
    assert "  differs    pair 4: not compared: no sensors  [no sensors]" in lines
    assert "  renamed    1 ids of the agent's own" in lines
    assert "  ignored    header:trace traceparent (3)" in lines
    assert "  note       a note (1)" in lines
    rule = '[[volatile]] name = "?", host = "api.example", field = "body $.x0"  (1)'
    assert f"  rule       {rule}" in lines
    assert not found.holds


def test_strict_takes_exact_alone() -> None:
    assert evidence(EQUAL, RENAMED).holds
    assert not evidence(EQUAL, RENAMED, strict=True).holds
    assert evidence(EQUAL, EQUAL, strict=True).holds
    assert not evidence().holds


def test_json_has_every_pair_and_its_verdict() -> None:
    found = evidence(EQUAL, DIVERGED, None).to_json()
    assert (found["pairs"], found["equal"], found["holds"]) == (3, 1, False)
    assert [row["holds"] for row in found["results"]] == [True, False, False]
    assert found["results"][1]["verdict"] == DIVERGED
    assert found["results"][2]["error"] == "no sensors"


def test_junit_is_xml_with_a_case_for_each_pair() -> None:
    suite = ET.fromstring(evidence(EQUAL, DIVERGED, None).junit())  # noqa: S314 - our own
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
    assert suite.get("time") == "5.250"
    first, second, third = suite.findall("testcase")
    assert first.findtext("system-out") == "REPLAY-EQUAL exact"
    failure, error = second.find("failure"), third.find("error")
    assert failure is not None
    assert failure.get("message") == "REPLAY-DIVERGED at action 3"
    assert error is not None
    assert error.get("message") == "not compared: no sensors"
