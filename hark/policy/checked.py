"""Single values of a policy, checked: a host name, a path, the name of a variable.

Rules: pure. Each raises PolicyError by ``Source.fail`` with the place of the value.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from hark.policy.names import name_fault, normalise

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hark.policy.source import PathSteps, Source

__all__ = ["MAX_PORT", "file_path", "host_name", "unique", "variable"]

MAX_PORT = 0xFFFF

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def host_name(text: str, src: Source, at: PathSteps) -> str:
    """One exact host name in normal form."""
    name = normalise(text)
    fault = name_fault(name)
    if fault:
        hint = "write the bare host name, such as api.example.com"
        if re.search(r":\d+\Z", text) and "/" not in text:
            hint = 'give ports by a table: [[host]] name = "...", ports = [...]'
        src.fail(at, f"({text!r}) {fault}", hint, text)
    return name


def file_path(text: str, src: Source, at: PathSteps) -> str:
    """One path: no ``..``, no control characters, relative ones joined to the file's folder."""
    if not text:
        src.fail(at, "is empty", "name a file or a folder", text)
    if has_control(text):
        src.fail(at, "holds a control character", "", text)
    if text.startswith("~") and text != "~" and not text.startswith("~/"):
        src.fail(at, f"({text!r}) names another person's home", "write the whole path", text)
    if ".." in text.split("/"):
        src.fail(at, f"({text!r}) climbs with '..'", "write the path it means", text)
    path = PurePosixPath(text) if text.startswith("~") else src.folder / text
    return "/" + str(path).lstrip("/") if str(path).startswith("/") else str(path)


def has_control(text: str) -> bool:
    """Whether ``text`` holds a C0 control or DEL, which no path, name or TOML string here needs."""
    return any(ord(c) < ord(" ") or c == "\x7f" for c in text)


def variable(text: str, src: Source, at: PathSteps) -> str:
    """Check the name of one environment variable."""
    if not _VARIABLE.match(text):
        hint = "letters, digits and '_'; a name, never the value itself"
        # Not echoed: the usual mistake is to paste the secret here.
        src.fail(at, "is no name of an environment variable", hint, text)
    return text


def unique(items: Iterable[str]) -> tuple[str, ...]:
    """Sort, each once."""
    return tuple(sorted(set(items)))
