"""A recording replayed where the host is another one, as far as one machine can be two.

What an agent sees of its host is recorded with it: name, time zone, locale, environment, open
descriptors' limits. The number of processors is not: a replay on fewer of them says what differed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from fidelity_pairs import Pair, Programs
from fidelity_shapes import SHAPES
from harness.running import need, need_program

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    need("root", os.geteuid() == 0)
    (shape,) = (shape for shape in SHAPES if shape.label == "python/place")
    with Pair(shape, Programs(tmp_path_factory.mktemp("programs"))) as made:
        assert made.record() == ""
        yield made


def test_another_time_zone_locale_and_environment(pair: Pair):
    more = {f"X_MORE_{i}": "x" * 1000 for i in range(100)}
    said = pair.replay(TZ="Asia/Tokyo", LANG="tr_TR.UTF-8", **more)
    assert said.line == "REPLAY-EQUAL exact", said.verdict


def test_another_host_name(pair: Pair):
    unshare = need_program("unshare")
    name = ("/bin/sh", "-c", 'hostname elsewhere && exec "$@"', "sh")
    said = pair.replay(before=(unshare, "--uts", *name))
    assert said.line == "REPLAY-EQUAL exact", said.verdict


def test_an_edited_agent_is_caught_elsewhere_too(pair: Pair):
    pair.place(twin=1)
    said = pair.replay("--workspace=current", TZ="Asia/Tokyo")
    assert said.status == 1
    assert said.titles()[0].startswith("POST "), said.verdict
    pair.place()
