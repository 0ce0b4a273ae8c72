"""Proofs: self-contained, for every event, and refused when anything in them is changed."""

from __future__ import annotations

import copy
import json
import random
from typing import TYPE_CHECKING

import pytest
from bundle_making import CORES, KEY, RawWriter, made, small, split
from hypothesis import given, settings
from hypothesis import strategies as st

from hark.bundle import proof
from hark.bundle.format import DOMAINS
from hark.bundle.prover import prove
from hark.bundle.reader import Bundle
from hark.errors import BundleInvalid, InputError

if TYPE_CHECKING:
    from hark.bundle.core import Core

CORE = CORES[0]


def counted(count: int, *, seal: bool = True) -> bytes:
    def fill(writer: RawWriter) -> None:
        rand = random.Random(count)  # noqa: S311
        for i in range(count):
            writer.append(19, i, {2: i, 4: b"x" * rand.randrange(60)})
            if rand.randrange(40) == 0:
                writer.flush()
        writer.head()

    return made(fill, seal=seal)


@pytest.mark.parametrize("count", [1, 2, 3, 31, 255, 256, 257, 700, 1025])
def test_every_event_can_be_proved(count: int):
    with Bundle.from_bytes(counted(count)) as bundle:
        step = max(1, count // 60)
        for seq in {*range(0, count, step), count - 1, count // 2, min(255, count - 1)}:
            proven = proof.check(prove(bundle, seq), CORE)
            assert proven.payload[2] == seq
            assert proven.key == KEY.public
            assert proven.head.final


@pytest.mark.parametrize("core", CORES, ids=lambda core: core.name)
def test_forms_come_back(core: Core):
    with Bundle.from_bytes(small(), core=core) as bundle:
        item = prove(bundle, 20, bodies=True)
    assert proof.parse(item.encode()) == item
    assert proof.from_json(proof.to_json(item)) == item
    proven = proof.check(item, core)
    assert proven.bodies == (random.Random(4).randbytes(2500),)  # noqa: S311


def test_an_unsealed_bundle_proves_what_is_signed():
    data = counted(600, seal=False)
    with Bundle.from_bytes(data) as bundle:
        proven = proof.check(prove(bundle, 500), CORE)
        assert not proven.head.final
        assert proven.head.events == 600
    cut = data[: -len(data) // 3]
    with Bundle.from_bytes(cut) as bundle, pytest.raises(InputError, match="not under a signed"):
        prove(bundle, 1)


def test_proofs_agree_with_the_published_tree_rules():
    """The path of event 5 of 7: its sibling, then the pair before, and two other peaks."""
    with Bundle.from_bytes(counted(7)) as bundle:
        item = prove(bundle, 5)
        assert (len(item.path), len(item.peaks)) == (1, 2)
        leaf = proof.leaf_of(item, CORE)
        node = CORE.keyed(DOMAINS.node, item.path[0] + leaf)
        peaks = item.peaks[0] + node + item.peaks[1]
        root = CORE.keyed(DOMAINS.root, (7).to_bytes(8, "big") + peaks)
        assert root == proof.check(item, CORE).head.root


def test_wrong_numbers():
    with Bundle.from_bytes(counted(9)) as bundle:
        for seq in (-1, 9, 1 << 70):
            with pytest.raises(InputError):
                prove(bundle, seq)


def proof_of_small() -> dict:
    with Bundle.from_bytes(small()) as bundle:
        return json.loads(proof.to_json(prove(bundle, 20, bodies=True)))


def test_every_changed_field_is_refused():
    value = proof_of_small()
    for name in value:
        for other in ("", "00", 7, [], None, -1, "zz", {}, [[1]], 1 << 70, True):
            changed = copy.deepcopy(value)
            if changed[name] == other:
                continue
            changed[name] = other
            if name == "bodies" and other is None:
                continue  # without bodies it is the smaller proof
            with pytest.raises(BundleInvalid):
                proof.check(proof.from_json(json.dumps(changed)), CORE)
        missing = {key: item for key, item in value.items() if key != name}
        if name != "bodies":
            with pytest.raises(BundleInvalid):
                proof.check(proof.from_json(json.dumps(missing)), CORE)
    with pytest.raises(BundleInvalid):
        proof.from_json(json.dumps(value | {"more": 1}))


def test_every_flipped_byte_is_refused():
    with Bundle.from_bytes(small()) as bundle:
        data = prove(bundle, 3).encode()
    for at in range(len(data)):
        for mask in (1, 0x80):
            changed = bytearray(data)
            changed[at] ^= mask
            with pytest.raises(BundleInvalid):
                proof.check(proof.parse(bytes(changed)), CORE)


def test_proof_of_another_head_is_refused():
    """A path to a root nobody signed: the attack of a proof that brings its own root."""
    with Bundle.from_bytes(small()) as bundle, Bundle.from_bytes(counted(31)) as other:
        mine, theirs = prove(bundle, 3), prove(other, 3)
    value = json.loads(proof.to_json(mine)) | {"head": theirs.head.hex()}
    with pytest.raises(BundleInvalid):
        proof.check(proof.from_json(json.dumps(value)), CORE)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_no_proof(data: bytes):
    with pytest.raises(BundleInvalid):
        proof.check(proof.parse(data), CORE)


@settings(max_examples=300, deadline=None)
@given(
    st.text(max_size=100)
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps)
)
def test_any_text_is_no_proof(text: str):
    with pytest.raises(BundleInvalid):
        proof.check(proof.from_json(text), CORE)


def test_an_index_that_lies_is_caught_by_the_prover():
    parts = split(counted(700))
    at = next(i for i, (kind, _) in enumerate(parts) if kind == "i")
    body = bytearray(parts[at][1])
    body[-40] ^= 1  # the node over events 256 to 511, a sibling on the path
    parts[at] = ("i", bytes(body))
    from bundle_making import join  # noqa: PLC0415

    with Bundle.from_bytes(join(parts)) as bundle, pytest.raises(BundleInvalid):
        prove(bundle, 10)
