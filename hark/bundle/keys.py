"""Signing keys, trusted keys, and what may be said about a signer.

Rules: a private key is read from a file that only its owner can read, and never printed. The host
key lies at ``HOST_KEY``; its public half beside it is world-readable, so that anybody may verify.
Who signs is one of three: this host, a trusted key, or unknown; the words never vary.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from hark import limits
from hark.bundle.format import HEAD_CONTEXT
from hark.errors import InputError
from hark.locations import HOST_KEY, TRUSTED_KEYS

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = [
    "Signer",
    "SignerKind",
    "SigningKey",
    "Trust",
    "host_key",
    "load_trust",
    "parse_public",
]

_PUBLIC_SIZE = 32
_SEALING = "hark 2026-12 X25519 key of a signing key"


class SigningKey:
    """An Ed25519 private key."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = key.public_key().public_bytes_raw()

    @classmethod
    def generate(cls) -> SigningKey:
        """Make a fresh key."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415 - slow
            Ed25519PrivateKey,
        )

        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_seed(cls, seed: bytes) -> SigningKey:
        """Return the key of a 32-byte seed; for vectors."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415 - slow
            Ed25519PrivateKey,
        )

        return cls(Ed25519PrivateKey.from_private_bytes(seed))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SigningKey:
        """Read a PKCS #8 PEM file; raises ``InputError``."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415 - slow
            Ed25519PrivateKey,
        )
        from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
            load_pem_private_key,
        )

        data = _read_private(path)
        try:
            key = load_pem_private_key(data, password=None)
        except (ValueError, TypeError) as error:
            raise InputError(f"{os.fspath(path)} is not a private key", str(error)) from None
        if not isinstance(key, Ed25519PrivateKey):
            raise InputError(
                f"{os.fspath(path)} is not an Ed25519 key",
                hint="make one with `hark keygen --out FILE`",
            )
        return cls(key)

    def sign_head(self, head: bytes) -> bytes:
        """Return the signature over the 128 bytes of a head."""
        return self._key.sign(HEAD_CONTEXT + head)

    def sign(self, context: bytes, message: bytes) -> bytes:
        """Return the signature over ``context`` and ``message``."""
        return self._key.sign(context + message)

    def sealing(self) -> bytes:
        """Return the X25519 private key (32 bytes) of who holds this key (spec, "Sealed seeds").

        Derived, so that a host has one secret to keep; one way, so that it gives nothing away.
        """
        from blake3 import blake3  # noqa: PLC0415 - verifying needs none of this

        return blake3(self._key.private_bytes_raw(), derive_key_context=_SEALING).digest()

    def pem(self) -> bytes:
        """Return the PKCS #8 PEM form."""
        from cryptography.hazmat.primitives import serialization as ser  # noqa: PLC0415 - slow

        return self._key.private_bytes(
            ser.Encoding.PEM, ser.PrivateFormat.PKCS8, ser.NoEncryption()
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write PEM (0600) to ``path`` and the public half to ``path.pub``; replaces nothing."""
        name = os.fspath(path)
        _write_new(name, self.pem(), 0o600)
        _write_new(f"{name}.pub", self.public.hex().encode() + b"\n", 0o644)


def _read_private(path: str | os.PathLike[str]) -> bytes:
    name = os.fspath(path)
    try:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise InputError(f"cannot read the key {name}", error.strerror or str(error)) from None
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or info.st_size > limits.KEY_FILE_MAX_BYTES:
            raise InputError(f"{name} is not a key file")
        if info.st_mode & 0o077:
            raise InputError(
                f"the key {name} may be read by others",
                f"its mode is {stat.S_IMODE(info.st_mode):04o}",
                f"chmod 600 {name}, or make a new key if others had access",
            )
        return os.read(fd, limits.KEY_FILE_MAX_BYTES)
    finally:
        os.close(fd)


def _write_new(name: str, data: bytes, mode: int) -> None:
    """Create ``name`` complete or not at all; an existing file is an ``InputError``."""
    fresh = f"{name}.{os.getpid()}.new"
    try:
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        try:
            os.fchmod(fd, mode)
            os.write(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
        try:
            os.link(fresh, name)
        finally:
            Path(fresh).unlink()
    except FileExistsError:
        raise InputError(f"{name} exists", "a key is never overwritten") from None
    except OSError as error:
        raise InputError(f"cannot write {name}", error.strerror or str(error)) from None


def host_key(path: Path = HOST_KEY) -> SigningKey:
    """Return this host's key; made on first use, by root."""
    if not path.exists():
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        try:
            _write_new(os.fspath(path), SigningKey.generate().pem(), 0o600)
        except InputError:
            if not path.exists():  # else another run made it meanwhile
                raise
    key = SigningKey.load(path)
    public = public_path(path)
    if not public.exists():
        try:
            _write_new(os.fspath(public), key.public.hex().encode() + b"\n", 0o644)
        except InputError:
            if not public.exists():
                raise
    return key


def public_path(path: Path) -> Path:
    """Return where the public half of the key at ``path`` lies."""
    return path.with_suffix(".pub")


def parse_public(text: str) -> bytes:
    """Return the 32 bytes of a public key in hexadecimal; raises ``InputError``."""
    try:
        key = bytes.fromhex(text.strip())
    except ValueError:
        key = b""
    if len(key) != _PUBLIC_SIZE:
        raise InputError(
            f"not a public key: {text.strip()[:80]!r}",
            "an Ed25519 public key has 64 hexadecimal digits",
        )
    return key


class SignerKind(Enum):
    """How well a key is known."""

    OWN = "own"
    TRUSTED = "trusted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Signer:
    """Who signed, and the sentence that says so."""

    kind: SignerKind
    key: bytes
    name: str = ""
    pinned: bool = False

    @property
    def known(self) -> bool:
        """Whether it is this host, trusted, or pinned."""
        return self.kind is not SignerKind.UNKNOWN

    @property
    def text(self) -> str:
        """Return the line ``verify`` begins with."""
        if self.kind is SignerKind.OWN:
            return "signed by this host's key"
        if self.kind is SignerKind.TRUSTED:
            return f"signed by {self.name or self.key.hex()} (trusted)"
        return "signed by an unknown key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Which keys are known: this host's, trusted ones by name, and those pinned for this call.

    With ``pins`` any other key is refused; with ``require`` an unknown one is.
    """

    own: bytes | None = None
    trusted: dict[bytes, str] = field(default_factory=dict)
    pins: frozenset[bytes] = frozenset()
    require: bool = False

    def classify(self, key: bytes) -> Signer:
        """Say who ``key`` belongs to."""
        pinned = key in self.pins
        if key == self.own:
            return Signer(SignerKind.OWN, key, pinned=pinned)
        if key in self.trusted:
            return Signer(SignerKind.TRUSTED, key, self.trusted[key], pinned)
        if pinned:
            return Signer(SignerKind.TRUSTED, key, pinned=True)
        return Signer(SignerKind.UNKNOWN, key)

    def refusal(self, signer: Signer, *, signed: bool) -> str:
        """Return why a bundle of ``signer`` is refused; empty when it is not."""
        if self.pins and not signer.pinned:
            return "signed by another key than the one asked for"
        if self.require and not signed:
            return "nothing in it is signed"
        if self.require and signer.kind is SignerKind.UNKNOWN:
            return "its signer is neither this host, nor trusted, nor named with --key"
        return ""


def load_trust(
    *,
    host: Path = HOST_KEY,
    trusted: Path | None = None,
    pins: tuple[str, ...] = (),
    require: bool = False,
) -> Trust:
    """Read what is known about keys. Missing default files are no error, named ones are.

    A trusted-keys file has one key a line: 64 hexadecimal digits, then a name; ``#`` comments.
    """
    own = _own_public(host)
    keys: dict[bytes, str] = {}
    if trusted is not None or _readable(TRUSTED_KEYS):
        keys = _read_trusted(trusted or TRUSTED_KEYS)
    return Trust(
        own=own, trusted=keys, pins=frozenset(parse_public(p) for p in pins), require=require
    )


def _own_public(path: Path) -> bytes | None:
    """Return this host's public key; root may also take it from the private one."""
    try:
        return parse_public(public_path(path).read_text())
    except (OSError, ValueError, InputError):
        pass
    try:
        return SigningKey.load(path).public
    except InputError:
        return None


def _readable(path: Path) -> bool:
    return os.access(path, os.R_OK)


def _read_trusted(path: Path) -> dict[bytes, str]:
    try:
        with path.open() as file:
            text = file.read(limits.KEY_FILE_MAX_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the trusted keys {path}", str(error)) from None
    keys = {}
    for line in text.splitlines():
        words = line.split("#", 1)[0].split(None, 1)
        if words:
            keys[parse_public(words[0])] = words[1].strip() if len(words) > 1 else ""
    return keys
