"""Positive control: the same clients against the same stub, without hark in between.

What a client prints here is what it must print under `hark run`. It runs in its own network and
mount namespace, where the stub can have port 443 and the names point to loopback.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from harness.running import ROOT, environment, need_program
from harness.world import API, NEWS
from test_real_clients import CASES, CLIENTS, Client

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """
ip link set lo up
mount --bind hosts /etc/hosts
{python} -m stub --dir stub --port 443 {names} >/dev/null &
trap 'kill $!' EXIT
for i in $(seq 300); do test -s stub/port && break; sleep 0.1; done
{command}
"""


def run_direct(directory: Path, command: list[str]) -> str:
    """Run a client beside a stub of its own; return its stdout."""
    (directory / "hosts").write_text(f"127.0.0.1 {API} {NEWS}\n")
    trust = directory / "stub" / "ca" / "ca.pem"
    env = environment(
        OPENAI_API_KEY="sk-direct",
        PYTHONPATH=str(ROOT / "tests"),
        SSL_CERT_FILE=str(trust),
        CURL_CA_BUNDLE=str(trust),
        NODE_EXTRA_CA_CERTS=str(trust),
    )
    script = SCRIPT.format(
        python=shlex.quote(sys.executable), names=f"{API} {NEWS}", command=shlex.join(command)
    )
    done = subprocess.run(
        [need_program("unshare"), "--net", "--mount", "--", "/bin/sh", "-ec", script],
        cwd=directory,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.interop
@pytest.mark.parametrize("client", CASES, ids=lambda c: c.script)
def test_client_works_without_hark(client: Client, tmp_path: Path):
    shutil.copy(CLIENTS / client.script, tmp_path)
    said = run_direct(tmp_path, [client.interpreter, client.script])
    assert tuple(said.splitlines()) == client.lines
