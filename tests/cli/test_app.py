"""The verb table: help, spelling, errors, and what the README says of them."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from hark.cli import app
from hark.errors import InputError
from hark.policy.compile import compile_policy
from hark.policy.parse import parse_layer

README = Path(__file__).resolve().parents[2] / "README.md"


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]):
    assert app.main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(re.search(rf"^  {verb.name} ", shown, re.MULTILINE) for verb in app.VERBS)


def test_readme_shows_the_real_help(capsys: pytest.CaptureFixture[str]):
    app.main(["--help"])
    shown = capsys.readouterr().out.rstrip()
    assert f"$ hark --help\n{shown}\n```" in README.read_text()


def test_the_readmes_policy_is_one():
    text = README.read_text().split("$ cat p.toml\n", 1)[1].split("\n\n", 1)[0]
    layer = parse_layer(text.encode(), source="README.md", folder="/")
    compiled = compile_policy(layer.policy)
    assert [host.name for host in compiled.hosts] == ["api.openai.com"]
    assert [secret.name for secret in compiled.secrets] == ["openai"]


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


def test_what_a_message_repeats_cannot_move_the_cursor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def fail(_argv: list[str]) -> int:
        raise InputError("no \x1b[2Jkey", "\x9b31m\u202e\nhark: hint: all is well", "\udcff")

    monkeypatch.setattr(app, "_dispatch", fail)
    assert app.main(["verify"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        r"hark: error: no \x1b[2Jkey",
        r"hark: cause: \x9b31m\u202e\nhark: hint: all is well",
        r"hark: hint: \udcff",
    ]


def _hark(*words: str, shell: str) -> subprocess.CompletedProcess[str]:
    command = shlex.join([sys.executable, "-m", "hark.cli.app", *words])
    return subprocess.run(
        ["/bin/sh", "-c", f"{command} {shell}"], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("shell", [">/dev/full", "2>&- >/dev/full", "<&- >/dev/full"])
def test_output_that_nobody_can_take_is_an_error(shell: str, tmp_path: Path):
    bundle = tmp_path / "a.hark"
    assert app.main(["synth", str(bundle)]) == 0
    for words in (["verify", str(bundle)], ["inspect", str(bundle)], ["--help"]):
        done = _hark(*words, shell=shell)
        assert done.returncode == 1
        told = "" if "2>&-" in shell else "hark: error: the output cannot be written\n"
        assert done.stderr.startswith(told)
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("shell", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_other_file(shell: str, tmp_path: Path):
    """A descriptor opened later must not become the stream that the shell closed."""
    code = (
        "import os, sys\n"
        "from hark.cli import app\n"
        "app._dispatch = lambda _: print('text') or os.pipe()[0]\n"
        "fd = app.main(['verify'])\n"
        "open(sys.argv[1], 'w').write(f'{fd > 2} {sys.stdin.isatty()} {sys.stderr is None}')\n"
    )
    out = tmp_path / "out"
    command = shlex.join([sys.executable, "-c", code, str(out)])
    subprocess.run(["/bin/sh", "-c", f"{command} {shell}"], capture_output=True, check=True)
    assert out.read_text() == "True False False"
