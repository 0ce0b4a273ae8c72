"""Fixtures of the mediator's tests."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from stub.authority import Authority

from .rig import Rig

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator
    from pathlib import Path

CA_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE")


@pytest.fixture(autouse=True)
def _no_ca_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n in CA_VARIABLES or n.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Who certifies the upstreams."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def rig(authority: Authority, tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    """Makes running rigs; all are closed at the end."""
    made: list[Rig] = []

    def make(serve: Callable[[socket.socket], None], **options: object) -> Rig:
        directory = tmp_path / str(len(made))
        directory.mkdir()
        one = Rig(authority, serve, directory, **options)  # type: ignore[arg-type]
        made.append(one.__enter__())
        return made[-1]

    yield make
    for one in made:
        one.__exit__()
