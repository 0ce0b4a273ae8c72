"""The digest: stream and whole file agree; concurrency is invisible, causality is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hark.replay.digest import Foata, Mark, whole

if TYPE_CHECKING:
    import random

hashes = st.integers(0, 5).map(lambda n: bytes([n]) * 32)
marks = st.builds(
    lambda e, n, d: Mark(e, bytes([n]) * 32, d), st.integers(1, 3), st.integers(0, 2),
    st.integers(0, 9),
)  # fmt: skip
histories = st.lists(st.one_of(hashes, marks), max_size=30)


def stream(steps: list[Mark | bytes]) -> bytes:
    foata = Foata()
    for step in steps:
        if isinstance(step, Mark):
            foata.deliver(step)
        else:
            foata.act(step)
    return foata.digest()


@given(histories)
def test_stream_equals_whole(steps: list[Mark | bytes]) -> None:
    assert stream(steps) == whole(steps)


@given(histories, st.integers(0, 30))
def test_a_prefix_has_the_digest_of_that_prefix(steps: list[Mark | bytes], cut: int) -> None:
    foata = Foata()
    for i, step in enumerate(steps):
        if i == cut:
            assert foata.digest() == whole(steps[:cut])
        if isinstance(step, Mark):
            foata.deliver(step)
        else:
            foata.act(step)
    assert foata.digest() == whole(steps)


@given(histories, st.randoms())
def test_order_within_an_interval_is_invisible(
    steps: list[Mark | bytes], rng: random.Random
) -> None:
    shuffled: list[Mark | bytes] = []
    group: list[bytes] = []
    for step in [*steps, None]:
        if isinstance(step, bytes):
            group.append(step)
            continue
        rng.shuffle(group)
        shuffled += group
        group = []
        if step is not None:
            shuffled.append(step)
    assert stream(shuffled) == stream(steps)


A, B, C = (bytes([n]) * 32 for n in (1, 2, 3))
ONE, TWO = b"\x11" * 32, b"\x22" * 32


def test_chunk_borders_nobody_acted_on_are_invisible() -> None:
    fine: list[Mark | bytes] = [A, Mark(1, ONE, 3), Mark(1, ONE, 7), Mark(1, ONE, 9), B]
    assert stream(fine) == stream([A, Mark(1, ONE, 9), B])
    assert stream([*fine, Mark(1, ONE, 12)]) == stream(fine)


def test_the_order_of_two_replies_without_an_action_between_is_invisible() -> None:
    left: list[Mark | bytes] = [A, B, Mark(1, ONE, 5), Mark(2, TWO, 6), C]
    right: list[Mark | bytes] = [B, A, Mark(2, TWO, 6), Mark(1, ONE, 5), C]
    assert stream(left) == stream(right)


@pytest.mark.parametrize(
    "moved",
    [
        [A, C, Mark(1, ONE, 5), Mark(2, TWO, 6), B],
        [A, Mark(1, ONE, 5), B, Mark(2, TWO, 6), C],
        [A, B, Mark(1, ONE, 4), Mark(2, TWO, 6), C],
        [A, B, Mark(1, ONE, 5), C],
        [A, B, Mark(1, ONE, 5, "upstream_closed"), Mark(2, TWO, 6), C],
        [A, B, Mark(1, TWO, 5), Mark(2, TWO, 6), C],
        [A, B, B, Mark(1, ONE, 5), Mark(2, TWO, 6), C],
        [A, Mark(1, ONE, 5), Mark(2, TWO, 6), C],
    ],
)
def test_an_action_on_the_other_side_of_a_delivery_is_another_history(
    moved: list[Mark | bytes],
) -> None:
    assert stream(moved) != stream([A, B, Mark(1, ONE, 5), Mark(2, TWO, 6), C])
