"""Which file wins, and what a project's own file may and may not do."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hark import limits
from hark.errors import PolicyError
from hark.policy.compile import compile_policy, host_table
from hark.policy.layers import join_layers, load_policy
from hark.policy.model import Limits, Policy
from hark.policy.parse import Layer, parse_layer
from hark.policy.person import find_person

BASE = """
allow_hosts = ["a.example", "b.example"]
read_paths = ["/data"]
write_paths = ["/out"]
pass_env = ["EDITOR", "PAGER"]
workspace = "direct"
tier = "contain"
allow_downgrades = ["bpf"]
[limits]
pids = 100
[secrets]
k = "K"
[secrets.narrow]
env = "N"
hosts = ["a.example", "b.example"]
header = ["x-a", "x-b"]
query = ["q", "r"]
methods = ["GET", "POST"]
[[host]]
name = "c.example"
ports = [80, 443, 8080]
plain = [80]
private = true
"""

NARROW = '[secrets.narrow]\nenv = "N"\nhosts = ["a.example"]\nheader = "x-a"\n'

TIGHTER = [
    "",
    'allow_hosts = ["a.example"]\n[secrets]\n',
    "allow_hosts = []\nhost = []\n[secrets]\n",
    '[[host]]\nname = "c.example"\nports = [443]',
    '[[host]]\nname = "c.example"\nports = [80]\nprivate = true',
    'read_paths = ["/data/one", "/out/log"]\nwrite_paths = ["/out/x/y"]',
    'pass_env = ["EDITOR"]',
    'workspace = "overlay"',
    'tier = "full"',
    "allow_downgrades = []",
    "[limits]\npids = 50",
    '[limits]\nmemory = "1G"',
    f"[limits]\ntmp = {limits.TMP_DEFAULT_BYTES}",
    NARROW + 'methods = ["GET"]',
    NARROW + 'methods = ["GET"]\nquery = "q"',
    '[secrets.k]\nenv = "K"\nhosts = ["b.example"]\nheader = "authorization"',
]

WIDER = {
    'allow_hosts = ["x.example"]': "allow_hosts adds 'x.example'",
    'allow_hosts = ["a.example", "c.example"]': "secrets binds 'k'",  # the broad one would follow
    '[[host]]\nname = "a.example"\nports = [8443]': "host adds port 8443",
    '[[host]]\nname = "a.example"\nports = [443]\nprivate = true': "host allows private",
    '[[host]]\nname = "c.example"\nports = [80, 8080]\nplain = true': (
        "host allows 'c.example' without TLS on port 8080"
    ),
    'read_paths = ["/"]': "read_paths adds",
    'read_paths = ["/database"]': "read_paths adds",
    'write_paths = ["/data"]': "write_paths adds",
    'pass_env = ["HOME_TOWN"]': "pass_env adds",
    'tier = "record"': "tier sets",
    NARROW + 'methods = ["GET"]\nquery = "z"': "secrets binds 'narrow'",
    'allow_downgrades = ["bpf", "landlock"]': "allow_downgrades adds",
    "[limits]\npids = 101": "limits.pids raises",
    f"[limits]\ntmp = {limits.TMP_DEFAULT_BYTES + 1}": "limits.tmp raises",
    '[secrets]\nother = "K"': "secrets binds 'other'",
    '[secrets]\nk = "L"': "secrets binds 'k'",
    NARROW: "secrets binds 'narrow'",  # any method
    NARROW.replace("x-a", "x-c") + 'methods = ["GET"]': "secrets binds 'narrow'",
    NARROW.replace("a.example", "c.example") + 'methods = ["GET"]': "secrets binds 'narrow'",
    '[secrets]\nnarrow = "N"': "secrets binds 'narrow'",
}


def layer(text: str, source: str = "hark.toml") -> Layer:
    return parse_layer(text.encode(), source=source, folder="/work")


@pytest.mark.parametrize("text", TIGHTER)
def test_a_project_may_tighten(text: str) -> None:
    base = join_layers(system=layer(BASE))
    joined = join_layers(system=layer(BASE), project=layer(text))
    allowed = {(h.name, port) for h in host_table(base) for port in h.ports}
    assert {(h.name, port) for h in host_table(joined) for port in h.ports} <= allowed
    compile_policy(joined)


@pytest.mark.parametrize("text", WIDER)
def test_a_project_may_not_widen(text: str) -> None:
    with pytest.raises(PolicyError) as caught:
        join_layers(system=layer(BASE), project=layer(text))
    assert caught.value.what.startswith(f"hark.toml: {WIDER[text]}")
    assert "only tighten" in caught.value.cause
    join_layers(system=layer(BASE), explicit=layer(text))  # the operator may


def test_a_direct_workspace_is_wider_than_an_overlay() -> None:
    with pytest.raises(PolicyError, match="workspace"):
        join_layers(project=layer('workspace = "direct"'))


def test_without_an_operators_file_a_project_can_allow_nothing() -> None:
    with pytest.raises(PolicyError) as caught:
        join_layers(project=layer('allow_hosts = ["a.example"]'))
    assert "--policy hark.toml" in caught.value.hint


def test_the_command_line_comes_last_key_by_key() -> None:
    joined = join_layers(
        system=layer(BASE),
        project=layer('pass_env = []\nworkspace = "overlay"\n[limits]\npids = 9'),
        explicit=layer('pass_env = ["PAGER"]\n[limits]\nmemory = "2G"'),
    )
    assert joined.pass_env == ("PAGER",)
    assert joined.workspace == "overlay"
    assert (joined.limits.pids, joined.limits.memory) == (9, 2 << 30)
    assert joined.allow_hosts == ("a.example", "b.example")


@given(st.permutations(TIGHTER), st.integers(0, 4))
def test_tightening_twice_is_still_tighter(texts: list[str], depth: int) -> None:
    policy = join_layers(system=layer(BASE))
    for text in texts[:depth]:
        stated = layer(text)
        base = Layer("base", all_keys(), policy)
        try:
            joined = join_layers(system=base, project=stated)
        except PolicyError:
            continue  # an earlier step was tighter already
        names = {h.name for h in host_table(policy)}
        assert {h.name for h in host_table(joined)} <= names
        policy = joined


def all_keys() -> frozenset[str]:
    keys = set(Policy.__slots__) - {"limits"}
    return frozenset(keys | {f"limits.{key}" for key in Limits.__slots__})


# --- files ----------------------------------------------------------------------------------------


def test_no_file_at_all(tmp_path: Path) -> None:
    system = tmp_path / "etc" / "policy.toml"
    assert load_policy(system=system, workspace=tmp_path, explicit=None) == Policy()


def test_the_three_files(tmp_path: Path) -> None:
    system, explicit = tmp_path / "policy.toml", tmp_path / "mine" / "p.toml"
    system.write_text('allow_hosts = ["a.example", "b.example"]\nread_paths = ["rel"]')
    (tmp_path / "hark.toml").write_text('allow_hosts = ["a.example"]')
    explicit.parent.mkdir()
    explicit.write_text('write_paths = ["out"]')
    policy = load_policy(system=system, workspace=tmp_path, explicit=explicit)
    assert policy.allow_hosts == ("a.example",)
    assert policy.read_paths == (f"{tmp_path}/rel",)
    assert policy.write_paths == (f"{tmp_path}/mine/out",)


def test_the_projects_file_named_by_the_operator_is_the_operators(tmp_path: Path) -> None:
    project = tmp_path / "hark.toml"
    project.write_text('allow_hosts = ["a.example"]')
    (tmp_path / "link.toml").symlink_to(project)
    for explicit in (project, tmp_path / "link.toml"):
        policy = load_policy(system=tmp_path / "none", workspace=tmp_path, explicit=explicit)
        assert policy.allow_hosts == ("a.example",)


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="no policy file"):
        load_policy(system=tmp_path / "n", workspace=tmp_path, explicit=tmp_path / "missing.toml")


def test_a_folder_is_no_policy(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="cannot read"):
        load_policy(system=tmp_path / "n", workspace=tmp_path, explicit=tmp_path)


def test_a_project_file_that_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "hark.toml")
    with pytest.raises(PolicyError, match="is not a file"):
        load_policy(system=tmp_path / "n", workspace=tmp_path, explicit=None)


def test_a_named_policy_may_be_a_pipe(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, b'allow_hosts = ["a.example"]')
    os.close(writer)
    explicit = Path(f"/proc/self/fd/{reader}")
    policy = load_policy(system=tmp_path / "n", workspace=tmp_path, explicit=explicit)
    os.close(reader)
    assert policy.allow_hosts == ("a.example",)


@pytest.mark.parametrize("how", ["mode", "owner"])
def test_the_operators_file_must_be_roots_alone(tmp_path: Path, how: str) -> None:
    system = tmp_path / "policy.toml"
    system.write_text('allow_hosts = ["a.example"]')
    assert load_policy(system=system, workspace=tmp_path, explicit=None).allow_hosts
    if how == "mode":
        system.chmod(0o664)
    else:
        os.chown(system, 65534, 65534)
    with pytest.raises(PolicyError, match="others than root"):
        load_policy(system=system, workspace=tmp_path, explicit=None)


@pytest.mark.kernel
def test_files_are_opened_as_the_person() -> None:
    nobody = find_person("nobody", {})
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to others
        folder = Path(name)
        folder.chmod(0o755)
        explicit = folder / "p.toml"
        explicit.write_text('allow_hosts = ["a.example"]')
        explicit.chmod(0o600)
        paths = {"system": folder / "none", "workspace": folder, "explicit": explicit}
        assert load_policy(**paths).allow_hosts  # root may read it
        with pytest.raises(PolicyError) as caught:
            load_policy(**paths, person=nobody)
        assert caught.value.cause == "Permission denied"
        assert (os.geteuid(), os.getegid()) == (0, 0)
        explicit.chmod(0o644)
        assert load_policy(**paths, person=nobody).allow_hosts == ("a.example",)
