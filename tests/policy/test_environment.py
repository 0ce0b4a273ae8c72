"""What the agent's environment holds, who the person is, and that no secret value shows."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ulid import ULID

from hark import limits
from hark.errors import InputError, PolicyError
from hark.policy.compile import compile_policy
from hark.policy.environment import (
    CA_PATH,
    CA_VARIABLES,
    BindTarget,
    agent_environment,
    ca_bind_targets,
    expand_path,
)
from hark.policy.model import CompiledPolicy, Policy
from hark.policy.parse import parse_layer
from hark.policy.person import DEFAULT_PATH, Person, find_person, path_of_sudo, person_path
from hark.policy.secrets import Secret, load_secrets, mint_placeholder

if TYPE_CHECKING:
    from pathlib import Path

RUN = ULID.from_str("01J8X0000000000000000000AB")
VALUE = b"sk-live-0123456789abcdef"
ANN = Person(  # noqa: S604 - no subprocess: the field is the person's shell
    uid=1000, gid=1000, groups=(27, 1000), name="ann", home="/home/ann", shell="/bin/zsh",
    path=b"/home/ann/bin:/usr/bin",
)  # fmt: skip


def compiled(text: str) -> CompiledPolicy:
    return compile_policy(parse_layer(text.encode(), source="p", folder="/").policy)


POLICY = compiled('allow_hosts = ["a.example"]\npass_env = ["EDITOR"]\n[secrets]\napi_key = "KEY"')
OUTER = {
    b"PATH": b"/sbin",
    b"HOME": b"/root",
    b"KEY": VALUE,
    b"EDITOR": b"vi",
    b"LANG": b"C.UTF-8",
    b"LC_TIME": b"de_DE",
    b"TERM": b"xterm",
    b"TZ": b"UTC",
    b"AWS_SECRET_ACCESS_KEY": b"real",
    b"SSL_CERT_FILE": b"/elsewhere",
    b"NODE_EXTRA_CA_CERTS": b"/elsewhere",
    b"LD_PRELOAD": b"/x.so",
    b"SUDO_USER": b"ann",
    b"https_proxy": b"http://proxy",
}


def test_the_agent_of_root_is_named_as_the_user_database_inside_names_it():
    root = replace(ANN, uid=0, gid=0, name="root")
    found = dict(agent_environment(POLICY, root, OUTER, ()))
    assert (found[b"USER"], found[b"LOGNAME"]) == (b"hark", b"hark")
    assert dict(agent_environment(POLICY, ANN, OUTER, ()))[b"USER"] == b"ann"


def test_the_whole_environment() -> None:
    secrets = load_secrets(POLICY.secrets, OUTER, RUN)
    made = dict(agent_environment(POLICY, ANN, OUTER, secrets))
    ca = {name.encode(): value.encode() for name, value in CA_VARIABLES.items()}
    assert made == ca | {
        b"EDITOR": b"vi",
        b"HARK": b"1",
        b"HOME": b"/home/ann",
        b"KEY": b"hark-placeholder-01J8X0000000000000000000AB-api_key",
        b"LANG": b"C.UTF-8",
        b"LC_TIME": b"de_DE",
        b"LOGNAME": b"ann",
        b"PATH": b"/home/ann/bin:/usr/bin",
        b"SHELL": b"/bin/zsh",
        b"TERM": b"xterm",
        b"TZ": b"UTC",
        b"USER": b"ann",
    }


def test_every_client_is_told_of_the_ca() -> None:
    assert set(CA_VARIABLES.values()) == {CA_PATH, "1"}
    assert len(CA_VARIABLES) == 13
    assert "SSL_CERT_DIR" not in CA_VARIABLES


@given(st.dictionaries(st.binary(min_size=1, max_size=20), st.binary(max_size=20), max_size=10))
def test_nothing_comes_in_that_is_not_on_the_list(outer: dict[bytes, bytes]) -> None:
    made = agent_environment(compile_policy(Policy()), ANN, outer, ())
    assert list(made) == sorted(made)
    own = {name.encode() for name in CA_VARIABLES}
    own |= {b"HARK", b"HOME", b"LOGNAME", b"PATH", b"SHELL", b"USER"}
    for name, _ in made:
        assert name in own | {b"LANG", b"TERM", b"TZ"} or name.startswith(b"LC_")


@pytest.mark.parametrize("name", ["PATH", "HARK", "SSL_CERT_FILE", "npm_config_cafile"])
def test_what_hark_sets_itself_cannot_be_passed(name: str) -> None:
    with pytest.raises(PolicyError, match=name):
        agent_environment(compiled(f'pass_env = ["{name}"]'), ANN, OUTER, ())


def test_a_value_too_long_for_execve_is_refused() -> None:
    outer = {b"EDITOR": b"x" * limits.ENV_MAX_VALUE_BYTES}
    with pytest.raises(PolicyError, match="EDITOR is too long"):
        agent_environment(compiled('pass_env = ["EDITOR"]'), ANN, outer, ())
    longest = b"x" * (limits.ENV_MAX_VALUE_BYTES - len("EDITOR=") - 1)
    subprocess.run(["/bin/true"], env={b"EDITOR": longest}, check=True)  # the kernel agrees
    with pytest.raises(OSError, match="too long"):
        subprocess.run(["/bin/true"], env={b"EDITOR": longest + b"x"}, check=True)


def test_binds_cover_what_the_host_has() -> None:
    assert ca_bind_targets(lambda _: False) == ()
    there = {"/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/certs/java/cacerts"}
    assert ca_bind_targets(there.__contains__) == (
        BindTarget("/etc/ssl/certs/ca-certificates.crt", "pem"),
        BindTarget("/etc/ssl/certs/java/cacerts", "java"),
    )


def test_bundles_of_packages_in_shown_prefixes_are_covered() -> None:
    listed = {"/v/lib": ["python3.11", "libx.so", "python2.7"], "/v/lib64": []}
    there = {
        "/v/lib/python3.11/site-packages/certifi/cacert.pem",
        "/v/lib/python3.11/site-packages/botocore/cacert.pem",
        "/v/lib/python2.7/site-packages/certifi/cacert.pem",
        "/p/site-packages/certifi/cacert.pem",
        "/elsewhere/lib/python3.11/site-packages/certifi/cacert.pem",
    }

    def names(folder: str) -> list[str]:
        return listed.get(folder, [])

    assert ca_bind_targets(there.__contains__, names, ("/v", "/p/site-packages")) == (
        BindTarget("/v/lib/python3.11/site-packages/certifi/cacert.pem", "pem"),
        BindTarget("/v/lib/python3.11/site-packages/botocore/cacert.pem", "pem"),
        BindTarget("/p/site-packages/certifi/cacert.pem", "pem"),
    )
    many = [f"/{n}/site-packages" for n in range(1000)]
    assert len(ca_bind_targets(lambda _: True, names, many)) == limits.CA_BINDS_MOST + 1


@pytest.mark.parametrize(
    ("path", "home", "whole"),
    [
        ("~", "/home/ann", "/home/ann"),
        ("~/x", "/home/ann/", "/home/ann/x"),
        ("~/x", "/", "/x"),
        ("~", "/", "/"),
        ("/x/~", "/home/ann", "/x/~"),
    ],
)
def test_home_in_paths(path: str, home: str, whole: str) -> None:
    assert expand_path(path, replace(ANN, home=home)) == whole


# --- secrets --------------------------------------------------------------------------------------


def test_a_secret_does_not_show() -> None:
    (secret,) = load_secrets(POLICY.secrets, OUTER, RUN)
    assert secret.value == VALUE
    assert secret.placeholder == mint_placeholder(RUN, "api_key", len(VALUE))
    assert "sk-live" not in repr(secret) + str(secret) + f"{[secret]}"
    assert "sk-live" not in POLICY.text


@pytest.mark.parametrize("length", [8, 51, 52, 53, 200])
def test_a_placeholder_is_as_long_as_its_value_where_it_can_be(length: int) -> None:
    text = mint_placeholder(RUN, "api_key", length)
    shape = f"hark-placeholder-{RUN}-api_key"
    assert text.rstrip(".") == shape
    assert len(text) == max(length, len(shape))


def test_a_missing_secret_says_how_to_pass_it() -> None:
    with pytest.raises(PolicyError) as caught:
        load_secrets(POLICY.secrets, {}, RUN)
    assert "KEY" in caught.value.cause
    assert "--preserve-env=KEY" in caught.value.hint


@pytest.mark.parametrize(
    "value",
    [
        b"sk-0123456789\n",
        b"sk-0123456789\r",
        b"sk-01234\r\nX: y",
        b"sk-0123\x0056789",
        b" sk-0123456789",
        b"sk-0123456789 ",
        b"",
        b"sk-1234",
        b"x" * (limits.SECRET_MAX_BYTES + 1),
        b"sk-01234567\x7f",
        b"hark-placeholder-01J8X0000000000000000000AB-api_key",
    ],
)
def test_a_value_that_cannot_stand_in_a_header_is_refused_unseen(value: bytes) -> None:
    with pytest.raises(PolicyError) as caught:
        load_secrets(POLICY.secrets, {b"KEY": value}, RUN)
    told = " ".join(caught.value.lines())
    assert "KEY" in told
    assert not value.strip() or value.decode() not in told


def test_latin_values_are_taken() -> None:
    (secret,) = load_secrets(POLICY.secrets, {b"KEY": b"caf\xe9 12345"}, RUN)
    assert isinstance(secret, Secret)


# --- the person -----------------------------------------------------------------------------------


def test_a_named_person() -> None:
    nobody = find_person("nobody", {})
    entry = pwd.getpwnam("nobody")
    assert (nobody.uid, nobody.gid, nobody.home) == (entry.pw_uid, entry.pw_gid, entry.pw_dir)
    assert find_person(str(entry.pw_uid), {}).name == "nobody"
    assert nobody.path == DEFAULT_PATH


@pytest.mark.parametrize("name", ["no-such-user-here", "4294967295", "99999999999999", "", "-1"])
def test_an_unknown_person(name: str) -> None:
    with pytest.raises(InputError, match="there is no user"):
        find_person(name, {})


@pytest.mark.skipif(os.geteuid() != 0, reason="SUDO_UID counts for root only")
def test_the_one_who_called_sudo() -> None:
    uid = pwd.getpwnam("nobody").pw_uid
    assert find_person(None, {b"SUDO_UID": b"%d" % uid}).name == "nobody"
    with pytest.raises(InputError):
        find_person(None, {b"SUDO_UID": b"4000000001"})
    assert find_person(None, {b"SUDO_UID": b"x"}).uid == 0
    assert find_person(None, {}).uid == 0


def test_path_comes_from_the_sudo_above(tmp_path: Path) -> None:
    def process(pid: int, name: str, parent: int, environ: bytes) -> None:
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "comm").write_text(name + "\n")
        (folder / "stat").write_text(f"{pid} ({name}) ) S {parent} 1 1")
        (folder / "environ").write_bytes(environ)

    process(50, "bash", 1, b"PATH=/shell\0")
    process(60, "sudo", 50, b"A=1\0PATH=/home/ann/bin:/bin\0B\0")
    process(70, "sudo)", 60, b"")
    assert path_of_sudo(tmp_path, 70) == b"/home/ann/bin:/bin"
    assert path_of_sudo(tmp_path, 50) == b""
    assert path_of_sudo(tmp_path, 99) == b""


def test_path_of_a_real_process_called_sudo() -> None:
    # A python under the name sudo starts a child, which looks for its parent's PATH.
    child = "import os; from hark.policy.person import *; print(person_path(1, os.environb))"
    code = (
        "import os, subprocess, sys\n"
        "env = dict(os.environ, PATH='/reset', SUDO_UID='1')\n"
        f"subprocess.run([{sys.executable!r}, '-c', {child!r}], env=env, check=True)"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import ctypes; ctypes.CDLL(None).prctl(15, b'sudo', 0, 0, 0)\n" + code,
        ],
        env=dict(os.environ, PATH="/persons/own"),
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"b'/persons/own'\n"


def test_path_without_sudo_is_harks_own_only_for_its_own_user() -> None:
    assert person_path(os.getuid(), {b"PATH": b"/x"}) == b"/x"
    assert person_path(os.getuid() + 1, {b"PATH": b"/x"}) == DEFAULT_PATH
    assert person_path(os.getuid(), {}) == DEFAULT_PATH
