"""The real signer process over a real control socket; the oracle is the signature check itself."""

from __future__ import annotations

import errno
import os
import signal
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from hark.bundle.format import HEAD_CONTEXT, Head
from hark.errors import InputError
from hark.policy.control import (
    Channel,
    MsgType,
    PeerClosed,
    Plain,
    Sign,
    Signed,
    SignerReady,
    Unwrap,
    Unwrapped,
    Wrap,
    Wrapped,
    socket_pair,
)
from hark.recorder import signer
from hark.recorder.signer import HeadRule, KeySource

UID = 0x7700_0FF1

FIRST = Head(
    header_hash=b"h" * 32,
    events=1,
    root=b"r" * 32,
    chain=b"c" * 32,
    unix_ns=1_700_000_000_000_000_000,
    boot_ns=10,
    number=0,
    final=False,
)


class Signer:
    """A signer process and the recorder's end of its socket."""

    def __init__(self, source: KeySource) -> None:
        ours, theirs = socket_pair()
        self.stderr, stderr = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.dup2(stderr, 2)
            signer.main(theirs, source, uid=UID, gid=UID)
        theirs.close()
        os.close(stderr)
        self.channel = Channel(ours)

    def ready(self) -> Ed25519PublicKey:
        message, _ = self.channel.expect(SignerReady, 30)
        return Ed25519PublicKey.from_public_bytes(message.public_key)

    def sign(self, statement: bytes, ident: int = 7) -> Signed:
        self.channel.send(Sign(statement), ident=ident)
        got = self.channel.recv(30)
        assert got is not None
        assert got.ident == ident
        assert isinstance(got.msg, Signed)
        return got.msg

    def end(self) -> tuple[int, str]:
        self.channel.close()
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        with os.fdopen(self.stderr, "rb") as file:
            return code, file.read().decode()


@pytest.fixture
def key_path(tmp_path: Path) -> Path:
    return tmp_path / "etc" / "key.pem"


@pytest.mark.kernel
def test_a_run_is_signed_from_start_to_end(key_path: Path) -> None:
    run = Signer(KeySource(path=key_path))
    public = run.ready()
    heads = [
        FIRST,
        replace(FIRST, number=1, events=5, root=b"s" * 32, boot_ns=11),
        replace(FIRST, number=2, events=5, root=b"s" * 32, boot_ns=12, final=True),
    ]
    for head in heads:
        answer = run.sign(head.encode())
        assert answer.err == 0
        public.verify(answer.signature, HEAD_CONTEXT + head.encode())
        with pytest.raises(InvalidSignature):
            public.verify(answer.signature, HEAD_CONTEXT + replace(head, events=99).encode())
    after = run.sign(replace(heads[2], number=3, final=False).encode())
    assert after == Signed(errno.EPERM, bytes(64))
    assert run.end() == (0, "")


@pytest.mark.kernel
def test_the_same_key_serves_the_next_run(key_path: Path) -> None:
    keys = []
    for _ in range(2):
        run = Signer(KeySource(path=key_path))
        keys.append(run.ready().public_bytes_raw())
        assert run.end()[0] == 0
    assert keys[0] == keys[1]
    assert key_path.stat().st_mode & 0o7777 == 0o600
    assert sorted(entry.name for entry in key_path.parent.iterdir()) == ["key.pem", "key.pub"]


@pytest.mark.kernel
def test_two_first_runs_at_once_agree_on_the_key(key_path: Path) -> None:
    runs = [Signer(KeySource(path=key_path)) for _ in range(4)]
    keys = {run.ready().public_bytes_raw() for run in runs}
    assert len(keys) == 1
    assert [run.end()[0] for run in runs] == [0, 0, 0, 0]


