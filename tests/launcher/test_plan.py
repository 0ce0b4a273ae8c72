"""The plan: pure, printable, the numbers of csrc/launch/hark_plan.h, refused when malformed."""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import cffi
import pytest

from hark import limits
from hark.errors import InputError, KernelUnsupported
from hark.launcher import landlock, ops
from hark.launcher.host import HostFacts, LimitPlace, TopEntry, own_v2, read_facts, submounts_of
from hark.launcher.ids import AGENT_OF_ROOT, Slot
from hark.launcher.plan import GivenFile, LaunchRequest, PathGrant, WatchedProcess, compile_plan
from hark.policy.capabilities import Capabilities
from hark.policy.model import Determinism, Limits
from hark.policy.person import Person

HEADER = Path(__file__).parents[2] / "csrc" / "launch" / "hark_plan.h"
CAPS = Capabilities(kernel="6.1", landlock_abi=7, cgroup2="/sys/fs/cgroup", features=())
HOST = HostFacts(
    top=(TopEntry("bin", "usr/bin"), TopEntry("lib", "")),
    submounts=("/usr/local",),
    mounts=("/data/disk", "/home/alice/project/volume"),
    cgroup="/sys/fs/cgroup/own",
    pids=LimitPlace(2),
    memory=LimitPlace(1, "/sys/fs/cgroup/memory/own"),
    cpu=LimitPlace(1, "/sys/fs/cgroup/cpu/own"),
    memory_bytes=4 << 30,
    ipv6=True,
    passwd=b"root:x:0:0::/root:/bin/sh",
    group=b"root:x:0:\n",
)
ALICE = Person(uid=4100, gid=4100, groups=(4100, 27), name="alice", home="/home/alice", shell="")
REQUEST = LaunchRequest(
    run_id="01TEST",
    argv=(b"python3", b"agent.py"),
    file="/usr/bin/python3",
    cwd="/home/alice/project",
    env=((b"PATH", b"/usr/bin"),),
    person=ALICE,
    slot=Slot(3),
    workspace="/home/alice/project",
    workspace_mode="overlay",
    seccomp=b"\x06\0\0\0\0\0\xff\x7f",
    limits=Limits(pids=64, memory=1 << 30, tmp=1 << 20, open_files=256),
)


def compiled(**changes: Any) -> list[ops.Op]:
    return list(compile_plan(replace(REQUEST, **changes), CAPS, HOST).ops)


def only(found: list[ops.Op], kind: type[ops.Op]) -> list[Any]:
    return [op for op in found if isinstance(op, kind)]


@pytest.mark.parametrize(
    ("enum", "cls", "prefix"),
    [("hark_op", ops.OpCode, "HARK_OP_"), ("hark_op_flag", ops.Flag, "HARK_OPF_")],
)
def test_numbers_equal_the_header(enum: str, cls: Any, prefix: str):
    ffi = cffi.FFI()
    ffi.cdef(re.sub(r"(?m)^#.*$", "", HEADER.read_text()))
    header = {k.removeprefix(prefix): v for k, v in ffi.typeof(f"enum {enum}").relements.items()}
    assert header == {m.name: m.value for m in cls if m.value}


def test_payload_formats_equal_the_reader():
    text = HEADER.with_name("plan.c").read_text()
    table = dict(re.findall(r"\{HARK_OP_(\w+),[^\"}]*\"([^\"]*)\"\}", text))
    assert table == {op.CODE.name: op.FORMAT for op in ops.OPS}


def test_the_plan_is_pure_and_ordered_by_phase():
    first = compile_plan(REQUEST, CAPS, HOST)
    assert first.encode() == compile_plan(REQUEST, CAPS, HOST).encode()
    phases = [op.CODE >> 8 for op in first.ops]
    assert phases == sorted(phases)
    assert len(first.describe()) == len(first.ops)


def test_dry_run_lines_are_readable():
    lines = compile_plan(REQUEST, CAPS, HOST).describe()
    assert "hostname name=hark" in lines
    assert "creds userns=0 uid=4100 gid=4100" in lines
    assert "exec file=/usr/bin/python3 argv=['python3' 'agent.py']" in lines
    assert any(line.startswith("workspace fd=path:/home/alice/project") for line in lines)
    assert "seccomp blob=<8 bytes>" in lines


