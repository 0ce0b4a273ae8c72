"""Cases from public reports that need a whole run; their list is docs/cases.md.

Each denial has a control that succeeds beside it, and the stub or a socket of the host as witness.
"""

from __future__ import annotations

import shutil
import socket
import subprocess

import pytest
from harness.recording import raw
from harness.running import PYTHON, hark, need_program
from harness.world import API, EVIL, NEWS, World
from test_real_clients import digest_of

pytestmark = [pytest.mark.kernel, pytest.mark.interop]

BY_ADDRESS = """
import socket, ssl, sys
for name in sys.argv[1:]:
    with socket.create_connection(("203.0.113.9", 443), 30) as sock:
        with ssl.create_default_context().wrap_socket(sock, server_hostname=name) as tls:
            head = f"GET /page HTTP/1.1\\r\\nHost: {name}\\r\\nConnection: close\\r\\n\\r\\n"
            tls.sendall(head.encode())
            print(name, tls.recv(12).decode())
"""


def test_c31_an_open_port_is_not_an_open_host(world: World):
    """Only the name counts: the address that was dialled (RFC 5737) leads nowhere by itself."""
    done = world.run(PYTHON, "-c", BY_ADDRESS, NEWS, EVIL)
    assert done.text.splitlines() == [f"{NEWS} HTTP/1.1 200", f"{EVIL} HTTP/1.1 403"], done.stderr
    (seen,) = world.stub.requests()
    assert seen.host == NEWS
    recording = world.recording()
    assert {e["host"] for e in recording.kind("dial")} == {NEWS}
    (denied,) = [e for e in recording.kind("denied") if e["layer"] == "mediator"]
    assert (denied["host"], denied["reason"]) == (EVIL, "host_denied")


EVERY_PORT = """
import socket
for family, address in ((socket.AF_INET, "203.0.113.9"), (socket.AF_INET6, "2001:db8::9")):
    for port in (22, 80, 443, 8443, 65535):
        with socket.socket(family) as s:
            s.settimeout(30)
            try:
                s.connect((address, port))
                s.sendall(b"GET / HTTP/1.1\\r\\nHost: news.example\\r\\n\\r\\n")
                said = s.recv(12)
            except OSError:
                said = b""
        print(port, said not in (b"", b"HTTP/1.1 400", b"HTTP/1.1 403"))
"""


def test_c45_an_empty_list_allows_nothing(world: World):
    control = world.run(need_program("curl"), "-sSf", "-o", "page", f"https://{NEWS}/page")
    assert control.status == 0, control.stderr
    assert len(world.stub.connections()) == 1
    world.policy.write_text("allow_hosts = []\n")
    world.hosts = ()
    words = [word for word in world.words(PYTHON, "-c", EVERY_PORT) if "upstream" not in word]
    words[words.index("-o") + 1] = str(world.directory / "second.hark")
    done = hark(*words, cwd=world.work, env=world.env())
    assert done.status == 0, done.stderr
    assert {line.split()[1] for line in done.text.splitlines()} == {"False"}
    assert len(done.text.splitlines()) == 10
    assert len(world.stub.connections()) == 1


LISTEN = """
import socket, subprocess, sys
port = int(sys.argv[1])
with socket.socket() as s:
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("0.0.0.0", port))
    s.listen()
    with socket.create_connection(("127.0.0.1", port), 30) as own:
        s.accept()[0].sendall(b"inside")
        print(own.recv(6).decode(), flush=True)
    sys.stdin.read()
"""


def test_c46_what_the_agent_listens_on_is_not_the_hosts(world: World):
    """No process of hark binds for the agent; the host's own socket on that port is untouched."""
    with socket.create_server(("127.0.0.1", 0)) as host:
        host.settimeout(30)
        port = host.getsockname()[1]
        done = world.run(PYTHON, "-c", LISTEN, str(port))
        assert (done.status, done.text) == (0, "inside\n"), done.stderr
        with socket.create_connection(("127.0.0.1", port), 30) as to_host:
            came_from = host.accept()[1]
            assert came_from == to_host.getsockname(), "the first connection is the test's own"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def test_c47_publishing_a_port_opens_no_way_out(world: World):
    words = world.words(PYTHON, "-c", BY_ADDRESS, NEWS, EVIL)
    words.insert(1, f"--publish={free_port()}:8000")
    done = hark(*words, cwd=world.work, env=world.env())
    assert done.text.splitlines() == [f"{NEWS} HTTP/1.1 200", f"{EVIL} HTTP/1.1 403"], done.stderr
    assert [seen.host for seen in world.stub.requests()] == [NEWS]


