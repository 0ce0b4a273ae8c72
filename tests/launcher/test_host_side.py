"""Slots, ownership, reaping, rules, opening as the person: what touches the host in Python."""

from __future__ import annotations

import fcntl
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ulid import ULID

from hark.errors import InputError, LaunchError
from hark.launcher import host, ids, netrules, network, sources, trust
from hark.launcher.reap import reap
from hark.locations import libexec
from hark.policy.model import Limits
from launcher.rig import ALICE_ID, Box, alice

if TYPE_CHECKING:
    from collections.abc import Callable

    MakeBox = Callable[..., Box]


def nobody(_first: int, _count: int) -> bool:
    return False


# --- slots
def test_slots_are_locked_and_freed_by_closing(tmp_path: Path):
    one, two = ids.claim_slot(tmp_path, nobody), ids.claim_slot(tmp_path, nobody)
    assert (one.index, two.index) == (0, 1)
    assert (one.base, two.base) == (0x77400000, 0x77410000)
    assert (two.recorder, two.signer, two.broker, two.mediator) == tuple(
        0x77000010 + n for n in range(4)
    )
    os.close(one.lock_fd)
    again = ids.claim_slot(tmp_path, nobody)
    assert again.index == 0
    os.close(again.lock_fd)
    os.close(two.lock_fd)
    assert tmp_path.stat().st_mode & 0o7777 == 0o700


