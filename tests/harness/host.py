"""What a host looks like from outside of any run: the witness that hark changes nothing of it.

Rules. Read by other means than hark's own code. Other runs may come and go meanwhile (suites run
side by side), so names that carry the id of another run are left out, and what all runs share
counts only while no other run uses it.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["NO_RUN", "Host", "RunNames", "difference", "look"]

# Facts of the host by their names: a file's content, a mount, a folder's time of change.
Host = dict[str, str]

_RUN_ID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")
_TIMED = ("/", "/dev", "/etc", "/usr", "/usr/bin", "/usr/lib", "/var")
# The kernel's counters: they change with anything that happens.
_COUNTERS = re.compile(
    r"/proc/sys/(fs/(\w+-(nr|state)|quota/.*)|kernel/(ns_last_pid|random/.*|pty/nr)"
    r"|net/netfilter/nf_conntrack_count)$"
)
_RUNTIME = Path("/run/hark")
_PINS = (Path("/sys/fs/bpf"), _RUNTIME / "bpf")
_SHARED = "in use by another run"


@dataclass(frozen=True, slots=True)
class RunNames:
    """What names carry of one run: its id, and the id of its cgroup."""

    ulid: str
    cgroup_id: int


NO_RUN = RunNames("0" * 26, 0)


def look(run: RunNames, *folders: Path) -> Host:
    """Return the host's facts; ``folders``: whose entries' times count too. Needs root."""
    facts = _sysctls() | _mounts() | _cgroups() | _bpf(run) | _state() | _network() | _security()
    for path in (*map(Path, _TIMED), *(p for folder in folders for p in _tree(folder))):
        facts[f"mtime {path}"] = str(path.lstat().st_mtime_ns)
    return {name: value for name, value in facts.items() if not _of_others(name, run)}


def difference(before: Host, after: Host) -> list[str]:
    """Return what is gone, new or different, one line each."""
    return [
        f"{name}: {before.get(name, '(not there)')[:80]!r} -> {after.get(name, '(gone)')[:80]!r}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
        and _SHARED not in (before.get(name), after.get(name))
    ]


def _of_others(name: str, run: RunNames) -> bool:
    ids = _RUN_ID.findall(name)
    return bool(ids) and run.ulid not in ids


def _tree(top: Path) -> Iterator[Path]:
    try:
        entries = sorted(top.iterdir()) if top.is_dir() and not top.is_symlink() else []
    except FileNotFoundError:  # it went away between the two questions
        return
    for entry in entries:
        yield from _tree(entry)
    if top.exists():
        yield top


def _sysctls() -> Host:
    out = {}
    for path in _tree(Path("/proc/sys")):
        if path.is_file() and not _COUNTERS.match(str(path)):
            try:
                out[f"sysctl {path}"] = path.read_bytes().decode(errors="replace")
            except OSError as error:
                out[f"sysctl {path}"] = error.strerror or ""
    return out


def _mounts() -> Host:
    text = Path("/proc/self/mountinfo").read_text()
    lines = [line for line in text.splitlines() if str(_PINS[1]) not in line]  # see _bpf
    return {f"mount {line.split()[4]} {line.split(' - ')[1]}": line for line in lines}


def _cgroups() -> Host:
    found = Path("/sys/fs/cgroup").rglob("hark-*")
    return {f"cgroup {path}": "" for path in found if _RUN_ID.search(path.name)}


def _bpf(run: RunNames) -> Host:
    """Return the run's place in the machine's set of sensors, and all pins as one fact.

    A member is named DIGEST-CGROUP-LEVEL. Where no BPF file system is mounted, hark mounts one
    while it has pins.
    """
    state = _RUNTIME / "sensors"
    members = [p.name for p in state.iterdir() if p.name != "lock"] if state.is_dir() else []
    own = [name for name in members if name.split("-")[1] == str(run.cgroup_id)]
    pins = [str(path) for top in _PINS for path in _tree(top) if path not in _PINS]
    shown = _SHARED if len(members) > len(own) else "\n".join(pins)
    return {f"sensors {name}": "" for name in own} | {"pins": shown}


def _state() -> Host:
    """Return hark's own folders; all slots are one fact, since runs beside take more of them."""
    out = {}
    for path in (*_tree(_RUNTIME), *_tree(Path("/etc/hark"))):
        member = path.parent.name == "sensors" and path.name != "lock"
        if member or _PINS[1] in (path, *path.parents):
            continue
        name = "*" if path.parent.name == "slots" else path.name
        kind = "folder" if path.is_dir() else path.read_bytes().hex()
        out[f"state {path.parent}/{name}"] = f"{path.stat().st_mode:o} {kind}"
    runs = Path("/var/lib/hark/runs")
    for run in runs.iterdir() if runs.is_dir() else ():
        out[f"run folder {run.name}"] = ""
    return out


def _network() -> Host:
    """Return interfaces, rules and routes of the host's own network namespace."""
    out = {f"interface {name}": "" for name in os.listdir("/sys/class/net")}  # noqa: PTH208
    for words in (["nft", "-s", "list", "ruleset"], ["ip", "rule"], ["ip", "route"]):
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        out[f"output of {' '.join(words)}"] = done.stdout
    named = Path("/run/netns")
    out["named namespaces"] = " ".join(sorted(os.listdir(named))) if named.is_dir() else ""  # noqa: PTH208
    return out


def _security() -> Host:
    names = ("loginuid", "sessionid", "oom_score_adj", "coredump_filter")
    out = {f"self {name}": Path("/proc/self", name).read_text() for name in names}
    if Path("/usr/sbin/auditctl").exists():
        done = subprocess.run(["/usr/sbin/auditctl", "-s"], capture_output=True, check=False)
        out["audit"] = re.sub(rb"(lost|backlog) \d+", b"", done.stdout).decode()
    return out