def test_encoding_is_what_the_reader_wants():
    data = compile_plan(REQUEST, CAPS, HOST).encode()
    magic, version, count = struct.unpack_from("=III", data)
    assert (magic, version) == (0x4E4C5048, 1)
    at = 12
    for _ in range(count):
        _, _, length = struct.unpack_from("=HHI", data, at)
        at += 8 + length
    assert at == len(data)


def test_ids_of_a_plain_person():
    found = compiled()
    (ns,) = only(found, ops.UserNs)
    base = Slot(3).base
    assert ns.uids == (ops.IdRange(0, base, 65536),)
    assert only(found, ops.Creds)[0].uid == 4100


def test_ids_of_a_person_of_a_directory_service():
    found = compiled(person=replace(ALICE, uid=1200001, gid=1200513))
    (ns,) = only(found, ops.UserNs)
    base = Slot(3).base
    assert ns.uids == (ops.IdRange(0, base, 65535), ops.IdRange(1200001, base + 65535, 1))
    assert sum(r.count for r in ns.gids) == 65536
    stage = next(op for op in only(found, ops.StageDir) if op.path == "/home/alice")
    assert (stage.uid, stage.gid) == (base + 65535, base + 65535)


def test_root_is_swapped_on_its_own_layers_only():
    found = compiled(
        person=replace(ALICE, uid=0, gid=0, name="root", home="/root"), workspace="/srv/p"
    )
    agent, layers = only(found, ops.UserNs)
    base = Slot(3).base
    assert agent.uids == (ops.IdRange(0, base, 65536),)
    assert layers.uids[0] == ops.IdRange(0, base + AGENT_OF_ROOT, 1)
    assert sum(r.count for r in layers.uids) == 65536
    assert max(o for r in layers.uids for o in (r.outside, r.outside + r.count - 1)) == base + 65535
    assert only(found, ops.Creds)[0].uid == AGENT_OF_ROOT
    assert {op.userns for op in only(found, ops.Tree)} == {0}
    assert {op.userns for op in only(found, ops.Workspace)} == {1}
    passwd = next(op for op in only(found, ops.StageFile) if op.path == "/etc/passwd")
    assert passwd.content.splitlines()[1].startswith(b"hark:x:65533:65533:")


def test_mounts_of_outer_folders_come_first():
    read = (
        PathGrant("/data/a/b", "folder", "x"),
        PathGrant("/data", "folder", "x"),
        PathGrant("/data/a/b/c", "file", "x"),
        PathGrant("/usr/share/x", "folder", "visible anyway"),
    )
    found = compiled(read=read, workspace="/data/a/project")
    paths = [op.path for op in found if isinstance(op, ops.Tree | ops.OneFile | ops.Workspace)]
    mine = [p for p in paths if p.startswith("/data")]
    assert mine == ["/data", "/data/a/project"]  # the nested ones are visible through /data
    assert "/usr/share/x" not in paths


def test_write_paths_get_layers_of_their_own():
    write = (PathGrant("/out", "folder", "x"), PathGrant("/home/alice/project/in", "folder", "x"))
    layers = [(op.path, op.layer) for op in only(compiled(write=write), ops.Workspace)]
    assert layers == [
        ("/out", "/var/lib/hark/runs/01TEST/layers/1"),
        ("/home/alice", "/var/lib/hark/runs/01TEST/home"),
        ("/home/alice/project", "/var/lib/hark/runs/01TEST/layers/0"),
    ]
    assert [op.path for op in only(compiled(write=write, workspace_mode="direct"), ops.Direct)] == [
        "/out",
        "/home/alice/project",
    ]


def test_home_is_skeletal_where_mounts_need_it():
    read = (
        PathGrant("/home/alice/.pyenv/versions/3", "folder", "x"),
        PathGrant("/home/alice/bin/tool", "file", "x"),
        PathGrant("/home/alice/bin/t", "link", "x", "/home/alice/bin/tool"),
        PathGrant("/opt/t", "link", "x", "/usr/bin/env"),
    )
    found = compiled(read=read)
    assert [op.path for op in only(found, ops.StageDir) if op.path != "/etc/hark"] == [
        "/home/alice",
        "/home/alice/.pyenv",
        "/home/alice/.pyenv/versions",
        "/home/alice/.pyenv/versions/3",
        "/home/alice/bin",
        "/home/alice/project",
    ]
    assert [op.path for op in only(found, ops.StageFile)][-1] == "/home/alice/bin/tool"
    links = {op.path: op.flags for op in only(found, ops.Link)}
    assert links["/home/alice/bin/t"] == ops.Flag.STAGED
    assert links["/opt/t"] == ops.Flag.NONE


