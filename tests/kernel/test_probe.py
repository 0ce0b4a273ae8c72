"""What the probe says, here and where something is taken away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from harness.running import as_nobody

from hark.kernel import probe
from hark.kernel.sensors import cgroup2_mounts
from hark.policy.capabilities import Capabilities, Feature

pytestmark = pytest.mark.kernel

SAY = """
import json
from hark.kernel import probe
caps = probe.probe()
features = {f.name: [f.ok, f.detail] for f in caps.features}
print(json.dumps([probe.tier(caps), caps.landlock_abi, features]))
"""


def _say(*before: str, **options: Any) -> tuple[str, int, dict[str, tuple[bool, str]]]:
    out = subprocess.run(
        [*before, sys.executable, "-c", SAY], check=True, capture_output=True, **options
    ).stdout
    tier, abi, features = json.loads(out)
    return tier, abi, features


def _host() -> list[object]:
    """What a probe must leave as it was."""
    mine = ("hark-probe-*", "hark-doctor-*")
    cgroups = [str(p) for _, m in cgroup2_mounts() for name in mine for p in m.glob(name)]
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    ours = [line for line in mounts if "overlay" in line or line.split(" ")[4].startswith("/tmp")]
    links = [str(p) for p in Path("/sys/class/net").iterdir() if p.name in {"inner", "outer"}]
    return [cgroups, ours, links, [p.name for p in Path("/tmp").glob("lower")]]


def test_everything_is_probed_and_nothing_stays():
    before = _host()
    caps = probe.full()
    assert _host() == before
    assert [f.name for f in caps.features] == list(probe.MEANING)
    assert {f.name: f.detail for f in caps.features if not f.ok} == {}
    assert probe.tier(caps) == "full"
    assert caps.landlock_abi > 0
    assert Path(caps.cgroup2, "cgroup.controllers").exists()


def test_the_run_path_probes_all_but_the_slow_ones():
    names = {f.name for f in probe.probe().features}
    assert set(probe.MEANING) - names == {"sensors", "routing"}


def test_without_root_it_says_so():
    tier, _, features = _say(*as_nobody())
    assert tier == "record"
    assert features["root"] == [False, "the effective user id is 65534"]
    for name in ("net-ns", "mount-ns", "cgroup2", "user-ns"):
        assert not features[name][0]
        assert features[name][1]
    assert features["seccomp"][0]  # that one needs no root


@pytest.mark.parametrize(
    ("capability", "lost"),
    [("sys_admin", {"mount-ns", "net-ns", "overlay"}), ("net_admin", {"veth", "nflog"})],
)
def test_a_missing_capability_is_found_by_doing(capability: str, lost: set[str]):
    _, _, before = _say("setpriv", "--bounding-set=+all")
    assert all(before[name][0] for name in lost | {"root"})
    tier, _, features = _say("setpriv", f"--bounding-set=-{capability}")
    assert tier == "record"
    assert f"CAP_{capability.upper()}" in features["root"][1]
    assert not any(features[name][0] for name in lost)


def test_a_filter_that_kills_the_probe_is_a_failure_of_what_it_asked():
    """The probing child may die: what it had not reached is missing, not assumed."""
    script = (
        "import seccomp\n"
        "f = seccomp.SyscallFilter(seccomp.ALLOW)\n"
        "f.add_rule(seccomp.KILL_PROCESS, 'unshare')\n"
        "f.load()\n" + SAY
    )
    out = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True).stdout
    tier, abi, features = json.loads(out)
    assert (tier, abi) == ("record", 0)
    assert features["bpf"][0]
    assert features["mount-ns"] == [False, os.strerror(62)]
    assert features["landlock"] == [False, os.strerror(62)]


def test_tiers():
    def having(*without: str) -> Capabilities:
        features = tuple(Feature(n, n not in without, "why") for n in probe.MEANING)
        return Capabilities(kernel="6.1", landlock_abi=2, cgroup2="/c", features=features)

    assert probe.tier(having()) == "full"
    assert probe.tier(having("audit", "seccomp-notify")) == "full"
    for name in ("sensors", "bpf", "btf", "landlock", "ipv6", "kernel-6.1"):
        assert probe.tier(having(name)) == "contain"
    for name in ("routing", *probe.CONTAIN):
        assert probe.tier(having(name, "bpf")) == "record"
    assert probe.missing(having("bpf"), probe.FULL) == (Feature("bpf", False, "why"),)


def test_doctor_prints_a_table_and_json():
    hark = [
        sys.executable,
        "-c",
        "from hark.cli.app import main; raise SystemExit(main())",
        "doctor",
    ]
    text = subprocess.run(hark, check=True, capture_output=True, text=True).stdout
    assert "-> tier full" in text
    assert all(f"  {name} " in text for name in probe.MEANING)
    value = json.loads(subprocess.run([*hark, "--json"], check=True, capture_output=True).stdout)
    assert value["tier"] == "full"
    assert [f["name"] for f in value["features"]] == list(probe.MEANING)
    assert all(f["for"] for f in value["features"])
    assert (
        subprocess.run([*hark, "--tier", "full"], check=False, capture_output=True).returncode == 0
    )
    weak = ["setpriv", "--bounding-set=-sys_admin", *hark, "--tier", "contain"]
    assert subprocess.run(weak, check=False, capture_output=True).returncode == 1
