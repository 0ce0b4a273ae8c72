"""Node packages and a Rust program, unmodified, built by `make test-interop` from their locks."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from harness.running import ROOT, need, need_program
from harness.world import API, NEWS, World
from test_more_clients import POLICY
from test_real_clients import CLIENTS, HELLO, assert_recorded, digest_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.kernel, pytest.mark.interop, pytest.mark.agents]

BUILT = ROOT / "build" / "interop"
MODULES = BUILT / "node" / "node_modules"
RUST = BUILT / "rust" / "debug" / "hark-rust-client"


def with_modules(world: World, *scripts: str) -> None:
    """Let the scripts in the workspace import what npm installed."""
    need("node modules", (BUILT / "node" / ".done").exists())
    world.policy.write_text(f"read_paths = {json.dumps([str(MODULES)])}\n{POLICY}")
    (world.work / "node_modules").symlink_to(MODULES)
    for script in scripts:
        shutil.copy(CLIENTS / script, world.work)


@pytest.mark.parametrize(
    ("script", "lines", "exchanges"),
    [
        pytest.param(
            "undici_client.mjs",
            ["page 832", HELLO, "events 7", "echo true"],
            4,
            id="undici",
            marks=pytest.mark.client("undici"),
        ),
        pytest.param(
            "openai_node_client.mjs",
            [HELLO, HELLO, f"{HELLO}; the tool said 42"],
            4,
            id="openai",
            marks=pytest.mark.client("openai SDK for Node"),
        ),
    ],
)
def test_node_package(world: World, script: str, lines: list[str], exchanges: int):
    node = need_program("node")
    with_modules(world, script)
    done = world.run(node, script)
    assert done.status == 0, done.stderr
    assert done.text.splitlines() == lines
    assert_recorded(world, node, exchanges)


TASK = """Count the page.
stub-call bash {"command": "curl -sS https://news.example/page | wc -c"}
stub-say it has 832 bytes
"""


@pytest.mark.client("pi")
def test_pi(world: World):
    """The whole agent, from its command line; its tool runs curl, a client of its own."""
    node, curl = need_program("node"), need_program("curl")
    with_modules(world)
    world.more = {"PI_OFFLINE": "1"}  # no question for a newer version
    world.policy.write_text('pass_env = ["PI_OFFLINE"]\n' + world.policy.read_text())
    pi = MODULES / ".bin" / "pi"
    done = world.run(pi, "-p", "--provider", "openai", "--model", "gpt-4o", TASK)
    assert done.status == 0, done.text + done.stderr
    assert done.text.split() == ["it", "has", "832", "bytes"]
    recording = assert_recorded(world, {API: node, NEWS: curl}, 3)
    last = recording.exchanges(API)[-1]
    assert b"832" in last.request_body  # what the tool said went back to the model


@pytest.mark.parametrize("kind", ["rustls", "native"])
@pytest.mark.client("rust, rustls and native-tls")
def test_rust(world: World, kind: str):
    program = rust(world)
    done = world.run(program, kind)
    assert done.status == 0, done.stderr
    assert done.text.splitlines() == ["page 832", "true", "events 7", "echo true"]
    recording = assert_recorded(world, str(program), 4)
    assert {e.request.actor.digest for e in recording.exchanges()} == {digest_of(str(RUST))}


def rust(world: World) -> Path:
    """Copy the Rust client into the workspace."""
    need("rust client", RUST.exists())
    return shutil.copy(RUST, world.work / "rust_client")
