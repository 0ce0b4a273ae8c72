"""The clients that `make test-interop` answers for, in the order they are listed.

Rules. A test marked ``client("NAME")`` is about that client; all its tests must pass. A name here
without a test that ran, and a mark that is not here, are failures: no client is dropped in silence.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["ROSTER", "Roster"]

ROSTER = (
    "curl",
    "wget",
    "git",
    "git, 200 MB pushed",
    "python urllib",
    "python requests",
    "python httpx",
    "python aiohttp",
    "boto3 (signed requests)",
    "openai SDK",
    "anthropic SDK",
    "google-genai SDK",
    "langgraph",
    "smolagents",
    "pydantic-ai",
    "mini-swe-agent",
    "mcp over HTTP",
    "mcp over stdio",
    "pip",
    "uv (rustls)",
    "npm",
    "node fetch",
    "undici",
    "openai SDK for Node",
    "pi",
    "go, static",
    "rust, rustls and native-tls",
    "java HttpClient",
    "bash pipelines",
    "eight at once",
)


@dataclass(slots=True)
class Roster:
    """What became of each client's tests: ``passed``, or why not."""

    names: tuple[str, ...] = ROSTER
    outcomes: dict[str, list[str]] = field(default_factory=dict)

    def add(self, name: str, outcome: str) -> None:
        """Note the outcome of one test: passed, failed or skipped."""
        self.outcomes.setdefault(name, []).append(outcome)

    def lines(self) -> list[str]:
        """One line a client, and one for each mark that is no client's."""
        wide = max(map(len, self.names))
        known = [f"{name:{wide}}  {self._verdict(name)}" for name in self.names]
        strange = sorted(set(self.outcomes) - set(self.names))
        return known + [f"{name:{wide}}  not on the list" for name in strange]

    def complete(self) -> bool:
        """Whether every client was there and every one of its tests passed."""
        return set(self.outcomes) == set(self.names) and all(
            self._verdict(name) == "ok" for name in self.names
        )

    def _verdict(self, name: str) -> str:
        outcomes = self.outcomes.get(name, ["missing"])
        return next((outcome for outcome in outcomes if outcome != "passed"), "ok")
