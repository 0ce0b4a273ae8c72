"""hark-launch on the real kernel: what the agent is, sees, and leaves behind."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hark.errors import LaunchError
from hark.launcher import host, netrules
from hark.launcher.ids import AGENT_OF_ROOT
from hark.launcher.plan import GivenFile, PathGrant, WatchedProcess
from hark.policy.control import ExitCause, MsgType, PeerClosed, Plain, Published, Sealed, Signal
from hark.policy.model import Limits
from hark.policy.person import Person
from launcher.rig import ALICE_ID, PATH, Box

if TYPE_CHECKING:
    from collections.abc import Callable

    MakeBox = Callable[..., Box]

pytestmark = pytest.mark.kernel


def sh(box: MakeBox, script: str, **values: object) -> Box:
    return box(["/bin/sh", "-c", script], **values)


def leftovers(box: Box) -> list[str]:
    """Everything on the host that carries the run's name, or a process of its id block."""
    found = [str(p) for p in Path("/sys/fs/cgroup").rglob(f"*{box.request.run_id}*")]
    low = box.request.slot.base
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            uid = int(status.read_text().split("Uid:\t")[1].split()[0])
        except (OSError, IndexError):  # it ends while it is read
            continue
        if low <= uid < low + 65536:
            found.append(str(status))
    own = (box.request.run_id, str(box.tmp))
    mounts = Path("/proc/mounts").read_text().splitlines()
    found += [line for line in mounts if any(name in line for name in own)]
    return found


# --- who the agent is ---------------------------------------------------------------------------


def test_the_agent_is_the_person_without_any_privilege(box: MakeBox):
    script = "id -u; id -g; grep -E '^(Cap|NoNewPrivs|Seccomp:|Groups)' /proc/self/status"
    result = sh(box, script).run()
    lines = dict(line.split(":") for line in result.out.splitlines()[2:])
    assert result.out.splitlines()[:2] == [str(ALICE_ID)] * 2
    assert all(int(v, 16) == 0 for k, v in lines.items() if k.startswith("Cap"))
    assert lines["NoNewPrivs"].strip() == "1"
    assert lines["Seccomp"].strip() == "2"
    assert not lines["Groups"].strip()


def test_to_the_kernel_the_agent_has_an_id_of_its_own(box: MakeBox):
    one = sh(box, "read x").start()
    status = Path(f"/proc/{one.started.agent_pid}/status").read_text()
    assert int(status.split("Uid:\t")[1].split()[0]) == one.request.slot.base + ALICE_ID
    one.finish(b"\n")


def test_when_the_person_is_root_the_agent_is_not(box: MakeBox, place: Path):
    person = Person(uid=0, gid=0, groups=(0,), name="root", home=str(place / "h"), shell="")
    secret = place / "shared" / "secret"
    secret.parent.mkdir()
    secret.write_text("key")
    secret.chmod(0o600)
    (place / "project").mkdir()
    (place / "project" / "own").write_text("mine\n")
    (place / "project" / "own").chmod(0o600)
    script = f"id -u; id -un; cat own; echo new > made; cat {secret} || echo closed"
    grants = (PathGrant(str(secret.parent), "folder", "test"),)
    one = sh(box, script, person=person, read=grants)
    result = one.run()
    assert result.out.splitlines() == [str(AGENT_OF_ROOT), "hark", "mine", "closed"]
    assert (one.upper / "made").stat().st_uid == 0


def test_init_keeps_only_the_right_to_signal(box: MakeBox):
    one = sh(box, "read x").start()
    status = Path(f"/proc/{one.started.init_pid}/status").read_text()
    caps = {
        line.split(":")[0]: int(line.split(":")[1], 16)
        for line in status.splitlines()
        if line.startswith("Cap")
    }
    assert caps["CapEff"] == caps["CapPrm"] == 1 << 5
    assert caps["CapBnd"] == caps["CapInh"] == caps["CapAmb"] == 0
    kept = [str(p.readlink()) for p in Path(f"/proc/{one.started.init_pid}/fd").iterdir()]
    assert len(kept) == 6, kept  # 0, 1, 2, reports, warden's pipe, signalfd
    one.finish(b"\n")


