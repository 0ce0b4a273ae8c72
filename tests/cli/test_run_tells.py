"""What a run tells its operator, and what of it is on record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from harness.recording import raw
from harness.running import hark, need_program

if TYPE_CHECKING:
    from harness.world import World

pytestmark = pytest.mark.kernel

DISTRUST = """
import socket, ssl
for _ in range(2):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # no roots at all
    try:
        with socket.create_connection(("news.example", 443)) as sock:
            context.wrap_socket(sock, server_hostname="news.example")
    except ssl.SSLCertVerificationError:
        print("rejected")
"""


def test_a_client_that_rejects_the_ca_is_told_what_to_set(world: World):
    done = world.run("/usr/bin/python3", "-c", DISTRUST)
    assert (done.status, done.text) == (0, "rejected\n" * 2), done.stderr
    lines = done.stderr.splitlines()
    at = lines.index("hark: refused: client rejected ca news.example (2 times)")
    assert "SSL_CERT_FILE" in lines[at + 1]
    recording = world.recording()
    (notice,) = recording.kind("notice")
    assert notice["subject"] == "client_rejected_ca"
    assert "SSL_CERT_FILE" in notice["hint"]
    conns = recording.kind("conn")
    assert [raw(conn["sni"]) for conn in conns] == [b"news.example"] * 2
    assert not [conn for conn in conns if "tls" in conn.fields]


def test_what_the_policy_names_and_the_host_lacks_is_told(world: World):
    folder = world.directory / "shared"
    folder.mkdir()
    names = f'read_paths = ["{folder}", "/no/such/folder"]\nwrite_paths = ["~/nor-this"]\n'
    variables = 'pass_env = ["NOT_SET_ANYWHERE", "SET_HERE"]\n'
    world.policy.write_text(names + variables + world.policy.read_text())
    world.more = {"SET_HERE": "1"}
    done = world.run("/bin/sh", "-c", f"ls {folder}; echo $SET_HERE")
    assert (done.status, done.text) == (0, "1\n"), done.stderr
    warned = [line for line in done.stderr.splitlines() if line.startswith("hark: warning: ")]
    told = [line.removeprefix("hark: warning: ") for line in warned]
    assert [text.split()[2].rstrip(":,") for text in told] == [
        "/no/such/folder",
        told[1].split()[2].rstrip(":"),
        "NOT_SET_ANYWHERE",
    ]
    assert told[1].split()[2].endswith("/nor-this:")
    assert [
        e["text"] for e in world.recording().kind("notice") if e["subject"] == "policy_absent"
    ] == told
    words = world.words("/bin/true")
    words.insert(1, "--quiet")
    words[words.index("-o") + 1] = str(world.directory / "quiet.hark")
    assert hark(*words, cwd=world.work, env=world.env()).stderr == ""


PROBE = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print([(libc.syscall(nr, 0, 0), ctypes.get_errno()) for nr in (435, 250)])  # clone3, keyctl
"""


def test_a_probe_that_was_answered_is_no_refusal(world: World):
    done = world.run("/usr/bin/python3", "-c", PROBE)
    assert (done.status, done.text) == (0, "[(-1, 38), (-1, 1)]\n"), done.stderr
    assert "hark: refused: system call keyctl" in done.stderr.splitlines()
    assert "clone3" not in done.stderr
    recording = world.recording()
    calls = {(e["syscall"], e["reason"]) for e in recording.kind("denied")}
    assert {(435, "syscall_absent"), (250, "syscall_refused")} <= calls
    (end,) = recording.kind("run_end")
    assert end["totals"]["denied"] == 1
    assert end["totals"]["syscalls_absent"] >= 1


def test_a_mount_that_would_be_empty_inside_is_told(world: World):
    sub = world.work / "sub"
    sub.mkdir()
    mount = f'mount -t tmpfs none {sub}; echo there > {sub}/file; exec "$@"'
    own = (need_program("unshare"), "--mount", "--", "/bin/sh", "-ec", mount, "sh")
    note = f"{sub} is a mount of its own: inside, it is empty"
    words = world.words("/bin/ls", "-A", "sub")
    done = hark(*words, before=own, cwd=world.work, env=world.env())
    assert (done.status, done.text) == (0, ""), done.stderr  # the witness: the note is right
    assert f"hark: note: {note}" in done.stderr.splitlines()
    world.bundle.unlink()
    for option in ("--dry-run", "--explain-paths"):
        shown = hark(words[0], option, *words[1:], before=own, cwd=world.work, env=world.env())
        assert shown.status == 0, shown.stderr
        assert f"note   {note}" in shown.text.splitlines()
        plain = hark(words[0], option, *words[1:], cwd=world.work, env=world.env())
        assert note not in plain.text
