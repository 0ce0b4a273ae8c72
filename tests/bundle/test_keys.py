"""Keys: private to their owner, never replaced, and what is said about a signer."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from bundle_making import KEY, OTHER, small, verified
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from hark.bundle.keys import SigningKey, Trust, host_key, load_trust, parse_public
from hark.bundle.verify import Verdict
from hark.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path


def test_host_key_is_made_once_and_private(tmp_path: Path):
    path = tmp_path / "etc" / "key.pem"
    first = host_key(path)
    assert host_key(path).public == first.public
    assert path.stat().st_mode & 0o777 == 0o600
    public = path.with_suffix(".pub")
    assert public.stat().st_mode & 0o777 == 0o644
    assert parse_public(public.read_text()) == first.public
    assert sorted(p.name for p in path.parent.iterdir()) == ["key.pem", "key.pub"]
    loaded = serialization.load_pem_private_key(path.read_bytes(), None)
    assert isinstance(loaded, ed25519.Ed25519PrivateKey)


def test_a_key_that_others_can_read_is_refused(tmp_path: Path):
    SigningKey.generate().save(tmp_path / "k")
    (tmp_path / "k").chmod(0o640)
    with pytest.raises(InputError, match="read by others"):
        SigningKey.load(tmp_path / "k")


def test_files_that_are_no_keys(tmp_path: Path):
    def private(name: str, data: bytes) -> Path:
        path = tmp_path / name
        fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(fd, data)
        os.close(fd)
        return path

    p256 = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    locked = ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    for name, data in {"p256": p256, "locked": locked, "junk": b"junk", "empty": b""}.items():
        with pytest.raises(InputError):
            SigningKey.load(private(name, data))
    with pytest.raises(InputError, match="cannot read"):
        SigningKey.load(tmp_path / "missing")
    with pytest.raises(InputError, match="not a key file"):
        SigningKey.load(tmp_path)
    (tmp_path / "link").symlink_to(private("real", SigningKey.generate().pem()))
    with pytest.raises(InputError, match="cannot read"):
        SigningKey.load(tmp_path / "link")


def test_keys_are_never_replaced(tmp_path: Path):
    SigningKey.generate().save(tmp_path / "k")
    before = (tmp_path / "k").read_bytes()
    with pytest.raises(InputError, match="exists"):
        SigningKey.generate().save(tmp_path / "k")
    assert (tmp_path / "k").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["k", "k.pub"]


def test_words_about_the_signer():
    key = KEY.public
    assert Trust(own=key).classify(key).text == "signed by this host's key"
    assert Trust(trusted={key: "build farm"}).classify(key).text == "signed by build farm (trusted)"
    assert Trust(trusted={key: ""}).classify(key).text == f"signed by {key.hex()} (trusted)"
    assert Trust().classify(key).text == "signed by an unknown key"


@pytest.mark.parametrize(
    ("trust", "verdict"),
    [
        (Trust(), Verdict.VERIFIED),
        (Trust(require=True), Verdict.REJECTED),
        (Trust(own=KEY.public, require=True), Verdict.VERIFIED),
        (Trust(trusted={KEY.public: "x"}, require=True), Verdict.VERIFIED),
        (Trust(pins=frozenset((KEY.public,)), require=True), Verdict.VERIFIED),
        (Trust(pins=frozenset((OTHER.public,))), Verdict.REJECTED),
        (Trust(own=KEY.public, pins=frozenset((OTHER.public,))), Verdict.REJECTED),
    ],
)
def test_what_is_refused(trust: Trust, verdict: Verdict):
    assert verified(small(), trust=trust).verdict is verdict


def test_a_required_signature_must_be_there():
    """Cut before the first head: the header names a trusted key, but nothing is signed."""
    from bundle_making import join, split  # noqa: PLC0415

    data = join(split(small())[:1])
    trust = Trust(own=KEY.public, require=True)
    assert verified(data).verdict is Verdict.TRUNCATED
    assert verified(data, trust=trust).verdict is Verdict.REJECTED


def test_trusted_keys_file(tmp_path: Path):
    path = tmp_path / "trusted"
    path.write_text(f"# farm\n{KEY.public.hex()} build farm  # one\n\n{OTHER.public.hex()}\n")
    trust = load_trust(host=tmp_path / "none", trusted=path)
    assert trust.trusted == {KEY.public: "build farm", OTHER.public: ""}
    path.write_text("abc\n")
    with pytest.raises(InputError, match="not a public key"):
        load_trust(host=tmp_path / "none", trusted=path)
    with pytest.raises(InputError, match="cannot read"):
        load_trust(host=tmp_path / "none", trusted=tmp_path / "missing")


def test_own_key_is_found_by_its_public_half_or_by_root(tmp_path: Path):
    key = host_key(tmp_path / "key.pem")
    assert load_trust(host=tmp_path / "key.pem").own == key.public
    (tmp_path / "key.pub").unlink()
    assert load_trust(host=tmp_path / "key.pem").own == key.public
    assert load_trust(host=tmp_path / "none.pem").own is None