def test_no_descriptor_but_the_standard_three_reaches_the_agent(box: MakeBox):
    result = box(["/bin/ls", "/proc/self/fd"]).run()
    assert result.out.split() == ["0", "1", "2", "3"]  # 3 is ls's own


def test_environment_and_arguments_arrive_as_given(box: MakeBox):
    one = box(["/usr/bin/env"], env={"A": "1", "B": "with space", "C": "\udcff"})
    assert one.run().out.splitlines()[:2] == ["A=1", "B=with space"]
    script = "import sys,os; print(os.fsencode(sys.argv[1]), len(sys.argv))"
    result = box(["/usr/bin/python3", "-I", "-S", "-c", script, "a\nb ü"]).run()
    assert result.out == repr("a\nb ü".encode()) + " 2\n"


# --- what the agent sees ------------------------------------------------------------------------


def test_the_root_holds_only_what_is_granted(box: MakeBox, place: Path):
    result = sh(
        box, f"ls -a / | tr '\\n' ' '; echo; ls {place}; ls /root /home /sys /opt 2>&1; ls -a /run"
    ).run()
    names = set(result.out.splitlines()[0].split())
    assert names <= {
        ".",
        "..",
        "bin",
        "dev",
        "etc",
        "lib",
        "lib32",
        "lib64",
        "libx32",
        "proc",
        "run",
        "sbin",
        "tmp",
        "usr",
        "var",
    }
    assert result.out.count("No such file") == 4
    assert "project" in result.out
    assert "runs" not in result.out


def test_system_trees_are_read_only_and_owned_as_outside(box: MakeBox):
    script = "stat -c %u /etc/passwd /usr/bin/env; touch /usr/x /etc/x /x /run/../y; echo $?"
    result = sh(box, script).run()
    assert result.out.splitlines() == ["0", "0", "1"]
    assert result.err.count("Read-only file system") == 4


def test_a_files_content_can_be_given(box: MakeBox):
    files = (GivenFile("/etc/hark/ca.pem", b"CA\n"), GivenFile("/etc/ssl/openssl.cnf", b"x\n"))
    covers = (
        GivenFile("/usr/share/common-licenses/Apache-2.0", b"covered\n"),
        GivenFile("/usr/no/such", b""),
    )
    script = (
        "cat /etc/hark/ca.pem /etc/ssl/openssl.cnf /usr/share/common-licenses/Apache-2.0;"
        "cat /etc/resolv.conf; ls /usr/no"
    )
    result = sh(box, script, files=files, covers=covers).run()
    assert result.out.splitlines() == ["CA", "x", "covered", "nameserver 100.64.0.1"]
    assert "No such file" in result.err


def test_of_the_hosts_own_configuration_nothing_shows(box: MakeBox):
    folder = Path("/etc/hark")
    made = not folder.exists()
    folder.mkdir(exist_ok=True)
    witness = folder / f"test-{os.getpid()}"
    witness.write_text("host")
    try:
        given = GivenFile("/etc/hark/ca.pem", b"given")
        assert sh(box, "ls -A /etc/hark; ls /etc/passwd", files=(given,)).run().out.split() == [
            "ca.pem",
            "/etc/passwd",
        ]
        assert sh(box, "ls -A /etc/hark").run().out == ""
    finally:
        witness.unlink()
        if made:
            folder.rmdir()


