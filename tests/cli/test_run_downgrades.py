"""A kernel that lacks something: refused by default, recorded where the policy allows it.

The feature is taken away from hark alone, in a mount namespace of its own, so it is the same code
and the same kernel as in the positive control.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from harness.recording import raw
from harness.running import NO_SENSORS, Finished, hark, need_program

if TYPE_CHECKING:
    from harness.recording import Recording
    from harness.world import World

pytestmark = pytest.mark.kernel

TAKEN = {
    "sensors": NO_SENSORS,
    "cgroup2": "umount --recursive --lazy /sys/fs/cgroup",
}
FETCH = """
import os, urllib.request
print(urllib.request.urlopen("https://news.example/page").read().decode())
"""


def run_without(world: World, feature: str | None, *command: str) -> Finished:
    """Run ``command`` on a host that lacks ``feature``; ``None``: as it is."""
    taken = TAKEN[feature] if feature else ":"
    own = (need_program("unshare"), "--mount", "--", "/bin/sh", "-ec", f'{taken}; exec "$@"', "sh")
    return hark(*world.words(*command), before=own, cwd=world.work, env=world.env())


def allow(world: World, *features: str) -> None:
    names = ", ".join(f'"{name}"' for name in features)
    world.policy.write_text(f"allow_downgrades = [{names}]\n{world.policy.read_text()}")


def processes(recording: Recording) -> list[str]:
    return [event.kind for event in recording.events if event.kind in ("exec", "exit")]


@pytest.mark.parametrize("feature", ["sensors", "cgroup2"])
def test_a_missing_feature_is_refused(world: World, feature: str):
    done = run_without(world, feature, "/bin/echo", "ran")
    assert (done.status, done.stdout) == (125, b"")
    assert f'allow_downgrades = ["{feature}"]' in done.stderr
    assert not world.bundle.exists()


@pytest.mark.parametrize("feature", ["sensors", "cgroup2"])
def test_an_allowed_one_is_on_record(world: World, feature: str):
    allow(world, feature)
    (world.work / "agent.py").write_text(FETCH)
    done = run_without(world, feature, "/usr/bin/python3", "agent.py")
    assert done.status == 0, done.stderr
    recording = world.recording()
    # Without the mount of cgroup v2 there is none of version 1 either: limits are held otherwise.
    (lost,) = (one for one in recording.kind("downgrade") if one["feature"] == feature)
    assert lost["cause"]
    assert "sensors" in lost["effect"] or "processes" in lost["effect"]
    (exchange,) = recording.exchanges("news.example")
    assert raw(exchange.request["target"]) == b"/page"
    assert "actor" not in exchange.request.fields, "an owner that nobody saw"
    assert not processes(recording)
    assert hark("verify", world.bundle).status == 0


def test_what_is_allowed_and_not_missing_is_no_downgrade(world: World):
    allow(world, "sensors", "cgroup2")
    (world.work / "agent.py").write_text(FETCH)
    done = run_without(world, None, "/usr/bin/python3", "agent.py")
    assert done.status == 0, done.stderr
    recording = world.recording()
    assert not recording.kind("downgrade")
    (exchange,) = recording.exchanges("news.example")
    assert exchange.request.actor.digest
    assert processes(recording)


def test_without_cgroups_the_run_still_ends_with_its_stragglers(world: World):
    allow(world, "cgroup2")
    done = run_without(world, "cgroup2", "/bin/sh", "-c", "sleep 1000 & exit 3")
    assert done.status == 3, done.stderr
