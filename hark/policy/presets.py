"""Presets: names of hosts that belong together, as data (``presets.toml`` beside this file).

Rules: exact names only, versioned, expanded when a policy is parsed. What is compiled, printed and
recorded is the names, so a later change of the data changes no run that was recorded.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from hark.policy.model import HTTP_PORT, HTTPS_PORT, Host

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["PRESETS", "Preset", "expand", "presets"]

PRESETS = Path(__file__).with_name("presets.toml")


@dataclass(frozen=True, slots=True)
class Preset:
    """One table of the data. ``hosts``: port 443. ``plain``: those also allowed on port 80."""

    name: str
    version: int
    about: str
    source: str
    hosts: tuple[str, ...]
    plain: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Name and version, as the policy text of a run has them."""
        return f"{self.name} {self.version}"


@cache
def presets() -> Mapping[str, Preset]:
    """Read the data; by name."""
    with PRESETS.open("rb") as file:
        tables = tomllib.load(file)
    return {
        name: Preset(
            name,
            table["version"],
            table["about"],
            table["source"],
            tuple(table["hosts"]),
            tuple(table.get("plain", ())),
        )
        for name, table in tables.items()
    }


def expand(
    chosen: Iterable[Preset], allow_hosts: Iterable[str], hosts: Iterable[Host]
) -> tuple[tuple[str, ...], tuple[Host, ...]]:
    """Add what the presets allow to ``allow_hosts`` and ``[[host]]``; return both, sorted."""
    names = {*allow_hosts}
    tables = {host.name: host for host in hosts}
    for preset in chosen:
        names.update(preset.hosts)
        for name in preset.plain:
            old = tables.get(name, Host(name=name, ports=()))
            tables[name] = Host(
                name=name,
                ports=tuple(sorted({*old.ports, HTTP_PORT, HTTPS_PORT})),
                plain_ports=tuple(sorted({*old.plain_ports, HTTP_PORT})),
                private=old.private,
            )
    return tuple(sorted(names)), tuple(tables[name] for name in sorted(tables))