@pytest.mark.kernel
def test_the_process_has_no_rights_and_no_network(key_path: Path) -> None:
    run = Signer(KeySource(path=key_path))
    run.ready()
    status = Path(f"/proc/{run.pid}/status").read_text()
    assert "Name:\thark-signer\n" in status
    assert f"Uid:\t{UID}\t{UID}\t{UID}\t{UID}\n" in status
    assert "CapEff:\t0000000000000000\n" in status
    assert "NoNewPrivs:\t1\n" in status
    assert Path(f"/proc/{run.pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()
    open_files = {str(e.readlink()) for e in Path(f"/proc/{run.pid}/fd").iterdir()}
    assert {name.split(":")[0] for name in open_files} == {"/dev/null", "socket"}
    assert run.end()[0] == 0


@pytest.mark.kernel
def test_a_key_file_given_as_descriptor(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    path = tmp_path / "mine.pem"
    path.write_bytes(pem_of(key))
    with path.open("rb") as file:
        run = Signer(KeySource(fd=file.fileno()))
    assert run.ready().public_bytes_raw() == key.public_key().public_bytes_raw()
    assert run.sign(FIRST.encode()).err == 0
    assert run.end()[0] == 0


@pytest.mark.kernel
@pytest.mark.parametrize("given", ["path", "fd"])
@pytest.mark.parametrize("content", ["empty", "broken", "ec", "encrypted", "huge"])
def test_a_bad_key_is_told_and_nothing_is_signed(tmp_path: Path, content: str, given: str) -> None:
    made = {
        "empty": b"",
        "broken": b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        "ec": pem_of(generate_private_key(SECP256R1())),
        "encrypted": pem_of(Ed25519PrivateKey.generate(), b"password"),
        "huge": b"x" * 100_000,
    }
    path = tmp_path / "key.pem"
    path.write_bytes(made[content])
    path.chmod(0o600)
    refused(KeySource(path=path) if given == "path" else KeySource(fd=os.open(path, os.O_RDONLY)))


@pytest.mark.kernel
def test_a_host_key_that_others_may_read_is_refused(key_path: Path) -> None:
    run = Signer(KeySource(path=key_path))
    run.ready()
    assert run.end()[0] == 0
    key_path.chmod(0o644)
    refused(KeySource(path=key_path))


def refused(source: KeySource) -> None:
    run = Signer(source)
    with pytest.raises(PeerClosed):
        run.channel.recv(30)
    code, stderr = run.end()
    assert code == InputError.exit_code
    assert stderr.startswith("hark: error: ")
    assert "key" in stderr


@pytest.mark.kernel
def test_a_foreign_message_ends_it(key_path: Path) -> None:
    run = Signer(KeySource(path=key_path))
    run.ready()
    run.channel.send(Plain(MsgType.GO))
    with pytest.raises(PeerClosed):
        run.channel.recv(30)
    assert run.end()[0] == 125


@pytest.mark.kernel
def test_when_it_is_killed_the_recorder_sees_end_of_file(key_path: Path) -> None:
    run = Signer(KeySource(path=key_path))
    run.ready()
    os.kill(run.pid, signal.SIGKILL)
    with pytest.raises(PeerClosed):
        run.channel.recv(30)
    assert run.end()[0] == -signal.SIGKILL


SECOND = replace(FIRST, number=1, events=4, root=b"x" * 32, boot_ns=20)


@pytest.mark.parametrize(
    "change",
    [
        {"header_hash": b"o" * 32},
        {"number": 0},
        {"number": 3},
        {"events": 0},
        {"events": 3},
        {"boot_ns": 19},
        {"events": 4, "root": b"y" * 32},
    ],
)
def test_what_does_not_continue_the_run_is_refused(change: dict[str, object]) -> None:
    rule = HeadRule()
    assert rule.admit(FIRST.encode())
    assert rule.admit(SECOND.encode())
    good = replace(SECOND, number=2)
    assert not rule.admit(replace(good, **change).encode())
    assert rule.admit(good.encode())  # a refusal changes nothing


def test_the_first_head_is_number_zero_and_not_final() -> None:
    assert not HeadRule().admit(replace(FIRST, number=1).encode())
    assert not HeadRule().admit(replace(FIRST, final=True).encode())


@pytest.mark.parametrize("at", range(125, 128))
def test_reserved_bytes_must_be_zero(at: int) -> None:
    data = bytearray(FIRST.encode())
    data[at] = 1
    assert not HeadRule().admit(bytes(data))


@given(st.binary(min_size=0, max_size=200))
def test_any_bytes_get_an_answer(data: bytes) -> None:
    rule = HeadRule()
    assert rule.admit(data) == (len(data) == 128 and rule.last is not None)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.booleans()), max_size=20))
def test_the_signed_heads_always_form_one_history(steps: list[tuple[int, int, bool]]) -> None:
    rule, signed = HeadRule(), []
    for number, events, final in steps:
        head = replace(FIRST, number=number, events=events, root=bytes([events]) * 32, final=final)
        if rule.admit(head.encode()):
            signed.append(head)
    assert [head.number for head in signed] == list(range(len(signed)))
    assert all(a.events <= b.events for a, b in pairwise(signed))
    assert not any(head.final for head in signed[:-1])


def pem_of(key: object, password: bytes = b"") -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password)
        if password
        else serialization.NoEncryption(),
    )


def wrapped(process: Signer, seed: bytes) -> Wrapped:
    process.channel.send(Wrap(seed))
    return process.channel.expect(Wrapped, 30)[0]


def unwrapped(process: Signer, sealed: bytes) -> Unwrapped:
    process.channel.send(Unwrap(sealed))
    return process.channel.expect(Unwrapped, 30)[0]


def test_a_seed_is_sealed_and_opened_by_the_same_key_alone(tmp_path: Path):
    seed = os.urandom(32)
    first = Signer(KeySource(path=tmp_path / "one.pem"))
    first.ready()
    sealed = wrapped(first, seed)
    assert sealed.err == 0
    assert seed not in sealed.sealed
    assert wrapped(first, seed).err == errno.EPERM, "once"
    assert first.end()[0] == 0
    again = Signer(KeySource(path=tmp_path / "one.pem"))
    again.ready()
    assert unwrapped(again, sealed.sealed) == Unwrapped(0, seed)
    assert unwrapped(again, sealed.sealed).err == errno.EPERM, "once"
    assert again.end()[0] == 0
    other = Signer(KeySource(path=tmp_path / "other.pem"))
    other.ready()
    assert unwrapped(other, sealed.sealed) == Unwrapped(errno.EKEYREJECTED, bytes(32))
    assert other.end()[0] == 0


def test_after_the_first_head_no_seed_is_sealed_or_opened(tmp_path: Path):
    process = Signer(KeySource(path=tmp_path / "key.pem"))
    process.ready()
    assert process.sign(FIRST.encode()).err == 0
    assert wrapped(process, bytes(32)).err == errno.EPERM
    assert unwrapped(process, bytes(80)).err == errno.EPERM
    assert process.end()[0] == 0


@pytest.mark.parametrize("at", [0, 31, 32, 63, 79])
def test_a_damaged_seed_opens_nothing(tmp_path: Path, at: int):
    process = Signer(KeySource(path=tmp_path / "key.pem"))
    process.ready()
    sealed = bytearray(wrapped(process, os.urandom(32)).sealed)
    sealed[at] ^= 1
    assert unwrapped(process, bytes(sealed)).err == errno.EKEYREJECTED
    assert process.end()[0] == 0
