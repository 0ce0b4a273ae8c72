"""`hark run` and `hark export` at a terminal, as a person at a shell has them."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import pytest
from harness.recording import Recording, raw
from harness.running import HARK, environment, hark, need_program
from harness.terminal import Terminal

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.kernel

TYPED_UNSEEN = "correct horse"


def run_words(*command: str) -> list[str]:
    return [str(HARK), "run", "-o", "run.hark", "--", *command]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def cast(work: Path, *more: str) -> tuple[dict[str, Any], list[Any]]:
    done = hark("export", "--format", "cast", *more, "run.hark", cwd=work)
    assert done.status == 0, done.stderr
    header, *events = map(json.loads, done.text.splitlines())
    return header, events


def test_a_session_is_recorded_and_can_be_played(work: Path):
    with Terminal(*run_words("/bin/bash", "--norc", "-i"), cwd=work) as at:
        at.see(rb"[$#] ")
        assert at.is_raw
        at.type(b"echo $((40+2)); stty size\r")
        at.see(rb"[\r\n]42\r\n30 100\r\n")
        at.resize(50, 132)
        at.type(b"until [ \"$(stty size)\" = '50 132' ]; do sleep 0.05; done; echo si''zed\r")
        at.see(rb"[\r\n]sized\r\n")
        at.type(b"exit 7\r")
        assert at.end() == 7
        assert at.is_as_before
    header, events = cast(work)
    assert (header["width"], header["height"]) == (100, 30)
    assert header["title"] == "/bin/bash --norc -i"
    shown = "".join(text for _, code, text in events if code == "o")
    assert "42\r\n30 100\r\n" in shown
    assert [text for _, code, text in events if code == "r"] == ["132x50"]
    assert [time for time, *_ in events] == sorted(time for time, *_ in events)


def test_a_password_is_not_in_the_bundle(work: Path):
    ask = "stty -echo; echo ready; read x; stty echo; echo got ${#x}; read y; echo $y"
    with Terminal(*run_words("/bin/sh", "-c", ask), cwd=work) as at:
        at.see(rb"ready\r\n")
        at.type(TYPED_UNSEEN.encode() + b"\r")
        at.see(rb"got %d\r\n" % len(TYPED_UNSEEN))
        at.type(b"in the open\r")  # the positive control
        assert at.end() == 0
    recording = Recording.read(work / "run.hark")
    typed = [event for event in recording.kind("stdio") if event["stream"] == 3]
    assert any("data" not in event.fields for event in typed)
    said = b"".join(raw(event["data"]) for event in typed if "data" in event.fields)
    assert said == b"in the open\r"
    assert [e[1:] for e in cast(work, "--keys")[1] if e[1] == "i"] == [["i", "in the open\r"]]
    assert not [event for event in cast(work)[1] if event[1] == "i"]


def test_ctrl_z_and_fg_as_without_hark(work: Path):
    shell = need_program("bash")
    env = environment(PS1="at the shell> ", HISTFILE="")
    with Terminal(shell, "--norc", "--noprofile", "-i", cwd=work, env=env) as at:
        at.see(rb"at the shell> ")
        command = run_words("/bin/sh", "-c", "'echo on; read x; echo read $x'")
        at.type(" ".join(command).encode() + b"\r")
        at.see(rb"[\r\n]on\r\n")
        at.type(b"\x1a")
        at.see(rb"Stopped.*\r\n.*at the shell> ")
        at.type(b"echo the shell $((1+1)) has it\r")
        at.see(rb"[\r\n]the shell 2 has it\r\n.*at the shell> ")
        at.type(b"fg\r")
        at.see(rb"hark run [^\n]*\n")
        at.type(b"more\r")
        at.see(rb"read more\r\n")
        at.see(rb"at the shell> ")
        at.type(b"echo status $?; exit\r")
        at.see(rb"[\r\n]status 0\r\n")
        assert at.end() == 0
    assert hark("verify", "run.hark", cwd=work).status == 0


def test_ctrl_c_is_the_agents(work: Path):
    catch = "trap 'echo caught; exit 5' INT; echo on; while :; do sleep 0.1; done"
    with Terminal(*run_words("/bin/sh", "-c", catch), cwd=work) as at:
        at.see(rb"on\r\n")
        at.type(b"\x03")
        at.see(rb"caught\r\n")
        assert at.end() == 5


def test_pasted_text_keeps_its_brackets(work: Path):
    """What a terminal sends around a paste (xterm's mode 2004) reaches the agent unchanged."""
    show = "stty raw -echo; printf on; head -c 18 | od -An -c -w18; stty sane"
    with Terminal(*run_words("/bin/sh", "-c", show), cwd=work) as at:
        at.see(rb"on")
        at.type(b"\x1b[200~pasted\x1b[201~")
        at.see(rb"033 +\[ +2 +0 +0 +~ +p +a +s +t +e +d 033 +\[ +2 +0 +1 +~")
        assert at.end() == 0


def test_the_terminal_is_put_back_when_the_recorder_is_terminated(work: Path):
    with Terminal(*run_words("/bin/sh", "-c", "echo on; exec sleep 600"), cwd=work) as at:
        at.see(rb"on\r\n")
        assert at.is_raw
        at.process.send_signal(signal.SIGTERM)
        assert at.end() == 128 + signal.SIGTERM
        assert at.is_as_before
    assert hark("verify", "run.hark", cwd=work).status == 0


def test_export_replaces_nothing(work: Path):
    done = hark("run", "-o", "run.hark", "--", "/bin/echo", "hello", cwd=work)
    assert done.status == 0, done.stderr
    words = ("export", "--format", "cast", "--out", "run.cast", "run.hark")
    assert hark(*words, cwd=work).status == 0
    lines = (work / "run.cast").read_text().splitlines()
    assert json.loads(lines[1])[1:] == ["o", "hello\r\n"]
    again = hark(*words, cwd=work)
    assert again.status == 2
    assert "cannot write run.cast" in again.stderr
    assert (work / "run.cast").read_text().splitlines() == lines