def test_the_workspace_is_a_snapshot_and_the_upper_its_write_set(box: MakeBox, place: Path):
    one = sh(box, "cat old; echo two > old; mkdir d; mv d e; echo x > e/f; rm gone")
    project = place / "project"
    for name in ("old", "gone"):
        (project / name).write_text("one\n")
        os.chown(project / name, ALICE_ID, ALICE_ID)
    result = one.run()
    assert result.out == "one\n"
    assert result.err == ""
    assert (project / "old").read_text() == "one\n"
    assert (project / "gone").exists()
    assert (one.upper / "old").read_text() == "two\n"
    assert (one.upper / "e" / "f").stat().st_uid == ALICE_ID
    assert not (one.upper.parent / "work").exists()


def test_a_direct_workspace_is_written_at_once(box: MakeBox, place: Path):
    one = sh(box, "echo x > made", workspace_mode="direct", destination="out.hark")
    one.run()
    assert (place / "project" / "made").read_text() == "x\n"
    assert (place / "project" / "made").stat().st_uid == ALICE_ID
    assert not (one.runs / one.request.run_id).exists()


def test_home_is_fresh_and_thrown_away(box: MakeBox, place: Path):
    home = place / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id").write_text("secret")
    os.chown(home, ALICE_ID, ALICE_ID)
    one = sh(box, "ls -A ~; echo x > ~/made; mkdir ~/.cache; ls -A ~ | tr '\\n' ' '; stat -c %a ~")
    one.publish = False
    result = one.run()
    assert result.out == ".cache made 700\n"
    assert sorted(p.name for p in home.iterdir()) == [".ssh"]
    assert not (one.runs / one.request.run_id / "home").exists()


def test_a_project_and_grants_inside_home_leave_no_trace_in_its_write_set(
    box: MakeBox, place: Path
):
    home = place / "home"
    (home / "tools" / "bin").mkdir(parents=True)
    (home / "tools" / "bin" / "t").write_text("#!/bin/sh\necho tool\n")
    (home / "tools" / "bin" / "t").chmod(0o755)
    (home / "one").write_text("file\n")
    os.chown(home / "one", ALICE_ID, ALICE_ID)
    (home / "code" / "project").mkdir(parents=True)
    for path in (home, home / "code", home / "code" / "project"):
        os.chown(path, ALICE_ID, ALICE_ID)
    read = (
        PathGrant(f"{home}/tools", "folder", "test"),
        PathGrant(f"{home}/one", "file", "test"),
        PathGrant(f"{home}/.local/bin/t", "link", "test", f"{home}/tools/bin/t"),
    )
    script = "find ~ | sort; ~/.local/bin/t; cat ~/one; echo x > here; touch ~/tools/x ~/one"
    one = sh(box, script, workspace=home / "code" / "project", read=read)
    one.start()
    out = one.pump()
    exited = one.wait_exited()
    written = list((one.runs / one.request.run_id / "home" / "upper").iterdir())
    result = one.seal(exited, out)
    assert "tool\nfile\n" in result.out
    assert result.err.count("Read-only file system") == 2
    assert written == []
    assert (one.upper / "here").exists()


def test_unnamed_folders_beside_a_granted_one_stay_invisible(box: MakeBox, place: Path):
    (place / "data" / "in").mkdir(parents=True)
    (place / "data" / "beside").mkdir()
    read = (PathGrant(f"{place}/data/in", "folder", "test"),)
    assert sh(box, f"ls {place}/data", read=read).run().out == "in\n"


@pytest.mark.parametrize(
    "name", ["a b", "a:b,c", "back\\slash", "ü\n", "-x", "x" * 200, "lowerdir=/etc"]
)
def test_any_folder_name_can_be_a_workspace(box: MakeBox, place: Path, name: str):
    one = box(["/bin/sh", "-c", "pwd; echo x > f; cat f"], workspace=place / name)
    assert one.run().out == f"{place / name}\nx\n"
    assert (one.upper / "f").exists()


