"""What makes each client trust the run's CA, and what is on record when it does not.

Two ways lead there (docs/spec/policy.md, "Trust"): variables, and files mounted over the bundles
that programs read by themselves. A program that was started with a bare environment, as tool
servers are, has the second way only.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from harness.running import PYTHON, ROOT, need, need_program
from harness.world import NEWS, World
from stub import Authority
from test_agents import PYTHON as AGENTS
from test_agents import VENV
from test_more_clients import build_go
from test_node_and_rust import RUST
from test_real_clients import CLIENTS, digest_of

from hark.policy.java_store import java_store

if TYPE_CHECKING:
    from harness.recording import Event, Recording

pytestmark = [pytest.mark.kernel, pytest.mark.interop]

PAGE = f"https://{NEWS}/page"
SAYS, LEAVES = "client_rejected_ca", "client_left_at_certificate"


@dataclass(frozen=True, slots=True)
class Bare:
    """A client that asks for a page once. ``refuses``: why, without its environment; "": it works.

    ``variable`` is what the hint must name then.
    """

    name: str
    command: str
    program: str
    refuses: str = ""
    variable: str = ""


def python(code: str, interpreter: object = PYTHON) -> str:
    return f"'{interpreter}' -c \"{code}\""


AIOHTTP = f"""
import aiohttp, asyncio
async def main():
    async with aiohttp.ClientSession() as s, s.get('{PAGE}') as page: await page.read()
asyncio.run(main())
"""
BOTO3 = f"""
import boto3
client = boto3.client('s3', region_name='x', endpoint_url='https://{NEWS}',
                      aws_access_key_id='a', aws_secret_access_key='b')
client.get_object(Bucket='bytes', Key='832')
"""
URLLIB = f"import urllib.request as u; u.urlopen('{PAGE}').read()"
FETCH = f"node -e \"fetch('{PAGE}').then((r) => r.text())\""
SHORT = (
    Bare("curl", f"curl -sS {PAGE}", "curl"),
    Bare("wget", f"wget -q -O page {PAGE}", "wget"),
    Bare("urllib", python(URLLIB), str(PYTHON)),
    Bare("requests", python(f"import requests; requests.get('{PAGE}')"), str(PYTHON)),
    Bare("httpx", python(f"import httpx; httpx.get('{PAGE}')"), str(PYTHON)),
    Bare("aiohttp", python(AIOHTTP), str(PYTHON)),
    Bare("node", FETCH, "node", LEAVES, "NODE_EXTRA_CA_CERTS"),
)
UV = VENV / "bin" / "uv"
SIMPLE = f"--index-url https://{NEWS}/simple nothing"
LONG = (
    Bare("git", f"git ls-remote https://{NEWS}/x.git", "/usr/lib/git-core/git-remote-https"),
    Bare("botocore", python(BOTO3, AGENTS), str(AGENTS)),
    Bare("httpx2", python(f"import httpx2; httpx2.get('{PAGE}')", AGENTS), str(AGENTS)),
    Bare("pip", f"'{AGENTS}' -m pip download -q --no-cache-dir {SIMPLE}", str(AGENTS)),
    Bare("go", "./go_client page", "./go_client"),
    Bare("java", "java -cp . Page http", "java"),
    Bare("java.net.URL", "java -cp . Page url", "java"),
    Bare("native-tls", "OPENAI_API_KEY=none ./rust_client native", "./rust_client"),
    Bare("rustls", "OPENAI_API_KEY=none ./rust_client rustls", "./rust_client"),
    Bare(
        "uv",
        f"'{UV}' pip install --no-cache --python '{AGENTS}' --target got {SIMPLE}",
        str(UV),
        SAYS,
        "SSL_CERT_FILE",
    ),
)
CASES = [
    *(pytest.param(bare, id=bare.name) for bare in SHORT),
    *(pytest.param(bare, id=bare.name, marks=pytest.mark.agents) for bare in LONG),
]
TWICE = """
sh client.sh
env -i HOME="$HOME" PATH="$PATH" sh client.sh
true
"""


def prepare(world: World, command: str) -> None:
    """Put the client into the workspace; the policy allows the page and the two environments."""
    (world.work / "client.sh").write_text(command + "\n")
    shown = json.dumps([str(ROOT / ".venv"), str(VENV)])
    world.policy.write_text(f'allow_hosts = ["{NEWS}"]\nread_paths = {shown}\n')
    world.hosts = (NEWS,)
    if "rust_client" in command:
        need("rust client", RUST.exists())
        shutil.copy(RUST, world.work / "rust_client")
    if "go_client" in command:
        shutil.copy(build_go(world.directory), world.work / "go_client")
    if command.startswith("java"):
        javac = need_program("javac")
        subprocess.run([javac, "-d", str(world.work), str(CLIENTS / "Page.java")], check=True)


def program_of(world: World, name: str) -> str:
    """Return the executable that is behind the client's requests."""
    if "/" not in name:
        return need_program(name)
    found = world.work / name
    need(name, found.exists())
    return str(found)


