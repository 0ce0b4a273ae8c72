"""Bad input of every kind: each has its own message, its own hint and its exit code.

What happens before the agent exists ends with 2 (the words or files given) or 125 (this host); what
happens to the agent's own requests is answered to the agent and recorded.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from harness.running import (
    NO_SENSORS,
    as_nobody,
    environment,
    hark,
    need,
    need_program,
    upstreams,
)
from harness.world import EVIL, NEWS, World
from stub import Authority, Stub

from hark import limits

if TYPE_CHECKING:
    from harness.running import Finished

INPUT, FAILED, NOT_EXECUTABLE, MISSING = 2, 125, 126, 127


def assert_refused(done: Finished, status: int, *patterns: str) -> None:
    """Check the status, and each pattern in the error lines; never a traceback."""
    assert done.status == status, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("hark: error: "), done.stderr
    for pattern in patterns:
        assert re.search(pattern, done.stderr), (pattern, done.stderr)


@pytest.mark.kernel
def test_control_the_plain_run_works(world: World):
    done = world.run("/bin/true")
    assert done.status == 0, done.stderr
    assert world.bundle.exists()


def test_without_root_it_says_so():
    need("root", os.geteuid() == 0)
    done = hark("run", "--", "/bin/true", cwd=Path("/"), before=as_nobody())
    assert_refused(done, FAILED, "root", "hint: .*sudo")


@pytest.mark.kernel
def test_a_tier_that_no_run_reaches_is_refused(world: World):
    world.policy.write_text(f'tier = "full"\n{world.policy.read_text()}')
    assert_refused(world.run("/bin/true"), FAILED, "tier full", 'hint: tier = "contain"')
    assert not world.bundle.exists()
    world.policy.write_text(world.policy.read_text().replace('"full"', '"contain"'))
    done = world.run("/bin/true")
    assert done.status == 0, done.stderr
    (start,) = world.recording().kind("run_start")
    assert start["tier"] == "contain"


@pytest.mark.kernel
@pytest.mark.parametrize("capability", ["sys_admin", "setuid", "net_admin", "fowner"])
def test_root_without_a_capability_is_refused_by_its_name(world: World, capability: str):
    before = (need_program("setpriv"), f"--bounding-set=-{capability}", "--")
    done = hark(*world.words("/bin/true"), before=before, cwd=world.work, env=world.env())
    assert_refused(done, FAILED, f"cause: without CAP_{capability.upper()}\n", "hint: ")
    assert not world.bundle.exists()


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("hide", "named"),
    [(NO_SENSORS, "sensors"), ("mount -t tmpfs none /sys/fs/cgroup", "cgroup")],
    ids=["sensors", "cgroup2"],
)
def test_kernel_feature_that_is_missing(world: World, hide: str, named: str):
    """Hidden from hark alone, by an empty mount in a mount namespace of its own."""
    own = (need_program("unshare"), "--mount", "--", "/bin/sh", "-ec", f'{hide}; exec "$@"', "sh")
    done = hark(*world.words("/bin/true"), before=own, cwd=world.work, env=world.env())
    assert_refused(done, FAILED, named, "hint: ")
    assert not world.bundle.exists()


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("text", "patterns"),
    [
        ('allow_hosts = ["a.example"]\n\n[secrets\n', ("line 3", "TOML|toml|table|declaration")),
        ('\nallow_host = ["a.example"]\n', ("line 2", "allow_host", "allow_hosts")),
        ('allow_hosts = ["*.example"]\n', ("line 1", r"\*\.example")),
        ('allow_hosts = "a.example"\n', ("line 1", "allow_hosts")),
        ('[secrets.k]\nenv = "K"\n', ("hosts",)),
    ],
    ids=["no-toml", "unknown-key", "wildcard", "wrong-type", "secret-without-hosts"],
)
def test_policy_that_does_not_parse_names_line_and_fix(
    world: World, text: str, patterns: tuple[str, ...]
):
    world.policy.write_text(text)
    done = hark("run", f"--policy={world.policy}", "--", "/bin/true", cwd=world.work)
    assert_refused(done, FAILED, re.escape(str(world.policy)), *patterns)
    assert not list(world.work.iterdir())


@pytest.mark.kernel
def test_policy_that_is_not_there(world: World):
    done = hark("run", "--policy=nowhere.toml", "--", "/bin/true", cwd=world.work)
    assert_refused(done, FAILED, "nowhere.toml", "hint: ")


@pytest.mark.kernel
def test_secret_whose_variable_is_not_set(world: World):
    done = hark(*world.words("/bin/true"), cwd=world.work, env=environment())
    assert_refused(done, FAILED, "OPENAI_API_KEY", "hint: ")


@pytest.mark.kernel
@pytest.mark.parametrize(
    "option",
    [
        "--upstream=a.example",
        "--upstream=a.example=localhost:1",
        "--upstream=a.example=127.0.0.1:0",
    ],
)
def test_upstream_that_is_no_address(world: World, option: str):
    done = hark("run", option, "--", "/bin/true", cwd=world.work)
    assert_refused(done, FAILED, "--upstream", "HOST=IP:PORT")


@pytest.mark.kernel
def test_no_command(world: World):
    assert_refused(hark("run", "--", cwd=world.work), FAILED, "no command", "hint: hark run")


@pytest.mark.kernel
def test_person_who_does_not_exist(world: World):
    done = hark("run", "--as=nobody-of-that-name", "--", "/bin/true", cwd=world.work)
    assert_refused(done, FAILED, "nobody-of-that-name")


@pytest.mark.kernel
def test_output_file_that_exists_is_kept(world: World):
    world.bundle.write_text("precious")
    done = world.run("/bin/true")
    assert_refused(done, FAILED, re.escape(str(world.bundle)), "exists", "hint: ")
    assert world.bundle.read_text() == "precious"


@pytest.mark.kernel
def test_missing_program(world: World):
    done = world.run("no-such-program-at-all")
    assert_refused(done, MISSING, "no-such-program-at-all")


@pytest.mark.kernel
def test_program_that_is_not_executable(world: World):
    (world.work / "data.txt").write_text("no program\n")
    assert_refused(world.run("./data.txt"), NOT_EXECUTABLE, "data.txt")


def fetch_words(host: str, *more: str) -> list[str]:
    """Return a curl command that prints the body, and the HTTP status on a line of its own."""
    return [need_program("curl"), "-sS", "-w", r"\n%{http_code}", *more, f"https://{host}/page"]


def fetch(world: World, host: str, *more: str) -> tuple[str, str]:
    """Fetch a page with curl; return the HTTP status, and the body with curl's complaints."""
    done = world.run(*fetch_words(host, *more))
    body, _, status = done.text.rpartition("\n")
    return status, body + done.stderr


