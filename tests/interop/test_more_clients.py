"""More unmodified clients under `hark run`: other libraries, other runtimes, eight at once.

What must hold for each is what holds in ``test_real_clients``: it works, the bundle has what the
stub saw byte for byte, each exchange names the client's own executable, no key is anywhere.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from harness.recording import raw
from harness.running import PYTHON, need, need_program
from harness.world import API, NEWS, World
from test_real_clients import CLIENTS, HELLO, assert_recorded, digest_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.kernel, pytest.mark.interop]

# The SDKs of other providers put the same key into their own fields.
POLICY = f"""
allow_hosts = ["{API}", "{NEWS}"]

[secrets.openai]
env = "OPENAI_API_KEY"
hosts = ["{API}"]
header = ["authorization", "x-api-key", "x-goog-api-key"]
"""


@dataclass(frozen=True, slots=True)
class Library:
    """A Python library with its client script and the lines it must print."""

    name: str
    module: str
    script: str
    lines: tuple[str, ...]
    exchanges: int


GOOGLE_SAID = f'{HELLO}; the tool said {{"result": 42}}'
LIBRARIES = (
    Library(
        "python requests",
        "requests",
        "requests_client.py",
        ("page 832", HELLO, "events 7 data: [DONE]", "echo True"),
        4,
    ),
    Library(
        "python aiohttp",
        "aiohttp",
        "aiohttp_client.py",
        ("page 832", HELLO, "events 7 data: [DONE]", "echo True"),
        4,
    ),
    Library(
        "anthropic SDK",
        "anthropic",
        "anthropic_client.py",
        (HELLO, HELLO, f"{HELLO}; the tool said 42", f"{HELLO}; the tool said 42"),
        6,
    ),
    Library(
        "google-genai SDK",
        "google.genai",
        "google_client.py",
        (HELLO, HELLO, GOOGLE_SAID, GOOGLE_SAID),
        6,
    ),
)


def installed(module: str) -> bool:
    """Whether the test environment has a module; the search imports its parents only."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize(
    "library",
    [pytest.param(one, marks=pytest.mark.client(one.name), id=one.module) for one in LIBRARIES],
)
def test_python_library(world: World, library: Library):
    need(library.module, installed(library.module))
    world.policy.write_text(POLICY)
    shutil.copy(CLIENTS / library.script, world.work)
    done = world.run(PYTHON, library.script)
    assert done.status == 0, done.stderr
    assert tuple(done.text.splitlines()) == library.lines
    assert_recorded(world, str(PYTHON), library.exchanges)


@pytest.mark.client("wget")
def test_wget(world: World):
    wget = need_program("wget")
    shutil.copy(CLIENTS / "wget_client.sh", world.work)
    done = world.run("/bin/sh", "wget_client.sh")
    assert done.status == 0, done.stderr
    assert done.text.split() == ["832", "1", "300000"]
    assert_recorded(world, wget, 3)


@pytest.mark.client("java HttpClient")
def test_java(world: World):
    """The class is compiled outside: inside, only the client itself runs."""
    java, javac = need_program("java"), need_program("javac")
    subprocess.run([javac, "-d", str(world.work), str(CLIENTS / "Client.java")], check=True)
    done = world.run(java, "Client")
    assert done.status == 0, done.stderr
    assert done.text.splitlines() == ["page 832", "true", "echo 300000"]
    assert_recorded(world, java, 3)


def build_go(directory: Path) -> Path:
    """Build the Go client, static, without a network."""
    go = shutil.which("go", path="/usr/local/go/bin:/usr/lib/go/bin:/usr/bin")
    need("go", go is not None)
    program = directory / "go_client"
    env = {
        "CGO_ENABLED": "0",
        "GOCACHE": str(directory / "gocache"),
        "GOFLAGS": "-mod=mod",
        "GOPROXY": "off",
        "HOME": str(directory),
        "PATH": "/usr/bin:/bin",
    }
    words = [str(go), "build", "-o", str(program), str(CLIENTS / "client.go")]
    subprocess.run(words, env=env, cwd=directory, check=True)
    return program


@pytest.mark.timeout(180)
@pytest.mark.client("go, static")
def test_static_go(world: World, tmp_path: Path):
    built = build_go(tmp_path)
    program = shutil.copy(built, world.work / "go_client")
    done = world.run(program)
    assert done.status == 0, done.stderr
    assert done.text.splitlines() == ["page 832", "true", "events 7", "echo 300000"]
    recording = assert_recorded(world, str(program), 4)
    assert {e.request.actor.digest for e in recording.exchanges()} == {digest_of(str(program))}


PIPELINE = """
set -euo pipefail
ask() {
  curl -sSf -H "Authorization: Bearer $OPENAI_API_KEY" -H 'Content-Type: application/json' \\
    -d @- https://api.openai.com/v1/chat/completions
}
said=$(printf '{"model":"m","messages":[]}' | ask | tee answer.json | grep -o 'hello[a-z ]*')
printf '%s' "$said" | curl -sSf --data-binary @- https://news.example/echo | tr a-z A-Z
echo
cat <(curl -sSf https://news.example/page) <(curl -sSf https://news.example/page) | wc -c
"""


@pytest.mark.client("bash pipelines")
def test_bash_pipelines(world: World):
    bash, curl = need_program("bash"), need_program("curl")
    done = world.run(bash, "-c", PIPELINE)
    assert done.status == 0, done.stderr
    assert done.text.split("\n")[:2] == [HELLO.upper(), "1664"]
    recording = assert_recorded(world, curl, 4)
    assert len({e.request.actor.tgid for e in recording.exchanges()}) == 4


EIGHT = """
import subprocess, sys
words = [["/bin/sh", "-c", part] for part in sys.argv[1:]]
running = [subprocess.Popen(w, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for w in words]
for process in running:
    said, _ = process.communicate()
    if process.returncode:
        sys.exit(said.decode())
"""


@pytest.mark.client("eight at once")
def test_eight_clients_at_once(world: World):
    node = need_program("node")
    scripts = ("urllib_client.py", "httpx_client.py", "requests_client.py", "openai_client.py")
    for name in (*scripts, "fetch_client.mjs", "curl_client.sh", "wget_client.sh"):
        shutil.copy(CLIENTS / name, world.work)
    parts = [f"{PYTHON} {name}" for name in scripts]
    parts += [f"{node} fetch_client.mjs", "sh curl_client.sh", "sh wget_client.sh"]
    parts.append(f"{need_program('curl')} -sSf https://news.example/page | wc -c")
    done = world.run(PYTHON, "-c", EIGHT, *parts)
    assert done.status == 0, done.stderr
    recording = world.recording()
    assert len(recording.exchanges()) == len(world.stub.requests()) == 28
    owners: dict[str | None, int] = {}
    for exchange in recording.exchanges():
        digest = exchange.request.actor.digest
        owners[digest] = owners.get(digest, 0) + 1
        assert exchange.end is not None
        assert exchange.end["reason"] == "complete"
    curl, wget = digest_of(need_program("curl")), digest_of(need_program("wget"))
    assert owners == {digest_of(str(PYTHON)): 17, digest_of(node): 3, curl: 5, wget: 3}
    seen = sorted((s.host, s.target, s.body, s.response_body) for s in world.stub.requests())
    told = sorted(
        (e.host, raw(e.request["target"]).decode(), e.request_body, e.response_body)
        for e in recording.exchanges()
    )
    assert told == seen
    assert world.key.encode() not in world.bundle.read_bytes()
