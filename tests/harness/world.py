"""One end-to-end test's world: a stub on loopback, a workspace, a policy and a secret."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.recording import Recording
from harness.running import Finished, environment, hark, upstreams

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from stub import Stub

__all__ = [
    "API",
    "BEDROCK",
    "BUCKET",
    "EVIL",
    "INDEX",
    "MCP",
    "NEWS",
    "POLICY",
    "STUB_NAMES",
    "World",
]

API, NEWS, EVIL = "api.openai.com", "news.example", "evil.example"
BUCKET, BEDROCK = "notes.s3.amazonaws.com", "bedrock-runtime.us-east-1.amazonaws.com"
MCP, INDEX = "mcp.example", "packages.example"
STUB_NAMES = (API, NEWS, EVIL, BUCKET, BEDROCK, MCP, INDEX)
POLICY = f"""
allow_hosts = ["{API}", "{NEWS}"]

[secrets.openai]
env = "OPENAI_API_KEY"
hosts = ["{API}"]
header = "authorization"
"""


@dataclass(slots=True)
class World:
    """One test's stub, workspace and policy; ``key`` is a secret made for this test alone.

    ``hosts`` are those whose upstream is the stub, ``more`` goes into the operator's environment.
    """

    stub: Stub
    directory: Path
    policy: Path
    key: str = field(default_factory=lambda: f"sk-test-{os.urandom(12).hex()}")
    hosts: tuple[str, ...] = (API, NEWS)
    more: dict[str, str] = field(default_factory=dict)

    @property
    def work(self) -> Path:
        """The agent's workspace."""
        return self.directory / "work"

    @property
    def bundle(self) -> Path:
        """Where the bundle goes."""
        return self.directory / "run.hark"

    def words(self, *command: str | Path) -> list[str]:
        """Return the words of `hark` that run ``command`` against the stub."""
        return [
            "run",
            f"--policy={self.policy}",
            *upstreams(self.stub.address, *self.hosts),
            f"--upstream-ca={self.stub.ca_file}",
            "-o",
            str(self.bundle),
            "--",
            *map(str, command),
        ]

    def env(self) -> dict[str, str]:
        """Return the operator's environment, the key in it."""
        return environment(OPENAI_API_KEY=self.key, **self.more)

    def run(
        self, *command: str | Path, stdin: bytes = b"", options: Sequence[str] = ()
    ) -> Finished:
        """Run ``command`` to its end in the workspace, with more ``options`` of `hark run`."""
        verb, *words = self.words(*command)
        return hark(verb, *options, *words, cwd=self.work, env=self.env(), stdin=stdin)

    def recording(self) -> Recording:
        """Read the bundle."""
        return Recording.read(self.bundle)
