"""Several policy files to one ``Policy``: the operator's, the project's, the command line's.

Order: /etc/hark/policy.toml, then ./hark.toml, then --policy. A key that a later file states takes
the place of the earlier one's; ``[limits]`` key by key. The project's file may only tighten: an
agent can write it. Rules: pure, but for ``load_policy``.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import fields, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NoReturn

from hark import limits
from hark.errors import PolicyError
from hark.policy.compile import effective_limits, host_table
from hark.policy.model import TIERS, Limits, Policy, SecretBinding
from hark.policy.parse import Layer, parse_layer
from hark.policy.privileges import acting_as

if TYPE_CHECKING:
    from hark.policy.person import Person

__all__ = ["PROJECT_POLICY", "apply_layer", "join_layers", "load_policy", "read_policy"]

PROJECT_POLICY = "hark.toml"


def load_policy(
    *, system: Path, workspace: Path, explicit: Path | None, person: Person | None = None
) -> Policy:
    """Read and join the files that exist. None at all: the policy that allows nothing.

    ``workspace`` is the absolute folder whose hark.toml counts. It and ``explicit``, the file named
    by --policy, are opened as ``person``; the system's file must belong to root. A named file must
    exist; when it is the project's file, it counts as the operator's choice. Raises PolicyError.
    """

    def read(path: Path, *, may_wait: bool) -> bytes | None:
        with acting_as(person) if person else contextlib.nullcontext():
            return read_policy_file(path, may_wait=may_wait)

    project = workspace / PROJECT_POLICY
    found = {
        "system": read_system_policy(system),
        "project": None
        if explicit and same_file(explicit, project)
        else read(project, may_wait=False),
        "explicit": read(explicit, may_wait=True) if explicit else None,
    }
    if explicit and found["explicit"] is None:
        raise PolicyError(f"there is no policy file {explicit}", "", "check the path")
    paths = {"system": system, "project": project, "explicit": explicit or project}
    layers = {
        key: parse_layer(data, source=str(paths[key]), folder=str(paths[key].absolute().parent))
        for key, data in found.items()
        if data is not None
    }
    return join_layers(**layers)


def read_policy(path: Path) -> Policy:
    """Read one policy file by itself; the caller acts as whoever may read it."""
    data = read_policy_file(path, may_wait=True)
    if data is None:
        raise PolicyError(f"there is no policy file {path}", "", "check the path")
    layer = parse_layer(data, source=str(path), folder=str(path.absolute().parent))
    return apply_layer(Policy(), layer)


def join_layers(
    *, system: Layer | None = None, project: Layer | None = None, explicit: Layer | None = None
) -> Policy:
    """Join in order; raises PolicyError where the project's file asks for more."""
    policy = apply_layer(Policy(), system) if system else Policy()
    if project:
        tightened = apply_layer(policy, project)
        check_tightening(policy, tightened, project)
        policy = tightened
    return apply_layer(policy, explicit) if explicit else policy


def apply_layer(base: Policy, layer: Layer) -> Policy:
    """Return ``base`` with the keys that ``layer`` states."""
    given = layer.policy
    bounds = {
        key: value
        for key in (f.name for f in fields(Limits))
        if f"limits.{key}" in layer.stated and (value := getattr(given.limits, key)) is not None
    }
    return replace(
        base,
        limits=replace(base.limits, **bounds),
        **{key: getattr(given, key) for key in layer.stated if not key.startswith("limits.")},
    )


def check_tightening(base: Policy, new: Policy, layer: Layer) -> None:
    """Raise PolicyError unless ``new`` allows nothing that ``base`` does not."""
    if new.way_out != base.way_out:
        refuse(layer, "upstream", "changes the way out")
    for forward in new.forwards:
        if forward not in base.forwards:
            refuse(layer, f"forward.{forward.name}", "leads to a service of the host")
    check_hosts(base, new, layer)
    check_paths(base, new, layer)
    for name in ("pass_env", "allow_downgrades"):
        more = set(getattr(new, name)) - set(getattr(base, name))
        if more:
            refuse(layer, name, f"adds {min(more)!r}")
    check_rules(base, new, layer)
    for binding in new.secrets:
        if not any(within(binding, new, other, base) for other in base.secrets):
            refuse(layer, "secrets", f"binds {binding.name!r} more widely")
    if new.workspace != base.workspace and new.workspace == "direct":
        refuse(layer, "workspace", 'sets "direct"')
    if TIERS.index(new.tier) < TIERS.index(base.tier):
        refuse(layer, "tier", f"sets {new.tier!r}, below {base.tier!r}")
    check_limits(base, new, layer)