def test_a_home_granted_whole_is_the_lower_layer_of_a_thrown_away_one():
    found = compiled(read=(PathGrant("/home/alice", "folder", "x"),))
    home = next(op for op in only(found, ops.Workspace) if op.path == "/home/alice")
    assert home.source == "/home/alice"
    assert ops.Flag.NO_SOURCE not in home.flags
    assert not [op for op in only(found, ops.Tree) if op.path == "/home/alice"]


def test_descriptors_are_named_once_and_the_person_opens_the_paths():
    plan = compile_plan(
        replace(REQUEST, watched=(WatchedProcess("mediator", 2),), destination="run.hark"),
        CAPS,
        HOST,
    )
    assert plan.fds == (
        "slot-lock",
        "run-lock",
        "mediator",
        "runs",
        "destination",
        "path:/home/alice/project",
        "stdin",
        "stdout",
        "stderr",
    )
    assert plan.sources() == ("/home/alice/project",)
    assert only(list(plan.ops), ops.Publish)[0].groups == (4100, 27)


def settings(found: list[ops.Op]) -> dict[str, str]:
    """Each cgroup file with what is written there; v1 with its folder."""
    v1 = {f"{op.path}/{op.file}": op.value for op in only(found, ops.LimitV1)}
    return v1 | {op.file: op.value for op in only(found, ops.LimitV2)}


def rlimits(found: list[ops.Op]) -> dict[int, int]:
    return {op.resource: op.hard for op in only(found, ops.Rlimit)}


OWN_V1 = "/sys/fs/cgroup/{}/own/hark-01TEST"
CORE, NOFILE, NPROC, DATA = 4, 7, 6, 2  # of setrlimit(2)


def test_limits_go_where_the_host_has_them():
    found = compiled(limits=replace(REQUEST.limits, cpu=150))
    memory, cpu = OWN_V1.format("memory"), OWN_V1.format("cpu")
    assert settings(found) == {
        "pids.max": "64",
        f"{memory}/memory.limit_in_bytes": str(1 << 30),
        f"{memory}/memory.memsw.limit_in_bytes": str(1 << 30),
        f"{cpu}/cpu.cfs_period_us": "100000",
        f"{cpu}/cpu.cfs_quota_us": "150000",
    }
    assert rlimits(found) == {CORE: 1, NOFILE: 256}


def test_limits_of_one_cgroup_v2():
    v2 = {"pids": LimitPlace(2), "memory": LimitPlace(2), "cpu": LimitPlace(2)}
    request = replace(REQUEST, limits=replace(REQUEST.limits, cpu=50))
    plan = compile_plan(request, CAPS, replace(HOST, **v2))
    assert settings(list(plan.ops)) == {
        "pids.max": "64",
        "memory.max": str(1 << 30),
        "memory.swap.max": "0",
        "cpu.max": "50000 100000",
    }
    assert plan.downgrades == ()
    assert {(e.name, e.by) for e in plan.limits} >= {("pids", "cgroup2"), ("cpu", "cgroup2")}


def test_limits_of_a_host_without_controllers_fall_back_to_rlimits():
    bare = replace(HOST, pids=None, memory=None, cpu=None)
    allowed = replace(REQUEST, allow_downgrades=("memory-limit",))
    plan = compile_plan(allowed, CAPS, bare)
    assert settings(list(plan.ops)) == {}
    assert rlimits(list(plan.ops)) == {CORE: 1, NOFILE: 256, NPROC: 64, DATA: 1 << 30}
    assert [d.feature for d in plan.downgrades] == ["memory-limit"]
    assert {(e.name, e.by) for e in plan.limits} >= {("pids", "rlimit"), ("memory", "rlimit")}


