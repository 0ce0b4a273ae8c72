"""Each field of recorded requests altered in turn: nothing is silent, and what is ignored is named.

Real recordings of some shapes here; of all of them in ``make fidelity``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from fidelity_mutations import Mutations, mutate, tell
from fidelity_pairs import Pair, Programs
from fidelity_shapes import SHAPES
from harness.running import need

from hark.replay.bundles import compare
from hark.replay.rules import header_rule

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.kernel

CHOSEN = ("python/mcp", "node/multipart", "sh/redirect", "c/retry")


@pytest.fixture(scope="module", params=CHOSEN)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    need("root", os.geteuid() == 0)
    (shape,) = (shape for shape in SHAPES if shape.label == request.param)
    with Pair(shape, Programs(tmp_path_factory.mktemp("programs"))) as made:
        assert made.record() == ""
        yield made


def test_each_alteration_is_caught_or_named(pair: Pair):
    found = mutate(pair.bundle)
    assert found.requests >= 2
    assert found.silent == []
    assert found.caught > found.total / 3
    for rule in found.ignored:
        kind, _, name = rule.partition(" ")
        if kind.startswith("header:"):
            assert header_rule(name) == kind, rule
        else:
            assert kind.partition(":")[0] in ("header-form", "target-form", "body-form"), rule


def test_what_was_not_altered_would_be_silent(pair: Pair):
    """The control: an alteration that the verdict does not see is told."""
    found = Mutations()
    tell(found, "nothing", compare(pair.bundle, pair.bundle), frozenset())
    assert found.silent == ["nothing: REPLAY-EQUAL exact"]