def check_rules(base: Policy, new: Policy, layer: Layer) -> None:
    """No rule may be added: it would hide a difference from the operator's verdict."""
    for name in ("volatile", "telemetry"):
        more = set(getattr(new, name)) - set(getattr(base, name))
        if more:
            refuse(layer, name, f"adds the rule {min(rule.name for rule in more)!r}")


def check_hosts(base: Policy, new: Policy, layer: Layer) -> None:
    """Every (name, port) and every exemption must be there already."""
    known = {host.name: host for host in host_table(base)}
    listed = {host.name for host in new.hosts}
    for host in host_table(new):
        key = "host" if host.name in listed else "allow_hosts"
        old = known.get(host.name)
        if old is None:
            refuse(layer, key, f"adds {host.name!r}")
        if more := set(host.ports) - set(old.ports):
            refuse(layer, key, f"adds port {min(more)} of {host.name!r}")
        if more := set(host.plain_ports) - set(old.plain_ports):
            refuse(layer, key, f"allows {host.name!r} without TLS on port {min(more)}")
        if host.private and not old.private:
            refuse(layer, key, f"allows private addresses for {host.name!r}")


def check_paths(base: Policy, new: Policy, layer: Layer) -> None:
    """Every path must be one of the base's or lie below one; what may be written may be read."""
    readable = (*base.read_paths, *base.write_paths)
    for key, allowed in (("read_paths", readable), ("write_paths", base.write_paths)):
        for path in getattr(new, key):
            if not any(PurePosixPath(path).is_relative_to(above) for above in allowed):
                refuse(layer, key, f"adds {path!r}")


def within(new: SecretBinding, policy: Policy, old: SecretBinding, base: Policy) -> bool:
    """Whether ``new`` sends the same variable to no host, place or method that ``old`` does not."""
    hosts = set(policy.allow_hosts if new.broad else new.hosts)
    return (
        (new.name, new.env) == (old.name, old.env)
        and hosts <= set(base.allow_hosts if old.broad else old.hosts)
        and set(new.headers) <= set(old.headers)
        and set(new.queries) <= set(old.queries)
        and (not old.methods or (bool(new.methods) and set(new.methods) <= set(old.methods)))
    )


def check_limits(base: Policy, new: Policy, layer: Layer) -> None:
    """No limit may rise above the operator's, or above hark's default where that holds."""
    old, now = effective_limits(base.limits), effective_limits(new.limits)
    for item in fields(Limits):
        before, after = getattr(old, item.name), getattr(now, item.name)
        if before is not None and after is not None and after > before:
            refuse(layer, f"limits.{item.name}", f"raises {before} to {after}")


def refuse(layer: Layer, key: str, what: str) -> NoReturn:
    """Say which key of the project's file asks for more than the operator's policy."""
    raise PolicyError(
        f"{layer.source}: {key} {what}",
        "a project's own file may only tighten the operator's policy",
        f"have the operator allow it, or choose the file: --policy {layer.source}",
    )


def read_policy_file(path: Path, *, may_wait: bool) -> bytes | None:
    """Read a policy file, no more than the limit and one byte; None when there is none.

    ``may_wait``: it may be a pipe. An agent may have left one, that nobody writes to.
    """
    try:
        with open(path, "rb", opener=None if may_wait else open_at_once) as file:
            if not may_wait and not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise PolicyError(f"{path} is not a file", "", "remove it, or give it another name")
            return file.read(limits.POLICY_MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PolicyError(f"cannot read the policy {path}", error.strerror or "") from error


def open_at_once(path: str, flags: int) -> int:
    """Open without waiting for the other end of a pipe, or for a device."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def read_system_policy(path: Path) -> bytes | None:
    """Read the operator's policy; only root may be able to write it."""
    data = read_policy_file(path, may_wait=True)
    if data is not None:
        state = path.stat()
        if state.st_uid != 0 or state.st_mode & 0o022:
            hint = f"chown root:root {path}; chmod 644 {path}"
            raise PolicyError(f"{path} can be written by others than root", "", hint)
    return data


def same_file(one: Path, other: Path) -> bool:
    """Whether both paths lead to the same existing file."""
    try:
        return one.samefile(other)
    except OSError:
        return False