def test_a_link_in_the_workspace_does_not_lead_a_cover_out(box: MakeBox, place: Path):
    project = place / "project"
    project.mkdir()
    (place / "host").write_text("host")
    (project / "bundle.pem").symlink_to(place / "host")
    covers = (GivenFile(f"{project}/bundle.pem", b"covered"),)
    result = sh(box, "cat bundle.pem || echo absent", covers=covers).run()
    assert result.out == "absent\n"
    assert (place / "host").read_text() == "host"


def test_a_write_path_gets_a_layer_of_its_own(box: MakeBox, place: Path):
    (place / "out").mkdir()
    os.chown(place / "out", ALICE_ID, ALICE_ID)
    write = (PathGrant(f"{place}/out", "folder", "test"),)
    one = sh(box, f"echo x > {place}/out/made", write=write)
    assert one.run().status == 0
    assert not (place / "out" / "made").exists()
    assert (one.runs / one.request.run_id / "layers" / "1" / "upper" / "made").read_text() == "x\n"


# --- network ------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["203.0.113.9:443", "[2001:db8::7]:8443", "169.254.169.254:80"])
def test_every_connection_reaches_the_listener_with_its_destination(box: MakeBox, target: str):
    host, _, port = target.rpartition(":")
    host = host.strip("[]")
    script = f"import socket;s=socket.create_connection(({host!r},{port}),5);print(s.recv(9))"
    one = box(["/usr/bin/python3", "-I", "-S", "-c", script])
    seen = []

    def answer() -> None:
        with socket.socket(fileno=os.dup(one.net.tcp6 if ":" in host else one.net.tcp4)) as s:
            s.settimeout(20)
            conn, _ = s.accept()
            seen.append(conn.getsockname()[:2])
            conn.sendall(b"mediated")
            conn.close()

    one.start()
    thread = threading.Thread(target=answer)
    thread.start()
    result = one.finish()
    thread.join()
    assert result.out == "b'mediated'\n", result.err
    assert seen == [(host, int(port))]


@pytest.mark.parametrize(
    ("family", "server"), [(socket.AF_INET, "8.8.8.8"), (socket.AF_INET6, "2001:db8::53")]
)
def test_dns_to_any_server_is_answered_from_its_address(box: MakeBox, family: int, server: str):
    script = (
        "import socket,sys;s=socket.socket(int(sys.argv[1]),socket.SOCK_DGRAM);s.settimeout(5);"
        "s.connect((sys.argv[2],53));s.send(b'question');print(s.recv(99))"
    )
    one = box(["/usr/bin/python3", "-I", "-S", "-c", script, str(int(family)), server])
    one.start()
    fd = one.net.udp4 if family == socket.AF_INET else one.net.udp6
    with socket.socket(fileno=os.dup(fd)) as s:
        s.settimeout(20)
        data, anc, _, peer = s.recvmsg(512, 256)
        level, kind, raw = anc[0]
        source = (
            b"\0" * 4 + raw[8:12] + b"\0" * 4 if family == socket.AF_INET else raw[:16] + b"\0" * 4
        )
        s.sendmsg([b"answer to " + data], [(level, kind, source)], 0, peer)
    assert one.finish().out == "b'answer to question'\n"


@pytest.mark.parametrize(
    "target", [("203.0.113.9", 443), ("2001:db8::1", 443), ("100.64.0.1", 123)]
)
def test_other_datagrams_are_refused_at_once_and_logged(box: MakeBox, target: tuple[str, int]):
    script = (
        "import socket,sys,time;f=socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET;"
        "s=socket.socket(f,socket.SOCK_DGRAM);s.settimeout(5);s.connect((sys.argv[1],int(sys.argv[2])))\n"
        "t=time.monotonic()\n"
        "try:\n s.send(b'x');s.recv(1)\n"
        "except OSError as e: print(e.strerror, time.monotonic()-t < 2)"
    )
    one = box(["/usr/bin/python3", "-I", "-S", "-c", script, target[0], str(target[1])]).start()
    with socket.socket(fileno=os.dup(one.net.nflog)) as log:
        log.settimeout(20)
        packet = log.recv(65536)
    assert (
        socket.inet_pton(socket.AF_INET6 if ":" in target[0] else socket.AF_INET, target[0])
        in packet
    )
    result = one.finish()
    assert result.out.strip() in ("No route to host True", "Permission denied True")


