"""verify, inspect, prove, synth, keygen as a person uses them."""

from __future__ import annotations

import fcntl
import json
import os
import struct
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from harness.running import as_nobody, need

from hark.bundle.format import DOMAINS, Header
from hark.bundle.keys import SigningKey
from hark.bundle.synth import START_BOOT_NS, START_UNIX_NS, write
from hark.bundle.tree import blob_root
from hark.bundle.writer import BundleWriter, create
from hark.cli.app import main
from hark.cli.bundle_argument import find_bundle
from hark.cli.printable import json_value, printable, ulid_text
from hark.cli.verify import NOT_ANCHORED
from hark.errors import InputError

STEPS = 9


@pytest.fixture(autouse=True)
def in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)


def hark(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    status = main(list(argv))
    out, err = capsys.readouterr()
    return status, out, err


def test_the_first_steps_of_the_readme(capsys: pytest.CaptureFixture[str]):
    status, out, _ = hark(capsys, "keygen", "-out", "hark.key")
    assert status == 0
    key = out.strip()
    assert hark(capsys, "synth", "-key", "hark.key", "run.hark")[0] == 0
    status, out, _ = hark(capsys, "verify", "run.hark")
    lines = out.splitlines()
    assert status == 0
    assert lines[0] == f"signed by an unknown key: {key}"
    assert [line.split()[0] for line in lines[1 : STEPS + 1]] == [
        str(n) for n in range(1, STEPS + 1)
    ]
    assert lines[-2] == NOT_ANCHORED
    assert lines[-1] == "VERIFIED"
    assert any("nothing of this ever ran" in line for line in lines)
    status, out, _ = hark(capsys, "prove", "-seq", "14", "-out", "p.json", "run.hark")
    assert (status, out.split(",")[0]) == (0, "event 14: 4 sibling hashes + 1 peaks")
    Path("run.hark").unlink()
    status, out, _ = hark(capsys, "prove", "-check", "p.json", "--key", key)
    assert (status, out.splitlines()[-1]) == (0, "VERIFIED")
    assert "denied" in out


def test_corrupt_is_broken_and_names_the_event(capsys: pytest.CaptureFixture[str]):
    assert hark(capsys, "synth", "--corrupt", "9", "bad.hark")[0] == 0
    status, out, _ = hark(capsys, "verify", "bad.hark")
    assert status == 1
    assert out.splitlines()[-1] == "BROKEN  event 9 was changed"
    assert out.splitlines()[3].startswith("  3 FAILED")


def test_truncate_is_truncated_and_keeps_the_prefix(capsys: pytest.CaptureFixture[str]):
    assert hark(capsys, "synth", "--truncate", "14", "part.hark")[0] == 0
    status, out, _ = hark(capsys, "verify", "part.hark")
    assert status == 3
    assert out.splitlines()[-1].startswith("TRUNCATED")
    assert "\nevents       14, signed through" in out
    status, out, _ = hark(capsys, "inspect", "--json", "part.hark")
    assert [json.loads(line)["seq"] for line in out.splitlines()] == list(range(14))


def test_another_key_is_rejected(capsys: pytest.CaptureFixture[str]):
    hark(capsys, "synth", "run.hark")
    status, out, _ = hark(capsys, "verify", "-key", "07" * 32, "run.hark")
    assert (status, out.splitlines()[-1].split()[0]) == (1, "REJECTED")
    status, _, err = hark(capsys, "verify", "-key", "nonsense", "run.hark")
    assert (status, err.splitlines()[0].split(":")[1]) == (2, " error")
    for option in ("--require-signature", "--require-signer"):
        status, out, _ = hark(capsys, "verify", option, "run.hark")
        lines = out.splitlines()
        assert (status, lines[-1].split()[0]) == (1, "REJECTED")
        assert lines[0].startswith("signed by an unknown key: ")
    key = lines[0].split()[-1]
    Path("trusted").write_text(f"# ours\n{key} the night shift\n")
    for known in (["--key", key], ["--trusted-keys", "trusted"]):
        status, out, _ = hark(capsys, "verify", "--require-signature", *known, "run.hark")
        assert (status, out.splitlines()[-1]) == (0, "VERIFIED")
    assert out.splitlines()[0] == f"signed by the night shift (trusted): {key}"
    for name, content in (("empty", b""), ("binary", b"\xff" * 64), ("long", b"ab" * 500)):
        Path(name).write_bytes(content)
        status, _, err = hark(capsys, "verify", "--key", name, "run.hark")
        assert (status, "not a public key" in err) == (2, True)


def test_verify_json_and_pure_python(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    hark(capsys, "synth", "--events", "500", "run.hark")
    _, native, _ = hark(capsys, "verify", "--json", "run.hark")
    monkeypatch.setenv("HARK_PURE", "1")
    status, pure, err = hark(capsys, "verify", "--json", "--verbose", "run.hark")
    assert status == 0
    assert "pure" in err
    assert json.loads(native) == json.loads(pure)
    assert json.loads(pure)["verdict"] == "VERIFIED"
    assert json.loads(pure)["events"] == 500


def test_verify_works_without_the_native_module():
    """A process in which hark._native cannot be imported at all."""
    code = (
        "import sys; sys.modules['hark._native'] = None\n"
        "from hark.cli.app import main\n"
        "assert main(['synth', 'x.hark']) == 0\n"
        "sys.exit(main(['verify', '--verbose', 'x.hark']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "pure core" in done.stderr


@pytest.mark.parametrize("pure", [False, True], ids=["native", "pure"])
def test_verify_and_inspect_need_no_root(pure: bool):
    need("root", os.geteuid() == 0)
    main(["synth", "--corrupt", "9", "run.hark"])
    file = os.open("run.hark", os.O_RDONLY)
    os.fchmod(file, 0o644)  # the folders above it stay closed
    nobody = as_nobody("--bounding-set=-all", "--inh-caps=-all")
    command = [*nobody, sys.executable, "-m", "hark.cli.app"]
    env = os.environ | ({"HARK_PURE": "1"} if pure else {})
    for verb, status, said in (("verify", 1, "BROKEN  event 9"), ("inspect", 1, "exec")):
        argv = [*command, verb, f"/proc/self/fd/{file}"]
        done = subprocess.run(
            argv, pass_fds=[file], cwd="/", env=env, capture_output=True, text=True, check=False
        )
        assert (done.returncode, said in done.stdout) == (status, True), done.stderr
    os.close(file)


def test_synth_overwrites_nothing(capsys: pytest.CaptureFixture[str]):
    hark(capsys, "synth", "run.hark")
    before = Path("run.hark").read_bytes()
    status, _, err = hark(capsys, "synth", "run.hark")
    assert status == 2
    assert "exists" in err
    assert Path("run.hark").read_bytes() == before
    for wrong in (["--corrupt", "17"], ["--truncate", "-1"], ["--events", "0"]):
        assert hark(capsys, "synth", *wrong, "other.hark")[0] == 2
        assert not Path("other.hark").exists()


def rows_bundle(rows: list[Any]) -> None:
    fd = create("r.hark")
    write(fd, SigningKey.generate(), rows)
    os.close(fd)


BOMB_BYTES = 1 << 32


def bomb() -> bytes:
    """A bundle whose event 1 has a body of 4 GiB: one chunk of 256 KiB again and again."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bundle"))
    from bundle_hostile import reference  # noqa: PLC0415
    from bundle_making import CORES, RawWriter, made  # noqa: PLC0415

    chunk = bytes(256 << 10)
    count = BOMB_BYTES // len(chunk)

    def fill(writer: RawWriter) -> None:
        seed, store = writer.seed, writer._chunks
        store._core = type("Whole", (), {"cut": lambda *_: [len(chunk)]})()
        store._core.__dict__.update(
            {n: getattr(CORES[0], n) for n in ("xof", "commit_chunks", "keyed")}
        )
        writer.append(16, 1, {4: chunk})
        salt = CORES[0].xof(seed, b"chunk", 16, 0)
        commitment = CORES[0].commit_chunks(chunk, [len(chunk)], salt, DOMAINS.chunk)
        writer.flush()
        table = (struct.pack(">I", len(chunk)) + commitment) * count
        root = blob_root(CORES[0], BOMB_BYTES, table)
        writer.raw(16, 2, reference(BOMB_BYTES, root, [0, 1] * count))

    return made(fill)


HOSTILE = b"\x1b[2J\x07\rVERIFIED\x9b31m\xe2\x80\xae\xff"


def test_inspect_escapes_what_the_agent_made(capsys: pytest.CaptureFixture[str]):
    actor = [5, 6, 7, None]
    rows_bundle(
        [
            (5, 1, {1: actor, 4: b"/tmp/\x1b]0;x\x07", 5: [HOSTILE]}),
            (27, 2, {4: "subject\x1b[31m", 5: HOSTILE.decode("latin-1"), 6: {"k\x1b": "\u202e"}}),
            (60, 3, {4: HOSTILE}),
            (5, 4, {1: ["\x1b[2J", HOSTILE, ["\x1b"], b"digest"], 4: b"x"}),
        ]
    )
    for argv in (
        ["inspect"],
        ["inspect", "--json"],
        ["inspect", "--seq", "0"],
        ["inspect", "--seq", "1"],
    ):
        status, out, _ = hark(capsys, *argv, "r.hark")
        assert status == 0
        assert all(c == "\n" or c.isprintable() for c in out), out
        assert "\u202e" not in out


def test_inspect_names_programs_and_filters(capsys: pytest.CaptureFixture[str]):
    actor = [10, 10, 99, b"\xab" * 32]
    rows_bundle(
        [
            (5, 1, {1: actor, 4: b"/usr/bin/curl"}),
            (8, 2, {1: [10, 11, 99, b"\xab" * 32], 6: b"\x7f\0\0\1", 7: 443}),
            (19, 3, {2: 1, 4: b"z" * 5000}),
            (19, 4, {2: 1, 4: bytes(range(256)) * 8}),
        ]
    )
    _, out, _ = hark(capsys, "inspect", "--kind", "connect", "r.hark")
    assert "10/11 abababab curl" in out
    assert "dst=127.0.0.1 dport=443" in out
    assert len(out.splitlines()) == 2
    _, out, _ = hark(capsys, "inspect", "--json", "--since", "0.025", "r.hark")
    bodies = [json.loads(line)["data"] for line in out.splitlines()]
    assert bodies[0] == "z" * 5000
    assert list(bodies[1]) == ["base64"]
    _, out, _ = hark(capsys, "inspect", "-n", "2", "--json", "r.hark")
    assert [json.loads(line)["kind"] for line in out.splitlines()] == ["exec", "connect"]
    status, _, err = hark(capsys, "inspect", "--kind", "nonsense", "r.hark")
    assert (status, "run_start" in err) == (2, True)
    status, _, err = hark(capsys, "inspect", "--seq", "99", "r.hark")
    assert (status, "no event 99" in err) == (2, True)


def seqs(out: str) -> list[int]:
    return [json.loads(line)["seq"] for line in out.splitlines()]


def test_inspect_tells_the_time_of_day(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    assert hark(capsys, "synth", "--events", "40", "s.hark")[0] == 0
    lines = [
        json.loads(line) for line in hark(capsys, "inspect", "--json", "s.hark")[1].splitlines()
    ]
    start = datetime.fromtimestamp(START_UNIX_NS // 10**9, UTC).replace(
        microsecond=START_UNIX_NS // 1000 % 10**6
    )
    for line in lines:
        since = timedelta(microseconds=(line["time_ns"] - START_BOOT_NS) // 1000)
        assert abs(datetime.fromisoformat(line["time"]) - start - since) <= timedelta(
            microseconds=1
        )
        assert line["time"].endswith("Z")
    monkeypatch.setenv("TZ", "Etc/GMT-3")
    time.tzset()
    for clock, ending in (("utc", "Z"), ("local", "+03:00")):
        out = hark(capsys, "inspect", "--time", clock, "s.hark")[1].splitlines()
        times = [line.split()[1] for line in out[1:]]
        assert all(text.endswith(ending) for text in times)
        told = [datetime.fromisoformat(text) for text in times]
        assert told == [datetime.fromisoformat(line["time"]) for line in lines]
        assert out[0].index("TIME") + 4 == out[1].index(times[0]) + len(times[0])
    assert lines[3]["time"] in hark(capsys, "inspect", "--seq", "3", "s.hark")[1]


def test_inspect_names_the_host_of_a_denied_request(capsys: pytest.CaptureFixture[str]):
    head = b"POST /collect HTTP/1.1\r\nhOst: evil.example \r\n\r\n"
    rows_bundle(
        [
            (15, 1, {2: 1, 4: 1, 6: "POST", 7: b"/collect", 8: head}),
            (15, 2, {2: 2, 4: 1, 5: "good.example", 6: "GET", 7: b"/", 8: head}),
            (15, 3, {2: 3, 4: 1, 6: "GET", 7: b"/x", 8: b"GET /x HTTP/1.0\r\n\r\n"}),
        ]
    )
    out = hark(capsys, "inspect", "r.hark")[1]
    for said in ("POST evil.example/collect", "GET good.example/", "GET ?/x"):
        assert said in out
    assert "None" not in out


def test_inspect_exits_as_verify_does_and_says_why(capsys: pytest.CaptureFixture[str]):
    for name, options in (
        ("good", []),
        ("bad", ["--corrupt", "9"]),
        ("part", ["--truncate", "14"]),
    ):
        hark(capsys, "synth", *options, f"{name}.hark")
    assert hark(capsys, "inspect", "--json", "good.hark")[::2] == (0, "")
    for argv in ([], ["--json"], ["-n", "3"], ["--kind", "request"], ["--seq", "3"]):
        status, out, err = hark(capsys, "inspect", *argv, "bad.hark")
        assert (status, bool(out)) == (1, True), argv
        assert err.splitlines() == [
            "hark: warning: this bundle is BROKEN: event 9 was changed",
            "hark: hint: hark verify says more",
        ]
        status, out, err = hark(capsys, "inspect", *argv, "part.hark")
        assert (status, bool(out)) == (3, True), argv
        assert err.startswith("hark: warning: this bundle is TRUNCATED: no final head")
    assert hark(capsys, "verify", "bad.hark")[0] == 1
    assert hark(capsys, "verify", "part.hark")[0] == 3


def test_inspect_of_every_cut_agrees_with_verify(capsys: pytest.CaptureFixture[str]):
    hark(capsys, "synth", "run.hark")
    data = Path("run.hark").read_bytes()
    for cut in (0, 5, 8, 30, 100, *range(200, len(data), 211), len(data) - 1):
        Path("cut.hark").write_bytes(data[:cut])
        verdict = hark(capsys, "verify", "cut.hark")[0]
        status, out, err = hark(capsys, "inspect", "--json", "cut.hark")
        assert (status, bool(err)) == (verdict, verdict != 0), cut
        assert seqs(out) == list(range(len(out.splitlines())))


def test_inspect_goes_on_behind_what_cannot_be_read(capsys: pytest.CaptureFixture[str]):
    """A batch in the middle is damaged, the index is not: the events around it are printed."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bundle"))
    from bundle_making import RawWriter, join, made, split  # noqa: PLC0415

    def fill(writer: RawWriter) -> None:
        for i in range(90):
            writer.append(19, i, {2: i, 4: b"word " * 20})
            if i % 30 == 29:
                writer.flush()

    parts = split(made(fill))
    second = [i for i, (kind, _) in enumerate(parts) if kind == "b"][1]
    body = bytearray(parts[second][1])
    body[76:84] = bytes(8)  # the magic of the events section's zstd frame
    parts[second] = ("b", bytes(body))
    Path("hole.hark").write_bytes(join(parts, fix=False))
    status, out, err = hark(capsys, "inspect", "--json", "hole.hark")
    assert seqs(out) == [*range(30), *range(60, 90)]
    assert (status, "this bundle is BROKEN" in err) == (1, True)
    status, out, err = hark(capsys, "inspect", "--seq", "75", "hole.hark")
    assert (status, "event    75" in out, "BROKEN" in err) == (1, True, True)


def test_inspect_tells_of_a_verified_event_that_is_no_map_of_numbers(
    capsys: pytest.CaptureFixture[str],
):
    """Such a payload is canonical, so the bundle verifies, but nothing of it can be shown."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bundle"))
    from bundle_making import RawWriter, made  # noqa: PLC0415

    def fill(writer: RawWriter) -> None:
        for payload in (b"\xa1\x05\x01", b"\x80", b"\xa1\x05\x02"):
            writer.raw(19, 1, payload)

    Path("odd.hark").write_bytes(made(fill))
    assert hark(capsys, "verify", "odd.hark")[0] == 0
    status, out, err = hark(capsys, "inspect", "--json", "odd.hark")
    assert (status, seqs(out)) == (1, [0, 2])
    assert err == "hark: warning: event 1 is not a map of numbered fields\n"


def test_follow_ends_with_the_bundle_and_checks_it(capsys: pytest.CaptureFixture[str]):
    hark(capsys, "synth", "run.hark")
    status, out, err = hark(capsys, "inspect", "--follow", "--json", "run.hark")
    assert (status, len(seqs(out)), err) == (0, 17, "")


def test_follow_prints_while_the_bundle_is_written():
    """Each line is waited for, so nothing here depends on how fast anything is."""
    fd = create("live.hark")
    key = SigningKey.generate()
    header = Header(run_id=bytes(16), created_unix_ns=1, recorder="test", public_key=key.public)
    writer = BundleWriter(
        fd, header, key.sign_head, now_boot_ns=time.monotonic_ns, now_unix_ns=time.time_ns
    )
    writer.head()
    argv = [sys.executable, "-m", "hark.cli.app", "inspect", "--follow", "--json", "live.hark"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        for i in range(3):
            writer.append(19, i, {2: i})
            writer.flush()
            assert child.stdout is not None
            assert json.loads(child.stdout.readline())["exchange"] == i
        assert child.poll() is None
        writer.seal()
        out, err = child.communicate()
    os.close(fd)
    assert (child.returncode, out, err) == (0, b"", b"")


def test_a_body_can_be_proved_with_its_event(capsys: pytest.CaptureFixture[str]):
    body = bytes(range(256)) * 300
    rows_bundle([(19, 1, {2: 1, 4: body})])
    made = hark(capsys, "prove", "--seq", "0", "--bodies", "--out", "p.json", "r.hark")
    assert made[0] == 0, made[2]
    Path("r.hark").unlink()
    status, out, _ = hark(capsys, "prove", "--check", "p.json")
    assert (status, out.splitlines()[-1]) == (0, "VERIFIED")
    assert f"body         0: {len(body)} bytes" in out.splitlines()
    proof = json.loads(Path("p.json").read_text())
    chunk = proof["bodies"][0][0]
    chunk[2] = f"{int(chunk[2][:2], 16) ^ 1:02x}" + chunk[2][2:]
    Path("p.json").write_text(json.dumps(proof))
    status, _, err = hark(capsys, "prove", "--check", "p.json")
    assert (status, "a body does not match its root" in err) == (1, True)


TEXT_DIGEST = b"0123456789abcdef" * 2  # bytes of a digest that happen to be text


def test_digests_and_addresses_look_the_same_whatever_their_bytes(
    capsys: pytest.CaptureFixture[str],
):
    actor = [10, 10, 99, TEXT_DIGEST]
    entry = [b"a/b", "A", 0, 3, 0o644, TEXT_DIGEST]
    rows_bundle(
        [
            (5, 1, {1: actor, 4: b"/bin/x", 5: [TEXT_DIGEST], 7: TEXT_DIGEST}),
            (8, 2, {4: b"abcd", 6: b"\x7f\0\0\1", 7: 443}),
            (10, 3, {4: b"host", 7: [b"abcd", b"ABCDEFGHIJKLMNOP", b"abc"]}),
            (14, 4, {10: TEXT_DIGEST}),
            (28, 5, {4: b"/w", 5: [entry] * 7, 7: TEXT_DIGEST}),
        ]
    )
    _, out, _ = hark(capsys, "inspect", "--json", "r.hark")
    ran, connect, dns, upstream, written = map(json.loads, out.splitlines())
    assert ran["actor"] == [10, 10, 99, TEXT_DIGEST.hex()]
    assert (ran["digest"], ran["argv"]) == (TEXT_DIGEST.hex(), [TEXT_DIGEST.decode()])
    assert (connect["src"], connect["dst"]) == ("97.98.99.100", "127.0.0.1")
    assert dns["answers"] == ["97.98.99.100", "4142:4344:4546:4748:494a:4b4c:4d4e:4f50", "616263"]
    assert upstream["certificate"] == TEXT_DIGEST.hex()
    assert written["root"] == TEXT_DIGEST.hex()
    assert written["entries"] == [["a/b", "A", 0, 3, 0o644, TEXT_DIGEST.hex()]] * 7
    _, out, _ = hark(capsys, "inspect", "--seq", "0", "r.hark")
    assert f"actor:         [10, 10, 99, {TEXT_DIGEST.hex()}]" in out.splitlines()
    assert f"digest:        {TEXT_DIGEST.hex()}" in out.splitlines()


def test_a_checked_proof_names_its_fields(capsys: pytest.CaptureFixture[str]):
    rows_bundle(
        [(5, 1, {4: HOSTILE, 7: TEXT_DIGEST}), (19, 2, {4: b"z" * 70000}), (27, 3, [1, "a"])]
    )
    shown = []
    for seq in ("0", "1", "2"):
        assert hark(capsys, "prove", "--seq", seq, "--out", f"{seq}.json", "r.hark")[0] == 0
        status, out, _ = hark(capsys, "prove", "--check", f"{seq}.json")
        assert (status, out.splitlines()[-1]) == (0, "VERIFIED")
        assert all(c == "\n" or c.isprintable() for c in out), out
        shown.append(out.splitlines())
    assert f"filename:      {printable(HOSTILE)}" in shown[0]
    assert f"digest:        {TEXT_DIGEST.hex()}" in shown[0]
    assert any(line.startswith("data:          68.4 KiB, root ") for line in shown[1])
    assert "payload:       [1, a]" in shown[2]


def test_inspect_names_the_calls_that_seccomp_stopped(capsys: pytest.CaptureFixture[str]):
    rows_bundle(
        [
            (11, 1, {4: "seccomp", 5: "syscall_absent", 7: 435, 8: 38}),
            (11, 2, {4: "seccomp", 5: "syscall_refused", 7: 250, 8: 1}),
            (11, 3, {4: "seccomp", 5: "syscall_killed", 7: 20, 18: True}),
            (11, 4, {4: "seccomp", 7: 1 << 40, 8: [HOSTILE]}),
        ]
    )
    _, out, _ = hark(capsys, "inspect", "r.hark")
    rows = out.splitlines()[1:]
    assert rows[0].endswith("reason=syscall_absent syscall=435 errno=38 (clone3: ENOSYS)")
    assert rows[1].endswith("(keyctl: EPERM)")
    assert rows[2].endswith("(i386 20)")
    assert "syscall 1099511627776" in rows[3]


def test_a_body_that_names_one_chunk_for_ever_costs_no_memory(
    capsys: pytest.CaptureFixture[str],
):
    """A reference of a few kilobytes can say gigabytes; what reads it was not verified."""
    Path("bomb.hark").write_bytes(bomb())
    assert hark(capsys, "verify", "bomb.hark")[0] == 0
    assert json.loads(hark(capsys, "inspect", "--json", "--seq", "1", "bomb.hark")[1]) == {
        "seq": 1,
        "kind": "body",
        "time_ns": 2,
        "time": "2023-11-14T22:13:15.000000Z",
        "9": {"omitted_bytes": BOMB_BYTES},
    }
    assert "too long to be shown" in hark(capsys, "inspect", "--seq", "1", "bomb.hark")[1]
    status, _, err = hark(capsys, "prove", "--seq", "1", "--bodies", "--out", "p", "bomb.hark")
    assert (status, "too long for a proof" in err) == (2, True)


@pytest.mark.parametrize(
    ("argv", "status", "said"),
    [
        (["inspect", "."], 2, "Is a directory"),
        (["prove", "--seq", "0", "--out", "p", "."], 2, "Is a directory"),
        (["verify", "--key", "/dev/zero", "run.hark"], 2, "64 hexadecimal digits"),
    ],
)
def test_files_that_are_no_files(
    argv: list[str], status: int, said: str, capsys: pytest.CaptureFixture[str]
):
    hark(capsys, "synth", "run.hark")
    got, _, err = hark(capsys, *argv)
    assert (got, said in err) == (status, True), err


@pytest.mark.parametrize("since", ["nan", "inf", "-inf", "x"])
def test_since_is_a_number_of_seconds(since: str, capsys: pytest.CaptureFixture[str]):
    hark(capsys, "synth", "run.hark")
    with pytest.raises(SystemExit) as stop:
        hark(capsys, "inspect", f"--since={since}", "run.hark")
    assert stop.value.code == 2
    assert f"invalid seconds value: '{since}'" in capsys.readouterr().err


def test_prove_refuses(capsys: pytest.CaptureFixture[str]):
    hark(capsys, "synth", "run.hark")
    assert hark(capsys, "prove", "run.hark")[0] == 2
    assert hark(capsys, "prove", "--seq", "17", "run.hark")[0] == 2
    Path("p.json").write_text("{}")
    assert hark(capsys, "prove", "--check", "p.json")[0] == 1
    assert hark(capsys, "prove", "--seq", "1", "--out", "p.json", "run.hark")[0] == 2  # exists
    assert hark(capsys, "prove", "--seq", "1", "--out", "p.cbor", "run.hark")[0] == 0
    assert hark(capsys, "prove", "--check", "p.cbor")[0] == 0
    status, out, _ = hark(capsys, "prove", "--check", "p.cbor", "--key", "07" * 32)
    assert (status, out.splitlines()[-1].split()[0]) == (1, "REJECTED")


def test_run_argument(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    runs = tmp_path / "runs"
    here = tmp_path / "here"
    for name in ("01J8XAAAAAAAAAAAAAAAAAAAAA", "01J8XBBBBBBBBBBBBBBBBBBBBB"):
        (runs / name).mkdir(parents=True)
        (runs / name / "run.hark").touch()
    here.mkdir()
    newest = here / "run-01J9ZZZZZZZZZZZZZZZZZZZZZZ.hark"
    newest.touch()

    def find(name: str) -> Path:
        return find_bundle(name, here=here, runs=runs)

    assert find("latest") == newest
    going_on = runs / "01JA0000000000000000000000"
    going_on.mkdir()
    (going_on / "run.hark").touch()
    elsewhere = tmp_path / "elsewhere"
    with (going_on / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert find("latest") == newest
        assert find_bundle("latest", live=True, here=here, runs=runs) == going_on / "run.hark"
        over = runs / "01J8XBBBBBBBBBBBBBBBBBBBBB" / "run.hark"
        assert find_bundle("latest", here=elsewhere, runs=runs) == over
    assert find_bundle("latest", here=elsewhere, runs=runs) == going_on / "run.hark"
    assert find("01j8xa") == runs / "01J8XAAAAAAAAAAAAAAAAAAAAA" / "run.hark"
    assert find("01J9") == newest
    for name, match in (("01J8X", "2 runs begin"), ("02", "no run"), ("nonsense!", "no bundle")):
        with pytest.raises(InputError, match=match):
            find(name)
    with pytest.raises(InputError, match="no run here"):
        find_bundle("latest", here=tmp_path / "none", runs=tmp_path / "none")
    assert find("missing.hark") == Path("missing.hark")
    assert hark(capsys, "verify", "missing.hark")[0] == 2


def test_printable_and_json():
    assert printable(HOSTILE) == "\\x1b[2J\\x07\\rVERIFIED\\x9b31m\\u202e\\xff"
    assert printable("é ✓ plain") == "é ✓ plain"
    assert printable(b"a" * 50, 10) == "aaaaaaaaa…"
    assert json_value({1: [b"ok", b"\xff"]}) == {"1": ["ok", {"base64": "/w=="}]}
    assert ulid_text(bytes(16)) == "0" * 26
    assert ulid_text(b"\xff" * 16) == "7" + "Z" * 25
