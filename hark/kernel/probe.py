"""What this kernel and host can do, found out by doing each thing once.

Rules. ``probe`` is for every run: all of it is done afresh (about 5 ms, most of it in a child in
namespaces of its own), so there is no cache that could be wrong. ``full`` also loads the sensors,
lets them sense a process and tries the network with other tools. Nothing of the host is changed by
either but a cgroup that is made and removed, and, for ``full``, what a run itself pins and removes.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hark._native import ffi, lib
from hark.errors import HarkError
from hark.kernel.netview import routing_fault
from hark.kernel.records import Exec
from hark.kernel.sensors import Place, Sensors, cgroup2_mounts
from hark.policy import privileges
from hark.policy.capabilities import Capabilities, Feature

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CONTAIN", "FULL", "MEANING", "full", "missing", "probe", "tier"]

# What each feature is for; the names are those of ``allow_downgrades``.
MEANING = {
    "root": "make namespaces, mounts, interfaces and ids",
    "kernel-6.1": "the oldest kernel whose sensors are known to work",
    "cgroup2": "name the run to the kernel and end it at once",
    "user-ns": "ids of the run's own, mapped to the person's",
    "mount-ns": "a private root that holds only what was granted",
    "net-ns": "a network with no way out but the mediator",
    "ipc-ns": "no shared memory with the host",
    "uts-ns": "a host name of its own",
    "cgroup-ns": "the host's cgroups stay unseen",
    "pid-ns": "nothing of the run outlives it, nothing outside is seen",
    "veth": "the link between the agent and the mediator",
    "tproxy": "take connections to any address",
    "ipv6": "the same for IPv6; without it the agent has no IPv6",
    "nftables": "refuse all other packets",
    "nflog": "record the refused packets",
    "overlay": "a workspace whose changes can be undone",
    "idmap": "the person's files under the run's ids",
    "openat2": "no link leads out of the root",
    "pidfd": "signal the right process",
    "seccomp": "refuse system calls",
    "seccomp-notify": "answer system calls for the agent",
    "landlock": "file rules on top of the mounts",
    "btf": "the kernel's own description of its structs",
    "bpf": "rings and tracing programs",
    "sensors": "load all sensors and sense a process",
    "routing": "pyroute2 and nftables build and read back a run's network",
    "audit": "Landlock's own account of a refusal (information only)",
}

# What a tier cannot do without.
CONTAIN = (
    *("root", "cgroup2", "user-ns", "mount-ns", "net-ns", "ipc-ns", "uts-ns", "cgroup-ns"),
    *("pid-ns", "veth", "tproxy", "nftables", "nflog", "overlay", "idmap", "openat2", "pidfd"),
    "seccomp",
)
FULL = (*CONTAIN, "landlock", "ipv6", "kernel-6.1", "btf", "bpf")

_OLDEST = (6, 1)


def probe() -> Capabilities:
    """Return what a run may count on, for ``compile_plan`` and ``run_start``."""
    results = ffi.new("struct hark_probe_result[]", lib.HARK_PROBE_MAX)
    count = int(lib.hark_probe_run(results, lib.HARK_PROBE_MAX))
    done = {
        ffi.string(r.name).decode(): (int(r.err), int(r.value)) for r in results[0 : max(count, 0)]
    }
    mount = next((str(path) for _, path in cgroup2_mounts()), "")
    release = os.uname().release
    landlock = done.get("landlock", (0, 0))[1]
    features = [
        _feature("root", privileges.missing_root),
        _feature("kernel-6.1", lambda: _too_old(release)),
        _feature("cgroup2", lambda: _cgroup_fault(mount)),
        *(Feature(name, not err, _told(err, value)) for name, (err, value) in done.items()),
    ]
    order = list(MEANING)
    features.sort(key=lambda feature: order.index(feature.name))
    return Capabilities(
        kernel=release, landlock_abi=landlock, cgroup2=mount, features=tuple(features)
    )


def full(place: Place | None = None) -> Capabilities:
    """As ``probe``, and ``sensors`` and ``routing``."""
    caps = probe()
    more = (
        _feature("sensors", lambda: _sensing_fault(Path(caps.cgroup2), place)),
        _feature("routing", routing_fault),
    )
    features = tuple(sorted((*caps.features, *more), key=lambda f: list(MEANING).index(f.name)))
    return Capabilities(
        kernel=caps.kernel,
        landlock_abi=caps.landlock_abi,
        cgroup2=caps.cgroup2,
        features=features,
    )


def missing(caps: Capabilities, needs: tuple[str, ...]) -> tuple[Feature, ...]:
    """Return the features of ``needs`` that ``caps`` does not have, with their causes."""
    return tuple(
        Feature(name, ok=False, detail=caps.why_not(name)) for name in needs if not caps.has(name)
    )


def tier(caps: Capabilities) -> str:
    """Return the strongest tier this host gives: ``full``, ``contain`` or ``record``."""
    failed = {f.name for f in caps.features if not f.ok}
    if failed & {*CONTAIN, "routing"}:
        return "record"
    return "contain" if failed & {*FULL, "sensors"} else "full"


def _feature(name: str, fault: Callable[[], str]) -> Feature:
    """A feature that works when ``fault`` has nothing to say."""
    try:
        detail = fault()
    except OSError as error:
        detail = f"{error.strerror}: {error.filename}" if error.filename else str(error.strerror)
    except HarkError as error:
        detail = error.cause or error.what
    return Feature(name, not detail, detail)


def _told(err: int, value: int) -> str:
    if err:
        return os.strerror(err)
    return f"ABI {value}" if value else ""


def _too_old(release: str) -> str:
    numbers = release.split("-", maxsplit=1)[0].split(".")
    version = tuple(int(n) for n in numbers[:2] if n.isdecimal())
    return "" if version >= _OLDEST else f"this is Linux {release}"


def _cgroup_fault(mount: str) -> str:
    if not mount:
        return "cgroup v2 is not mounted"
    folder = Path(mount) / f"hark-probe-{os.getpid()}"
    folder.mkdir()
    try:
        return "" if (folder / "cgroup.kill").exists() else "there is no cgroup.kill (Linux 5.14)"
    finally:
        folder.rmdir()


def _sensing_fault(mount: Path, place: Place | None) -> str:
    folder = mount / f"hark-doctor-{os.getpid()}"
    folder.mkdir()
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sensors = Sensors.attach(fd, folder.stat().st_ino, place=place)
        try:
            _run_inside(folder)
            seen = any(isinstance(record, Exec) for record in sensors.poll())
        finally:
            sensors.detach()
        return "" if seen else "the sensors are attached and did not see a program start"
    finally:
        os.close(fd)
        _remove(folder)


def _run_inside(folder: Path) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            (folder / "cgroup.procs").write_text("0")
            os.execv("/bin/true", ["/bin/true"])  # noqa: S606
        finally:
            os._exit(1)
    os.waitpid(pid, 0)


def _remove(folder: Path) -> None:
    for _ in range(100):  # the kernel needs a moment after the last process
        try:
            folder.rmdir()
        except OSError:
            time.sleep(0.01)
        else:
            return
