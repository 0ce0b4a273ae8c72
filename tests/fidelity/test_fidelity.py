"""The short form of the suite: some shapes of each runtime, two pairs and the twin.

All shapes, with more pairs: ``make fidelity``.
"""

from __future__ import annotations

import os
import re

import pytest
from fidelity_known import KNOWN
from fidelity_pairs import AGENTS, Pair, Programs, edited
from fidelity_shapes import SHAPES, Shape
from harness.running import need

SHORT = [shape for shape in SHAPES if shape.short]


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    need("root", os.geteuid() == 0)
    return Programs(tmp_path_factory.mktemp("programs"))


@pytest.mark.kernel
@pytest.mark.parametrize("shape", SHORT, ids=[shape.label for shape in SHORT])
def test_a_shape_replays_equal_and_its_twin_does_not(shape: Shape, programs: Programs):
    for number in range(2):
        with Pair(shape, programs) as pair:
            result = pair.run()
            assert result.is_equal, (result.text(), result.said and result.said.error)
            if number:
                continue
            said = pair.twin()
            assert (said.status, said.dialled) == (1, 0), said.error
            assert any(title.startswith(shape.twin) for title in said.titles()), said.verdict


def test_every_agent_is_in_the_table_and_has_a_twin():
    in_files = {f"{path.parent.name}/{path.stem}" for path in AGENTS.glob("*/*")}
    compiled = {"go/main", "c/main"}
    prelude = {label for label in in_files if label.endswith("/ask")}
    table = {shape.label for shape in SHAPES}
    assert in_files - compiled - prelude == {
        s for s in table if s.split("/")[0] in ("python", "node", "sh")
    }
    assert len(table) == len(SHAPES)
    assert set(KNOWN) <= table
    for path in AGENTS.glob("*/*"):
        if path.stem != "ask":
            assert edited(path.read_text(), 1) != path.read_text(), path


def test_a_shape_that_did_not_happen_is_no_success(programs: Programs):
    """The positive control of the checks: a request less, and the pair fails."""
    shape = next(shape for shape in SHAPES if shape.label == "python/retry")
    with Pair(shape, programs) as pair:
        pair.service.counts["/retry/503/1"] = 1  # the first one is answered at once
        assert pair.record() == ""  # two were counted, one of them made up
        pair.service.counts["/retry/503/1"] = 1
        assert shape.happened(pair.service, "") == "1 requests for /retry/503/1, not 2"


def test_the_page_is_the_commands_own():
    """What stands in the repository was written by ``make fidelity``, about known shapes."""
    page = (AGENTS.parents[2] / "docs" / "fidelity.md").read_text()
    assert page.startswith("# Fidelity\n\nWritten by `make fidelity`")
    rows = re.findall(r"^\| (\w+/\w+) \| (\d+) \|", page, re.MULTILINE)
    assert rows
    assert set(rows) <= {(shape.label, str(shape.number)) for shape in SHAPES}