def test_m_has_no_process_no_route_out_and_the_rules(box: MakeBox):
    one = sh(box, "read x").start()
    rules = netrules.read_back(one.net.netns)
    assert "tproxy ip6 to :15001" in rules
    pid = os.fork()
    if pid == 0:
        try:
            assert ctypes.CDLL(None).setns(one.net.netns, 0x40000000) == 0
            socket.create_connection(("203.0.113.9", 80), 2)
            os._exit(1)
        except OSError as exc:
            os._exit(0 if exc.errno == 101 else 2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    one.finish(b"\n")


def test_own_loopback_servers_work(box: MakeBox):
    script = (
        "import socket,threading\nfor f,a in ((2,'127.0.0.1'),(10,'::1')):\n"
        " s=socket.create_server((a,0),family=f);c=socket.create_connection(s.getsockname()[:2]);"
        "s.accept()[0].send(b'x');print(c.recv(1))"
    )
    assert box(["/usr/bin/python3", "-I", "-S", "-c", script]).run().out == "b'x'\n" * 2


# --- how it ends --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("exit 0", 0),
        ("exit 7", 7),
        ("kill -TERM $$", -15),
        ("kill -SEGV $$", -11),
        ("kill -KILL $$", -9),
    ],
)
def test_the_exact_wait_status_is_reported(box: MakeBox, script: str, status: int):
    result = sh(box, script).run()
    assert (result.status, result.exited.cause, result.launch_code) == (status, ExitCause.AGENT, 0)


def test_a_missing_and_a_forbidden_program_have_the_shells_codes(box: MakeBox):
    missing = box(["/no/such"]).run()
    assert (missing.status, "cannot start /no/such" in missing.err) == (127, True)
    assert box(["/etc/passwd"], file="/etc/passwd").run().status == 126


def test_signals_reach_the_agent_and_its_group(box: MakeBox):
    script = "trap 'echo term; exit 42' TERM; echo ready; while :; do sleep 0.05; done"
    one = sh(box, script).start()
    assert os.read(one.pipes["stdout"], 6) == b"ready\n"
    one.launcher.channel.send(Signal(signal.SIGTERM))
    result = one.finish()
    assert (result.status, result.out) == (42, "term\n")
    one = box(["/usr/bin/sleep", "1000"]).start()
    one.launcher.channel.send(Signal(signal.SIGINT))
    assert one.finish().status == -signal.SIGINT


def test_sigkill_is_the_agents_not_inits(box: MakeBox):
    one = sh(box, "echo ready; sleep 100").start()
    os.read(one.pipes["stdout"], 6)
    one.kill_agent()
    result = one.finish()
    assert (result.status, result.exited.cause) == (-9, ExitCause.AGENT)


def test_daemons_are_counted_and_die_with_the_agent(box: MakeBox):
    script = "for i in 1 2 3; do setsid sleep 1000 </dev/null >/dev/null 2>&1 & done"
    one = sh(box, script)
    result = one.run()
    assert result.exited.stragglers == 3
    assert leftovers(one) == []


def test_nothing_is_left_behind(box: MakeBox, place: Path):
    before = _host_state()
    one = sh(box, "true", destination="out.hark")
    one.run()
    assert _host_state() == before
    assert leftovers(one) == []
    assert sorted(p.name for p in (place / "runs").iterdir()) == []


