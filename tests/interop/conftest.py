"""A new world for each interop test; and the list of clients, with --roster."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.running import need
from harness.world import POLICY, STUB_NAMES, World
from roster import Roster
from stub import Stub

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

ROSTER = pytest.StashKey[Roster]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let ``make test-interop`` ask for the list."""
    parser.addoption("--roster", action="store_true", help="list the clients; all must be ok")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Count a test for the clients it is marked with: its worst phase, once."""
    report = yield
    roster = item.config.stash.setdefault(ROSTER, Roster())
    if report.when == "call" or report.outcome != "passed":
        for mark in item.iter_markers("client"):
            roster.add(mark.args[0], report.outcome)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the list."""
    config = terminalreporter.config
    if config.getoption("--roster", default=False):
        terminalreporter.section("clients")
        for line in config.stash.setdefault(ROSTER, Roster()).lines():
            terminalreporter.write_line(line)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail when a client of the list is missing or not ok."""
    config = session.config
    asked = config.getoption("--roster", default=False)
    if asked and not config.stash.setdefault(ROSTER, Roster()).complete():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    need("root", os.geteuid() == 0)
    (tmp_path / "work").mkdir()
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    with Stub(tmp_path / "stub", STUB_NAMES) as stub:
        yield World(stub, tmp_path, policy)