PRELOADED = r"""
#include <stdlib.h>
#include <unistd.h>
__attribute__((constructor)) static void hijack(void)
{
	if (getenv("HIJACK") && !getenv("HIJACKED")) {
		setenv("HIJACKED", "1", 1);
		execl("/bin/sh", "sh", "-c", getenv("HIJACK"), (char *)0);
	}
}
"""


def test_c49_a_preloaded_program_gains_nothing(world: World):
    """Hosts are allowed to a run, never to a program, so there is no list of programs to beat.

    Code preloaded into an allowed program is told under the program that it made of itself.
    """
    (world.work / "hijack.c").write_text(PRELOADED)
    library = world.work / "hijack.so"
    compile_it = [need_program("gcc"), "-shared", "-fPIC", "-o", library, world.work / "hijack.c"]
    subprocess.run(compile_it, check=True)
    curl = need_program("curl")
    shutil.copy(PYTHON.resolve(), world.work / "allowed")
    both = f"-o one https://{EVIL}/ -o two https://{NEWS}/page"
    ask = f"exec curl -s -w '%{{http_code}}\\n' {both}"
    script = f"HIJACK=\"{ask}\" LD_PRELOAD=./hijack.so ./allowed -c 'print(1)'"
    done = world.run("/bin/sh", "-c", script)
    assert done.text.split() == ["403", "200"], done.stderr
    assert [seen.host for seen in world.stub.requests()] == [NEWS]
    recording = world.recording()
    (denied,) = [e for e in recording.kind("denied") if e["layer"] == "mediator"]
    assert (denied["host"], denied.actor.digest) == (EVIL, digest_of(curl))
    names = [
        raw(e["filename"]) for e in recording.kind("exec") if e.actor.tgid == denied.actor.tgid
    ]
    assert names[0] == b"./allowed"  # the same process, as it was before


ORPHAN = f"""
curl -s -o /dev/null https://{NEWS}/page
(setsid sh -c 'curl -s -o /dev/null https://{EVIL}/; echo asked > done' &)
until [ -e done ]; do sleep 0.05; done
"""


def test_c97_a_denial_of_an_orphan_is_in_the_last_line(world: World):
    """The denied process left its parent and its session; what is said at the end counts it."""
    done = world.run("/bin/sh", "-c", ORPHAN)
    assert done.status == 0, done.stderr
    assert "(2 exchanges, 1 denied," in done.stderr.splitlines()[-1]
    assert f"hark: refused: host denied {EVIL}" in done.stderr
    assert [seen.host for seen in world.stub.requests()] == [NEWS]


FAMILY = """
import os, time
r, w = os.pipe()
if not os.fork():
    middle = os.getpid()
    if not os.fork():
        while os.getppid() == middle:  # until its parent is gone and another has taken its place
            time.sleep(0.01)
        os.set_inheritable(w, True)
        os.execlp("curl", "curl", "-s", "-o", "page", "https://news.example/page")
    os._exit(0)  # the pipe stays open in curl
os.wait()
os.close(w)
os.read(r, 1)  # until curl has ended
"""


def test_c93_the_parent_is_who_forked(world: World):
    """Not who adopted: the chain of forks leads from the orphan's request to the first process."""
    done = world.run(PYTHON, "-c", FAMILY)
    assert done.status == 0, done.stderr
    recording = world.recording()
    (exchange,) = recording.exchanges(NEWS)
    parents = {e["child"][0]: e.actor.tgid for e in recording.kind("fork") if not e["thread"]}
    chain = [exchange.request.actor.tgid]
    while chain[-1] in parents:
        chain.append(parents[chain[-1]])
    first = next(e for e in recording.kind("exec") if raw(e["argv"][0]).endswith(b"python"))
    assert chain[2] == first.actor.tgid, "grandchild, child, and the program that forked"
    assert not recording.kind("loss")
    assert API not in {e.host for e in recording.exchanges()}
