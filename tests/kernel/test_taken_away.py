"""Each feature of `hark doctor`, taken away by itself: the doctor misses that one and says why.

A seccomp filter takes a call away, a mount or a personality what no call is for. The control is the
same probe without it, in which nothing is missing. The probe itself changes nothing also then: it
runs in namespaces of the test's own, so that a fault of it would show there and harm nobody.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from harness.counts import COUNTS
from harness.running import NO_SENSORS, need_program

from hark.kernel import probe

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.kernel

SAY = """
import json, sys
from hark.kernel import probe
def host():
    mounts = open("/proc/self/mountinfo").read().splitlines()
    # The last run of the machine unmounts that one, whoever made it.
    mounts = [line for line in mounts if "/run/hark/bpf" not in line]
    return [mounts, [line.split(":")[0] for line in open("/proc/self/net/dev")]]
before = host()
caps = probe.full() if sys.argv[1] == "full" else probe.probe()
after = host()
assert after == before, f"the probe changed the host: {set(after[0]) ^ set(before[0])} {after[1]}"
print(json.dumps({f.name: f.detail for f in caps.features if not f.ok}))
"""
DENY = """
import errno, json, seccomp, sys
call, args = json.loads(sys.argv[2])
rules = seccomp.SyscallFilter(seccomp.ALLOW)
given = [seccomp.Arg(n, seccomp.MASKED_EQ if mask else seccomp.EQ, *([mask] if mask else []), value)
         for n, value, mask in args]
rules.add_rule(seccomp.ERRNO(errno.EPERM), call, *given)
rules.load()
"""
ROUTE, AUDIT, NETFILTER = 0, 9, 12  # protocols of netlink(7)
NETLINK = (0, 16, 0)
EQUAL = 0

# feature -> the call that it is made by, and what its arguments are: (place, value, mask).
CALLS: dict[str, tuple[str, list[tuple[int, int, int]]]] = {
    "user-ns": ("unshare", [(0, 0x10000000, 0x10000000)]),
    "mount-ns": ("unshare", [(0, 0x00020000, 0x00020000)]),
    "net-ns": ("unshare", [(0, 0x40000000, 0x40000000)]),
    "ipc-ns": ("unshare", [(0, 0x08000000, 0x08000000)]),
    "uts-ns": ("unshare", [(0, 0x04000000, 0x04000000)]),
    "cgroup-ns": ("unshare", [(0, 0x02000000, 0x02000000)]),
    "pid-ns": ("unshare", [(0, 0x20000000, 0x20000000)]),
    "veth": ("socket", [NETLINK, (2, ROUTE, EQUAL)]),
    "audit": ("socket", [NETLINK, (2, AUDIT, EQUAL)]),
    "nftables": ("socket", [NETLINK, (2, NETFILTER, EQUAL)]),
    "nflog": ("socket", [NETLINK, (2, NETFILTER, EQUAL)]),
    "tproxy": ("setsockopt", [(1, 0, EQUAL), (2, 19, EQUAL)]),
    "ipv6": ("setsockopt", [(1, 41, EQUAL), (2, 75, EQUAL)]),
    "overlay": ("mount", [(3, 0, EQUAL)]),
    "idmap": ("mount_setattr", []),
    "openat2": ("openat2", []),
    "pidfd": ("pidfd_open", []),
    "seccomp": ("seccomp", []),
    "seccomp-notify": ("seccomp", []),
    "landlock": ("landlock_create_ruleset", []),
    "bpf": ("bpf", []),
}
# What cannot be had without it is missing with it.
TOGETHER = {
    "user-ns": {"idmap"},
    "mount-ns": {"overlay"},
    "net-ns": {"veth", "nflog"},
    "nftables": {"nflog"},
    "nflog": {"nftables"},
    "seccomp": {"seccomp-notify"},
    "seccomp-notify": {"seccomp"},
}
# Shell words in a mount namespace of its own.
MOUNTS = {
    "btf": "mount -t tmpfs none /sys/kernel/btf",
    "cgroup2": "umount --recursive --lazy /sys/fs/cgroup",
}
# Those that only the whole probe looks at; sensors need what hides them.
SLOW = {"sensors", "routing"}
ELSEWHERE = {"root"}  # tests/kernel/test_probe.py, capability by capability


def missing(words: Sequence[str], before: Sequence[str] = ()) -> dict[str, str]:
    """Probe in a process of its own; return what is missing, with the reasons."""
    # Other runs of this machine come and go at /run/hark meanwhile.
    hide = 'mkdir -p /run/hark; mount -t tmpfs none /run/hark; exec "$@"'
    own = [need_program("unshare"), "--mount", "--net", "--", "/bin/sh", "-ec", hide, "sh"]
    done = subprocess.run(
        [*own, *before, sys.executable, "-c", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module", autouse=True)
def _control() -> None:
    assert missing([SAY, "full"]) == {}


@pytest.mark.parametrize("feature", CALLS)
def test_a_call(feature: str):
    found = missing([DENY + SAY, "quick", json.dumps(CALLS[feature])])
    assert feature in found
    assert found[feature], "it says why"
    beside = set(found) - {feature} - TOGETHER.get(feature, set())
    assert beside == set(), "nothing else was taken away"


def in_mounts(script: str) -> list[str]:
    unshare = need_program("unshare")
    return [unshare, "--mount", "--", "/bin/sh", "-ec", f'{script}; exec "$@"', "sh"]


@pytest.mark.parametrize("feature", MOUNTS)
def test_a_file_system(feature: str):
    found = missing([SAY, "quick"], in_mounts(MOUNTS[feature]))
    assert set(found) == {feature}
    assert found[feature]


def test_the_sensors():
    found = missing([SAY, "full"], in_mounts(NO_SENSORS))
    assert set(found) == {"sensors", "btf"}
    assert found["sensors"]


def test_the_network_that_other_tools_build():
    found = missing([DENY + SAY, "full", json.dumps(CALLS["nftables"])])
    assert set(found) == {"routing", "nftables", "nflog"}
    assert found["routing"]


def test_a_kernel_that_is_too_old():
    found = missing([SAY, "quick"], [need_program("setarch"), "--uname-2.6"])
    assert set(found) == {"kernel-6.1"}
    assert "2.6" in found["kernel-6.1"]


def test_every_feature_was_taken_away():
    taken = {*CALLS, *MOUNTS, *SLOW, "kernel-6.1", *ELSEWHERE}
    assert taken == set(probe.MEANING)
    COUNTS["features of the doctor taken away one by one"] = len(taken)
