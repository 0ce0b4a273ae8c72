"""A session from GO to PUBLISHED, and every way it may end otherwise."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import blake3
import pytest

from hark import limits
from hark.bundle.events import Kind
from hark.bundle.verify import Verdict
from hark.errors import InternalError
from hark.kernel.records import ExeId, RingStats, SyscallCount
from hark.policy import control
from hark.policy.control import ExitCause, MsgType, PeerClosed, Plain
from hark.recorder.merge import Merger
from hark.recorder.stdio import PipeRelay

from . import transcript as t
from .rig import WAIT_S, Rig, boot_ns, wait_for


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def open_fds() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def ms_now() -> float:
    return boot_ns() / t.MS


def test_a_run_is_recorded_sealed_and_published(rig: Rig):
    rig.agent = "cat; echo out; echo err >&2; exit 3"
    rig.stdin = b"typed\n"
    rig.sensors.syscalls = [SyscallCount(7, 7000, 1, 0, 5), SyscallCount(7, 7000, 0, 11, 2)]
    result = rig.run()
    assert (result.exit_code, result.reason) == (3, "exited")
    assert (result.sealed, result.published, result.path) == (True, True, "run-1.hark")
    assert result.lines == ()
    assert rig.stdout.read_bytes() == b"typed\nout\n"
    assert rig.stderr.read_bytes() == b"err\n"
    assert streams(rig) == {0: b"typed\n", 1: b"typed\nout\n", 2: b"err\n"}
    assert rig.writer.of(Kind.SYSCALL_COUNTS) == [
        {1: [7, 7, 7000, None], 4: [[0, 11, 2], [1, 0, 5]]}
    ]
    end = rig.writer.of(Kind.RUN_END)[0]
    assert (end[4], end[5], end[6], end[8]) == (3 << 8, 3, "exited", 0)
    assert end[9] == [["control", 0, 0, 0], ["bulk", 0, 0, 0], ["mediator", 0, 0, 0]]
    report = rig.verify()
    assert (report.verdict, report.sealed) == (Verdict.VERIFIED, True)


def streams(rig: Rig) -> dict[int, bytes]:
    """All recorded bytes by stream; each stream must have ended."""
    out: dict[int, bytes] = {}
    ended = set()
    for payload in rig.writer.of(Kind.STDIO):
        out[payload[4]] = out.get(payload[4], b"") + payload.get(5, b"")
        if payload.get(6):
            ended.add(payload[4])
    assert ended == set(out)
    return out


def test_a_denial_is_on_disk_before_the_mediator_hears_so(rig: Rig):
    rig.agent = "sleep 60"

    def mediator() -> None:
        now = ms_now()
        rig.sensors.put(t.connect(now, 20, 4000))
        rig.ring.put(t.accepted(now, 1, 4000), t.refused(now, 1, seq=6))
        durable = rig.mediator.expect(lambda msg: isinstance(msg, control.Durable)).msg
        assert durable.below == 7
        log = list(rig.writer.log)
        denied = next(i for i, e in enumerate(log) if getattr(e, "kind", 0) is Kind.DENIED)
        assert "sync" in log[denied:]
        assert rig.writer.real.durable() >= denied + 1
        rig.kill_agent()
        rig.serve_mediator()

    result = rig.run(mediator, ordinary="broker launch")
    assert result.exit_code == 128 + signal.SIGKILL
    denied = rig.writer.of(Kind.DENIED)[0]
    assert denied[1] == [20, 20, 20000, None]
    assert result.lines == (
        "hark: refused: host denied evil.example",
        'hark: hint: if the agent may reach it, add "evil.example" to allow_hosts',
    )


def test_a_turn_that_takes_long_does_not_part_a_connection_from_its_connect(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
):
    """A busy turn reads records that are younger than its beginning by more than the hold."""
    rig.agent = "sleep 60"
    read = rig.ring.poll

    def poll() -> list[object]:
        records = list(read())
        if not records:
            return []
        time.sleep(3 * limits.MERGE_HOLD_NS / 1e9)
        now = ms_now()
        rig.sensors.put(t.connect(now, 20, 4000))
        return [t.accepted(now, 1, 4000), t.handshake(now, 1)]

    monkeypatch.setattr(rig.ring, "poll", poll)

    def mediator() -> None:
        rig.ring.put("the bell")
        wait_for(lambda: bool(rig.writer.of(Kind.CONN)))
        rig.kill_agent()
        rig.serve_mediator()

    rig.run(mediator, ordinary="broker launch")
    assert rig.writer.of(Kind.CONN)[0][1] == [20, 20, 20000, None]


def test_a_dial_is_on_disk_before_the_broker_may_connect(rig: Rig):
    rig.agent = "exec sleep 60"

    def broker() -> None:
        rig.broker.send(t.dial(ms_now(), 1), ident=9)
        got = rig.broker.expect_plain(MsgType.DIAL_RECORDED)
        assert got.ident == 9
        assert rig.writer.of(Kind.DIAL)[0][7] == "dialling"
        assert rig.writer.real.durable() == rig.writer.real.events
        rig.broker.send(t.question(ms_now(), 5353))
        rig.broker.send(t.dial(ms_now(), 1, result=True, status=4), ident=9)
        rig.kill_agent()
        rig.serve_broker()

    rig.run(broker, ordinary="mediator launch")
    assert [d[7] for d in rig.writer.of(Kind.DIAL)] == ["dialling", "connect"]
    assert len(rig.writer.of(Kind.DNS)) == 1


def test_an_executable_is_hashed_through_the_launcher(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "DIGEST_TICK_NS", 0)  # the program is as new as its exec
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF" + bytes(100_000))
    info = program.stat()
    exe = ExeId(8, info.st_ino, info.st_ctime_ns)

    def launch() -> None:
        rig.agent = "exit 0"
        rig.start_agent()
        rig.sensors.put(t.execed(ms_now(), 20, exe, b"/program"))
        ask = rig.launch.expect(lambda msg: isinstance(msg, control.OpenExe))
        assert (ask.msg.path, ask.msg.tgid, ask.msg.ino) == (b"/program", 20, info.st_ino)
        fd = os.open(program, os.O_RDONLY)
        rig.launch.send(control.Exe(0), ident=ask.ident, fds=[fd])
        os.close(fd)
        rig.sensors.put(t.execed(ms_now(), 30, exe, b"/program"))
        gone = ExeId(8, 999, 1)
        rig.sensors.put(t.execed(ms_now(), 40, gone, b"/gone"))
        ask = rig.launch.expect(lambda msg: isinstance(msg, control.OpenExe))
        rig.launch.send(control.Exe(errno.ENOENT), ident=ask.ident)
        rig.end_agent()

    rig.run(launch, ordinary="mediator broker")
    execs = {p[4]: p for p in rig.writer.of(Kind.EXEC) if p[1][0] != 30}
    assert execs[b"/program"][7] == blake3.blake3(program.read_bytes()).digest()
    assert execs[b"/program"][8] == "read"
    assert execs[b"/gone"][8] == "unknown: No such file or directory"
    again = next(p for p in rig.writer.of(Kind.EXEC) if p[1][0] == 30)
    assert again[8] in ("read", "cached")
    assert again[1][3] == execs[b"/program"][7]


def test_records_that_were_still_in_the_ring_are_written(rig: Rig):
    def mediator() -> None:
        rig.mediator.expect_plain(MsgType.STOP)
        now = ms_now()
        # Put in the order of their times: the session may look between any two of them.
        rig.sensors.put(t.connect(now - 2, 20, 4000))
        rig.ring.put(t.accepted(now - 1, 1, 4000), t.disconnected(now - 1, 1, "stopped"))
        rig.packets.put(t.packet(now, 4001))
        rig.mediator.send(Plain(MsgType.DRAINED))

    rig.run(mediator, ordinary="broker launch")
    assert [e.kind for e in rig.writer.events if e.kind is not Kind.STDIO] == [
        Kind.CONNECT,
        Kind.CONN,
        Kind.CONN_CLOSE,
        Kind.DENIED,
        Kind.RUN_END,
    ]
    assert rig.writer.of(Kind.CONN)[0][1] == [20, 20, 20000, None]


def test_questions_that_the_broker_had_not_told_yet_are_written(rig: Rig):
    """The mediator is long drained; the broker answers what its sockets held."""
    mediator_drained = threading.Event()

    def mediator() -> None:
        rig.serve_mediator()
        mediator_drained.set()

    def broker() -> None:
        rig.broker.expect_plain(MsgType.STOP)
        assert mediator_drained.wait(WAIT_S)
        for port in range(5000, 5020):
            rig.broker.send(t.question(ms_now(), port))
            time.sleep(0.01)  # many turns of the session
        rig.broker.send(Plain(MsgType.DRAINED))

    result = rig.run(mediator, broker, ordinary="launch")
    assert len(rig.writer.of(Kind.DNS)) == 20
    assert result.reason == "exited"
    assert rig.verify().verdict is Verdict.VERIFIED


def test_a_broker_that_dies_before_it_is_drained_is_told(rig: Rig):
    def broker() -> None:
        rig.broker.expect_plain(MsgType.STOP)
        rig.broker.channel.sock.shutdown(2)

    result = rig.run(broker, ordinary="mediator launch")
    assert (result.reason, result.exit_code) == ("broker-died", 125)
    assert rig.verify().verdict is Verdict.VERIFIED


def test_lost_kernel_records_are_told(rig: Rig, monkeypatch: pytest.MonkeyPatch):
    forgotten: list[int] = []
    monkeypatch.setattr(Merger, "lost", lambda _: forgotten.append(1))
    rig.sensors.rings = [RingStats("bulk", 100, 90, 10)]
    rig.packets.lost = 3
    rig.run()
    assert [(p[4], p[5]) for p in rig.writer.of(Kind.LOSS)] == [("kernel bulk", 10), ("nflog", 3)]
    assert forgotten == [1]
    assert rig.writer.of(Kind.RUN_END)[0][9] == [["bulk", 100, 90, 10], ["mediator", 0, 0, 0]]
    assert rig.verify().verdict is Verdict.VERIFIED


def test_differences_between_kernel_and_mediator_are_told(rig: Rig):
    def streams_() -> None:
        now = ms_now()
        rig.sensors.put(t.connect(now, 20, 4000))
        rig.ring.put(t.accepted(now, 1, 5000), t.disconnected(now, 1))

    streams_()
    rig.run()
    assert {p[4]: p[5] for p in rig.writer.of(Kind.LOSS)} == {"conns_unattributed": 1}
    assert [p[4] for p in rig.writer.of(Kind.NOTICE)] == ["connects_unmet"]
    totals = rig.writer.of(Kind.RUN_END)[0][7]
    assert (totals["connects"], totals["conns"]) == (1, 1)


def test_signals_go_to_the_agent_and_into_the_record(rig: Rig):
    rig.agent = "exec sleep 60"

    def launch() -> None:
        rig.start_agent()
        os.kill(os.getpid(), signal.SIGINT)
        got = rig.launch.expect(lambda msg: isinstance(msg, control.Signal))
        rig.process.send_signal(got.msg.signo)
        rig.end_agent()

    result = rig.run(launch, ordinary="mediator broker")
    assert result.exit_code == 128 + signal.SIGINT
    assert rig.writer.of(Kind.SIGNAL) == [{4: signal.SIGINT, 5: "operator"}]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_hark_stops_with_the_agents_job_and_not_before(rig: Rig, monkeypatch: pytest.MonkeyPatch):
    rig.agent = "exec sleep 60"
    stops: list[int] = []
    monkeypatch.setattr(PipeRelay, "suspend", lambda _: stops.append(len(seen)))
    seen: list[int] = []

    def launch() -> None:
        rig.start_agent()
        os.kill(os.getpid(), signal.SIGTSTP)
        for number, answer in ((signal.SIGTSTP, 1), (signal.SIGCONT, 0)):
            got = rig.launch.expect(lambda msg: isinstance(msg, control.Signal))
            assert got.msg.signo == number
            seen.append(number)
            rig.launch.send(control.Job(answer))
        rig.process.kill()
        rig.end_agent()

    rig.run(launch, ordinary="mediator broker")
    assert stops == [1]
    assert [p[4] for p in rig.writer.of(Kind.SIGNAL)] == [signal.SIGTSTP, signal.SIGCONT]


# --- the fail-closed ends -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mediator", "broker", "signer"])
def test_a_dead_peer_ends_the_run(rig: Rig, name: str):
    rig.agent = "exec sleep 60"

    def launch() -> None:
        rig.start_agent()
        rig.launch.expect_plain(MsgType.KILL)
        rig.process.kill()
        rig.end_agent(ExitCause.KILLED)

    def death() -> None:
        wait_for(lambda: rig.process is not None)
        getattr(rig, name).channel.sock.shutdown(2)

    ordinary = "broker" if name == "mediator" else "mediator broker"
    result = rig.run(launch, death, ordinary=ordinary)
    assert result.reason == f"{name}-died"
    assert result.exit_code == 125
    assert result.lines[0] == f"hark: error: the {name} died" or name == "signer"
    assert rig.writer.of(Kind.RUN_END)[0][6] == f"{name}-died"
    report = rig.verify()
    if name == "signer":  # nothing can be signed any more: a prefix that verifies
        assert report.verdict is Verdict.TRUNCATED
        assert (result.sealed, result.published) == (False, True)
    else:
        assert report.verdict is Verdict.VERIFIED
    assert report.events == len(rig.writer.events) + 1


def test_the_launchers_word_on_who_died_first_counts(rig: Rig):
    rig.agent = "exec sleep 60"

    def launch() -> None:
        rig.start_agent()
        rig.process.kill()
        rig.end_agent(ExitCause.BROKER)

    result = rig.run(launch, ordinary="mediator broker")
    assert (result.reason, result.exit_code) == ("broker-died", 125)


def test_when_the_launcher_dies_the_bundle_is_sealed_where_it_lies(rig: Rig):
    rig.agent = "echo before; exec sleep 60"

    def launch() -> None:
        rig.start_agent()
        wait_for(lambda: rig.stdout.stat().st_size > 0)
        rig.process.kill()
        rig.launch.close()

    result = rig.run(launch, ordinary="mediator broker")
    assert (result.reason, result.sealed, result.published) == ("launcher-died", True, False)
    assert result.path == str(rig.path)
    assert result.lines[-1] == f"hark: the bundle lies at {rig.path}"
    assert streams(rig)[1] == b"before\n"
    assert rig.verify().verdict is Verdict.VERIFIED


def test_a_broken_ring_ends_the_run(rig: Rig):
    rig.agent = "exec sleep 60"

    def launch() -> None:
        rig.start_agent()
        rig.ring.fail(InternalError("the mediator's ring is corrupt", "record length 3"))
        rig.kill_on_order()

    result = rig.run(launch, ordinary="mediator broker")
    assert result.reason == "recording-failed"
    end = rig.writer.of(Kind.RUN_END)[0]
    assert end[10] == "the mediator's ring is corrupt: record length 3"
    assert rig.verify().verdict is Verdict.VERIFIED


@pytest.mark.parametrize(
    ("peer", "message"),
    [
        ("launch", control.Exe(0)),
        ("launch", Plain(MsgType.GO)),
        ("mediator", Plain(MsgType.GO)),
        ("broker", Plain(MsgType.GO)),
        ("signer", Plain(MsgType.GO)),
    ],
)
def test_a_message_out_of_place_ends_the_run(rig: Rig, peer: str, message: control.Message):
    rig.agent = "exec sleep 60"

    def launch() -> None:
        rig.start_agent()
        getattr(rig, peer).send(message)
        rig.kill_on_order()

    result = rig.run(launch, ordinary="mediator broker")
    assert result.exit_code == 125
    assert result.reason != "exited"


def test_a_setup_that_failed_is_told_with_its_hint(rig: Rig):
    def launch() -> None:
        rig.launch.expect_plain(MsgType.GO)
        rig.launch.send(control.Failed(errno.ENOEXEC, 12, "cannot start sh", "check the program"))
        for fd in rig.agent_fds:
            os.close(fd)
        rig.launch.close()

    result = rig.run(launch, ordinary="mediator broker")
    assert (result.reason, result.exit_code, result.published) == ("not-started", 125, False)
    assert result.lines[:3] == (
        "hark: error: cannot start sh",
        "hark: cause: Exec format error",
        "hark: hint: check the program",
    )
    assert rig.verify().verdict is Verdict.VERIFIED


@pytest.fixture
def small_disk(tmp_path: Path):
    """Mount a file system of 3 MiB."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a tmpfs")
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "hark-test", folder], check=True)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.kernel
def test_a_full_disk_kills_the_agent_and_what_is_there_is_sealed(small_disk: Path):
    rig = Rig(small_disk)
    rig.agent = "exec cat /dev/urandom"
    devnull = os.open("/dev/null", os.O_WRONLY)
    pipes = rig.pipes

    def with_null() -> PipeRelay:
        relay = pipes()
        for output in relay._outputs:
            output.target._fd = devnull
        return relay

    rig.pipes = with_null

    def launch() -> None:
        rig.start_agent()
        rig.kill_on_order()

    result = rig.run(launch, ordinary="mediator broker")
    assert (result.reason, result.exit_code) == ("recording-failed", 125)
    assert "No space left on device" in " ".join(result.lines)
    assert result.sealed
    end = rig.writer.of(Kind.RUN_END)[0]
    assert end[6] == "recording-failed"
    [loss] = rig.writer.of(Kind.LOSS)
    assert loss[4] == "recorder"
    assert loss[5] > 0
    assert rig.verify().verdict is Verdict.VERIFIED


