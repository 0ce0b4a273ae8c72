"""pip, uv and npm install from an index behind the mediator; what they fetched then runs."""

from __future__ import annotations

import json

import pytest
from harness.running import need, need_program
from harness.world import INDEX, World
from package_index import npm_registry, python_index
from test_agents import PYTHON, VENV
from test_real_clients import assert_recorded

pytestmark = [pytest.mark.kernel, pytest.mark.interop, pytest.mark.agents]

SIMPLE = f"https://{INDEX}/simple/"


def indexed(world: World, files: dict[tuple[str, str], bytes]) -> None:
    """Give the stub an index, and the agent nothing but its host."""
    need("venv-agents", (VENV / ".done").exists())
    world.stub.files = files
    world.hosts = (INDEX,)
    world.policy.write_text(f'allow_hosts = ["{INDEX}"]\nread_paths = {json.dumps([str(VENV)])}\n')


@pytest.mark.parametrize(
    ("words", "program"),
    [
        pytest.param(
            (PYTHON, "-m", "pip", "install", "-q", "--no-cache-dir"),
            PYTHON,
            id="pip",
            marks=pytest.mark.client("pip"),
        ),
        pytest.param(
            (VENV / "bin" / "uv", "pip", "install", "-q", "--no-cache", f"--python={PYTHON}"),
            VENV / "bin" / "uv",
            id="uv",
            marks=pytest.mark.client("uv (rustls)"),
        ),
    ],
)
def test_python_packages(world: World, words: tuple[object, ...], program: object):
    indexed(world, python_index(INDEX))
    install = " ".join(f"'{word}'" for word in words)
    script = f"{install} --target got --index-url {SIMPLE} stub-agent && '{PYTHON}' -c \"$1\""
    code = "import sys; sys.path.insert(0, 'got'); import stub_agent"
    done = world.run("/bin/sh", "-c", script, "sh", code)
    assert done.status == 0, done.stderr
    assert done.text.split() == ["agent", "42"]
    recording = assert_recorded(world, str(program), len(world.stub.requests()))
    fetched = {e.response_body for e in recording.exchanges(INDEX)}
    assert set(world.stub.files.values()) <= fetched


@pytest.mark.client("npm")
def test_npm(world: World):
    node, npm = need_program("node"), need_program("npm")
    indexed(world, npm_registry(INDEX))
    script = (
        f"'{npm}' install --silent --no-update-notifier --no-audit --no-fund"
        f" --registry https://{INDEX}/npm/ stub-agent && '{node}' node_modules/stub-agent/index.js"
    )
    done = world.run("/bin/sh", "-c", script)
    assert done.status == 0, done.stderr
    assert done.text.split() == ["agent", "42"]
    recording = assert_recorded(world, node, 4)
    assert {e.response_body for e in recording.exchanges(INDEX)} == set(world.stub.files.values())
