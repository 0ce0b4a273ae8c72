"""git over https, unmodified: clone, commit, push, with a token that it never sees (Basic)."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from git_server import GitServer
from harness.recording import raw
from harness.running import environment, hark, need, need_program
from test_real_clients import digest_of

if TYPE_CHECKING:
    from harness.world import World

HOST = "git.example"
USER = "x-access-token"
MIB = 1 << 20
POLICY = f"""
allow_hosts = ["{HOST}"]

[secrets.git]
env = "GIT_TOKEN"
hosts = ["{HOST}"]
header = "authorization"
"""
SCRIPT = """
set -eu
export GIT_TERMINAL_PROMPT=0 GIT_CONFIG_NOSYSTEM=1
git clone -q "https://x-access-token:$GIT_TOKEN@git.example/repo.git" copy
cd copy
git config user.name agent
git config user.email agent@example
sha256sum big | cut -d' ' -f1
head -c "$1" /dev/urandom > more
sha256sum more | cut -d' ' -f1
git add more
git commit -q -m more
git push -q origin HEAD
git rev-parse HEAD
"""
PLAIN = {"GIT_CONFIG_NOSYSTEM": "1", "HOME": "/nonexistent", "PATH": "/usr/bin:/bin"}


def git(*words: str, cwd: Path) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "safe.directory=*"]
    done = subprocess.run(
        ["git", *who, *words], cwd=cwd, env=PLAIN, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def repository(root: Path) -> Path:
    """A bare repository with one large file that does not compress."""
    source = root / "source"
    source.mkdir(parents=True)
    git("init", "-q", "-b", "main", cwd=source)
    (source / "big").write_bytes(os.urandom(20 * MIB))
    git("add", "big", cwd=source)
    git("commit", "-q", "-m", "first", cwd=source)
    git("clone", "-q", "--bare", str(source), str(root / "repo.git"), cwd=root)
    return root / "repo.git"


@pytest.mark.kernel
@pytest.mark.interop
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "pushed_mib",
    [
        pytest.param(12, marks=pytest.mark.client("git")),
        pytest.param(200, marks=[pytest.mark.client("git, 200 MB pushed"), pytest.mark.agents]),
    ],
)
def test_clone_and_push(world: World, tmp_path: Path, pushed_mib: int):
    need_program("git")
    backend = Path("/usr/lib/git-core/git-http-backend")
    need("git http-backend", backend.exists())
    bare = repository(tmp_path / "repositories")
    big = tmp_path / "repositories" / "source" / "big"
    world.policy.write_text(POLICY)
    with GitServer(bare.parent, world.stub.authority, HOST, (USER, world.key)) as server:
        done = hark(
            "run",
            f"--policy={world.policy}",
            f"--upstream={HOST}={server.address}",
            f"--upstream-ca={world.stub.ca_file}",
            f"-o={world.bundle}",
            "--",
            "/bin/sh",
            "-c",
            SCRIPT,
            "sh",
            str(pushed_mib * MIB),
            cwd=world.work,
            env=environment(GIT_TOKEN=world.key),
            seconds=500,
        )
    assert done.status == 0, done.stderr
    cloned, made, commit = done.text.split()
    said = subprocess.run(["sha256sum", str(big)], capture_output=True, text=True, check=True)
    assert cloned == said.stdout.split()[0]
    # The witnesses: git itself finds the push, and the server saw the real token.
    assert git("rev-parse", "main", cwd=bare) == commit
    blob = subprocess.run(
        ["git", "-c", "safe.directory=*", "cat-file", "blob", "main:more"],
        cwd=bare,
        env=PLAIN,
        capture_output=True,
        check=True,
    )
    assert len(blob.stdout) == pushed_mib * MIB
    tokens = {fields.get("Authorization") for _, fields in server.heads}
    assert tokens == {None, server.wanted}  # it asks without, and is told 401

    recording = world.recording()
    exchanges = recording.exchanges(HOST)
    assert len(exchanges) == len(server.heads)
    helper = str(Path("/usr/lib/git-core/git-remote-https").resolve())
    assert {e.request.actor.digest for e in exchanges} == {digest_of(helper)}
    assert sorted(hashlib.sha256(e.request_body).hexdigest() for e in exchanges) == sorted(
        server.bodies
    )
    assert sum(len(e.response_body) for e in exchanges) > 20 * MIB
    pushed = [e for e in exchanges if raw(e.request["target"]).endswith(b"/git-receive-pack")]
    assert max(len(e.request_body) for e in pushed) > pushed_mib * MIB
    assert {s["secret"] for e in exchanges for s in e.substituted} == {"git"}
    sealed = world.bundle.read_bytes()
    shown = recording.everything()
    encoded = base64.b64encode(f"{USER}:{world.key}".encode())
    for secret in (world.key.encode(), encoded, encoded[4:-4]):
        assert secret not in sealed
        assert secret not in shown
    assert made
    assert hark("verify", world.bundle).status == 0
