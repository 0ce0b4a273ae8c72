"""Brokers that end with their test, and somebody to dial."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from processes import BrokerProcess, Listener

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def start() -> Iterator[Callable[..., BrokerProcess]]:
    made: list[BrokerProcess] = []

    def begin(*args: object, **more: object) -> BrokerProcess:
        made.append(BrokerProcess(*args, **more))
        return made[-1]

    yield begin
    for process in made:
        process.end()


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.close()
