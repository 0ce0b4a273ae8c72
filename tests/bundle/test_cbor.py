"""Strict CBOR: one encoding a value, the same judgement in C and in Python."""

from __future__ import annotations

from typing import Any

import pytest
from bundle_hostile import RAW
from bundle_making import CORES
from hypothesis import given, settings
from hypothesis import strategies as st

from hark.bundle import cbor
from hark.bundle.cbor import BlobRef, CborError, CborFault

NATIVE, PURE = CORES

numbers = st.integers(-(1 << 63), (1 << 64) - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
references = st.builds(
    BlobRef,
    st.integers(0, 1 << 40),
    st.binary(min_size=32, max_size=32),
    st.lists(st.tuples(st.integers(0, 99), st.integers(1, 9)), max_size=3).map(tuple),
)
scalars = st.none() | st.booleans() | numbers | st.binary(max_size=40) | texts | references
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.integers(0, 1 << 40), inner, max_size=4)
        | st.dictionaries(texts, inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=400, deadline=None)
@given(values)
def test_what_is_written_is_canonical_and_comes_back(value: Any):
    data = cbor.encode(value)
    assert NATIVE.check_cbor(data) is PURE.check_cbor(data) is CborFault.OK
    assert cbor.decode(data) == value
    assert cbor.encode(cbor.decode(data)) == data


@settings(max_examples=1500, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_judged_alike(data: bytes):
    fault = NATIVE.check_cbor(data)
    assert fault is PURE.check_cbor(data)
    if fault is CborFault.OK:
        assert cbor.encode(cbor.decode(data)) == data


@settings(max_examples=800, deadline=None)
@given(values, st.data())
def test_a_changed_encoding_is_judged_alike(value: Any, data: bytes):
    encoded = bytearray(cbor.encode(value))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] = data.draw(st.integers(0, 255))
    changed = bytes(encoded)
    fault = NATIVE.check_cbor(changed)
    assert fault is PURE.check_cbor(changed)
    if fault is CborFault.OK:
        assert cbor.encode(cbor.decode(changed)) == changed


@pytest.mark.parametrize("name", RAW)
def test_everything_else_is_refused(name: str):
    data = bytes.fromhex(RAW[name])
    fault = NATIVE.check_cbor(data)
    assert fault is not CborFault.OK
    assert fault is PURE.check_cbor(data)
    with pytest.raises(CborError):
        cbor.decode(data)


def test_byte_for_byte_growth_is_short_until_it_is_whole():
    data = cbor.encode({1: [1, b"abc", "dé"], 2: BlobRef(5, bytes(32), ((0, 2),)), 3: 1 << 40})
    for core in CORES:
        faults = [core.check_cbor(data[:n]) for n in range(len(data) + 1)]
        assert faults[-1] is CborFault.OK
        assert set(faults[:-1]) <= {CborFault.SHORT, CborFault.UTF8}


def test_names_of_faults_match_the_header():
    from hark._native import lib  # noqa: PLC0415

    for fault in CborFault:
        assert getattr(lib, f"HARK_CBOR_{fault.name}") == fault
