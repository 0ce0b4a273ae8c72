"""The verb table: help, spelling, errors, and what the README says of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hark.cli import app

README = Path(__file__).resolve().parents[2] / "README.md"


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]):
    assert app.main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(re.search(rf"^  {verb.name} ", shown, re.MULTILINE) for verb in app.VERBS)


def test_readme_shows_the_real_help(capsys: pytest.CaptureFixture[str]):
    app.main(["--help"])
    shown = capsys.readouterr().out.rstrip()
    assert f"$ hark --help\n{shown}\n```" in README.read_text()


def test_no_verb_prints_the_usage_as_an_error(capsys: pytest.CaptureFixture[str]):
    assert app.main([]) == 2
    assert "usage: hark VERB" in capsys.readouterr().err


def test_unknown_verb_is_named_and_gets_a_hint(capsys: pytest.CaptureFixture[str]):
    assert app.main(["nosuch"]) == 2
    err = capsys.readouterr().err
    assert "hark: error: no verb named 'nosuch'" in err
    assert "hark: hint:" in err


@pytest.mark.parametrize("verb", app.VERBS, ids=lambda verb: verb.name)
def test_each_verb_has_help(verb: app.Verb, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as stop:
        app.main([verb.name, "--help"])
    assert stop.value.code == 0
    assert f"hark {verb.name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("verb", "given", "wanted"),
    [
        (
            "run",
            ["-policy", "p", "--", "cmd", "-policy"],
            ["--policy", "p", "--", "cmd", "-policy"],
        ),
        ("verify", ["-key=ab", "f"], ["--key=ab", "f"]),
        ("prove", ["-seq", "14", "-out", "p"], ["--seq", "14", "--out", "p"]),
        ("synth", ["-corrupt", "9", "f"], ["--corrupt", "9", "f"]),
    ],
)
def test_the_first_harks_spelling_is_accepted(verb: str, given: list[str], wanted: list[str]):
    row = next(v for v in app.VERBS if v.name == verb)
    assert app._modern(row, given) == wanted
