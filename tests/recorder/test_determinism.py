"""Which mode a run has: as asked for, else what the host can do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hark.errors import KernelUnsupported
from hark.policy.capabilities import Capabilities, Feature
from hark.policy.model import Determinism
from hark.recorder import prepare
from hark.recorder.prepare import determinism_of, forbids_attach

if TYPE_CHECKING:
    from pathlib import Path

NEEDS = ("kernel-6.1", "seccomp-notify", "cgroup2", "btf", "bpf")


def host(*without: str) -> Capabilities:
    features = tuple(Feature(name, name not in without, "not here") for name in NEEDS)
    return Capabilities(kernel="6.1", landlock_abi=2, cgroup2="/sys/fs/cgroup", features=features)


@pytest.fixture(autouse=True)
def _no_yama(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(prepare, "_YAMA", tmp_path / "absent")


def test_a_host_that_can_does():
    assert determinism_of(None, host()) is Determinism.LIGHT
    assert determinism_of(Determinism.LIGHT, host()) is Determinism.LIGHT
    assert determinism_of(Determinism.OFF, host()) is Determinism.OFF


@pytest.mark.parametrize("feature", NEEDS)
def test_a_host_that_cannot_does_without_unless_it_was_asked_for(feature: str):
    assert determinism_of(None, host(feature)) is Determinism.OFF
    assert determinism_of(Determinism.OFF, host(feature)) is Determinism.OFF
    with pytest.raises(KernelUnsupported) as told:
        determinism_of(Determinism.LIGHT, host(feature))
    assert told.value.cause == f"{feature}: not here"
    assert "--det=off" in told.value.hint


@pytest.mark.parametrize(("scope", "forbids"), [("0", 0), ("1", 0), ("2", 0), ("3", 1), ("", 0)])
def test_yama_at_its_strictest_forbids_to_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scope: str, forbids: int
):
    yama = tmp_path / "ptrace_scope"
    yama.write_text(f"{scope}\n")
    assert forbids_attach(yama) == bool(forbids)
    assert not forbids_attach(tmp_path / "absent")
    monkeypatch.setattr(prepare, "_YAMA", yama)
    assert determinism_of(None, host()) is (Determinism.OFF if forbids else Determinism.LIGHT)
