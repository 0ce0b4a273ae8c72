"""What of the recorded run's surroundings is other here: said before a replay begins.

Looks as the person. Rules: what the agent cannot run without is an error when it is not there;
everything else that differs is a line, since it may or may not matter. A file that the command
names outside the workspace is part of the agent: one that changed is an error.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hark import limits
from hark.errors import BundleInvalid, InputError
from hark.recorder.surroundings import LOCALTIME, digest_of, time_zone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hark.replay.parent import Parent

__all__ = ["Differences", "look"]

_FILES, _PROCESSORS, _MACHINE, _ZONE, _KERNEL = 4, 5, 6, 7, 17
_ZONES = "/usr/share/zoneinfo/"
_SYSTEM = ("/usr/", "/bin/", "/sbin/", "/lib", "/opt/")
_ARGUMENT = "argument"


@dataclass(slots=True)
class Differences:
    """``notes``: sentences for the person. ``links``: what the agent is shown instead of ours."""

    notes: list[str] = field(default_factory=list)
    links: tuple[tuple[str, str], ...] = ()


def look(parent: Parent, folders: Sequence[str], *, has_zone: bool, lenient: bool) -> Differences:
    """Compare. ``folders``: those that are made anew. ``has_zone``: the agent gets TZ.

    ``lenient``: the operator wants things as they are now. Raises InputError for what is missing.
    """
    found = Differences()
    then = parent.surroundings
    if then:
        _facts(parent, found)
        _check_files(_rows(then), found, lenient=lenient)
        if not has_zone:
            _zone(then.get(_ZONE), found)
    known = {path for path, _, _ in _rows(then)} if then else set()
    for path, digest in parent.programs.items():
        name = os.fsdecode(path)
        below = any(name.startswith(f"{folder.rstrip('/')}/") for folder in folders)
        if digest is None or os.path.realpath(name) in known or below:
            continue
        if name.startswith(_SYSTEM):
            _program(name, digest, found)
    return found


def _rows(then: dict[int, Any]) -> list[tuple[str, str, bytes | None]]:
    out = []
    for row in then.get(_FILES, []):
        match row:
            case [bytes() as path, str() as role, bytes() | None as digest]:
                out.append((os.fsdecode(path), role, digest))
            case _:
                raise BundleInvalid("the recording does not hold", "its surroundings are malformed")
    return out


def _facts(parent: Parent, found: Differences) -> None:
    then, here = parent.surroundings, os.uname()
    machine = then.get(_MACHINE)
    if machine != here.machine:
        raise InputError(
            "this machine cannot run what was recorded", f"{machine!r} then, {here.machine} here"
        )
    kernel = parent.start.get(_KERNEL)
    if kernel and kernel != here.release:
        found.notes.append(f"the kernel is {here.release} here, {kernel} then")
    processors = len(os.sched_getaffinity(0))
    if then.get(_PROCESSORS) != processors:
        found.notes.append(f"{processors} processors here, {then.get(_PROCESSORS)} then")


def _check_files(
    rows: list[tuple[str, str, bytes | None]], found: Differences, *, lenient: bool
) -> None:
    missing, changed = [], []
    for path, role, digest in rows[: limits.SURROUNDINGS_FILES_MOST]:
        if not os.path.exists(path):  # noqa: PTH110 - a string
            missing.append(f"{role} {path}")
        elif digest is not None and digest_of(path)[0] != digest:
            if role == _ARGUMENT and not lenient:
                changed.append(path)
            else:
                found.notes.append(f"the {role} {path} is another one than was recorded")
    if missing:
        raise InputError(
            "what the recorded agent ran on is not here",
            ", ".join(missing),
            "install the same program, at the same place",
        )
    if changed:
        raise InputError(
            "a file of the agent is not what it was",
            ", ".join(changed),
            "--workspace=current runs with the files as they are",
        )


def _program(name: str, digest: bytes, found: Differences) -> None:
    if not os.path.exists(name):  # noqa: PTH110 - a string
        found.notes.append(f"the agent ran {name}, which is not here")
    elif digest_of(name)[0] != digest:
        found.notes.append(f"the agent ran {name}, which is another one here")


def _zone(then: Any, found: Differences) -> None:
    """Show the agent the recorded time zone, where this host has its rules."""
    here = time_zone()
    if not isinstance(then, bytes) or not then or then == here:
        return
    target = os.path.normpath(os.path.join("/etc", os.fsdecode(then)))  # noqa: PTH118
    if target.startswith(_ZONES) and Path(target).is_file():
        found.links = ((LOCALTIME, os.fsdecode(then)),)
    else:
        found.notes.append(f"the time zone was {os.fsdecode(then)}, which is not here")
