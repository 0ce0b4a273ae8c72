"""The shapes of the fidelity suite: which agent, how one sees that its shape happened, its twin.

Each agent has a line ``TWIN = 0``. The twin is the same agent with 1 there, an edited agent that
must diverge at the action which ``twin`` names. ``number``: its place in docs/fidelity.md.
``happened`` says what is missing, or nothing; without it a run that failed early would replay
equal and prove nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fidelity_service import API, EVIL, MCP
from stub.apis import TEXT

if TYPE_CHECKING:
    from collections.abc import Callable

    from fidelity_service import Service

__all__ = ["SHAPES", "Shape"]

CHAT, CURL = f"POST {API}/v1/chat/completions", "exec curl "


@dataclass(frozen=True, slots=True)
class Shape:
    """One agent. ``runtime``: python, node, go, c or sh. ``short``: part of ``make test``."""

    runtime: str
    name: str
    number: int
    happened: Callable[[Service, str], str]
    twin: str = CHAT
    short: bool = False

    @property
    def label(self) -> str:
        """Runtime and name."""
        return f"{self.runtime}/{self.name}"


def asked(service: Service, least: int = 1) -> str:
    """Every agent ends by asking the model."""
    count = service.count("/v1/chat/completions")
    return "" if count >= least else f"the model was asked {count} times, not {least}"


def requests(path: str, least: int, said: str = "", asks: int = 1) -> Callable[[Service, str], str]:
    """So many requests reached the outside, the model was asked, and stdout holds ``said``."""

    def check(service: Service, stdout: str) -> str:
        count = service.count(path)
        if count < least:
            return f"{count} requests for {path}, not {least}"
        if said and said not in stdout:
            return f"stdout has no {said!r}: {stdout!r}"
        return asked(service, asks)

    return check


def denied(path: str, least: int) -> Callable[[Service, str], str]:
    """So many requests for ``path``, and the denied host saw none."""

    def check(service: Service, _stdout: str) -> str:
        if service.connections(EVIL):
            return "the denied host was reached"
        count = service.count(path)
        return asked(service) if count >= least else f"{count} requests for {path}, not {least}"

    return check


def printed(*texts: str) -> Callable[[Service, str], str]:
    """Somebody else's program said what it says when it worked."""

    def check(_service: Service, stdout: str) -> str:
        return next((f"stdout has no {text!r}" for text in texts if text not in stdout), "")

    return check


def only_asked(service: Service, stdout: str) -> str:
    """Nothing else is to be seen from outside: what it printed is its answer."""
    return asked(service) or ("" if stdout else "nothing was printed")


