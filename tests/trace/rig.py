"""A place to record and replay one agent in, without any network."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from harness.running import environment, hark

from hark.bundle.events import Kind
from hark.bundle.keys import SigningKey
from hark.bundle.reader import Bundle
from hark.bundle.sealing import unwrap
from hark.locations import HOST_KEY

if TYPE_CHECKING:
    from pathlib import Path

    from harness.running import Finished


class Place:
    """A workspace and a bundle."""

    def __init__(self, directory: Path) -> None:
        self.work = directory / "work"
        self.work.mkdir()
        self.bundle = directory / "run.hark"

    def run(self, *command: str | Path, options: tuple[str, ...] = ()) -> Finished:
        """Record a command."""
        words = ["run", *options, "-o", self.bundle, "--", *command]
        return hark(*words, cwd=self.work, env=environment())

    def replay(self, *options: str | Path) -> tuple[Finished, dict[str, object]]:
        """Replay it: what the agent printed is in stderr."""
        done = hark("replay", "--json", *options, self.bundle, cwd=self.work, env=environment())
        assert done.stdout, done.stderr
        return done, json.loads(done.stdout)

    def seed(self) -> bytes:
        """Return the run's seed, opened with the host's key."""
        with Bundle.open(self.bundle) as bundle:
            (event,) = bundle.events(Kind.SEED)
        assert event.payload is not None
        seed = unwrap(event.payload[5], SigningKey.load(HOST_KEY).sealing())
        assert seed is not None
        return seed