@pytest.mark.kernel
def test_host_that_is_not_in_the_list(world: World):
    status, said = fetch(world, EVIL)
    assert status == "403"
    assert EVIL in said
    (denied,) = [e for e in world.recording().kind("denied") if e["layer"] == "mediator"]
    assert (denied["host"], denied["reason"]) == (EVIL, "host_denied")
    assert not world.stub.connections()


@pytest.mark.kernel
def test_upstream_that_is_down(world: World):
    world.stub.close()
    status, said = fetch(world, NEWS)
    assert status == "502"
    assert "refused" in said.lower()
    dials = [e for e in world.recording().kind("dial") if e["host"] == NEWS]
    assert dials[-1]["errno"] == 111  # ECONNREFUSED
    assert world.recording().exchanges(NEWS)[0].response["own"]


@pytest.mark.kernel
@pytest.mark.parametrize("fault", ["expired", "wrong-name", "unknown-ca"])
def test_upstream_with_a_bad_certificate(world: World, fault: str):
    trusted = world.stub.authority
    other = Authority(world.directory / "other")
    leaf = {
        "expired": lambda: trusted.leaf(NEWS, expired=True),
        "wrong-name": lambda: trusted.leaf("other.example"),
        "unknown-ca": lambda: other.leaf(NEWS),
    }[fault]()
    with Stub(world.directory / "bad", (NEWS,), authority=trusted, leaves={NEWS: leaf}) as bad:
        words = world.words(*fetch_words(NEWS))
        words = [w for w in words if not w.startswith(f"--upstream={NEWS}=")]
        words[1:1] = upstreams(bad.address, NEWS)
        done = hark(*words, cwd=world.work, env=world.env())
        assert not bad.requests()
    body, _, status = done.text.rpartition("\n")
    assert status == "502", done.stderr
    expected = {"expired": "expired", "wrong-name": "name|match", "unknown-ca": "issuer|self"}
    assert re.search(expected[fault], body, re.IGNORECASE), body
    (exchange,) = world.recording().exchanges(NEWS)
    assert exchange.upstream is None
    assert exchange.end is not None
    assert exchange.end["reason"] != "complete"


