"""Rules of the tree that no linter knows (CONTRIBUTING.md, "Style")."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FUNCTION_LINES_MAX = 70
BANNED_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}


def _tracked(*patterns: str) -> list[Path]:
    out = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout
    return [
        ROOT / name.decode()
        for name in out.split(b"\0")
        if name and (ROOT / name.decode()).exists()
    ]


def python_functions(text: str) -> list[tuple[str, int]]:
    """(name, lines) of each function of a module, docstring included."""
    return [
        (node.name, (node.end_lineno or node.lineno) - node.lineno + 1)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def c_functions(text: str) -> list[tuple[str, int]]:
    """(first line, lines) of each function: kernel style opens and closes it in column 0."""
    found = []
    start = None
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if line == "{" and number and ")" in lines[number - 1]:
            start = number
        elif line == "}" and start is not None:
            found.append((lines[start - 1].strip(), number - start + 1))
            start = None
    return found


def test_function_counters_see_long_functions():
    """Positive control: the counters below would notice."""
    body = "\n".join(["    x = 1"] * FUNCTION_LINES_MAX)
    assert python_functions(f"def f():\n{body}\n") == [("f", FUNCTION_LINES_MAX + 1)]
    lines = "\n".join(["\tx = 1;"] * FUNCTION_LINES_MAX)
    assert c_functions(f"int f(void)\n{{\n{lines}\n}}\n") == [
        ("int f(void)", FUNCTION_LINES_MAX + 2)
    ]


@pytest.mark.parametrize("pattern", ["*.py"])
def test_python_functions_are_short(pattern: str):
    long = [
        f"{path.relative_to(ROOT)}: {name}: {lines}"
        for path in _tracked(pattern)
        for name, lines in python_functions(path.read_text())
        if lines > FUNCTION_LINES_MAX
    ]
    assert not long


def test_c_functions_are_short():
    long = [
        f"{path.relative_to(ROOT)}: {name}: {lines}"
        for path in _tracked("*.c", "*.h")
        for name, lines in c_functions(path.read_text())
        if lines > FUNCTION_LINES_MAX
    ]
    assert not long


def test_no_dumping_grounds():
    bad = [
        str(path.relative_to(ROOT))
        for path in _tracked()
        if BANNED_NAMES & set(re.split(r"[/_.]", str(path.relative_to(ROOT))))
    ]
    assert not bad


def test_lines_fit_in_100_columns():
    """Of C and shell; those of Python are ruff's (E501), which leaves pragmas out."""
    wide = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in _tracked("*.c", "*.h", "*.sh")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line.expandtabs(8)) > 100
    ]
    assert not wide


def test_each_fact_about_files_has_one_home():
    """Paths of the host stand in hark/locations.py, not scattered over the code."""
    scattered = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in _tracked("hark/*.py")
        if path.name != "locations.py"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"""["']/(etc/hark/key|var/lib/hark/runs)""", line)
    ]
    assert not scattered