def test_a_bug_in_the_recorder_lets_go_of_everything(rig: Rig, monkeypatch: pytest.MonkeyPatch):
    """Closed sockets are what hark-launch acts on; the bundle is a prefix that verifies."""
    rig.agent = "exec sleep 60"
    monkeypatch.setattr(Merger, "take_packet", lambda *_: 1 / 0)

    def launch() -> None:
        rig.start_agent()
        rig.packets.put(t.packet(ms_now(), 1))
        with pytest.raises(PeerClosed):
            rig.launch.expect(lambda _: False)
        rig.process.kill()

    with pytest.raises(ZeroDivisionError):
        rig.run(launch, ordinary="broker")
    for thread in rig.threads:
        thread.join(WAIT_S)
    assert not rig.errors
    assert rig.process.wait(WAIT_S) == -signal.SIGKILL
    assert rig.verify().verdict is Verdict.TRUNCATED


def test_a_full_ring_is_read_in_parts_and_to_its_end(rig: Rig, monkeypatch: pytest.MonkeyPatch):
    """Much more than may be held, all of it behind DRAINED."""
    monkeypatch.setattr(limits, "MERGE_PAUSE_BYTES", 100_000)
    rig.ring.batch = 16
    count = 400

    def mediator() -> None:
        rig.mediator.expect_plain(MsgType.STOP)
        now = ms_now()
        rig.ring.put(*(t.delivery(now, 1, b"%06d" % n * 1000) for n in range(count)))
        rig.mediator.send(Plain(MsgType.DRAINED))

    rig.run(mediator, ordinary="broker launch")
    got = [p[4][:6] for p in rig.writer.of(Kind.DELIVERY)]
    assert got == [b"%06d" % n for n in range(count)]
    assert rig.verify().verdict is Verdict.VERIFIED