@pytest.mark.kernel
def test_client_that_rejects_the_ca_is_named(world: World):
    (world.work / "other.pem").write_bytes(
        Authority(world.directory / "other").ca_file.read_bytes()
    )
    status, said = fetch(world, NEWS, "--cacert", "other.pem")
    assert status == "000"
    assert "certificate" in said
    recording = world.recording()
    (refused,) = [e for e in recording.kind("denied") if e["layer"] == "mediator"]
    assert (refused["reason"], refused["host"]) == ("client_rejected_ca", NEWS)
    notice = recording.kind("notice")[0]
    assert "curl" in notice["text"]
    assert "CURL_CA_BUNDLE" in notice["hint"]
    assert not world.stub.connections()


@pytest.mark.kernel
@pytest.mark.parametrize("what", ["device", "text", "other-key"])
def test_key_that_is_none_is_the_one_error(world: World, what: str):
    """Nothing is said of what its failure brings down after it."""
    key = Path("/dev/zero")
    if what != "device":
        key = world.directory / "key.pem"
        key.write_text("no key\n")
    if what == "other-key":
        words = ("genpkey", "-algorithm", "X25519", "-out", str(key))
        subprocess.run([need_program("openssl"), *words], check=True, capture_output=True)
    done = hark("run", f"--key={key}", "-o", world.bundle, "--", "/bin/true", cwd=world.work)
    assert_refused(done, FAILED, "key", "hint: .*hark keygen")
    assert done.stderr.count("hark: error: ") == 1, done.stderr
    assert "allow_downgrades" not in done.stderr
    assert not world.bundle.exists()


@pytest.mark.kernel
def test_too_few_file_descriptors_are_named(world: World):
    before = (need_program("prlimit"), "--nofile=40", "--")
    done = hark(*world.words("/bin/true"), before=before, cwd=world.work, env=world.env())
    assert_refused(done, FAILED, "file descriptors", "40 open files", "hint: ulimit -n")
    assert done.stderr.count("hark: error: ") == 1, done.stderr
    before = (need_program("prlimit"), f"--nofile={limits.DESCRIPTORS_LEAST}", "--")
    done = hark(*world.words("/bin/true"), before=before, cwd=world.work, env=world.env())
    assert done.status == 0, done.stderr


@pytest.mark.kernel
def test_folder_that_was_removed(world: World):
    gone = world.directory / "gone"
    gone.mkdir()
    inside = (need_program("sh"), "-ec", 'rmdir "$PWD"; exec "$@"', "sh")
    done = hark("run", "-o", world.bundle, "--", "/bin/true", before=inside, cwd=gone)
    assert_refused(done, FAILED, "folder is not there", "hint: cd to")


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("x" * 300, "File name too long"),
        ("nowhere/run.hark", "No such file"),
        ("/proc/run.hark", "cannot write|not permitted|denied"),
    ],
    ids=["long", "no-folder", "not-writable"],
)
def test_output_that_cannot_be_made(world: World, out: str, said: str):
    person = ("--as=nobody",) if out.startswith("/") else ()
    done = hark(
        "run", *person, "-o", out, "--", "/bin/true", cwd=Path("/") if person else world.work
    )
    assert_refused(done, FAILED, said, "hint: name .*-o")


@pytest.mark.kernel
def test_too_many_arguments(world: World):
    words = ["x"] * (limits.COMMAND_WORDS_MOST + 1)
    done = hark("run", "-o", world.bundle, "--", "/bin/true", *words, cwd=world.work)
    assert_refused(done, FAILED, "too many arguments", "hint: .*stdin")
    done = hark("run", "-o", world.bundle, "--", "/bin/true", *words[2:], cwd=world.work)
    assert done.status == 0, done.stderr


@pytest.mark.parametrize("verb", ["verify", "inspect"])
def test_bundle_that_is_not_there(verb: str, tmp_path: Path):
    done = hark(verb, tmp_path / "none.hark")
    assert_refused(done, INPUT, "none.hark", "No such file")


@pytest.mark.parametrize("verb", ["verify", "inspect"])
@pytest.mark.parametrize("content", [b"", b"not a bundle at all\n" * 100], ids=["empty", "text"])
def test_bundle_that_is_none(verb: str, content: bytes, tmp_path: Path):
    (tmp_path / "bad.hark").write_bytes(content)
    done = hark(verb, tmp_path / "bad.hark")
    # Nothing at all is a prefix of every bundle.
    assert done.status == (1 if content else 3), done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr or done.text.splitlines()[-1].startswith(("BROKEN", "TRUNCATED"))


def test_unknown_verb_and_unknown_option():
    assert_refused(hark("frobnicate"), INPUT, "frobnicate", "hint: ")
    done = hark("verify", "--frobnicate", "x")
    assert done.status == INPUT
    assert "--frobnicate" in done.stderr
    assert hark("run", "--frobnicate", "--", "/bin/true").status == FAILED  # 2 is the agent's
