"""A policy file's text, and errors that point into it.

Rules: pure. Knows TOML and msgspec, nothing of what the keys mean. Lines are found for messages
only, by reading headers and ``key =`` at line starts; nothing is decided by them.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import msgspec

from hark import limits
from hark.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import PurePosixPath

__all__ = ["PathSteps", "Source", "UnknownKey", "convert", "decode", "read_toml", "spell"]

PathSteps = tuple[str | int, ...]
T = TypeVar("T")

_HEADER = re.compile(r"\s*(\[\[?)\s*([\w.-]+)\s*\]")
_PAIR = re.compile(r"\s*\"?([\w.-]+)\"?\s*=")
_AT = re.compile(r"(.*?)(?: - at `\$(.*)`)?\Z", re.DOTALL)
_STEP = re.compile(r"\.([A-Za-z0-9_-]+)|\[(\d+)\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`\Z", re.DOTALL)
_TOML_AT = re.compile(r"(.*) \(at (line \d+, column \d+|end of document)\)\Z", re.DOTALL)


# Comments and quoted text, as TOML 1.0 delimits them.
_QUOTED = re.compile(
    r"""#[^\n]*|\"{3}(?:\\.|[^\\])*?\"{3}|'{3}.*?'{3}|"(?:\\.|[^"\\\n])*"|'[^'\n]*'""", re.DOTALL
)


class UnknownKey(Exception):
    """A table holds the key ``key``, which its shape does not have. ``at`` is the table."""

    def __init__(self, at: PathSteps, key: str) -> None:
        super().__init__(key)
        self.at = at
        self.key = key


@dataclass(frozen=True, slots=True)
class Source:
    """A file's name and text; ``folder`` is what its relative paths are relative to."""

    name: str
    text: str
    folder: PurePosixPath

    def fail(self, at: PathSteps, fault: str, hint: str = "", value: str = "") -> NoReturn:
        """Raise PolicyError for the key ``at``, with the line of it or of ``value`` inside it."""
        line = self.line_of(at, value)
        place = f"{self.name}, line {line}" if line else self.name
        raise PolicyError(f"{place}: {spell(at)} {fault}", "", hint)

    def line_of(self, at: PathSteps, value: str = "") -> int:
        """Line, from 1, where the key ``at`` or a table around it stands; 0 when not found."""
        index = index_lines(self.text)
        while at and spell(at) not in index:
            at = at[:-1]
        line = index.get(spell(at), 0)
        if line and value:
            for offset, text in enumerate(self.text.splitlines()[line - 1 :]):
                if f'"{value}"' in text:
                    return line + offset
        return line


def index_lines(text: str) -> dict[str, int]:
    """Line of every key and table header, as ``spell`` writes them."""
    index: dict[str, int] = {}
    counts: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = header[2]
            if header[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                table = f"{table}[{counts[table]}]"
            index.setdefault(table, number)
        elif pair := _PAIR.match(line):
            index.setdefault(f"{table}.{pair[1]}" if table else pair[1], number)
    return index


def spell(at: PathSteps) -> str:
    """Write ``("host", 1, "ports")`` as ``host[1].ports``; places in lists count from 0."""
    text = ""
    for step in at:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def decode(data: bytes, name: str) -> str:
    """Text of a file that must be UTF-8 (TOML 1.0, "Spec") and not huge."""
    if len(data) > limits.POLICY_MAX_BYTES:
        raise PolicyError(f"{name}: longer than {limits.POLICY_MAX_BYTES} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise PolicyError(f"{name}, line {line}: not UTF-8", str(error)) from error


def read_toml(src: Source) -> dict[str, Any]:
    """Parse the text; a syntax error names line and column and a likely repair."""
    for line in _QUOTED.sub("", src.text).splitlines():
        if line.count(".") > limits.POLICY_MAX_DOTS:
            raise PolicyError(f"{src.name}: a key of too many parts: {line[:40]}")
    try:
        return tomllib.loads(src.text)
    except RecursionError as error:
        raise PolicyError(f"{src.name}: lists or tables nest too deep") from error
    except tomllib.TOMLDecodeError as error:
        match = _TOML_AT.match(str(error))
        what, place = match.groups() if match else (str(error), "")
        where = f"{src.name}, {place}" if place else src.name
        raise PolicyError(f"{where}: not TOML", what, repair(src.text, what, place)) from error
    except ValueError as error:  # of int(): beyond sys.get_int_max_str_digits()
        raise PolicyError(f"{src.name}: a number of too many digits") from error


def repair(text: str, what: str, place: str) -> str:
    """Say what is most likely wrong with the line that a syntax error names."""
    if "Cannot" in what:  # overwrite, declare twice, mutate: a name is taken
        return "a key or a table stands there twice"
    if place == "end of document":
        return "a text, a list or a table header is not closed"
    found = re.match(r"line (\d+)", place)
    lines = text.splitlines()
    line = lines[int(found[1]) - 1].strip() if found and int(found[1]) <= len(lines) else ""
    if re.match(r"[\w.-]+\s*:", line):
        return 'write key = "value", not key: value'
    if re.match(r"[\w.-]+\s*=\s*[A-Za-z~/.]", line):
        return 'text stands in quotes: key = "value"'
    return 'text is written "a", a list ["a", "b"], a table [name]; each key stands once'


def convert(raw: object, kind: type[T], src: Source, at: PathSteps, hints: Mapping[str, str]) -> T:
    """Give ``raw``, found at ``at``, the shape ``kind``. ``hints`` are by key.

    Raises UnknownKey, or PolicyError for a wrong type or a missing key.
    """
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        match = _AT.match(str(error))
        message, path = match.groups() if match else (str(error), None)
        at = (*at, *(int(place) if place else key for key, place in _STEP.findall(path or "")))
        if unknown := _UNKNOWN.match(message):
            raise UnknownKey(at, unknown[1]) from error
        src.fail(at, reword(message), hints.get(str(at[-1]) if at else "", ""))


def reword(message: str) -> str:
    """Turn msgspec's words for a wrong value into those of TOML."""
    words = {
        "`array`": "a list",
        "`object`": "a table",
        "`str`": "text",
        "`int`": "a number",
        "`float`": "a number with a point",
        "`bool`": "true or false",
        " | ": " or ",
        "Object missing required field": "has no",
        "Invalid enum value": "cannot be",
    }
    for theirs, ours in words.items():
        message = message.replace(theirs, ours)
    return re.sub(r"^Expected (.*), got (.*)$", r"must be \1, not \2", message)