def test_a_slot_survives_in_another_process(tmp_path: Path):
    slot = ids.claim_slot(tmp_path, nobody)
    pid = os.fork()
    if pid == 0:
        os.read(0, 0)
        os._exit(0)
    os.waitpid(pid, 0)
    fd = os.open(tmp_path / "0", os.O_RDWR)
    with pytest.raises(BlockingIOError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(fd)
    os.close(slot.lock_fd)


def test_blocks_with_known_ids_are_skipped_or_refused(tmp_path: Path):
    slot = ids.claim_slot(tmp_path, lambda first, count: first <= 0x77400005 < first + count)
    assert slot.index == 1
    os.close(slot.lock_fd)
    with pytest.raises(LaunchError, match="no block of ids"):
        ids.claim_slot(tmp_path, lambda _first, _count: True)
    assert ids.nss_knows(0, 10)
    assert not ids.nss_knows(0x77400000, 65536)


# --- opening as the person
def test_paths_are_opened_with_the_persons_rights_and_without_links(place: Path):
    person = alice(place)
    (place / "open").mkdir()
    (place / "closed").mkdir(mode=0o700)
    (place / "closed" / "x").write_text("")
    (place / "link").symlink_to("open")
    (fd,) = sources.open_sources([str(place / "open")], person)
    assert os.fstat(fd).st_ino == (place / "open").stat().st_ino
    assert not os.get_inheritable(fd)
    os.close(fd)
    with pytest.raises(InputError, match="cannot be opened as alice") as info:
        sources.open_sources([str(place / "open"), str(place / "closed" / "x")], person)
    assert info.value.cause == "Permission denied"
    with pytest.raises(InputError) as info:
        sources.open_sources([str(place / "link")], person)
    assert "symbolic links" in info.value.cause
    fd = sources.open_folder(str(place / "link"), person)
    os.close(fd)
    with pytest.raises(InputError):
        sources.open_folder(str(place / "closed"), person)


# --- who may change what runs as root
def test_files_of_others_are_named(place: Path):
    tree = place / "a" / "b"
    tree.mkdir(parents=True)
    (tree / "x.py").write_text("")
    assert trust.first_untrusted([tree / "x.py"]) is None
    (tree / "x.py").chmod(0o664)
    assert trust.first_untrusted([tree / "x.py"]) == (tree / "x.py", "its mode is -rw-rw-r--")
    (tree / "x.py").chmod(0o644)
    os.chown(place / "a", ALICE_ID, 0)
    assert trust.first_untrusted([tree / "x.py"]) == (place / "a", f"it is owned by uid {ALICE_ID}")
    os.chown(place / "a", 0, 0)
    (place / "a").chmod(0o1777)  # sticky: others cannot replace what is root's
    assert trust.first_untrusted([tree / "x.py"]) is None


def test_a_links_target_is_looked_at_too(place: Path):
    (place / "target").write_text("")
    os.chown(place / "target", ALICE_ID, 0)
    (place / "link").symlink_to("target")
    assert trust.first_untrusted([place / "link"]) == (
        place / "target",
        f"it is owned by uid {ALICE_ID}",
    )


def test_the_check_can_be_lifted_and_says_so(monkeypatch: pytest.MonkeyPatch, place: Path):
    os.chown(place, ALICE_ID, 0)
    monkeypatch.syspath_prepend(str(place))
    assert trust.check_tree({"HARK_DEV": "1"}) is True
    with pytest.raises(LaunchError, match="others can change") as info:
        trust.check_tree({})
    assert "HARK_DEV=1" in info.value.hint


# --- the rules
def test_rules_and_constants_agree():
    text = netrules.RULES.read_text()
    assert {int(p) for p in re.findall(r"tproxy ip6? to :(\d+)", text)} == {
        network.TCP_PORT,
        network.DNS_PORT,
    }
    assert re.findall(r"group (\d+)", text) == [str(network.LOG_GROUP)]
    assert network.MEDIATOR_V4 in network.ipaddress.ip_network(
        f"{network.AGENT_V4}/{network.PREFIX_V4}", strict=False
    )
    assert network.MEDIATOR_V6 in network.ipaddress.ip_network(
        f"{network.AGENT_V6}/{network.PREFIX_V6}", strict=False
    )


def test_the_rules_packages_data_is_there():
    assert netrules.RULES.is_file()


# --- reaping
@pytest.mark.kernel
def test_what_a_killed_launcher_left_is_removed(box: MakeBox):
    one = box(
        ["/bin/sh", "-c", "echo x > written; echo ready; sleep 1000"],
        limits=Limits(pids=64, memory=1 << 28),
        allow_downgrades=("memory-limit",),
    ).start()
    assert os.read(one.pipes["stdout"], 6) == b"ready\n"
    facts = host.read_facts()
    assert reap(facts, one.runs).removed == ()  # alive: not touched
    os.kill(one.launcher.pid, 9)
    one.wait()
    run = one.runs / one.request.run_id
    one.close()
    found = reap(facts, one.runs)
    names = [p for p in found.removed if one.request.run_id in p.name]
    v1 = [place.folder for place in (facts.memory, facts.pids) if place and place.version == 1]
    assert {p.parent for p in names} == {Path(folder) for folder in (facts.cgroup, *v1)}
    assert all(not p.exists() for p in names)
    assert found.kept == (run,)
    assert sorted(p.name for p in run.iterdir()) == ["layers", "lock", "run.hark"]
    (run / "run.hark").unlink()
    (run / "layers" / "0" / "upper" / "written").unlink()
    assert reap(facts, one.runs).removed == (run,)
    assert not run.exists()


@pytest.mark.kernel
def test_a_cgroup_whose_run_folder_is_gone_is_removed_once_nobody_holds_it(
    box: MakeBox, tmp_path: Path
):
    one = box(["/bin/sh", "-c", "echo ready; sleep 1000"], run_id=str(ULID())).start()
    assert os.read(one.pipes["stdout"], 6) == b"ready\n"
    facts = host.read_facts()
    cgroup = Path(facts.cgroup, f"hark-{one.request.run_id}")
    assert cgroup not in reap(facts, tmp_path / "other").removed  # alive, in another tree
    os.kill(one.launcher.pid, 9)
    one.wait()
    one.close()
    assert cgroup.exists(), "positive control: it was left over"
    assert cgroup in reap(facts, tmp_path / "other").removed
    assert not cgroup.exists()


@pytest.mark.kernel
def test_a_foreign_cgroup_of_that_name_is_left_alone(tmp_path: Path):
    facts = host.read_facts()
    path = Path(facts.cgroup) / "hark-NOTARUN"
    path.mkdir()
    try:
        assert reap(replace(facts, memory=None), tmp_path / "runs").removed == ()
        assert path.exists()
    finally:
        path.rmdir()


def test_the_program_is_static():
    program = libexec("hark-launch")
    if not program.exists():
        pytest.skip("not built")
    data = program.read_bytes()
    assert b"/ld-linux" not in data[:4096]
