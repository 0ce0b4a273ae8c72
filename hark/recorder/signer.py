"""The signer: a process that holds the signing key and signs the heads of one run.

Forked by the command line, it loads the key, gives up root and the network, and then answers
HARK_MSG_SIGN until end of file. Rules: it reads nothing but those messages and the key; the key
never leaves it; a recorder that was taken over can at most sign further, growing heads of the run
that it records, and none after the final one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from hark import limits
from hark.bundle.faults import Broken
from hark.bundle.format import HEAD_CONTEXT, Head
from hark.errors import HarkError, InputError
from hark.policy import privileges
from hark.policy.control import Channel, PeerBroken, PeerClosed, Sign, Signed, SignerReady

if TYPE_CHECKING:
    import socket
    from pathlib import Path

__all__ = ["HeadRule", "KeySource", "main"]

SIGNATURE_SIZE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySource:
    """Where the key comes from: ``path``, made when it is missing, or ``fd`` of --key's file.

    The file of ``fd`` was opened by the command line as the person; it is only read.
    """

    path: Path | None = None
    fd: int = -1


@dataclass(slots=True)
class HeadRule:
    """Which statements may be signed: one run, numbers from 0 in steps of 1, nothing taken back.

    The first statement fixes the run. It cannot be known before: the header, which it hashes, names
    the key.
    """

    last: Head | None = field(default=None)

    def admit(self, statement: bytes) -> bool:
        """Whether to sign ``statement`` (128 bytes, docs/spec/bundle.md, "Heads"); if so, note it.

        The same count must come with the same root: two roots for one count are two histories.
        """
        try:
            head = Head.parse(statement)
        except Broken:
            return False
        if not self.follows(head):
            return False
        self.last = head
        return True

    def follows(self, head: Head) -> bool:
        """Whether ``head`` continues what was signed so far."""
        last = self.last
        if last is None:
            return head.number == 0 and not head.final
        return (
            not last.final
            and head.header_hash == last.header_hash
            and head.number == last.number + 1
            and head.boot_ns >= last.boot_ns
            and (head.events > last.events or (head.events, head.root) == (last.events, last.root))
        )


def main(sock: socket.socket, source: KeySource, *, uid: int, gid: int) -> NoReturn:
    """Be the signer. Call it in a child right after fork, as root; it never returns.

    A key that cannot be used is told on stderr, as hark's other errors are; the command line sees
    end of file instead of HARK_MSG_SIGNER_READY. Exit status: 0 after end of file.
    """
    code = limits.EXIT_BUG
    try:
        privileges.kept_apart("hark-signer")
        key = load_key(source)
        privileges.leave_network()
        privileges.close_all_but([sock.fileno()])
        privileges.drop(uid, gid)
        serve(Channel(sock), key)
        code = 0
    except HarkError as error:
        code = error.exit_code
        with contextlib.suppress(OSError):
            os.write(2, "".join(f"{line}\n" for line in error.lines()).encode())
    finally:  # whatever happened: a child never runs on in its parent's code
        os._exit(code)


def serve(channel: Channel, key: Ed25519PrivateKey) -> None:
    """Say who signs, then answer until the recorder closes its end. Returns at end of file."""
    channel.send(SignerReady(key.public_key().public_bytes_raw()))
    rule = HeadRule()
    while True:
        try:
            got = channel.recv(None)
        except PeerClosed:
            return
        if got is None:
            continue
        got.close()
        if not isinstance(got.msg, Sign):
            raise PeerBroken(f"{type(got.msg).__name__} message to the signer")
        channel.send(answer(rule, key, got.msg.statement), ident=got.ident)


def answer(rule: HeadRule, key: Ed25519PrivateKey, statement: bytes) -> Signed:
    """Return the signature over the context and the statement, or EPERM."""
    if not rule.admit(statement):
        return Signed(errno.EPERM, bytes(SIGNATURE_SIZE))
    return Signed(0, key.sign(HEAD_CONTEXT + statement))


# --- the key --------------------------------------------------------------------------------------


def load_key(source: KeySource) -> Ed25519PrivateKey:
    """Read the key, or make the host's. Raises InputError for a file that is no Ed25519 key."""
    if source.path is None:
        with os.fdopen(source.fd, "rb") as file:
            return parse_key(file.read(limits.KEY_FILE_MAX_BYTES + 1), "the file of --key")
    while True:
        try:
            return read_host_key(source.path)
        except FileNotFoundError:
            make_host_key(source.path)


def read_host_key(path: Path) -> Ed25519PrivateKey:
    """Read a key file that only its owner, root or the current user, may open."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode) or state.st_uid != os.geteuid() or state.st_mode & 0o077:
            raise InputError(
                f"the signing key {path} is open to others",
                f"owner {state.st_uid}, mode {stat.S_IMODE(state.st_mode):04o}",
                f"chown root {path}; chmod 600 {path}; and make a new one if it was read",
            )
        return parse_key(file.read(limits.KEY_FILE_MAX_BYTES + 1), str(path))


def make_host_key(path: Path) -> None:
    """Write a new key at ``path``; when another run was faster, its key stays."""
    pem = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(pem)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()


def parse_key(pem: bytes, name: str) -> Ed25519PrivateKey:
    """Read an unencrypted PKCS #8 PEM file."""
    hint = "make one with `hark keygen`"
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError) as error:
        raise InputError(f"{name} holds no signing key", "not PEM, or encrypted", hint) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(f"{name} holds no Ed25519 key", type(key).__name__, hint)
    return key