def _host_state() -> dict[str, object]:
    """What a run could have changed, and no other run on this machine changes meanwhile."""
    return {
        "mounts": sorted(
            line
            for line in Path("/proc/self/mountinfo").read_text().splitlines()
            if "/run/hark/bpf" not in line  # shared by all runs, the last one unmounts it
        ),
        "links": sorted(p.name for p in Path("/sys/class/net").iterdir()),
        "netns": sorted(str(p) for p in Path("/run/netns").glob("*")),
        "forward": Path("/proc/sys/net/ipv4/ip_forward").read_text(),
    }


def test_killing_the_launcher_kills_the_run(box: MakeBox):
    one = sh(box, "setsid sleep 1000 & setsid sleep 1000 & sleep 1000").start()
    os.kill(one.launcher.pid, signal.SIGKILL)
    one.wait()
    _until(lambda: not _alive(one))
    with pytest.raises(PeerClosed):
        one.launcher.channel.recv(5)
    left = leftovers(one)  # the empty folders are all that stays
    assert all(p.startswith("/sys/fs/cgroup/") for p in left), left
    for path in left:
        Path(path).rmdir()


def _alive(one: Box) -> list[str]:
    return [p for p in leftovers(one) if p.startswith("/proc/")]


def _until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not done():
        assert time.monotonic() < end, "took too long"
        time.sleep(0.005)


def test_killing_init_ends_the_run_and_names_it(box: MakeBox):
    one = sh(box, "sleep 1000").start()
    os.kill(one.started.init_pid, signal.SIGKILL)
    result = one.finish()
    assert result.exited.cause == ExitCause.INIT
    assert leftovers(one) == []


@pytest.mark.parametrize("cause", [ExitCause.MEDIATOR, ExitCause.BROKER, ExitCause.SIGNER])
def test_the_death_of_a_party_kills_the_agent(box: MakeBox, cause: ExitCause):
    r, w = os.pipe2(os.O_CLOEXEC)
    one = sh(box, "echo ready; sleep 1000", watched=(WatchedProcess("party", cause),))
    one.extra_fds["party"] = r
    one.start()
    os.read(one.pipes["stdout"], 6)
    os.close(w)
    result = one.finish()
    os.close(r)
    assert (result.status, result.exited.cause) == (-9, cause)


def test_a_kill_from_the_recorder_kills_everything(box: MakeBox):
    one = sh(box, "trap '' TERM INT HUP; setsid sleep 1000 & sleep 1000").start()
    one.launcher.channel.send(Plain(MsgType.KILL))
    result = one.finish()
    assert result.exited.cause == ExitCause.KILLED
    assert leftovers(one) == []


def test_when_the_recorder_dies_the_prefix_is_published(box: MakeBox, place: Path):
    one = sh(box, "sleep 1000", destination="cut.hark").start()
    one.launcher.close()
    assert one.wait() == 0
    assert (place / "dest" / "cut.hark").read_bytes() == b"bundle"
    assert leftovers(one) == []


def test_the_bundle_is_the_persons_and_nothing_is_overwritten(box: MakeBox, place: Path):
    (place / "mine").mkdir()
    os.chown(place / "mine", ALICE_ID, ALICE_ID)
    one = sh(box, "true", destination="out.hark")
    one.extra_fds["destination"] = os.open(place / "mine", os.O_RDONLY)
    one.run()
    st = (place / "mine" / "out.hark").stat()
    assert (st.st_uid, st.st_gid, st.st_mode & 0o7777, st.st_nlink) == (
        ALICE_ID,
        ALICE_ID,
        0o600,
        1,
    )
    again = sh(box, "true", destination="out.hark")
    again.extra_fds["destination"] = one.extra_fds["destination"]
    again.start()
    out = again.pump()
    again.wait_exited()
    again.launcher.channel.send(Sealed(1))
    msg, _ = again.launcher.channel.expect(Published, 10)
    assert msg.err == 17
    assert again.wait() == 1
    assert (again.runs / again.request.run_id / "run.hark").exists()
    assert out["stderr"] == b""
    os.close(one.extra_fds["destination"])