def refusals(recording: Recording) -> list[Event]:
    return [e for e in recording.kind("denied") if e["layer"] == "mediator"]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("bare", CASES)
def test_client_with_and_without_its_environment(world: World, bare: Bare):
    """The first call is the control of the second."""
    prepare(world, bare.command)
    program = program_of(world, bare.program)
    done = world.run("/bin/sh", "-c", TWICE)
    assert done.status == 0, done.stderr
    recording = world.recording()
    asked = recording.exchanges(NEWS)
    assert {e.request.actor.digest for e in asked} == {digest_of(program)}, done.stderr
    assert len(asked) == len(world.stub.requests()) == (1 if bare.refuses else 2), done.stderr
    refused = [e for e in refusals(recording) if e["reason"] != "host_denied"]
    assert {(e["reason"], e["host"]) for e in refused} == (
        {(bare.refuses, NEWS)} if bare.refuses else set()
    )
    for event in refused:
        assert bare.variable in event["hint"]
        assert event.actor.digest == digest_of(program)
    notices = [e for e in recording.kind("notice") if e["subject"] == bare.refuses]
    assert len(notices) == (1 if bare.refuses else 0)


def strangers(world: World) -> None:
    """Put another CA into the workspace, for OpenSSL and as a Java key store."""
    pem = Authority(world.directory / "other").ca_file.read_bytes()
    (world.work / "other.pem").write_bytes(pem)
    (world.work / "other.jks").write_bytes(java_store(pem))


STORE = "-Djavax.net.ssl.trustStore=other.jks"
STRANGERS = (
    Bare("curl", f"curl -sS --cacert other.pem {PAGE}", "curl", SAYS, "CURL_CA_BUNDLE"),
    Bare("node", f"NODE_EXTRA_CA_CERTS=other.pem {FETCH}", "node", LEAVES, "NODE_EXTRA_CA_CERTS"),
    Bare(
        "go",
        "SSL_CERT_FILE=other.pem SSL_CERT_DIR=. ./go_client page",
        "./go_client",
        SAYS,
        "SSL_CERT_FILE",
    ),
    Bare("java", f"java {STORE} -cp . Page http", "java", LEAVES, "JAVA_TOOL_OPTIONS"),
    Bare("java.net.URL", f"java {STORE} -cp . Page url", "java", SAYS, "JAVA_TOOL_OPTIONS"),
    Bare("rustls", "./rust_client bundled", "./rust_client", SAYS, "SSL_CERT_FILE"),
)


@pytest.mark.agents
@pytest.mark.timeout(180)
@pytest.mark.parametrize("bare", STRANGERS, ids=lambda bare: bare.name)
def test_client_that_trusts_somebody_else(world: World, bare: Bare):
    """Nothing is dialled, and the record names the client, the host and what to set."""
    prepare(world, bare.command)
    strangers(world)
    program = program_of(world, bare.program)
    done = world.run("/bin/sh", "client.sh")
    assert done.status != 0
    assert not world.stub.connections()
    recording = world.recording()
    assert not recording.exchanges()
    refused = refusals(recording)
    assert {(e["reason"], e["host"]) for e in refused} == {(bare.refuses, NEWS)}
    assert {e.actor.digest for e in refused} == {digest_of(program)}
    assert all(bare.variable in e["hint"] for e in refused)
    (notice,) = recording.kind("notice")
    assert (notice["subject"], bare.variable in notice["hint"]) == (bare.refuses, True)
    assert bare.refuses.replace("_", " ") in done.stderr


LATE = (
    Bare("wget", f"wget --ca-certificate=other.pem --ca-directory=. {PAGE}", "wget"),
    Bare(
        "git",
        f"GIT_SSL_CAINFO=other.pem GIT_SSL_CAPATH=. git ls-remote https://{NEWS}/x.git",
        "/usr/lib/git-core/git-remote-https",
    ),
)


@pytest.mark.agents
@pytest.mark.parametrize("late", LATE, ids=lambda late: late.name)
def test_client_that_checks_after_the_handshake(world: World, late: Bare):
    """GnuTLS leaves the check to the program: on record is a connection without a request."""
    prepare(world, late.command)
    strangers(world)
    done = world.run("/bin/sh", "client.sh")
    assert done.status != 0
    assert "certificate" in done.stderr
    assert not world.stub.connections()
    recording = world.recording()
    assert not recording.exchanges()
    assert not refusals(recording)
    for conn in recording.kind("conn"):
        assert conn["tls"]
        assert conn.actor.digest == digest_of(program_of(world, late.program))
    assert recording.kind("conn")