def test_a_default_limit_that_cannot_be_held_is_told_and_refuses_no_run():
    bare = replace(HOST, memory=None)
    plan = compile_plan(replace(REQUEST, limits=Limits()), CAPS, bare)
    assert [d.feature for d in plan.downgrades] == ["memory-limit"]


def test_the_default_limit_on_memory_leaves_a_small_host_a_quarter():
    memory = f"{OWN_V1.format('memory')}/memory.limit_in_bytes"
    assert settings(compiled(limits=Limits()))[memory] == str(3 << 30)
    stated = Limits(memory=16 << 30)
    assert settings(compiled(limits=stated))[memory] == str(16 << 30)
    large = compile_plan(
        replace(REQUEST, limits=Limits()), CAPS, replace(HOST, memory_bytes=1 << 40)
    )
    assert settings(list(large.ops))[memory] == str(limits.MEMORY_DEFAULT_BYTES)


@pytest.mark.parametrize(
    ("feature", "host", "caps"),
    [
        ("ipv6", {"ipv6": False}, {}),
        ("cgroup2", {"cgroup": ""}, {}),
        ("memory-limit", {"memory": None}, {}),
        ("cpu-limit", {"cpu": None}, {}),
        ("landlock", {}, {"landlock_abi": 0}),
    ],
)
def test_downgrades_are_refused_unless_allowed(
    feature: str, host: dict[str, Any], caps: dict[str, Any]
):
    facts, able = replace(HOST, **host), replace(CAPS, **caps)
    request = replace(REQUEST, limits=replace(REQUEST.limits, cpu=50))
    with pytest.raises(KernelUnsupported, match=feature) as info:
        compile_plan(request, able, facts)
    assert feature in info.value.hint
    plan = compile_plan(replace(request, allow_downgrades=(feature,)), able, facts)
    assert [d.feature for d in plan.downgrades] == [feature]
    assert plan.downgrades[0].effect


@pytest.mark.parametrize(
    "workspace", ["/", "/home/alice", "/home", "/etc", "/usr/src/x", "/proc/1", "/run/x"]
)
def test_folders_that_cannot_be_a_workspace(workspace: str):
    with pytest.raises(InputError):
        compiled(workspace=workspace)


@pytest.mark.parametrize("path", ["/", "/proc/self", "/dev", "/sys/fs", "/tmp", "/var", "/run"])
def test_folders_that_cannot_be_granted(path: str):
    with pytest.raises(InputError, match="cannot be shown"):
        compiled(read=(PathGrant(path, "folder", "read_paths"),))
    with pytest.raises(InputError, match="system folder"):
        compiled(write=(PathGrant(path, "folder", "write_paths"),))


def test_mounts_that_would_be_empty_inside_are_named():
    read = (PathGrant("/data", "folder", "x"), PathGrant("/other", "folder", "x"))
    notes = compile_plan(replace(REQUEST, read=read), CAPS, HOST).notes
    assert [note.split()[0] for note in notes] == ["/data/disk", "/home/alice/project/volume"]
    granted = (*read, PathGrant("/data/disk", "folder", "x"))
    plan = compile_plan(replace(REQUEST, read=granted), CAPS, HOST)
    assert len(plan.notes) == 1
    assert "/data/disk" in [op.path for op in only(list(plan.ops), ops.Tree)]


def test_a_link_among_write_paths_is_a_link_inside():
    write = (PathGrant("/out", "folder", "x"), PathGrant("/o", "link", "x", "/out"))
    found = compiled(write=write)
    assert ops.Link(target="/out", path="/o") in found
    assert len(only(found, ops.Workspace)) == 3


def test_a_file_as_write_path_is_an_error():
    with pytest.raises(InputError, match="is a file"):
        compiled(write=(PathGrant("/out", "file", "x"),))


def test_the_requests_own_file_wins():
    found = compiled(files=(GivenFile("/etc/hosts", b"mine"),))
    assert [op.content for op in only(found, ops.StageFile) if op.path == "/etc/hosts"] == [b"mine"]