def test_a_folder_the_person_cannot_write_refuses_the_bundle(box: MakeBox, place: Path):
    (place / "roots").mkdir(mode=0o755)
    one = sh(box, "true", destination="out.hark")
    one.extra_fds["destination"] = os.open(place / "roots", os.O_RDONLY)
    one.start()
    one.pump()
    one.wait_exited()
    one.launcher.channel.send(Sealed(1))
    assert one.launcher.channel.expect(Published, 10)[0].err == 13
    os.close(one.extra_fds["destination"])


# --- set-up failures ----------------------------------------------------------------------------


def test_a_working_folder_that_is_not_there_fails_with_words(box: MakeBox):
    one = sh(box, "true", cwd="/no/such", destination="out.hark")
    with pytest.raises(LaunchError, match="working folder /no/such") as info:
        one.start()
    assert "at plan step" in info.value.cause
    one.launcher.channel.send(Sealed(1))
    assert one.launcher.channel.expect(Published, 10)[0].err == 0
    assert one.wait() == 1
    assert leftovers(one) == []
    assert (one.tmp / "dest" / "out.hark").exists()
    assert list(one.runs.iterdir()) == []


def test_a_filter_the_kernel_refuses_fails_with_words(box: MakeBox):
    one = sh(box, "true", seccomp=b"\xff" * 8)
    with pytest.raises(LaunchError, match="seccomp"):
        one.start()
    one.launcher.close()
    assert one.wait() == 1
    assert leftovers(one) == []


def test_a_recorder_that_never_says_go_is_no_reason_to_stay(box: MakeBox):
    one = sh(box, "true")
    one.prepare()
    one.net = one.launcher.wait_network()
    one.launcher.close()
    assert one.wait() == 1
    assert leftovers(one) == []


def test_the_limit_on_tasks_holds(box: MakeBox):
    script = (
        "import os\nn=0\ntry:\n while n<500:\n  if os.fork()==0: os.read(0,1);os._exit(0)\n"
        "  n+=1\nexcept OSError: pass\nprint(n)"
    )
    one = box(["/usr/bin/python3", "-I", "-S", "-c", script], limits=Limits(pids=40))
    result = one.run()
    assert 20 < int(result.out) < 40


def test_the_limit_on_memory_holds_and_spares_init(box: MakeBox):
    if host.read_facts().memory is None:
        pytest.skip("no memory controller below our cgroup")
    script = "x=bytearray(16<<20); print('small', flush=True); y=bytearray(256<<20); print('large')"
    argv = ["/usr/bin/python3", "-I", "-S", "-c", script]
    result = box(argv, limits=Limits(pids=40, memory=64 << 20)).run()
    assert (result.out, result.status, result.exited.cause) == ("small\n", -9, ExitCause.AGENT)
    result = box(argv, limits=Limits(pids=40, memory=1 << 30)).run()
    assert result.out == "small\nlarge\n"


def test_private_temporary_folders_are_bounded_and_empty(box: MakeBox):
    script = "ls -A /tmp /dev/shm; head -c 2M /dev/zero > /tmp/x || echo full"
    result = sh(box, script, limits=Limits(pids=100, tmp=1 << 20)).run()
    assert result.out.splitlines()[-1] == "full"


def test_two_runs_side_by_side_do_not_see_each_other(box: MakeBox):
    one = sh(box, "echo a > /tmp/mark; read x; ls /tmp; ps ax | grep -c 'sleep 99[0-9]'").start()
    other = sh(box, "echo b > /tmp/other; sleep 991", workspace=one.tmp / "other").start()
    assert one.request.slot.base != other.request.slot.base
    result = one.finish(b"\n")
    assert result.out.splitlines() == ["mark", "0"]
    other.kill_agent()
    other.finish()


def test_programs_from_the_persons_path_run(box: MakeBox):
    assert PATH in box(["/usr/bin/env"]).run().out