LATE10, BACK = requests("/late/", 10), requests("/back", 1)
SHAPES = (
    # The five of hark's first version.
    Shape("python", "incident", 0, denied("/page", 1), f"POST {EVIL}/collect"),
    Shape("python", "streaming", 0, requests("/v1/chat", 2, asks=2), short=True),
    Shape("node", "streaming", 0, requests("/v1/chat", 2, asks=2)),
    Shape("python", "retry", 0, requests("/retry/503/1", 2)),
    Shape(
        "python", "repeat", 0, requests("/late/same", 5), "POST news.example/late/same", short=True
    ),
    Shape("python", "mcp", 0, requests("/mcp", 3), "POST news.example/mcp"),
    # 1 to 26, those of them that need nothing but HTTP/1.1.
    Shape("python", "threads", 1, requests("/late/", 12), "GET news.example/late/11"),
    Shape("c", "threads", 1, requests("/late/", 12)),
    Shape("python", "gather", 2, LATE10, "GET news.example/late/10"),
    Shape("node", "gather", 2, LATE10, "GET news.example/late/10"),
    Shape("go", "gather", 2, LATE10, "GET news.example/late/10"),
    Shape("python", "ascompleted", 3, LATE10),
    Shape("node", "ascompleted", 3, requests("/late/", 8)),
    Shape("go", "ascompleted", 3, requests("/late/", 8)),
    Shape("python", "tool", 4, only_asked, "exec "),
    Shape("node", "tool", 4, only_asked, "exec "),
    Shape("sh", "tool", 4, only_asked, CURL),
    Shape("sh", "pipeline", 5, only_asked, "exec "),
    Shape("sh", "git", 6, only_asked, "exec "),
    Shape("sh", "gitdates", 6, only_asked, "exec "),
    Shape("sh", "listing", 7, only_asked, "exec "),
    Shape("node", "clock", 8, only_asked),
    Shape("c", "clock", 8, only_asked),
    Shape("go", "clock", 10, only_asked),
    Shape("python", "longpoll", 14, requests("/poll/2", 3)),
    Shape("node", "longpoll", 14, requests("/poll/2", 3)),
    Shape("go", "longpoll", 14, requests("/poll/2", 3)),
    Shape("sh", "longpoll", 14, requests("/poll/2", 3), CURL),
    Shape("python", "backoff", 15, requests("/retry/429", 4)),
    Shape("node", "backoff", 15, requests("/retry/429", 4)),
    Shape("go", "backoff", 15, requests("/retry/429", 4)),
    Shape("sh", "backoff", 15, requests("/retry/429", 3), CURL),
    Shape("c", "retry", 15, requests("/retry/503", 3), short=True),
    Shape("python", "backoff_told", 15, requests("/retry/429", 3)),
    Shape("python", "uuids", 16, requests("/back", 1, "True"), short=True),
    Shape("node", "uuids", 16, requests("/back", 1, "true")),
    Shape("go", "uuids", 16, requests("/back", 1, "true")),
    Shape("c", "uuids", 16, requests("/back", 1, "same")),
    Shape("sh", "uuids", 16, BACK, CURL),
    Shape("python", "gzipids", 16, requests("/gzback", 1, "True")),
    Shape("python", "dates", 17, requests("/now", 1)),
    Shape("python", "redirect", 18, denied("/hop/", 4), "GET news.example/hop/2"),
    Shape("node", "redirect", 18, denied("/hop/", 4), "GET news.example/hop/2", short=True),
    Shape("go", "redirect", 18, denied("/hop/", 4), "GET news.example/hop/2"),
    Shape("sh", "redirect", 18, denied("/hop/", 4), CURL),
    Shape("python", "codings", 19, requests("/packed/", 9), "POST news.example/packed/"),
    Shape("node", "codings", 19, requests("/packed/", 2), "POST news.example/packed/"),
    Shape("sh", "codings", 19, requests("/packed/", 3), "POST news.example/packed/"),
    Shape("node", "multipart", 19, requests("/took", 1), "POST news.example/took"),
    Shape("sh", "large", 20, requests("/took", 2), "exec "),
    Shape("python", "trailers", 20, requests("/trailed", 1), "POST news.example/took"),
    Shape("python", "cut", 21, requests("/cut/2", 3)),
    Shape("go", "cut", 21, requests("/cut/2", 3)),
    Shape("sh", "cut", 21, requests("/cut/2", 3), CURL, short=True),
    Shape("python", "names", 22, only_asked, "asks for second-twin.example"),
    Shape("python", "denied", 23, denied("/v1/chat", 1), "x :808"),
    Shape("go", "denied", 23, denied("/v1/chat", 1), "x :808"),
    Shape("python", "stdiomcp", 24, requests("/v1/chat", 2, asks=2)),
    Shape("python", "order", 25, only_asked),
    Shape("python", "listing", 25, only_asked),
    Shape("python", "timeouts", 26, requests("/silent/", 2)),
    Shape("node", "timeouts", 26, requests("/silent/", 2)),
    Shape("go", "timeouts", 26, requests("/silent/", 2)),
    Shape("python", "midway", 26, requests("/feed/", 1)),
    Shape("python", "place", 29, only_asked),
    # SDKs and agents of others, unmodified (tests/interop/clients). A twin has another model.
    *(
        Shape("client", name, 27, printed(TEXT), f"POST {API}/")
        for name in ("openai", "anthropic", "google", "httpx", "aiohttp", "requests")
    ),
    Shape("agent", "langgraph", 28, printed(f"{TEXT}; the tool said 42"), CHAT),
    Shape("agent", "smolagents", 28, printed("code 42", "tools the sum is 42"), CHAT),
    Shape("agent", "pydantic_ai", 28, printed(f"{TEXT}; the tool said 42"), CHAT),
    Shape("agent", "mcp", 28, printed("http ['add'] 42", "stdio "), f"POST {MCP}/mcp"),
    Shape("agent", "mini", 28, printed("seen 832"), ""),
)
