"""Unmodified clients under `hark run`: they work, and the bundle says exactly what happened.

The stub is the witness: what it received and sent must be in the bundle, byte for byte, and the
executable behind each exchange must be the client's own.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from blake3 import blake3
from harness.recording import Exchange, Recording, raw
from harness.running import PYTHON, hark, need_program
from harness.world import API, World

if TYPE_CHECKING:
    from stub import RequestSeen

CLIENTS = Path(__file__).parent / "clients"
HELLO = "hello from the stub"

# Fields that belong to one connection: hark writes its own (RFC 9110 section 7.6.1), and asks for
# an unencoded answer where a secret could be reflected.
OWN_FIELDS = {"accept-encoding", "connection", "keep-alive", "te", "transfer-encoding"}


@dataclass(frozen=True, slots=True)
class Client:
    """A client script, the program that runs it, and the lines it must print."""

    name: str
    script: str
    program: str
    lines: tuple[str, ...]
    exchanges: int

    @property
    def interpreter(self) -> str:
        """The first word of the command."""
        return str(PYTHON) if self.program == "python" else need_program(self.program)


CASES = (
    Client("python urllib", "urllib_client.py", "python", ("page 832", HELLO, "echo True"), 3),
    Client(
        "python httpx",
        "httpx_client.py",
        "python",
        (HELLO, "events 7 data: [DONE]", "page 832 gzip", "chunks 721"),
        4,
    ),
    Client(
        "openai SDK",
        "openai_client.py",
        "python",
        (HELLO, HELLO, HELLO, f"4 deltas: {HELLO}", f"{HELLO}; the tool said 42"),
        6,
    ),
    Client("node fetch", "fetch_client.mjs", "node", ("page 832", HELLO, "events 7"), 3),
)


MARKED = [pytest.param(c, marks=pytest.mark.client(c.name), id=c.script) for c in CASES]


def digest_of(program: str) -> str:
    """BLAKE3 of the real executable, computed here and not by hark."""
    return blake3(Path(program).resolve().read_bytes()).hexdigest()


def fields_of(head: bytes) -> set[tuple[str, str]]:
    """Return the fields of a raw head that travel end to end, names in lower case."""
    lines = head.decode("latin-1").split("\r\n")[1:]
    pairs = (line.partition(":") for line in lines if line)
    return {
        (name.lower(), value.strip()) for name, _, value in pairs if name.lower() not in OWN_FIELDS
    }


def assert_same(exchange: Exchange, seen: RequestSeen, world: World, placeholder: str) -> None:
    """One recorded exchange against what the stub received and sent."""
    head = raw(exchange.request["head"])
    assert (exchange.request["method"], raw(exchange.request["target"]).decode()) == (
        seen.method,
        seen.target,
    )
    assert exchange.request_body == seen.body
    assert exchange.response is not None
    assert exchange.response["status"] == seen.status
    assert not exchange.response.fields.get("own", False)
    assert exchange.response_body == seen.response_body
    assert b"this is a test stub" in raw(exchange.response["head"])
    if b"text/event-stream" in seen.response_head:
        assert [len(part) for part in exchange.deliveries if part] == list(seen.parts)
    assert exchange.end is not None
    assert exchange.end["reason"] == "complete"
    # The placeholder on the agent's side, the value on the other, everything else the same.
    assert world.key.encode() not in head
    assert b"hark-placeholder" not in seen.head
    assert fields_of(head.replace(placeholder.encode(), world.key.encode())) == fields_of(seen.head)


def in_one_order(
    recording: Recording, world: World, host: str
) -> tuple[list[Exchange], list[RequestSeen]]:
    """Sort what was recorded and what was seen alike: connections side by side have no order."""
    told = sorted(
        recording.exchanges(host),
        key=lambda e: (e.request["method"], raw(e.request["target"]), e.request_body),
    )
    seen = sorted(world.stub.requests(host), key=lambda s: (s.method, s.target.encode(), s.body))
    return told, seen


def assert_attributed(exchange: Exchange, recording: Recording, program: str) -> None:
    """Check that the exchange names a process that the kernel saw execute ``program``."""
    actor = exchange.request.actor
    assert actor.digest == digest_of(program)
    execs = [e for e in recording.kind("exec") if e.actor.tgid == actor.tgid]
    assert execs[-1]["digest"] == actor.digest
    assert actor.start_ns == execs[-1].actor.start_ns
    assert actor.tid in {t.actor.tid for t in recording.kind("connect")}


def assert_recorded(world: World, program: str | dict[str, str], exchanges: int) -> Recording:
    """Everything that must hold for every client; returns the recording for more.

    ``program`` is what made the requests, for each host another one if it is a dict.
    """
    verdict = hark("verify", world.bundle)
    assert verdict.status == 0, verdict.text + verdict.stderr
    assert "VERIFIED" in verdict.text
    recording = world.recording()
    placeholders = dict(recording.kind("run_start")[0]["placeholders"])
    assert list(placeholders) == (["openai"] if API in world.hosts else [])
    placeholder = placeholders.get("openai", "no placeholder is bound")
    assert len(recording.exchanges()) == exchanges == len(world.stub.requests())
    for host in world.hosts:
        asked_by = program if isinstance(program, str) else program[host]
        for exchange, seen in zip(*in_one_order(recording, world, host), strict=True):
            assert_same(exchange, seen, world, placeholder)
            assert_attributed(exchange, recording, asked_by)
            keyed = placeholder.encode() in raw(exchange.request["head"])
            assert keyed == (host == API)
            assert [s["secret"] for s in exchange.substituted] == (["openai"] if keyed else [])
    assert world.key.encode() not in recording.everything()
    assert world.key.encode() not in world.bundle.read_bytes()
    return recording


@pytest.mark.kernel
@pytest.mark.interop
@pytest.mark.parametrize("client", MARKED)
def test_client_works_and_is_recorded(client: Client, world: World):
    interpreter = client.interpreter
    shutil.copy(CLIENTS / client.script, world.work)
    done = world.run(interpreter, client.script)
    assert done.status == 0, done.stderr
    assert tuple(done.text.splitlines()) == client.lines
    recording = assert_recorded(world, interpreter, client.exchanges)
    shown = b"".join(raw(e["data"]) for e in recording.kind("stdio") if e["stream"] == 1)
    assert shown == done.stdout
    assert recording.events[0].kind == "run_start"
    assert recording.events[-1].kind == "run_end"
    assert recording.events[-1]["exit_code"] == 0
    asked = {e["name"] for e in recording.kind("dns")}
    assert asked == {seen.host for seen in world.stub.requests()}


@pytest.mark.kernel
@pytest.mark.interop
@pytest.mark.client("curl")
def test_curl_is_named_and_not_the_shell_that_started_it(world: World):
    curl = need_program("curl")
    shutil.copy(CLIENTS / "curl_client.sh", world.work)
    done = world.run("/bin/sh", "curl_client.sh")
    assert done.status == 0, done.stderr
    lines = done.text.splitlines()
    assert (lines[0], lines[-2], lines[-1]) == ("832", "7", "300000")
    recording = assert_recorded(world, curl, 4)
    tgids = {e.request.actor.tgid for e in recording.exchanges()}
    assert len(tgids) == 4  # one process per call, each with its own name in the record
    assert digest_of("/bin/sh") not in {e.request.actor.digest for e in recording.exchanges()}