def test_nothing_is_left_behind(rig: Rig):
    threads, fds = threading.active_count(), open_fds()
    rig.agent = "echo out"
    rig.run()
    for peer in (rig.launch, rig.mediator, rig.broker, rig.signer):
        peer.close()
    rig.threads[0].join(WAIT_S)
    own = 3 + 1 + 3  # of the rig: streams, the bundle, the operator's files
    assert threading.active_count() <= threads
    assert open_fds() <= fds + own


def test_many_records_come_through_unchanged(rig: Rig):
    """200 exchanges of 50 deliveries; all in order, none lost."""

    def mediator() -> None:
        start = ms_now()
        for n in range(200):
            conn, now = n + 1, start
            rig.sensors.put(t.connect(now, 20, 10_000 + n))
            rig.ring.put(
                t.accepted(now, conn, 10_000 + n),
                t.request(now, conn, conn),
                *(t.delivery(now, conn, b"%d-%d" % (n, i)) for i in range(50)),
                t.ended(now, conn),
                t.disconnected(now, conn),
            )
        rig.serve_mediator()

    rig.run(mediator, ordinary="broker launch")
    deliveries = rig.writer.of(Kind.DELIVERY)
    assert [d[4] for d in deliveries] == [b"%d-%d" % (n, i) for n in range(200) for i in range(50)]
    assert all(d[1] == [20, 20, 20000, None] for d in deliveries)
    assert isinstance(rig.writer.of(Kind.REQUEST)[0][8], bytes)
