"""Agents and their frameworks, unmodified, from a venv of their own: `make venv-agents`.

What holds for every client holds for each of them: the stub's bytes are the bundle's bytes, and
the process that made each request is named.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass

import pytest
from harness.running import ROOT, need, need_program
from harness.world import API, BEDROCK, BUCKET, MCP, NEWS, World
from stub.aws import ACCESS_KEY, SECRET_KEY
from test_more_clients import POLICY
from test_real_clients import CLIENTS, HELLO, assert_recorded

pytestmark = [pytest.mark.kernel, pytest.mark.interop, pytest.mark.agents]

VENV = ROOT / ".venv-agents"
PYTHON = VENV / "bin" / "python"


@dataclass(frozen=True, slots=True)
class Agent:
    """A script for the agents' venv, the lines it must print, and how many requests it makes."""

    name: str
    lines: tuple[str, ...]
    exchanges: int

    @property
    def script(self) -> str:
        """Its file below ``clients``."""
        return f"{self.name.replace('-', '_')}_client.py"


TOOL_SAID = f"{HELLO}; the tool said 42"
AGENTS = (
    Agent("langgraph", (TOOL_SAID, f"5 parts: 42 {TOOL_SAID}"), 4),
    Agent("smolagents", ("final_answer(add(a=40, b=2))", "code 42", "tools the sum is 42"), 3),
    Agent("pydantic-ai", (TOOL_SAID, f"4 parts: {TOOL_SAID}") * 2, 8),
)


def ready(world: World, *scripts: str, policy: str = POLICY) -> str:
    """Copy the scripts into the workspace and return the interpreter of the agents' venv."""
    need("venv-agents", (VENV / ".done").exists())
    world.policy.write_text(policy)
    for script in scripts:
        shutil.copy(CLIENTS / script, world.work)
    return str(PYTHON)


@pytest.mark.parametrize(
    "agent",
    [pytest.param(one, marks=pytest.mark.client(one.name), id=one.name) for one in AGENTS],
)
def test_agent(world: World, agent: Agent):
    python = ready(world, agent.script)
    done = world.run(python, agent.script)
    assert done.status == 0, done.stderr
    assert tuple(line.strip() for line in done.text.splitlines()) == agent.lines
    assert_recorded(world, python, agent.exchanges)


@pytest.mark.client("boto3 (signed requests)")
def test_boto3(world: World):
    """Every signature is checked by the stub, over the head and the body that arrived."""
    policy = f"""
allow_hosts = ["{BUCKET}", "{BEDROCK}"]
pass_env = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]
"""
    python = ready(world, "boto3_client.py", policy=policy)
    world.hosts = (BUCKET, BEDROCK)
    world.more = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    done = world.run(python, "boto3_client.py")
    assert done.status == 0, done.stderr
    assert done.text.splitlines() == ["listed 1", "same True", HELLO, f"4 deltas: {HELLO}"]
    assert_recorded(world, python, 5)
    (kept,) = world.stub.bucket.objects.values()
    assert kept == bytes(range(256)) * 1200
    assert {seen.status for seen in world.stub.requests()} == {200}


TASK = """Count the page.
stub-call bash {"command": "curl -sS https://news.example/page | wc -c > seen; cat seen"}
stub-call bash {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo seen $(cat seen)"}
"""


@pytest.mark.client("mini-swe-agent")
def test_mini_swe_agent(world: World):
    """The model's calls are python's, the page is curl's: two programs, each with its digest."""
    world.more = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # it asks a public page for prices otherwise
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "MSWEA_SILENT_STARTUP": "1",
    }
    passed = f"pass_env = {json.dumps(sorted(world.more))}\n"
    python = ready(world, policy=passed + POLICY)
    mini = VENV / "bin" / "mini"
    done = world.run(mini, "-y", "--exit-immediately", "-m", "openai/m", "-t", TASK)
    assert done.status == 0, done.text + done.stderr
    assert "seen 832" in done.text
    assert_recorded(world, {API: python, NEWS: need_program("curl")}, 3)


@pytest.mark.client("mcp over HTTP")
@pytest.mark.client("mcp over stdio")
def test_mcp_over_http_and_stdio(world: World):
    policy = f'allow_hosts = ["{MCP}", "{NEWS}"]\n'
    python = ready(world, "mcp_client.py", "mcp_server.py", policy=policy)
    world.hosts = (MCP, NEWS)
    done = world.run(python, "mcp_client.py")
    assert done.status == 0, done.stderr
    assert done.text.splitlines() == ["http ['add'] 42", "stdio ['page_size'] 832"]
    recording = assert_recorded(world, python, 5)
    over_http = {e.request.actor.tgid for e in recording.exchanges(MCP)}
    (from_tool,) = recording.exchanges(NEWS)
    assert len(over_http) == 1
    assert from_tool.request.actor.tgid not in over_http  # the server's own process