@pytest.mark.parametrize(
    "op",
    [
        ops.Cwd(path="a\0b"),
        ops.Rlimit(resource=1 << 33, soft=0, hard=0),
        ops.NetNs(m4=b"", a4=b"", len4=0, m6=b"", a6=b"", len6=0, ipv6=0),
    ],
)
def test_values_that_do_not_fit_are_refused(op: ops.Op):
    with pytest.raises(ValueError, match=r"."):
        ops.payload(op)


def test_host_facts_of_this_machine_and_of_a_systemd_one():
    facts = read_facts()
    assert facts.passwd.startswith(b"root:")
    mounts = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
    assert (
        own_v2(mounts, "0::/user.slice/session-1.scope\n")
        == "/sys/fs/cgroup/user.slice/session-1.scope"
    )
    inner = "29 23 0:26 /docker/ab /sys/fs/cgroup rw - cgroup2 cgroup rw\n"
    assert own_v2(inner, "0::/docker/ab/x\n") == "/sys/fs/cgroup/x"
    assert own_v2("", "0::/\n") == ""
    nested = (
        "1 2 8:1 / /usr/local rw - ext4 /dev/a rw\n2 2 8:1 / /etc/a\\040b rw - ext4 /dev/b rw\n"
    )
    assert submounts_of(nested) == ("/etc/a b", "/usr/local")


def test_landlock_rights_by_abi():
    grants = (landlock.Grant("/", landlock.READ), landlock.Grant("/w", landlock.WRITE))
    assert landlock.compile_ruleset(grants, 0) is None
    for abi in range(1, 9):
        ruleset = landlock.compile_ruleset(grants, abi)
        assert all(rule.access & ~ruleset.fs == 0 for rule in ruleset.rules)
        assert bool(ruleset.scoped) == (abi >= 6)
        assert bool(ruleset.restrict) == (abi >= 7)


@pytest.mark.parametrize("abi", range(1, 6))
def test_landlock_table_equals_the_oracle(abi: int):
    fs = pytest.importorskip("landlock").FSAccess
    known = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF, 5: 0xFFFF}[abi]
    assert landlock.handled_fs(abi) == known
    table = {k: v for k, v in vars(landlock.Access).items() if k.isupper()}
    assert {k: int(fs[k]) for k in table} == table


@pytest.mark.parametrize("path", ["/var/lib", "/var/lib/hark", "/var/lib/hark/runs/01", "/var"])
def test_the_records_of_runs_are_never_writable(path: str):
    with pytest.raises(InputError):
        compile_plan(replace(REQUEST, workspace=path), CAPS, HOST)
    write = (PathGrant(path, "folder", "test"),)
    with pytest.raises(InputError):
        compile_plan(replace(REQUEST, write=write), CAPS, HOST)


@pytest.mark.parametrize("home", ["/", "/bin", "/dev", "/usr/sbin", "/proc", "/var/tmp"])
def test_a_home_that_is_a_system_folder_is_refused_in_words(home: str):
    person = replace(REQUEST.person, home=home)
    with pytest.raises(InputError, match="home"):
        compile_plan(replace(REQUEST, person=person), CAPS, HOST)


def test_a_tracer_is_in_the_plan_where_randomness_repeats():
    off = compiled()
    assert not only(off, ops.Trace)
    assert only(off, ops.Seccomp)[0].flags is ops.Flag.NONE
    light = compiled(determinism=Determinism.LIGHT)
    (trace,) = only(light, ops.Trace)
    assert trace.userns == 0
    assert light.index(trace) > max(light.index(op) for op in only(light, ops.UserNs))
    (filtered,) = only(light, ops.Seccomp)
    assert filtered.flags is ops.Flag.NOTIFY
    assert filtered.blob.endswith(REQUEST.seccomp)
    assert len(filtered.blob) > len(REQUEST.seccomp)


def test_addresses_repeat_only_where_the_policy_takes_it():
    allowed = {"allow_downgrades": ("aslr",)}
    assert not only(compiled(determinism=Determinism.LIGHT), ops.Personality)
    assert not only(compiled(**allowed), ops.Personality), "off: nothing repeats"
    plan = compile_plan(replace(REQUEST, determinism=Determinism.LIGHT, **allowed), CAPS, HOST)
    assert [op.bits for op in plan.ops if isinstance(op, ops.Personality)] == [0x0040000]
    assert [lost.feature for lost in plan.downgrades] == ["aslr"]
