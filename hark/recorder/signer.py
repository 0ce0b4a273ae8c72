"""The signer: a process that holds the signing key and signs the heads of one run.

Forked by the command line, it loads the key, gives up root and the network, and then answers
HARK_MSG_SIGN until end of file. Rules: it reads nothing but those messages and the key; the key
never leaves it; a recorder that was taken over can at most sign further, growing heads of the run
that it records, and none after the final one.

It also seals the run's seed for the holder of the key, and opens the one of a recording that is
replayed: each once, before the first head, so before the agent exists.
"""

from __future__ import annotations

import contextlib
import errno
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from hark import limits
from hark.bundle.faults import Broken
from hark.bundle.format import Head
from hark.bundle.keys import SigningKey, host_key
from hark.bundle.sealing import unwrap, wrap
from hark.errors import HarkError, InputError
from hark.policy import privileges
from hark.policy.control import (
    Channel,
    PeerBroken,
    PeerClosed,
    Sign,
    Signed,
    SignerReady,
    Unwrap,
    Unwrapped,
    Wrap,
    Wrapped,
)

if TYPE_CHECKING:
    import socket
    from pathlib import Path

__all__ = ["HeadRule", "KeySource", "main"]

SIGNATURE_SIZE = 64
SECRET_SIZE, SEALED_SIZE, PUBLIC_SIZE = 32, 80, 32


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


@dataclass(slots=True)
class SecretRule:
    """The run's seed is sealed once and a recorded one opened once, before anything is signed."""

    did_wrap: bool = False
    did_unwrap: bool = False

    def wrapped(self, heads: HeadRule, key: SigningKey, secret: bytes) -> Wrapped:
        """Seal a seed."""
        if self.did_wrap or heads.last is not None:
            return Wrapped(errno.EPERM, bytes(PUBLIC_SIZE), bytes(SEALED_SIZE))
        self.did_wrap = True
        return Wrapped(0, *wrap(secret, key.sealing()))

    def unwrapped(self, heads: HeadRule, key: SigningKey, sealed: bytes) -> Unwrapped:
        """Open a seed."""
        if self.did_unwrap or heads.last is not None:
            return Unwrapped(errno.EPERM, bytes(SECRET_SIZE))
        self.did_unwrap = True
        secret = unwrap(sealed, key.sealing())
        if secret is None or len(secret) != SECRET_SIZE:
            return Unwrapped(errno.EKEYREJECTED, bytes(SECRET_SIZE))
        return Unwrapped(0, secret)


def main(sock: socket.socket, source: KeySource, *, uid: int, gid: int) -> NoReturn:
    """Be the signer. Call it in a child right after fork, as root; it never returns.

    A key that cannot be used is told on stderr, as hark's other errors are; the command line sees
    end of file instead of HARK_MSG_SIGNER_READY. Exit status: 0 after end of file.
    """
    code = limits.EXIT_BUG
    try:
        privileges.kept_apart("hark-signer")
        key = load_key(source)
        warm_up(key)
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


def warm_up(key: SigningKey) -> None:
    """Have everything imported that is needed later: as another user no file can be opened."""
    _, sealed = wrap(bytes(SECRET_SIZE), key.sealing())
    unwrap(sealed, key.sealing())
    unwrap(bytes(SEALED_SIZE), key.sealing())


def serve(channel: Channel, key: SigningKey) -> None:
    """Say who signs, then answer until the recorder closes its end. Returns at end of file."""
    channel.send(SignerReady(key.public))
    rule = HeadRule()
    secrets = SecretRule()
    while True:
        try:
            got = channel.recv(None)
        except PeerClosed:
            return
        if got is None:
            continue
        got.close()
        match got.msg:
            case Sign():
                channel.send(answer(rule, key, got.msg.statement), ident=got.ident)
            case Wrap():
                channel.send(secrets.wrapped(rule, key, got.msg.secret), ident=got.ident)
            case Unwrap():
                channel.send(secrets.unwrapped(rule, key, got.msg.sealed), ident=got.ident)
            case _:
                raise PeerBroken(f"{type(got.msg).__name__} message to the signer")


def answer(rule: HeadRule, key: SigningKey, statement: bytes) -> Signed:
    """Return the signature over the context and the statement, or EPERM."""
    if not rule.admit(statement):
        return Signed(errno.EPERM, bytes(SIGNATURE_SIZE))
    return Signed(0, key.sign_head(statement))


def load_key(source: KeySource) -> SigningKey:
    """Read the key, or make the host's. Raises InputError for a file that is no Ed25519 key."""
    if source.path is not None:
        return host_key(source.path)
    with os.fdopen(source.fd, "rb") as file:
        return parse_key(file.read(limits.KEY_FILE_MAX_BYTES + 1))


def parse_key(pem: bytes) -> SigningKey:
    """Read the unencrypted PKCS #8 PEM of --key."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - slow, and only here
    from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415

    hint = "make one with `hark keygen --out FILE`"
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError) as error:
        cause = "not PEM, or encrypted"
        raise InputError("the file of --key holds no signing key", cause, hint) from error
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise InputError("the file of --key holds no Ed25519 key", type(key).__name__, hint)
    return SigningKey(key)
